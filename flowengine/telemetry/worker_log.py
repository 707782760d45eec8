"""The log of a worker, which its guard writes to as well."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from flowengine.kernel.notation.times import format_time
from flowengine.sdk.texts.visible_text import printable

Format: TypeAlias = Literal["text", "json"]


class WorkerLog:
    """The log of a worker: one line for each event, on standard error.

    Args:
        form: `text` for humans, `json` for programs: one object a line.
        now: Returns the time (ms).
        write: Writes a line. Default: standard error.
    """

    def __init__(
        self, form: Format, now: Callable[[], int], write: Callable[[str], None] | None = None
    ) -> None:
        self._is_json = form == "json"
        self._now = now
        self._write = write or _to_standard_error

    def __call__(self, event: str, **parts: Any) -> None:
        """Write a line.

        Args:
            event: The event, in one word.
            **parts: Further facts. None is left out.
        """
        facts = {name: value for name, value in parts.items() if value is not None}
        at = format_time(self._now())
        if self._is_json:
            self._write(json.dumps({"at": at, "event": event, **facts}, ensure_ascii=False))
        else:
            text = " ".join(f"{name}={value}" for name, value in facts.items())
            self._write(printable(f"{at} {event:8} {text}".rstrip()))


def _to_standard_error(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
