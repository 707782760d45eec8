"""Conversion of rows of the SQLite store into records of the port, and back to row numbers."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from flowengine.errors import StoreError
from flowengine.journal.encoding import (
    SHORTEST,
    TextPosition,
    checksum,
    deflated,
    pack,
    pack_placed,
    packed_again,
    text_at,
    unpack,
    unpack_place,
    unpack_placed,
)
from flowengine.journal.records import ExecutionRecord, JournalEntry, ListedWait, ListPart, Owner
from flowengine.journal.shapes import DAMAGE_HINT, unpack_key_inputs, unpack_labels, unpack_wait
from flowengine.journal.sqlite import queries


def event_id(number: int, seq: int) -> int:
    """Return the row number of an event.

    Args:
        number: Number of the execution.
        seq: Number of the event.
    """
    return number << 32 | seq


def event_row(number: int, seq: int, event: tuple[int, bytes]) -> tuple[int, int, int, bytes]:
    """Return the columns of an event: id, at, checksum, payload.

    Args:
        number: Number of the execution.
        seq: Number of the event.
        event: (`at`, packed event).
    """
    at, payload = event
    # The checksum covers the event, its position and its time.
    return number << 32 | seq, at, checksum(payload, (seq ^ at * 31) & 0xFFFFFFFF), payload


def list_sum(part: ListPart) -> int:
    """Return a checksum over items of a list, and their position."""
    return checksum(part.items, checksum(part.name.encode(), part.first & 0xFFFFFFFF))


def read_lists(rows: Iterable[Sequence[Any]]) -> list[ListPart] | None:
    """Return parts of lists from rows of `queries.LISTS`, or None if one of them is damaged."""
    read = [(ListPart(name, first, items), total) for name, first, total, items in rows]
    sound = all(list_sum(part) == total for part, total in read)
    return [part for part, _ in read] if sound else None


def read_execution(row: Sequence[Any]) -> ExecutionRecord:
    """Return a record from `sql.EXECUTION_COLUMNS`, with outputs and error if selected.

    Args:
        row: The columns in that order.
    """
    fields, what = [*row], f"execution {row[0]}"
    fields[5] = unpack_labels(row[5], what)
    fields[10] = {} if row[10] is None else unpack_key_inputs(row[10], what)
    return ExecutionRecord(*fields)


def read_wait(
    row: Sequence[Any], votes: list[bytes], whole: Callable[[bytes], bytes]
) -> ListedWait:
    """Return a record from `sql.WAIT_COLUMNS`.

    Args:
        row: The columns in that order. The last three are not part of the record.
        votes: All answers, if requested.
        whole: Returns packed data from stored data.
    """
    id, execution, flow, number, record, decision, how, closed_at, result = row[:9]
    kept = unpack_wait(whole(record), f"wait {id}")
    decision, result = (None if item is None else whole(item) for item in (decision, result))
    return ListedWait(id, execution, flow, number, kept, decision, votes, how, closed_at, result)


def read_holder(row: Sequence[Any]) -> Owner | None:
    """Return the owner from `sql.HOLDER`, or None if the lease has no holder.

    Args:
        row: The columns in that order.
    """
    return None if row[1] is None else Owner(*row[1:6])


def read_events(rows: Iterable[Sequence[Any]], first: int, where: str) -> list[JournalEntry]:
    """Return the events of a journal and check that they are intact and in order.

    Args:
        rows: (seq, at, checksum, payload) in order.
        first: The required seq of the first event.
        where: The name of the journal in errors.

    Returns:
        The events.

    Raises:
        StoreError: An event is missing or damaged.
    """
    entries = []
    for expected, (seq, at, total, payload) in enumerate(rows, first):
        if seq != expected:
            raise StoreError(f"entry {expected} of {where} is missing", hint=DAMAGE_HINT)
        # Damage can change the type of a column too.
        sound = type(payload) is bytes and type(at) is int
        if not sound or event_row(0, seq, (at, payload))[2] != total:
            raise StoreError(f"entry {seq} of {where} is damaged", hint=DAMAGE_HINT)
        entries.append(JournalEntry(seq, at, payload))
    return entries


# Long texts stored beside an execution's journal, as references into the journal.
#
# Questions, their answers and results, and messages mostly repeat texts of events of the same
# execution. They are packed with places instead of these texts, and unpacking restores the texts.

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
