"""The contents of a store, for tests that search it for secrets."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from tests.own_environments import environments_in


def stored_in(folder: str | Path) -> dict[str, bytes]:
    """Return everything below a directory, and in the directory of the environments of its store.

    Returns:
        The contents of each file, and each compressed record of a database as it was before.
    """
    found: dict[str, bytes] = {}
    for below in (Path(folder), environments_in(Path(folder))):
        for path in below.rglob("*"):
            if path.is_file() and not path.is_symlink():
                found[str(path.relative_to(below))] = path.read_bytes()
                found |= _records(path)
    return found


def _records(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the compressed records of a database. Their bytes in the file hide their text."""
    if path.suffix != ".db":
        return
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        tables = database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        for (table,) in tables:
            for number, row in enumerate(database.execute(f'SELECT * FROM "{table}"')):
                for place, value in enumerate(row):
                    if isinstance(value, bytes):
                        with suppress(zlib.error):
                            yield (
                                f"{path.name}: {table}, row {number}, {place}",
                                zlib.decompress(value),
                            )
