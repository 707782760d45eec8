"""The database of a store, for settings and damage that no method of a store shows."""

from __future__ import annotations

import sqlite3

from flowengine.journal.sqlite.store import SqliteStore


def connection_of(store: SqliteStore) -> sqlite3.Connection:
    """Return the connection of a store in this thread."""
    return store._database.connection()  # no method of a store damages it
