"""The limit: what SQLite alone needs for one insert and one commit of the same bytes a step."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

SYNCHRONOUS = {"power": "FULL", "process": "NORMAL"}


def connect(path: Path, durability: str) -> sqlite3.Connection:
    """Open a database as the store opens its own."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={SYNCHRONOUS[durability]}")
    connection.execute("CREATE TABLE IF NOT EXISTS entry (id INTEGER PRIMARY KEY, body BLOB)")
    return connection


def commits(
    folder: Path, durability: str, bodies: list[bytes], clock: Callable[[], float]
) -> float:
    """Return the seconds, by a clock, for one insert and commit of each body."""
    connection = connect(folder / f"limit-{durability}-{time.monotonic_ns()}.db", durability)
    began = clock()
    for body in bodies:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO entry (body) VALUES (?)", (body,))
        connection.execute("COMMIT")
    took = clock() - began
    connection.close()
    return took
