"""The actions of agents, read from the outputs of their steps: replies of models, answers to calls.

`turns.py` and `call_answers.py` write these outputs. All views of them read them here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from flowengine.agents.call_answers import envelope_in, text_of, without_notes
from flowengine.agents.text_calls.marked_form import object_in
from flowengine.sdk import Plain
from flowengine.sdk.texts.untrusted import unmarked

TURN, AHEAD, PROGRAM, OFFER = "agent_turn", "agent_ahead", "agent_program", "agent_offer"
"""Kinds of the steps that run an agent, send a request beside checks of the prompt, run a program
of a model, and have servers list their tools."""
_as_json = json.JSONEncoder(ensure_ascii=False).encode
"""Created once, because `show` prints thousands of calls."""
_EXIT_CODE = re.compile(r"^\[(?:[\w ]+, )?exit code (-?\d+)[\],]")
"""The last line of the result of code or a command."""


def display_name(agent: Mapping[str, Any]) -> str:
    """Return the name of an agent for users.

    Args:
        agent: Its declaration as a turn has it. `called` is the name in Python, which need not be
            an id.
    """
    return str(agent.get("called") or agent["name"])


class MadeCall(NamedTuple):
    """A call in a reply, as the model wrote it."""

    id: str
    tool: str
    sent: str
    """The text of the arguments."""

    @property
    def arguments(self) -> Any:
        """The arguments as data, or the text if it is not JSON."""
        try:
            return json.loads(self.sent)
        except (ValueError, RecursionError):
            return self.sent


class Reply(NamedTuple):
    """The reply of a model in a turn."""

    message: Mapping[str, Any]
    text: str
    reasoning: str
    model: str
    instead_of: str
    """The model that was to reply. Empty: the same one."""
    usage: Mapping[str, Any]

    @classmethod
    def of(cls, output: Any) -> Reply:
        """Return the reply in the output of a turn. Without one, it is empty."""
        made: Mapping[str, Any] = output if isinstance(output, Mapping) else {}
        message = made.get("message") or {}
        return cls(
            message,
            text_of(message.get("content"), ""),
            text_of(message.get("reasoning"), ""),
            str(made.get("model") or ""),
            str(made.get("instead_of") or ""),
            made.get("usage") or {},
        )

    @property
    def calls(self) -> Iterator[MadeCall]:
        """The calls of the message, in order."""
        for call in self.message.get("tool_calls") or ():
            if isinstance(made := call.get("function"), Mapping):
                sent = str(made.get("arguments") or "")
                yield MadeCall(str(call.get("id")), str(made.get("name")), sent)


def asked_model(output: Any) -> bool:
    """Return whether an output is that of a round which has asked a model."""
    return isinstance(output, Mapping) and ("message" in output or "left_out" in output)


def requested(output: Any) -> Iterator[MadeCall]:
    """Yield the calls of a reply that can be made, and its handoffs.

    Args:
        output: The output of a round. If hooks see the calls first, they are in its state.
    """
    made: Mapping[str, Any] = output if isinstance(output, Mapping) else {}
    waiting = made.get("state", {}).get("calls", ())
    answered = [call["messages"][0] for call in waiting if not call["step"] and not call["handoff"]]
    answered += [message for message in made.get("told", ()) if not message.get("handoff")]
    ids = {message.get("tool_call_id") for message in answered}
    return (call for call in Reply.of(made).calls if call.id not in ids)


def told(output: Any) -> str | None:
    """Return the text that a model received as the result of a call, without marks.

    Args:
        output: The output of the step that carried out the call. Data that the step has not adapted
            for the model has no such text.
    """
    made = envelope_in(output)
    return None if made is None else unmarked(made["content"])


def summary(kind: str, output: Plain) -> str | None:
    """Return a summary of a reply, a reduction or the result of a call. None: it has none.

    Args:
        kind: The kind of the step.
        output: Its output: of an agent, that of a round.
    """
    if not isinstance(output, Mapping):
        return None
    if kind in (TURN, AHEAD):
        return _of_round(output)
    if kind == OFFER:
        offers: Mapping[str, Any] = output["offer"].get("agents", {})
        names = dict.fromkeys(name for tools in offers.values() for name in tools)
        return f"lists {', '.join(names) or 'no tools'}"
    if kind == PROGRAM:
        return _of_program(output)
    text = told(output)
    return None if text is None else without_notes(text)


def _of_round(output: Mapping[str, Any]) -> str:
    if "left_out" in output:
        return reduction(output)
    if "message" in output:
        return "  ".join([*output.get("refused", ()), text_in(output["message"])])
    calls = ", ".join(call["callee"] for call in output.get("calls", ()))
    if calls:
        return f"calls {calls}"
    if output.get("outcome"):
        return f"hands over to {output['outcome']}"
    outcome = output.get("state", {}).get("outcome")
    return f"ends: {outcome}" if outcome else ""


def _of_program(output: Mapping[str, Any]) -> str:
    if "asks" not in output:
        return unmarked(shown(output["messages"][0]["content"]))
    asks = ({"name": one["function"], **one} for one in output["asks"])
    made = ({**one, "arguments": _as_json(one.get("args"))} for one in asks)
    return f"calls {', '.join(map(_call, made))}"


def reduction(output: Mapping[str, Any]) -> str:
    """Describe a reduction: the messages it removed from requests, those it kept, and why."""
    parts = []
    if output["left_out"]:
        parts.append(f"leaves out {_count(output['left_out'], 'message')}")
    if output.get("cleared"):
        parts.append(f"replaces {_count(output['cleared'], 'old result')} by notes")
    if output.get("stripped"):
        parts.append(f"leaves out the calls of {_count(output['stripped'], 'reply', 'replies')}")
    if "kept" in output:
        pinned = (output.get("window") or {}).get("pinned")
        asked = f" and {_count(len(pinned), 'earlier message')} of the user" if pinned else ""
        parts.append(f"keeps {output['kept']}{asked}")
    if "tokens" not in output:
        return ", ".join(parts)
    was = f" of {output['reduced_from']:,}" if "reduced_from" in output else ""
    fits = f" ({output['limit']:,} fit)" if output.get("limit") else ""
    return f"{', '.join(parts)}: about {output['tokens']:,} tokens stay{was}{fits}"


def _count(number: int, noun: str, several: str = "") -> str:
    return f"{number} {noun if number == 1 else several or noun + 's'}"


def failure(kind: str, output: Plain) -> str | None:
    """Return why code or a command of a model has failed, or None if it has not.

    Args:
        kind: The step kind of the call.
        output: The output of a call. The exit code is in the last line of its text, where no output
            can pose as it.
    """
    if kind != "std":
        return None
    before, _, last = (summary(kind, output) or "").rstrip().rpartition("\n")
    code = _EXIT_CODE.search(last)
    if code is None or code[1] == "0":
        return None
    line = before.rstrip().rpartition("\n")[2].strip()
    return f"exit code {code[1]}" + (f": {line}" if line and not line.startswith("[") else "")


def text_in(message: Mapping[str, Plain]) -> str:
    """Return the text of a message, followed by its calls."""
    calls = [_call(call["function"]) for call in message.get("tool_calls") or ()]
    text = shown(message.get("content"))
    if not calls:
        return text
    return "  ".join(filter(None, (text, f"calls {', '.join(calls)}")))


def _call(function: Mapping[str, Plain]) -> str:
    """Return a call in Python syntax. Arguments that are not JSON are shown as sent."""
    sent = str(function["arguments"])
    arguments = object_in(sent)
    given = [sent]
    if arguments is not None:
        given = [f"{name}={_as_json(argument)}" for name, argument in arguments.items()]
    return f"{function['name']}({', '.join(given)})"


def shown(content: Plain, between: str = " ") -> str:
    """Return the text of a message. Parts without text are shown by their types."""
    if not isinstance(content, list):
        return "" if content is None else str(content)
    parts = (part for part in content if isinstance(part, Mapping))
    return between.join(str(part.get("text") or f"[{part.get('type')}]") for part in parts)


@dataclass
class UsageTotals:
    """The total usage of turns. Unknown costs count as zero."""

    replies: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float = 0.0
    estimated: bool = False
    """Whether a part was estimated here, because the provider did not report it."""
    unpriced: bool = False
    """Whether the cost of a reply is unknown."""

    def add(self, usage: Mapping[str, Any]) -> None:
        """Add the usage of one reply."""
        self.replies += 1
        for name in _TOKENS:
            setattr(self, name, getattr(self, name) + usage.get(name, 0))
        self.cost_usd += usage.get("cost_usd") or 0.0
        self.unpriced |= usage.get("cost_usd") is None
        self.estimated |= bool(usage.get("estimated"))

    def __str__(self) -> str:
        unknown = " and calls whose price is unknown" if self.unpriced else ""
        share = self.cached_tokens / self.input_tokens if self.input_tokens else 0
        cached = f" ({share:.0%} cached)" if self.cached_tokens else ""
        return (
            f"{_count(self.replies, 'reply', 'replies')}, {self.input_tokens} tokens read{cached}, "
            f"{self.output_tokens} written, ${self.cost_usd:.4f}{unknown}"
        )


_TOKENS = ("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")


def usage_of(outputs: Iterable[Any]) -> tuple[UsageTotals, dict[str, UsageTotals]]:
    """Return the usage of all model calls of an execution, in total and by model.

    Args:
        outputs: Outputs of steps, those without a model included.
    """
    total, models = UsageTotals(), dict[str, UsageTotals]()
    for value in outputs:
        usage = value.get("usage") if asked_model(value) else None
        if isinstance(usage, Mapping):
            total.add(usage)
            models.setdefault(str(value.get("model")), UsageTotals()).add(usage)
    return total, models


def outputs_in(entries: Iterable[Mapping[str, Any]]) -> Iterator[Any]:
    """Yield the outputs of attempts in journal entries, as returned by an engine."""
    return (entry.get("value") for entry in entries if entry["type"] == "succeeded")
