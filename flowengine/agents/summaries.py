"""One-line summaries of turns, of call results and of reductions, for display."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from flowengine.agents.text_calls.records import object_in
from flowengine.sdk import Plain

_as_json = json.JSONEncoder(ensure_ascii=False).encode
"""Created once, because `show` prints thousands of calls."""


_BY_PEOPLE = re.compile(
    r"(?:\[(?:Before the call was made, a person changed|Who approved the call says).*?\]\n\n)+",
    re.DOTALL,
)
"""Notes of approvers before the result of a call."""
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
    return without_marks(_without_notes(text))


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


def _without_notes(text: str) -> str:
    """Return the result of a call without the notes of its approvers."""
    notes = _BY_PEOPLE.match(text)
    return text[notes.end() :] if notes else text


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
