# Shows F79, T45, V54, V61
"""All stores of this project pass the suite that is shipped for third-party stores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flowengine.engines.memory.store import MemoryStore
from flowengine.journal.lease_holders import IsDead
from flowengine.journal.sqlite.store import SqliteStore
from flowengine.journal.store import JournalStore
from tests.testing.faulty_store import FaultyStore
from tests.testing.store_conformance import CHECKS, Check

Make = Callable[[Path, IsDead], JournalStore]


def sqlite(folder: Path, is_dead: IsDead) -> JournalStore:
    return SqliteStore(folder / "store" / "flowengine.db", "none", is_dead=is_dead)


def memory(folder: Path, is_dead: IsDead) -> JournalStore:
    return MemoryStore(is_dead=is_dead)


def faulty(folder: Path, is_dead: IsDead) -> JournalStore:
    return FaultyStore(lambda own_view: MemoryStore(is_dead=is_dead))


@pytest.mark.parametrize("make", [sqlite, memory, faulty], ids=lambda make: make.__name__)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_store_conforms(check: Check, make: Make, tmp_path: Path) -> None:
    check(lambda is_dead: make(tmp_path, is_dead))
