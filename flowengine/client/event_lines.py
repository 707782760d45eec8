"""The lines of a stream of server-sent events, as events of an execution."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from flowengine.client.requests import not_ours
from flowengine.errors import StoreError
from flowengine.sdk.texts.sizes import size_text

LONGEST_LINE = 64 * 1024 * 1024
"""Maximum number of bytes of a line."""
_MOST_FAILURES = 3
"""How often a stream may break off in a row without an event."""


class StreamedEvent(NamedTuple):
    """An event of an execution."""

    kind: Literal["entry", "part"]
    """`entry`: of the journal. `part`: of a reply that a model is writing."""
    data: dict[str, Any]
    """`entry`: as in `executions.events`. `part`: `{address, part, text?, …}`, as in updates."""


class EventLines:
    """Reads the events of one execution, whose stream can break off and be continued.

    Args:
        first: Number of the first entry.
    """

    def __init__(self, first: int) -> None:
        self.next = first
        """Number of the next entry."""
        self.has_ended = False
        """Whether the execution has ended."""
        self._event = ""
        self._data = ""
        self._rest = bytearray()
        self._failures = 0

    def feed(self, part: bytes) -> Iterator[StreamedEvent]:
        """Process a part of the stream, and yield the events that it completes.

        Raises:
            StoreError: It is not a stream of a server.
        """
        first, *others = part.split(b"\n")
        self._rest += first
        if len(self._rest) > LONGEST_LINE:
            limit = size_text(LONGEST_LINE)
            raise StoreError(f"a line of the server's stream has more than {limit}")
        for following in others:
            line, self._rest = self._rest, bytearray(following)
            try:
                event = self._read_line(line.decode().removesuffix("\r"))
            except (ValueError, LookupError, TypeError, RecursionError) as error:
                raise not_ours("in a stream", error) from error
            if event is not None:
                yield event

    def _read_line(self, line: str) -> StreamedEvent | None:
        """Process a line, and return the event that it completes."""
        if line:
            name, _, value = line.partition(": ")
            if name == "event":
                self._event = value
            elif name == "data":
                self._data = value
            return None
        event, data = self._event, self._data
        self._event = self._data = ""
        if event == "end":
            self.has_ended = True
        if event not in ("entry", "part"):
            return None
        message = json.loads(data)
        if not isinstance(message, dict):
            raise TypeError("it is not a map")
        if event == "part":
            return StreamedEvent("part", message)
        self.next, self._failures = message["seq"] + 1, 0
        return StreamedEvent("entry", message)

    def break_off(self) -> None:
        """Discard an incomplete event, because the stream has ended."""
        self._event = self._data = ""
        self._rest = bytearray()

    def failed(self) -> bool:
        """Note that the connection was lost, and return whether it is given up."""
        self._failures += 1
        return self._failures > _MOST_FAILURES
