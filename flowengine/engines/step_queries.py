"""What views ask of the rows of an execution's steps."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import nullcontext

from flowengine.journal.records import OVER, StepRow
from flowengine.journal.step_table import OWN, TABLE, StepTable, quoted, write_steps

_STEPS = f"FROM steps WHERE {OWN} AND id > :first AND since < :before ORDER BY"
_STATES = f"""SELECT id & 0xffffffff, address, step, status,
    coalesce(ended_by < :before AND (until IS NOT NULL OR status IN ({quoted(OVER)})), 0)
    {_STEPS} id"""
_NOTED = f"""{OWN} AND (error IS NOT NULL OR notes IS NOT NULL
    OR address IN (SELECT value FROM json_each(:addresses)))"""
_FIRST_FAILURE = f"SELECT min(ended_by) FROM steps WHERE {OWN} AND error IS NOT NULL"
_ORDERS = {
    "time": "ended - started DESC NULLS FIRST",
    "attempts": "attempt DESC",
    "error": "error IS NULL, ended",
    "tokens": "tokens DESC",
    "cost": "cost DESC",
}


def states(table: StepTable, before: int) -> Sequence[tuple[int, str, str, str, bool]]:
    """Return number, address, step id and status of all rows but that of the execution.

    Args:
        table: The rows.
        before: Number of the first event to leave out. The last item is False for a row that has
            another status before it, or may have.
    """
    return table.read(_STATES, before=before)


def ordered(table: StepTable, by: str, before: int) -> Sequence[tuple[int, str]]:
    """Return number and address of all rows but that of the execution, in another order.

    Args:
        table: The rows.
        by: `time`: what has not ended, then the slowest. `attempts`, `tokens`, `cost`: most first.
            `error`: what failed, in order.
        before: Number of the first event to leave out. The rows have the results of later ones.
    """
    query = f"SELECT id & 0xffffffff, address {_STEPS} {_ORDERS[by]}, id"
    return table.read(query, before=before)


def rows_before(table: StepTable, before: int) -> Sequence[StepRow]:
    """Return all rows, and that of the execution.

    Args:
        table: The rows.
        before: Number of the first event to leave out. The rows have the results of later ones.
    """
    return table.rows(f"{OWN} AND since < :before", before=before)


def rows_from(table: StepTable, first: int, count: int) -> Sequence[StepRow]:
    """Return rows: the number of the first one, and how many numbers."""
    return table.rows(
        "id >= :first + :from AND id < :first + :to", **{"from": first}, to=first + count
    )


def noted(table: StepTable, addresses: Sequence[str]) -> Sequence[StepRow]:
    """Return the rows with an error or with notes, and all rows at some addresses."""
    return table.rows(_NOTED, addresses=json.dumps(addresses))


def first_failure(table: StepTable) -> int | None:
    """Return the number of the first event with which a step failed. None: none did."""
    found: int | None = table.read(_FIRST_FAILURE)[0][0]
    return found


def steps_in_memory(rows: Iterable[StepRow]) -> StepTable:
    """Return a table of rows that are in no store."""
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    connection.execute(TABLE)
    connection.execute("CREATE TABLE executions AS SELECT 1 AS number, '' AS id")
    write_steps(connection, 1, rows)
    return StepTable(lambda: nullcontext(connection), "")
