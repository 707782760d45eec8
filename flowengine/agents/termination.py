"""The ends of an agent's work: by an answer, by a case tool, or after no progress."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

from flowengine.agents.call_answers import ERROR
from flowengine.agents.function_schemas import read_tool
from flowengine.agents.models.port import Message
from flowengine.agents.text_calls.marked_form import ToolOffer
from flowengine.sdk import Plain
from flowengine.sdk.texts.untrusted import unmarked

TURNS = 30
"""Default of `max_turns`."""
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
_REPEATED = re.compile(ERROR + re.escape(REPEATED).replace(r"\{\}", r"\d+"))
CUT_SHORT = "Your reply was cut off by its length limit. Say it again, shorter."


def ended(
    outcome: str, value: Plain = None, reason: str = "", *, no_progress: bool = False
) -> dict[str, Plain]:
    """Return how the work of agents ends, as the state of their flow has it.

    Args:
        outcome: `resolved`, `not_resolved`, `max_turns` or `budget`. Empty: the work continues.
        value: The answer.
        reason: Why it ends so.
        no_progress: Whether it ends because there was no progress.
    """
    return {"outcome": outcome, "value": value, "reason": reason, "no_progress": no_progress}


NO_END = ended("")


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
    read = (read_tool(tool) for tool in (case_resolved, case_not_resolved))
    return [ToolOffer(name, tool.description, tool.args or {}) for name, tool in read]


def ended_by_call(name: str, arguments: Mapping[str, Plain]) -> dict[str, Plain] | None:
    """Return the end that a call declares, or None if it is not a case tool."""
    if name == RESOLVED:
        return ended("resolved", arguments.get("result", ""))
    if name == NOT_RESOLVED:
        return ended("not_resolved", None, str(arguments.get("reason", "")))
    return None


def ended_by_word(text: str) -> dict[str, Plain] | None:
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
            return ended(CASE_TOOLS[match[1]], rest if match[1] == RESOLVED else None, rest)
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
                content = unmarked(content)
            results[message.get("tool_call_id")] = content
        for call in reversed(message.get("tool_calls") or []):
            result = results.get(call["id"])
            same = call["function"]["name"] == name and call["function"]["arguments"] == arguments
            failed = isinstance(result, str) and result.startswith(ERROR)
            if same and failed and _REPEATED.fullmatch(str(result)):
                was_told = True
            elif not same or not failed or (count and result != before):
                return count, was_told
            else:
                count, before = count + 1, result
    return count, was_told
