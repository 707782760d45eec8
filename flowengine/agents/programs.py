"""Programs of models that call the tools of an agent (`code`).

A model is offered `run_program` in place of the tools. The program runs in an environment of kind
`python`. Its calls become calls of the agent, made by the same steps as those of a reply. Only what
it returns enters the conversation.
"""

from __future__ import annotations

import json
import keyword
import time
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowengine.agents.models.provider_schemas import wire_name
from flowengine.agents.text_calls.arguments import bind
from flowengine.agents.text_calls.marked_form import InvalidCall, TextCall, ToolOffer
from flowengine.agents.tool_answers import as_text, envelope
from flowengine.sdk import Plain, StepContext
from flowengine.sdk.call_answers import ERROR, tool_message
from flowengine.sdk.hook_results import call_seen
from flowengine.sdk.read_only import plain

if TYPE_CHECKING:
    from flowengine.agents.turns import AgentTurn

RUN = "run_program"
"""Name of the tool by which a model runs a program."""
PLACE = "python"
"""Name under which the step finds its environment."""
MOST_CALLS = 1_000
"""Maximum number of calls of one program."""
_LARGEST_RESULT = 1024 * 1024
"""Maximum bytes of a result that a program receives as data. A larger one is a reference."""
_AGAIN = "await program_round(inputs) if 'program_round' in globals() else None"
_TYPES = {
    "string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None",
    "array": "list", "object": "dict",
}  # fmt: skip


def step_of(agent: str) -> str:
    """Return the id of the step that runs an agent's programs.

    Args:
        agent: The agent.
    """
    return f"{agent}.program"


def functions(tools: Iterable[ToolOffer]) -> dict[str, ToolOffer]:
    """Return tools by the names of their functions in programs.

    Args:
        tools: The tools.
    """
    named: dict[str, ToolOffer] = {}
    for tool in tools:
        name = wire_name(tool.name).replace("-", "_")
        name = f"{name}_" if keyword.iskeyword(name) or name[:1].isdigit() else name
        while name in named:
            name += "_"
        named[name] = tool
    return named


def offer(tools: Mapping[str, ToolOffer]) -> ToolOffer:
    """Return the tool that runs programs.

    Args:
        tools: The tools that programs can call, by the names of their functions.
    """
    written = "\n\n".join(_signature(name, tool) for name, tool in tools.items())
    code: Plain = {"type": "string", "description": "The program."}
    return ToolOffer(
        RUN,
        "Runs a Python program that calls tools, and returns its last expression or what it "
        "returns with 'return'. You see only that and what it prints, so return little. Tools are "
        "coroutines: 'await' each, or several at once with asyncio.gather. A failed call raises "
        f"ToolError. The same answers must lead to the same calls. The tools:\n\n{written}",
        {
            "type": "object",
            "properties": {"code": code},
            "required": ["code"],
            "additionalProperties": False,
        },
    )


def _signature(name: str, tool: ToolOffer) -> str:
    """Return the head of a tool's function, with its description."""
    required = tool.schema.get("required", ())
    parameters = []
    notes = [tool.description] if tool.description else []
    for called, schema in tool.schema["properties"].items():
        default = repr(schema["default"]) if "default" in schema else "..."
        more = "" if called in required else f" = {default}"
        parameters.append(f"{called}: {_type(schema)}{more}")
        if schema.get("description"):
            notes.append(f"{called}: {schema['description']}")
    about = "".join(f"\n    # {line}" for note in notes for line in note.splitlines())
    return f"async def {name}({', '.join(parameters)}){about}"


def _type(schema: Any) -> str:
    """Return a JSON Schema as a type of Python, as exact as one line allows."""
    if not isinstance(schema, Mapping):
        return "Any"
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return f"Literal[{', '.join(map(repr, values))}]"
    parts = schema.get("anyOf") or schema.get("oneOf")
    if parts:
        return " | ".join(dict.fromkeys(map(_type, parts)))
    kinds = schema.get("type", "Any")
    if isinstance(kinds, list):
        return " | ".join(_TYPES.get(kind, "Any") for kind in kinds)
    if kinds == "array" and "items" in schema:
        return f"list[{_type(schema['items'])}]"
    fields = schema.get("properties")
    if kinds == "object" and fields:
        return f"{{{', '.join(f'{key!r}: {_type(one)}' for key, one in fields.items())}}}"
    return _TYPES.get(str(kinds), "Any")


@cache
def _driver() -> str:
    return Path(__file__).with_name("program_in_sandbox.py").read_text()


class ProgramRound:
    """One round of a program: from the answers to its calls to its next calls, or to its end.

    Args:
        context: The attempt, with the state of the flow.
        turn: The offer of the agent.
    """

    def __init__(self, context: StepContext, turn: AgentTurn) -> None:
        self.context = context
        self.turn = turn
        state = plain(context.state)
        known = state["program"]
        step = step_of(turn.name)
        self.call: Mapping[str, Any] = (
            known["call"] if known else next(one for one in state["calls"] if one["step"] == step)
        )
        self.began = known.get("began") or time.time()
        begun = known["begun"] if known else len(state["program_calls"])
        made = zip(state["program_calls"][begun:], state["program_answers"][begun:], strict=True)
        self.answers = [
            {
                "name": call["function"],
                "args": call.get("given", call.get("args")),
                **self._seen(answer),
            }
            for call, answer in made
        ]
        self.before = known["since"] - known["begun"] if known else 0

    def _seen(self, answer: Mapping[str, Any]) -> dict[str, Plain]:
        """Return the result of a call or its error. A large result is in a file."""
        seen = call_seen(answer, as_text)
        kept, content = seen["result"], str(answer["messages"][0]["content"])
        if isinstance(kept, Mapping) and str(kept.get("sha256")) in content:
            path = Path(self.context.execution.artifacts.path(str(kept["sha256"])))
            if path.stat().st_size <= _LARGEST_RESULT:
                text = path.read_text(errors="replace")
                is_text = kept.get("name") == "result.txt"
                return {**seen, "result": text if is_text else json.loads(text)}
        return seen

    async def output(self) -> dict[str, Plain]:
        """Run the round, and return the output of its step."""
        made, fault = await self._made()
        if fault:
            return self._ended(fault, "")
        if not isinstance(made, Mapping):
            return self._ended("its calls or its result are too large", "")
        asks, printed = made.get("asks"), made.get("printed", "")
        if isinstance(asks, list) and asks:
            if len(self.answers) + len(asks) > MOST_CALLS:
                return self._ended(f"it made more than {MOST_CALLS} calls", "")
            calls = [self._call(number, ask) for number, ask in enumerate(asks, 1)]
            return {"asks": calls, **({} if self.answers else {"began": self.began})}
        if "error" in made:
            return self._ended(str(made["error"]), printed)
        return self._ended("", printed, made.get("value"))

    async def _made(self) -> tuple[Any, str]:
        """Return the result of a round, and the cause if it failed."""
        python = self.context.resources[PLACE]
        key = f"{self.context.execution.id} {self.call['id']} {self.began}"
        given: dict[str, Plain] = {"key": key}
        if self.answers:
            given |= {"before": self.before, "answers": self.answers[self.before :]}
            result = await python.async_run(_AGAIN, given)
            if result.error is not None or result.value is not None:
                return result.value, _fault(result)
        given |= {
            "before": 0,
            "answers": self.answers,
            "code": self.call["args"]["code"],
            "tools": {name: [*tool.schema["properties"]] for name, tool in self.turn.inner.items()},
            "seed": str(self.call["id"]),
            "began": self.began,
        }
        result = await python.async_run(f"{_driver()}\nawait program_round(inputs)", given)
        return result.value, _fault(result)

    def _call(self, number: int, ask: Any) -> dict[str, Plain]:
        """Return a call of the program as one of a reply. An invalid one is refused."""
        made: Mapping[str, Any] = ask if isinstance(ask, Mapping) else {}
        function, given = str(made.get("name", ""))[:64], made.get("args")
        call: dict[str, Plain] = {
            "place": str(number),
            "handoff": "",
            "id": f"{self.call['id']}.{len(self.answers) + number}",
            "function": function,
        }
        bound, _ = bind(TextCall(function, given), self.turn.inner)
        if isinstance(bound, InvalidCall):
            from flowengine.agents.generated_calls import refused

            message = tool_message(call["id"], function, f"{ERROR}{bound.message}")
            shown = f"{function!r} was not called: {bound.message}"
            step = refused(self.turn.name)
            return {**call, "given": given, "step": step, "messages": [message], "refused": shown}
        if bound.arguments != given:
            call["given"] = given
        step = self.turn.steps[bound.name]
        return {**call, "step": step, "name": bound.name, "args": bound.arguments}

    def _ended(self, fault: str, printed: Any, value: Plain = None) -> dict[str, Plain]:
        """Return the message that answers the call of the model."""
        said = f"\n\nIt printed:\n{printed}" if printed else ""
        text = fault if fault else value if isinstance(value, str) else as_text(value)
        task: dict[str, Plain] = {"source": RUN}
        made: Any = envelope(self.context, task, f"{text}{said}", lambda *_: None)["envelope"]
        content = f"{ERROR if fault else ''}{made['content']}"
        return {"messages": [tool_message(self.call["id"], RUN, content)]}


def _fault(result: Any) -> str:
    """Return why the program was ended, or the empty text."""
    error = result.error
    return "" if error is None else f"{error.type}: {error.message}"
