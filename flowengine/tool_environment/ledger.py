"""The ledger: what an environment has to know in its next process.

It holds what began, what came of it, and what tools keep in `ctx.state`. A call whose result is in
the ledger never runs again; one that has begun and has no result is `uncertain`.
"""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

from flowengine.journal.encoding import pack, unpack


class Ledger(Protocol):
    """Keeps plain data by key. `put` returns when it is safe."""

    def get(self, key: str) -> Any:
        """Return what is kept under a key, or None.

        Args:
            key: The key.
        """

    def put(self, key: str, value: Any) -> None:
        """Keep plain data under a key.

        Args:
            key: The key.
            value: Plain data.
        """


class MemoryLedger:
    """Keeps it as long as the process lives."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    def get(self, key: str) -> Any:
        """Return what is kept under a key, or None."""
        packed = self._values.get(key)
        return None if packed is None else unpack(packed)

    def put(self, key: str, value: Any) -> None:
        """Keep plain data under a key."""
        self._values[key] = pack(value)


class SqliteLedger:
    """Keeps it in an SQLite file; any number of processes may share one.

    Args:
        path: The file; it is made if it is not there.
    """

    def __init__(self, path: str | Path) -> None:
        import sqlite3

        self._lock = threading.Lock()
        self._database = sqlite3.connect(path, check_same_thread=False, timeout=30)
        with self._lock, closing(self._database.cursor()) as cursor:
            cursor.execute("PRAGMA journal_mode=WAL")
            cursor.execute("PRAGMA synchronous=FULL")
            cursor.execute("CREATE TABLE IF NOT EXISTS ledger (key TEXT PRIMARY KEY, value BLOB)")
            self._database.commit()

    def get(self, key: str) -> Any:
        """Return what is kept under a key, or None."""
        with self._lock:
            found = self._database.execute(
                "SELECT value FROM ledger WHERE key = ?", (key,)
            ).fetchone()
        return None if found is None else unpack(found[0])

    def put(self, key: str, value: Any) -> None:
        """Keep plain data under a key."""
        with self._lock, self._database:
            self._database.execute(
                "INSERT OR REPLACE INTO ledger (key, value) VALUES (?, ?)", (key, pack(value))
            )

    def close(self) -> None:
        """Close the file."""
        self._database.close()
