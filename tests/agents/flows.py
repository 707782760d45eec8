"""Helpers for tests of agents in flows: a flow in a folder, tools, a scripted model."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flowengine import Engine
from flowengine.agents.models.registry import register, unregister
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.sdk.texts.untrusted import unmarked

NAME = "scripted/test"
TOOLS = '''
from pathlib import Path

def note(line):
    with open(Path(__file__).with_name("called.txt"), "a") as file:
        file.write(line + "\\n")

def add(a: int, b: int) -> int:
    """Add two numbers."""
    note(f"add {a} {b}")
    return a + b

def boom(why: str) -> str:
    """Fail."""
    note("boom")
    raise ZeroDivisionError(f"division by zero: {why}")
'''
BEGIN = f"""
flowengine: 1
id: f
inputs: {{q: {{type: string, default: What is 1 + 2?}}}}
defaults: {{model: {NAME}}}
"""
HEAD = f"""{BEGIN}tools:
  add: {{python: "tools:add"}}
  boom: {{python: "tools:boom"}}
"""
ASKING = HEAD.replace('"tools:add"}', '"tools:add", approval: {edit: true}}')
STEPS = """
steps:
  - {id: ask, agent: first, with: {prompt: "${{ inputs.q }}"}}
outputs: {answer: "${{ steps.ask.output }}", agent: "${{ steps.ask.agent }}"}
"""


def call(name: str, id: str = "", /, **arguments: Any) -> dict[str, Any]:
    """Return a call for a scripted reply."""
    return {"name": name, "arguments": arguments, "id": id}


def flow(agents: str, steps: str = STEPS, head: str = HEAD) -> str:
    """Return the text of a flow. `agents` is the YAML below `agents:`."""
    below = textwrap.indent(textwrap.dedent(agents).strip(), "  ")
    return f"{head.strip()}\nagents:\n{below}\n{steps.strip()}\n"


class Case:
    """A flow in a folder, with a scripted model."""

    def __init__(self, folder: Path, text: str, script: Sequence[Any], **model: Any) -> None:
        self.folder = folder
        self.path = folder / "flow.yaml"
        self.path.write_text(text)
        if not (folder / "tools.py").exists():
            (folder / "tools.py").write_text(TOOLS)
        self.model = ScriptedModel(script, **model)
        self.engine: Engine | None = None
        self.id = ""

    def run(self, inputs: Mapping[str, Any] | None = None) -> Any:
        """Run the flow to its end."""
        with self.engine_open() as engine:
            result = engine.run(self.path, inputs)
            self.id = result.execution
        return result

    @contextmanager
    def engine_open(self) -> Iterator[Engine]:
        """Open an engine on the folder's store, with the model registered."""
        register(NAME, self.model)
        try:
            with Engine(self.folder / "store.db", workdir=self.folder) as engine:
                yield engine
        finally:
            unregister(NAME)

    @property
    def called(self) -> list[str]:
        """Calls recorded by the tools."""
        path = self.folder / "called.txt"
        return path.read_text().splitlines() if path.exists() else []

    def sent(self, number: int) -> list[dict[str, Any]]:
        """Return the messages of a request, counted from 0, without marks around untrusted text."""
        return without_marks(self.model.requests[number].messages)

    def sent_with_marks(self, number: int) -> list[dict[str, Any]]:
        """Return the messages of a request as sent to the model."""
        return [dict(one) for one in self.model.requests[number].messages]

    def offered(self, number: int) -> list[str]:
        """Return the names of the tools offered in a request."""
        return [one.name for one in self.model.requests[number].tools]

    def answers(self, number: int) -> list[str]:
        """Return the results of the calls in the last reply before a request."""
        messages = self.sent(number)
        at = max(n for n, one in enumerate(messages) if one["role"] == "assistant")
        return [one["content"] for one in messages[at + 1 :]]

    def results(self, number: int) -> list[str]:
        """Return the results of all calls before a request."""
        return [one["content"] for one in self.sent(number) if one["role"] == "tool"]

    def addresses(self) -> list[str]:
        """Return the addresses of all steps."""
        with self.engine_open() as engine:
            return [step["address"] for step in engine.executions.show(self.id)["steps"]]

    def journal(self) -> list[dict[str, Any]]:
        """Return all events."""
        with self.engine_open() as engine:
            return list(engine.executions.events(self.id))


def without_marks(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages without the marks around untrusted text."""
    found = [dict(one) for one in messages]
    for one in found:
        if isinstance(one["content"], str):
            one["content"] = unmarked(one["content"])
    return found


def told(messages: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return role and content of messages."""
    return [(one["role"], one["content"]) for one in messages]


def as_json(value: Any) -> str:
    return json.dumps(value, default=str)
