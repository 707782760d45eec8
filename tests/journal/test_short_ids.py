"""Ids are shortened to an unambiguous prefix."""

from __future__ import annotations

from flowengine.engines.memory.store import MemoryStore
from flowengine.journal.short_ids import SHORT_EXECUTION, shortest
from tests.rows import each_row

ULID = "01k8xq7mf4jb2y9s0v3n5p6r8t"


@each_row(
    ("id", "shown"),
    [
        (ULID, ULID[:12]),
        ("3f2a" * 8, "3f2a" * 3),
        ("0b9f3c58-6a6e-4a43-9d7e-2f4f5b8e1c11", "0b9f3c58-6a6"),
        ("expense-2026-11", "expense-2026-11"),
        ("nightly import of all the orders", "nightly import of all the orders"),
        ("facade", "facade"),
    ],
)
def test_only_generated_ids_are_shortened(id: str, shown: str) -> None:
    assert shortest(id, (), SHORT_EXECUTION) == shown
    assert MemoryStore().short_execution(id) == shown


def test_a_generated_id_differs_from_its_neighbors() -> None:
    assert shortest(ULID, [ULID[:14] + "x" * 12], SHORT_EXECUTION) == ULID[:15]
