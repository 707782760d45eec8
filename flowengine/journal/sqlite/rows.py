"""Conversion of rows of the SQLite store into records of the port, and back to row numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flowengine.errors import StoreError
from flowengine.journal.encoding import checksum
from flowengine.journal.records import ExecutionRecord, JournalEntry, ListedWait, ListPart, Owner
from flowengine.journal.shapes import DAMAGE_HINT, unpack_labels, unpack_wait


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
    labels = unpack_labels(row[5], f"execution {row[0]}")
    outputs, error = row[13:] or (None, None)
    return ExecutionRecord._make((*row[:5], labels, *row[6:13], outputs, error))


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
