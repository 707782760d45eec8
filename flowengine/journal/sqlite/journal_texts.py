"""Long texts stored beside an execution's journal, as references into the journal.

Questions, their answers and results, and messages mostly repeat texts of events of the same
execution. They are packed with places instead of these texts, and unpacking restores the texts.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping

from flowengine.errors import StoreError
from flowengine.journal.encoding import (
    SHORTEST,
    TextPosition,
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
"""Prefix of data with places. No packed value begins with it."""

Places = Callable[[], Mapping[str, TextPosition]]
"""Returns the places of long texts. Called only if there are any."""


def shortened(packed: bytes, places: Places) -> bytes:
    """Return packed data in fewer bytes: with places instead of texts, and compressed.

    Args:
        packed: As `pack` returns it.
        places: Places of texts in the journal of the same execution.
    """
    if len(packed) < SHORTEST:
        return packed
    try:
        value = unpack(packed)
    except StoreError:  # the store accepts any bytes
        return deflated(packed)
    placed = pack_placed(value, places)
    return deflated(packed if placed == packed else _PLACED + placed)


class JournalTexts:
    """Decodes results of `shortened`.

    Args:
        connection: The connection to read from.
        number: Number of the execution.
        what: The name of the data in errors.
    """

    def __init__(self, connection: sqlite3.Connection, number: int, what: str) -> None:
        self._connection = connection
        self._number = number
        self._what = what
        self._texts: dict[bytes, str] = {}

    def whole(self, stored: bytes) -> bytes:
        """Return packed data as it was before it was shortened.

        Args:
            stored: Any bytes, not trusted.

        Raises:
            StoreError: They are damaged, or an event with a referenced text is.
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

    def places(self, stored: bytes) -> dict[str, TextPosition]:
        """Return the texts that stored data refers to, with their places. Raises like `whole`."""
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
