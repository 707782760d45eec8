"""The ends of an agent's work: by an answer, by a case tool, or after no progress."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from flowengine.agents.models.port import Message
from flowengine.agents.text_calls.marked_form import ToolOffer, object_in
from flowengine.sdk import Plain
from flowengine.sdk.call_answers import without_notes

_as_json = json.JSONEncoder(ensure_ascii=False).encode
"""Created once, because `show` prints thousands of calls."""


_EXIT_CODE = re.compile(r"^\[(?:[\w ]+, )?exit code (-?\d+)[\],]")
"""The last line of the result of code or a command."""


def summary(output: Plain) -> str | None:
    """Return a summary of the output of a turn, call or reduction, or None for any other output.

    Args:
        output: `{message, ...}` of a turn, `{messages, ...}` of a call, or `{left_out, ...}` of a
            reduction.
    """
    if not isinstance(output, Mapping):
        return None
    if "message" in output:
        return text_in(output["message"])
    if "left_out" in output:
        return f"leaves out {output['left_out']} messages, about {output['tokens']:,} tokens stay"
    messages = output.get("messages")
    if not messages:
        return None
    text = _text(messages[0].get("content"))
    return without_marks(without_notes(text))


def failure(kind: str, output: Plain) -> str | None:
    """Return why code or a command of a model has failed, or None if it has not.

    Args:
        kind: The step kind of the call.
        output: The output of a call. The exit code is in the last line of its text, where no output
            can pose as it.
    """
    if kind != "std" or not isinstance(output, Mapping) or not output.get("messages"):
        return None
    before, _, last = (summary(output) or "").rstrip().rpartition("\n")
    code = _EXIT_CODE.search(last)
    if code is None or code[1] == "0":
        return None
    line = before.rstrip().rpartition("\n")[2].strip()
    return f"exit code {code[1]}" + (f": {line}" if line and not line.startswith("[") else "")


def without_marks(text: str) -> str:
    """Return a text without the lines that enclose untrusted content."""
    if "<content " not in text:
        return text
    from flowengine.sdk.untrusted import unmarked

    return unmarked(text)


def text_in(message: Mapping[str, Plain]) -> str:
    """Return the text of a message, followed by its calls."""
    calls = [_call(call["function"]) for call in message.get("tool_calls") or ()]
    text = _text(message.get("content"))
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


def _text(content: Plain) -> str:
    """Return the text of a message. Parts without text are shown by their types."""
    if not isinstance(content, list):
        return "" if content is None else str(content)
    return " ".join(str(part.get("text") or f"[{part.get('type')}]") for part in content)


RESOLVED = "case_resolved"
NOT_RESOLVED = "case_not_resolved"
CASE_TOOLS = {RESOLVED: "resolved", NOT_RESOLVED: "not_resolved"}
IDLE = 3
"""Maximum number of consecutive replies without progress."""
FAULTS = 2
"""Maximum number of consecutive replies in which no call can be read."""
REPEATS = 3
"""Number of identical failures of the same call after which the model is warned once."""

_WORD = re.compile(rf"[ \t]*[*_]{{0,3}}({'|'.join(CASE_TOOLS)})[*_]{{0,3}}[ \t]*(?:[:.].*)?")

GO_ON = (
    "Go on. When you are done, call case_resolved with the result, or case_not_resolved with the "
    "reason."
)
EMPTY = "Your reply was empty. Go on, or give your answer."
REPEATED = "this call has failed {} times in the same way: do something else."
_REPEATED = re.compile("Error: " + re.escape(REPEATED).replace(r"\{\}", r"\d+"))
CUT_SHORT = "Your reply was cut off by its length limit. Say it again, shorter."


class AgentEnd(NamedTuple):
    """How an agent's work ends."""

    outcome: str
    """`resolved` or `not_resolved`. Empty: the work continues."""
    value: Plain = None
    reason: str = ""
    no_progress: bool = False
    """Whether it ends because there was no progress."""

    def beside(self, content: Plain) -> Plain:
        """Return the end as data, without a value that equals the text of its message.

        Args:
            content: Content of the message.
        """
        kept = self._asdict()
        if isinstance(content, str) and content and self.value == content:
            del kept["value"]
        return kept


GOING_ON = AgentEnd("")
NO_END = GOING_ON._asdict()
"""The same as data, for the state of a flow."""


# The case tools, which are never run


def case_resolved(result: str) -> str:
    """End the work: the case is resolved.

    Args:
        result: The result.
    """
    return result


def case_not_resolved(reason: str) -> str:
    """End the work: the case cannot be resolved.

    Args:
        reason: Why not.
    """
    return reason


def is_case_tool(function: object) -> bool:
    """Return whether a function is one of these."""
    return function is case_resolved or function is case_not_resolved


@cache
def case_offers() -> list[ToolOffer]:
    """Return the tools with which an agent ends its work."""
    from flowengine.agents.function_schemas import read_tool

    read = (read_tool(tool) for tool in (case_resolved, case_not_resolved))
    return [ToolOffer(name, tool.description, tool.args or {}) for name, tool in read]


def ended_by_call(name: str, arguments: Mapping[str, Plain]) -> AgentEnd | None:
    """Return the end that a call declares, or None if it is not a case tool."""
    if name == RESOLVED:
        return AgentEnd("resolved", arguments.get("result", ""))
    if name == NOT_RESOLVED:
        return AgentEnd("not_resolved", None, str(arguments.get("reason", "")))
    return None


def ended_by_word(text: str) -> AgentEnd | None:
    """Return the end that a reply names in its text, or None if it names none.

    The name must begin the first or the last line of the reply, alone or followed by a colon and
    text. Elsewhere the model may only mention the tool or quote others.
    """
    lines = text.strip().split("\n")
    for place in (0, -1):
        match = _WORD.fullmatch(lines[place])
        if match and sum(line.lstrip().startswith("```") for line in lines) % 2 == 0:
            lines[place] = lines[place][match.end(1) :].lstrip(" \t*_:.")
            rest = "\n".join(lines).strip()
            return AgentEnd(CASE_TOOLS[match[1]], rest if match[1] == RESOLVED else None, rest)
    return None


def repeated(messages: Sequence[Message], name: str, arguments: Plain) -> tuple[int, bool]:
    """Count how often in a row the last calls were this one, each failing in the same way.

    Args:
        messages: The conversation so far.
        name: Name of the tool.
        arguments: Arguments, as they would be sent.

    Returns:
        The number of failures, and whether the model was warned about them.
    """
    results: dict[Plain, Plain] = {}
    count, before, was_told = 0, None, False
    for message in reversed(messages):  # reads only as far back as the calls are equal
        if message.get("role") == "tool":
            content = message.get("content")
            if isinstance(content, str):  # the mark around it differs each time
                content = without_marks(content)
            results[message.get("tool_call_id")] = content
        for call in reversed(message.get("tool_calls") or []):
            result = results.get(call["id"])
            same = call["function"]["name"] == name and call["function"]["arguments"] == arguments
            failed = isinstance(result, str) and result.startswith("Error: ")
            if same and failed and _REPEATED.fullmatch(str(result)):
                was_told = True
            elif not same or not failed or (count and result != before):
                return count, was_told
            else:
                count, before = count + 1, result
    return count, was_told
