"""The rounds of a program: from the answers to its calls to its next calls, or to its end."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from flowengine.agents.call_answers import ERROR, as_text, is_in_file, tool_message
from flowengine.agents.conversation import answers_to
from flowengine.agents.hook_results import call_seen
from flowengine.agents.programs import MOST_CALLS, PLACE, RUN, parameters
from flowengine.agents.text_calls.arguments import bind
from flowengine.agents.text_calls.marked_form import CallFault, ModelCall
from flowengine.agents.tool_answers import TEXT_FILE, envelope
from flowengine.agents.turns import AgentTurn
from flowengine.sdk import Plain, StepContext
from flowengine.sdk.texts.received import received_json
from flowengine.sdk.texts.sizes import size_text
from flowengine.sdk.values.read_only import plain

_LARGEST_RESULT = 1024 * 1024
"""Maximum bytes of a result that a program receives."""
_AT_ONCE = 4 * 1024 * 1024
"""Bytes of answers that are sent in one request."""
_PRINTED = 10_000
"""Maximum characters of a program's output that a model receives."""
_MODULES = "__import__('sys').modules"
_ROUND = f"{_MODULES}['flowengine_programs'].program_round(inputs)"
_AGAIN = f"{_ROUND} if 'flowengine_programs' in {_MODULES} else None"
_BEGIN = f"""
if 'flowengine_programs' not in {_MODULES}:
    {_MODULES}['flowengine_programs'] = __import__('types').ModuleType('flowengine_programs')
    __import__('builtins').exec(inputs['driver'], {_MODULES}['flowengine_programs'].__dict__)
{_ROUND}
"""


@cache
def _driver() -> str:
    return Path(__file__).with_name("program_in_sandbox.py").read_text()


class ProgramRound:
    """One round of a program: from the answers to its calls to its next calls, or to its end.

    Args:
        context: The attempt, with the state of the flow.
        turn: The offer of the agent.
        program: The `call` of the model. If it runs already: the time at which it `began`, and the
            number of calls of programs before it (`begun`) and before its last round (`since`).
    """

    def __init__(self, context: StepContext, turn: AgentTurn, program: Mapping[str, Any]) -> None:
        self.context = context
        self.turn = turn
        self.call: Mapping[str, Any] = program["call"]
        self.now = time.time()
        self.began = program.get("began") or self.now
        calls = plain(context.state["program_calls"])[program.get("begun", 0) :]
        calls = calls if "begun" in program else []
        answers = plain(context.state["program_answers"])
        known = {str(one.call["id"]): one.answer for one in answers_to({}, answers)}
        made = [(call, known[call["id"]]) for call in calls]
        self.answers: list[dict[str, Plain]] = [
            {
                "name": call["function"],
                "args": call.get("given") or json.dumps(call["args"]),
                "at": call["at"],
                "clock": call["clock"],
                **self._seen(answer),
            }
            for call, answer in made
        ]
        self.key = f"{context.execution.id} {turn.name} {self.call['id']} {self.began}"
        self.before = program["since"] - program["begun"] if calls else 0

    def _seen(self, answer: Mapping[str, Any]) -> dict[str, Plain]:
        """Return the result of a call or its error. A large result is in a file."""
        seen = call_seen(answer)
        if not is_in_file(answer["value"]):
            return seen
        kept = seen["result"]
        path = Path(self.context.execution.artifacts.path(kept["sha256"]))
        if path.stat().st_size > _LARGEST_RESULT:
            most = size_text(_LARGEST_RESULT)
            error = f"its result has more than {most}. The call was made, do not repeat it"
            return {"result": None, "error": error}
        text = path.read_text(errors="replace")
        is_text = kept["name"] == TEXT_FILE
        return {"result": text if is_text else received_json(text, lenient=True), "error": None}

    async def output(self) -> dict[str, Plain]:
        """Run the round, and return the output of its step."""
        result = await self._made()
        printed = result.stdout[:_PRINTED]
        if result.error is not None:
            return self._ended(f"{result.error.type}: {result.error.message}", printed)
        made = result.value if isinstance(result.value, Mapping) else {}
        asks, value = made.get("asks"), made.get("value")
        if isinstance(asks, list) and asks:
            if len(self.answers) + len(asks) > MOST_CALLS:
                return self._ended(f"it made more than {MOST_CALLS} calls", printed)
            calls = [self._call(number, ask) for number, ask in enumerate(asks, 1)]
            return {"asks": calls, **({} if self.answers else {"began": self.began})}
        if "error" in made:
            return self._ended(str(made["error"]), printed)
        try:
            return self._ended("", printed, json.loads(value if isinstance(value, str) else ""))
        except (ValueError, RecursionError):
            return self._ended("its process sent no valid result", printed)

    async def _made(self) -> Any:
        """Return the result of the last request of this round to the sandbox."""
        if self.answers:
            result = await self._sent(_AGAIN, self.before, {})
            if result.error is not None or result.value is not None:
                return result
        begin: dict[str, Plain] = {
            "driver": _driver(),
            "code": self.call["args"]["code"],
            "tools": {name: parameters(tool) for name, tool in self.turn.inner.items()},
            "seed": self.key,
            "began": self.began,
        }
        return await self._sent(_BEGIN, 0, begin)

    async def _sent(self, code: str, before: int, more: Mapping[str, Plain]) -> Any:
        """Send the answers from a number on, in as many requests as their size needs."""
        python = self.context.resources[PLACE]
        while True:
            after, size = before, 0
            while after < len(self.answers) and (size < _AT_ONCE or after == before):
                size += len(json.dumps(self.answers[after]))
                after += 1
            given: dict[str, Plain] = {
                "key": self.key,
                "now": self.now,
                "before": before,
                "answers": self.answers[before:after],
                "more": after < len(self.answers),
            }
            result = await python.async_run(code, {**given, **more})
            if after == len(self.answers) or result.error is not None or result.value is None:
                return result
            code, before, more = _AGAIN, after, {}

    def _call(self, number: int, ask: Any) -> dict[str, Plain]:
        """Return a call of the program as one of a reply. An invalid one is refused."""
        made: Mapping[str, Any] = ask if isinstance(ask, Mapping) else {}
        function, given = as_text(str(made.get("name", ""))[:64]), str(made.get("args"))
        call: dict[str, Plain] = {
            "handoff": "",
            "id": f"{self.call['id']}.{len(self.answers) + number}",
            "function": function,
            "at": self.now,
            "clock": as_text(str(made.get("clock", ""))),
        }
        try:
            arguments = json.loads(given)
        except (ValueError, RecursionError):
            arguments = given
        bound, _ = bind(ModelCall(function, arguments), self.turn.inner)
        if isinstance(bound, CallFault):
            message = tool_message(call["id"], function, f"{ERROR}{bound.message}")
            shown = f"{function!r} was not called: {bound.message}"
            return {
                **call,
                "given": as_text(given),
                "step": "",
                "messages": [message],
                "refused": shown,
            }
        if json.dumps(bound.arguments) != given:
            call["given"] = as_text(given)
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
