"""What people are told of a turn, of what a call gave, and of what was left out, in a line."""

from __future__ import annotations

import json
from collections.abc import Mapping

from flowengine.sdk import Plain

_as_json = json.JSONEncoder(ensure_ascii=False).encode
"""Made once: `show` tells of thousands of calls."""


def summary(output: Plain) -> str | None:
    """Return what the output of a turn or of a call means; None: it is none of them.

    Args:
        output: `{message, ...}` of a turn, `{messages, ...}` of a call, `{left_out, ...}` of a
            reduction.
    """
    if not isinstance(output, Mapping):
        return None
    if "message" in output:
        return _turn(output["message"])
    if "left_out" in output:
        return f"leaves out {output['left_out']} messages, about {output['tokens']:,} tokens stay"
    messages = output.get("messages")
    return without_marks(_text(messages[0].get("content"))) if messages else None


def without_marks(text: str) -> str:
    """Return a text without the lines around what others may have written."""
    if "<content " not in text:
        return text
    from flowengine.sdk.untrusted import unmarked

    return unmarked(text)


def _turn(message: Mapping[str, Plain]) -> str:
    """Return what a model said, then what it called."""
    calls = [_call(one["function"]) for one in message.get("tool_calls") or ()]
    said = _text(message.get("content"))
    if not calls:
        return said
    return "  ".join(filter(None, (said, f"calls {', '.join(calls)}")))


def _call(function: Mapping[str, Plain]) -> str:
    """Return a call as in Python; arguments that are no JSON stay as they were sent."""
    sent = str(function["arguments"])
    try:
        arguments = json.loads(sent)
        given = [f"{name}={_as_json(one)}" for name, one in arguments.items()]
    except (ValueError, AttributeError):
        given = [sent]
    return f"{function['name']}({', '.join(given)})"


def _text(content: Plain) -> str:
    """Return the text of a message; parts that are none are named."""
    if not isinstance(content, list):
        return "" if content is None else str(content)
    return " ".join(str(part.get("text") or f"[{part.get('type')}]") for part in content)
