"""The progress of a call, as its step passes it on in parts of kind `progress`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def progress_text(part: Mapping[str, Any]) -> str:
    """Return a report in words: `3 of 10, a message`.

    Args:
        part: `done`, `total` and `message`. The last two may be None.
    """
    of = "" if part["total"] is None else f" of {part['total']:g}"
    message = f", {part['message']}" if part["message"] else ""
    return f"{part['done']:g}{of}{message}"
