"""Kept files that were handed to an execution, which it may read besides its own.

A file is handed over by naming it - `{path, name, size, sha256}` - in inputs, a message, a decision
or state written by an operator. An execution that sends a message can only hand over files that it
may read itself. Text from a model may name any file, but gives access to none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flowengine.named_tuples import NamedTuple

if TYPE_CHECKING:
    from flowengine.kernel.events import Event

HANDING = frozenset({"started", "message", "decided", "state"})
"""Types of events with values from outside an execution."""
_PARTS = ("inputs", "data", "form", "edits", "value", "values")
_KEYS = {"path", "name", "size", "sha256"}
_EXECUTION = "execution:"


class HandedFile(NamedTuple):
    """A file named by a sender."""

    sha256: str
    sender: str | None
    """The execution that must be able to read it. None: it is enough that any execution keeps
    it."""


def handed(event: Event) -> list[HandedFile]:
    """Return the files that an event names.

    Args:
        event: An event of one of the types above.
    """
    data: Any = event
    sender = _sender(data)
    digests = {digest for part in _PARTS if part in data for digest in _digests(data[part])}
    return [HandedFile(digest, sender) for digest in sorted(digests)]


def _sender(event: Any) -> str | None:
    """Return the execution that sent an event. None: it comes from outside."""
    if event["type"] == "started":
        by = event.get("message", {}).get("sent_by") or ""
        parent = event["execution"].get("parent")
        if parent:
            return str(parent)
    else:
        by = event.get("by") or ""
    return by.removeprefix(_EXECUTION) if by.startswith(_EXECUTION) else None


def _digests(value: Any) -> Iterator[str]:
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            if part.keys() == _KEYS and isinstance(part["sha256"], str):
                yield part["sha256"]
            else:
                pending.extend(part.values())
        elif isinstance(part, list):
            pending.extend(part)
