"""Compilation of agents to the flow that runs them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from json import dumps
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.agents.agent_declarations import declarations
from flowengine.agents.turn_limit import TURNS, turn_limit
from flowengine.errors import FlowFileError, UsageError
from flowengine.flow.building.flow import Flow
from flowengine.flow.building.references import folder_of, reference
from flowengine.flow.models.types import in_generated
from flowengine.flow.source.diagnostics import Loc, Position
from flowengine.python_modules import MAIN, import_function
from flowengine.sdk import Plain
from flowengine.sdk.literal_text import literal_text
from flowengine.sdk.python_functions.signature import Signature

if TYPE_CHECKING:
    from flowengine.agents.agent import Agent
    from flowengine.engines.flows import LoadedFlow

STEP = "run"
OUTCOMES = ("resolved", "not_resolved", "max_turns", "budget", "tools_not_executed")


@dataclass(frozen=True)
class AgentsFlow:
    """The flow that runs agents, and the Python objects that it refers to."""

    flow: LoadedFlow
    agents: Mapping[str, Agent]
    """Id in the flow → agent."""
    live: Mapping[str, Any]
    """Key → function, for functions that other processes cannot find."""


def described(
    agents: Sequence[Agent],
    *,
    model: str | None = None,
    max_turns: int | Mapping[str, Any] = TURNS,
    execute_tools: bool = True,
    chat: bool = False,
    budget: Mapping[str, Any] | None = None,
    policies: Sequence[Mapping[str, Any]] = (),
) -> AgentsFlow:
    """Return the flow that runs agents, with the functions that exist only in this process.

    Args:
        agents: The agents. The first one starts. Handoff targets are found in their functions.
        model: Overrides the model of every agent.
        max_turns: Maximum model calls: a number, or `{"count": 10, "last": "answer"}`.
        execute_tools: Whether calls are run.
        chat: Whether the user is asked for the next message after each answer.
        budget: As in a flow.
        policies: As in a flow.

    Raises:
        UsageError: The flow has errors.
    """
    if not agents:
        raise UsageError("there is no agent to compile", hint="give at least one")
    references = _References(model)
    declared = declarations(agents, references)
    runs = {
        "name": declared.first,
        "max_turns": turn_limit(max_turns),
        "execute_tools": execute_tools,
        "chat": chat,
    }
    top: dict[str, Any] = {"policies": [*policies, *declared.policies]}
    if budget is not None:
        top["budget"] = budget
    try:
        # The files of skills may have changed since the flow was compiled.
        has_files = any(agent.skills for agent in declared.agents.values())
        load = _loaded.__wrapped__ if has_files else _loaded
        flow = load(dumps([declared.sections, top, runs]))
    except FlowFileError as error:  # the agents are not in a file
        first, *more = [diagnostic for diagnostic in error.diagnostics if not diagnostic.is_warning]
        if not more:
            raise UsageError(f"{first.file}: {first.message}", hint=first.hint) from error
        problems = [
            f"{item.file}: {item.message}" + (f" ({item.hint})" if item.hint else "")
            for item in (first, *more)
        ]
        raise UsageError("; ".join(problems)) from error
    return AgentsFlow(flow, declared.agents, references.live)


@lru_cache(maxsize=64)
def _loaded(content: str) -> LoadedFlow:
    """Return the compiled flow."""
    from json import loads

    from flowengine.engines.flows import load

    token = in_generated.set(True)
    try:
        return load(_flow(*loads(content)))
    finally:
        in_generated.reset(token)


def _flow(sections: dict[str, Any], top: dict[str, Any], runs: dict[str, Any]) -> Flow:
    flow = Flow(
        "agents",
        inputs={"messages": {"type": "array"}, "context": {"type": "object"}},
        limits={"activations": 1_000_000, "steps": 1_000_000},
        **top,
    )
    flow.places |= {(key,): _Declared(key) for key in top}
    for section, declared in sections.items():
        for name, declaration in declared.items():
            flow.declare(section, name, declaration)
            called = declaration.get("title", name)
            flow.places[section, name] = _Declared(f"{section.removesuffix('s')} {called!r}: ")
    flow.step(
        STEP,
        action={"python_agents": runs},
        with_={"messages": "${{ inputs.messages }}", "context_variables": "${{ inputs.context }}"},
        next={"outcome": dict.fromkeys(OUTCOMES, "end")},
    )
    flow.output("run", f"${{{{ steps.{STEP}.output }}}}")
    flow.output("outcome", f"${{{{ steps.{STEP}.outcome }}}}")
    return flow


class _Declared(NamedTuple):
    """The place of a declaration outside of files: its agent or tool."""

    owner: str
    """A prefix such as `agent 'Clerk': ` or `policies`."""

    def position(self, path: Loc, *, key: bool = False) -> Position:
        """Return the owner and the field of a declaration."""
        path = () if path[:1] == ("(generated)",) else path
        field = "".join(f"[{item}]" if isinstance(item, int) else f".{item}" for item in path)
        return Position(1, 1, 1, f"{self.owner}{field}".replace(": .", ": ").removesuffix(": "))

    def inside(self, path: Loc, offset: int, length: int) -> Position:
        """Return the field that contains a text."""
        return self.position(path)


class _References:
    """References to objects of the program. Functions that other processes cannot find are live.

    Args:
        instead: Overrides the models of all agents. None: each agent has its own.
    """

    case = True

    def __init__(self, instead: str | None) -> None:
        self.instead = instead
        self.live: dict[str, Any] = {}

    def model(self, agent: Agent) -> str:
        """Return the model of an agent."""
        return self.instead or agent.model

    def folder(self, path: str) -> str:
        """Return the path of a directory."""
        return path

    def tool(self, function: Any, preview: Any, key: str, signature: Signature) -> dict[str, Plain]:
        """Return the declaration of a tool that calls a function."""
        named = self._named(function, key)
        if preview is not None:
            named["preview"] = self._named(preview, f"{key}.preview")
        return {
            "agent_function": {"function": named},
            "args": literal_text(signature.args),
            "description": literal_text(signature.description) or None,
        }

    def type(self, type: Any, key: str) -> dict[str, Plain]:
        """Return the reference to a type."""
        return self._named(type, key)

    def instructions(self, function: Any, key: str, more: str) -> dict[str, Plain]:
        """Return the reference to a function that returns instructions."""
        return {**self._named(function, key), "then": more}

    def _named(self, function: Any, key: str) -> dict[str, Plain]:
        name = _refer(function)
        if name is None:
            self.live[key] = function
            return {"live": key}
        return {"name": name[0], "folder": name[1]}


def _refer(function: Any) -> tuple[str, str] | None:
    """Return the name and directory by which other processes can import a function, or None."""
    try:
        name = reference(function)
        module = function.__module__
        folder = folder_of(module, _file_of(function))
        value = import_function(name, folder)
    except Exception:
        return None  # a lambda, a method, or not from a file, and therefore live
    return (name, folder) if value is function and not name.startswith(f"{MAIN}:") else None


def _file_of(value: Any) -> str:
    """Return the file that defines a function or a class."""
    if isinstance(value, type):
        return str(sys.modules[value.__module__].__file__)
    return str(value.__code__.co_filename)
