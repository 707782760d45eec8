"""Records of executions and waits in the memory store."""

from __future__ import annotations

from flowengine.journal.encoding import unpack
from flowengine.journal.records import ENDED, Entry, ExecutionRecord, Head, ListPart, Vote, Wait


class Journal:
    """An execution with all its data."""

    __slots__ = ("artifacts", "deaths", "entries", "epoch", "forms", "keys", "lists", "number",
                 "owner", "record", "snapshot")  # fmt: skip

    def __init__(self, number: int, record: ExecutionRecord, owner: str | None) -> None:
        self.number = number
        self.record = record
        self.entries: list[Entry] = []
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

    def add_to_list(self, part: ListPart) -> None:
        """Add a part to a list, or replace the end of the list by it."""
        kept = [one for one in self.lists.pop(part.name, ()) if one.first < part.first]
        if kept or part.items:
            self.lists[part.name] = [*kept, part] if part.items else kept

    def let_go(self) -> None:
        """Release the lease."""
        self.owner = None
        self.epoch += 1
        self.deaths = 0

    def set_head(self, head: Head) -> None:
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

    def __init__(self, place: int, wait: Wait) -> None:
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

    def show(self, *, votes: bool) -> Wait:
        """Return the wait as the port returns it."""
        answers = [vote.event for vote in self.votes] if votes else []
        return self.wait._replace(record=unpack(self.packed), votes=answers)
