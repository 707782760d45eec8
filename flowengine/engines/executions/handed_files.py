"""Kept files that others hand to an execution: it may read these besides those that it keeps.

A file is handed over by naming it - `{path, name, size, sha256}` - in inputs, a message, a decision
or state that a person writes. What an execution sends names files that it may read itself: the
text of a model, which may name any, opens none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from flowengine.kernel.events import Event

HANDING = frozenset({"started", "message", "decided", "state"})
"""Types of events that bring values from outside of an execution."""
_PARTS = ("inputs", "data", "form", "edits", "value", "values")
_KEYS = {"path", "name", "size", "sha256"}
_EXECUTION = "execution:"


class HandedFile(NamedTuple):
    """A file that somebody names."""

    sha256: str
    sender: str | None
    """The execution that has to be able to read it; None: anybody keeps it."""


def handed(event: Event) -> list[HandedFile]:
    """Return the files that an event names.

    Args:
        event: Of one of the types above.
    """
    data: Any = event
    sender = _sender(data)
    found = {digest for part in _PARTS if part in data for digest in _digests(data[part])}
    return [HandedFile(digest, sender) for digest in sorted(found)]


def _sender(event: Any) -> str | None:
    """Return the execution that an event comes from; None: from outside."""
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
