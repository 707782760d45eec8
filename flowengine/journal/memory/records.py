"""Records of executions and waits in the memory store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from flowengine.journal.encoding import unpack
from flowengine.journal.records import (
    ENDED,
    ExecutionHead,
    ExecutionRecord,
    JournalEntry,
    ListedWait,
    ListPart,
    NewGrant,
    Vote,
)


class MemoryJournal:
    """An execution with all its data."""

    __slots__ = ("artifacts", "deaths", "entries", "epoch", "first", "forms", "keys", "lists",
                 "number",
                 "owner", "record", "snapshot")  # fmt: skip

    def __init__(self, number: int, record: ExecutionRecord, owner: str | None) -> None:
        self.number = number
        self.record = record
        self.first = 0
        """Number of earlier events that are not kept here."""
        self.entries: list[JournalEntry] = []
        self.snapshot: tuple[int, bytes] | None = None
        self.lists: dict[str, list[ListPart]] = {}
        self.owner = owner
        self.deaths = 0
        """How many owners in a row died."""
        self.epoch = 0 if owner is None else 1
        self.keys: set[tuple[str, str, int | None]] = set()
        """(signal, key, number of the listening wait or None for the whole execution)."""
        self.artifacts: set[str] = set()
        self.forms: set[str] = set()

    @property
    def length(self) -> int:
        """Number of all events."""
        return self.first + len(self.entries)

    def copy(self, first: int) -> dict[str, Any]:
        """Return it as plain data, without the events before a number."""
        first = max(first, self.first)
        return {
            "record": [*self.record],
            "first": first,
            "entries": [[*entry] for entry in self.entries if entry.seq >= first],
            "snapshot": None if self.snapshot is None else [*self.snapshot],
            "lists": [[*part] for parts in self.lists.values() for part in parts],
            "keys": [[*key] for key in sorted(self.keys, key=repr)],
            "forms": sorted(self.forms),
        }

    @classmethod
    def of(cls, number: int, copy: Mapping[str, Any]) -> Self:
        """Return the journal that `copy` returned."""
        journal = cls(number, ExecutionRecord(*copy["record"]), None)
        journal.first = copy["first"]
        journal.entries = [JournalEntry(*entry) for entry in copy["entries"]]
        journal.snapshot = None if copy["snapshot"] is None else tuple(copy["snapshot"])
        for part in copy["lists"]:
            journal.add_to_list(ListPart(*part))
        journal.keys = {(signal, key, wait) for signal, key, wait in copy["keys"]}
        journal.forms = {*copy["forms"]}
        return journal

    def add_to_list(self, part: ListPart) -> None:
        """Add a part to a list, or replace the end of the list by it."""
        kept = [item for item in self.lists.pop(part.name, ()) if item.first < part.first]
        if kept or part.items:
            self.lists[part.name] = [*kept, part] if part.items else kept

    def let_go(self) -> None:
        """Release the lease."""
        self.owner = None
        self.epoch += 1
        self.deaths = 0

    def set_head(self, head: ExecutionHead) -> None:
        """Update the entry for lists."""
        ended = head.status in ENDED
        self.record = self.record._replace(
            status=head.status,
            changed_at=head.at,
            due=None if ended else head.due,
            ended_at=head.at if ended else None,
            outputs=head.outputs,
            error=head.error,
        )
        if ended:
            self.keys.clear()


class KeptWait:
    """A wait with its answers."""

    __slots__ = ("packed", "place", "votes", "wait")

    def __init__(self, place: int, wait: ListedWait) -> None:
        self.place = place
        self.wait = wait
        """Its record is left empty, so that callers cannot modify stored data."""
        self.packed = b""
        self.votes: list[Vote] = []

    @property
    def order(self) -> tuple[int, int]:
        """Position in lists: by age, then by arrival."""
        since: int = unpack(self.packed)["since"]
        return since, self.place

    def show(self, *, votes: bool) -> ListedWait:
        """Return the wait as the port returns it."""
        answers = [vote.event for vote in self.votes] if votes else []
        return self.wait._replace(record=unpack(self.packed), votes=answers)

    def copy(self) -> list[Any]:
        """Return it as plain data."""
        votes = [[*vote[:4], vote.gives and [*vote.gives], vote.uses] for vote in self.votes]
        return [self.place, [*self.wait], self.packed, votes]

    @classmethod
    def of(cls, copy: list[Any]) -> Self:
        """Return the wait that `copy` returned."""
        place, wait, packed, votes = copy
        kept = cls(place, ListedWait(*wait))
        kept.packed = packed
        for by, at, approves, event, gives, uses in votes:
            grant = gives and NewGrant(*gives)
            kept.votes.append(Vote(by, at, approves, event, grant, uses))
        return kept
