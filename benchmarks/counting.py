"""A store that counts what it is given."""

from __future__ import annotations

from collections.abc import Sequence

from flowengine import Conflict
from flowengine.journal.records import Append
from flowengine.journal.sqlite.store import SqliteStore


class CountingStore(SqliteStore):
    """A store that counts the bytes it is given to write: events, snapshots and their lists."""

    written = 0

    def commit(self, appends: Sequence[Append]) -> list[Conflict | None]:
        for append in appends:
            self.written += sum(len(body) for _at, body in append.events)
            self.written += len(append.snapshot[1]) if append.snapshot else 0
            self.written += sum(len(part.items) for part in append.lists)
        return super().commit(appends)
