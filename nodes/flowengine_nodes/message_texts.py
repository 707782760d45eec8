"""Texts of messages to people, from arguments or from the notification of an approval."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from flowengine.sdk import Plain, ValidationError
from flowengine.sdk.visible_text import printable, printable_lines
from flowengine_nodes.tool_schemas import TEXT

LONGEST_SUBJECT = 200
LONGEST_TEXT = 20_000
_LONGEST_DATA = 4000
_WORDS = {"opened": "Decision needed", "reminded": "Reminder", "escalated": "Escalated"}
"""Reason of a notification → the beginning of its subject."""

ARGS: dict[str, Plain] = {
    "type": "object",
    "properties": {
        "subject": {**TEXT, "description": "The subject, on one line."},
        "text": {**TEXT, "description": "The text."},
        "approval": {
            "type": "object",
            "description": "An approval to notify about, instead of `subject` and `text`.",
        },
    },
    "additionalProperties": False,
}
"""JSON Schema of the arguments of a tool that sends messages."""


class OutgoingMessage(NamedTuple):
    """A message."""

    subject: str
    """On one line, without control characters."""
    text: str
    """Its text. It ends with the link, if there is one."""
    link: str | None
    """Where it can be acted upon."""


def message_of(args: Mapping[str, Any]) -> OutgoingMessage:
    """Return the message that arguments describe.

    Args:
        args: `{subject?, text}` or `{approval}`.

    Raises:
        ValidationError: There is neither.
    """
    approval = args.get("approval")
    if approval is not None:
        subject = f"{_WORDS.get(approval.get('why'), 'Approval')}: {approval.get('title') or ''}"
        link = approval.get("link")
        return OutgoingMessage(_line(subject), printable_lines(_text_of(approval)), link)
    if not args.get("text"):
        raise ValidationError("a message needs a 'text', or the 'approval' of a notification")
    text = printable_lines(args["text"])
    return OutgoingMessage(_line(str(args.get("subject") or text)), text, None)


def _text_of(approval: Mapping[str, Any]) -> str:
    parts = [str(approval.get("title") or ""), str(approval.get("body") or "")]
    if approval.get("subject") is not None:
        data = json.dumps(approval["subject"], ensure_ascii=False, indent=2, default=str)
        parts.append(data if len(data) <= _LONGEST_DATA else f"{data[:_LONGEST_DATA]} …")
    facts = [f"Flow: {approval.get('flow')}, execution {approval.get('execution')}"]
    if approval.get("assignees"):
        facts.append(f"For: {', '.join(map(str, approval['assignees']))}")
    if approval.get("due"):
        facts.append(f"Until: {approval['due']}")
    link = approval.get("link")
    facts.append(
        f"Decide: {link}" if link else f"Show: flowengine approvals show {approval.get('id')}"
    )
    head = "\n\n".join(part for part in parts if part)
    return f"{head[:LONGEST_TEXT]}\n\n" + "\n".join(facts)


def _line(text: str) -> str:
    line = printable(" ".join(text.split()))
    return line if len(line) <= LONGEST_SUBJECT else f"{line[: LONGEST_SUBJECT - 1]}…"
