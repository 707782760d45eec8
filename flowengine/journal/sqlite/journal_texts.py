"""Long texts that stand beside the journal of an execution: stored as their places in it.

A question, its answers, their result and messages mostly say what an event of the same execution
says. They are packed with places instead of such texts, and unpacked with the texts again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping

from flowengine.errors import StoreError
from flowengine.journal.encoding import (
    SHORTEST,
    Place,
    deflated,
    pack,
    pack_placed,
    packed_again,
    text_at,
    unpack,
    unpack_place,
    unpack_placed,
)
from flowengine.journal.shapes import DAMAGE_HINT
from flowengine.journal.sqlite import queries
from flowengine.journal.sqlite.rows import event_id, read_events

_PLACED = b"\xc1"
"""Stands before what has places. No packed value begins with it."""

Places = Callable[[], Mapping[str, Place]]
"""Returns the places of long texts; asked only if there are some."""


def shortened(packed: bytes, places: Places) -> bytes:
    """Return packed data in fewer bytes: with places instead of texts, and deflated.

    Args:
        packed: As `pack` returns it.
        places: Of texts in the journal of the same execution.
    """
    if len(packed) < SHORTEST:
        return packed
    try:
        value = unpack(packed)
    except StoreError:  # the store takes any bytes
        return deflated(packed)
    placed = pack_placed(value, places)
    return deflated(packed if placed == packed else _PLACED + placed)


class JournalTexts:
    """Reads what `shortened` returned.

    Args:
        connection: Where to read.
        number: Of the execution.
        what: Names what is read, in errors.
    """

    def __init__(self, connection: sqlite3.Connection, number: int, what: str) -> None:
        self._connection = connection
        self._number = number
        self._what = what
        self._texts: dict[bytes, str] = {}

    def whole(self, stored: bytes) -> bytes:
        """Return packed data as it was before it was shortened.

        Args:
            stored: Any bytes at all; they are not trusted.

        Raises:
            StoreError: They are damaged, or the event that has a text is.
        """
        try:
            packed = packed_again(stored)
            if packed[:1] != _PLACED:
                return packed
            return pack(unpack_placed(packed[1:], self._text))
        except StoreError as error:
            raise StoreError(
                f"{self._what} is damaged: {error.message}", hint=DAMAGE_HINT
            ) from None

    def places(self, stored: bytes) -> dict[str, Place]:
        """Return the texts with places in what is stored; raises as `whole`."""
        self.whole(stored)
        return {text: unpack_place(data) for data, text in self._texts.items()}

    def _text(self, data: bytes) -> str:
        if data not in self._texts:
            place = unpack_place(data)
            first = event_id(self._number, place.event)
            rows = self._connection.execute(queries.EVENTS, (first, first + 1, 1)).fetchall()
            (event,) = read_events(rows, place.event, "its execution")
            self._texts[data] = text_at(place, event.payload)
        return self._texts[data]
