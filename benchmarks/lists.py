"""How soon a process that has just started lists and searches a million executions.

Seconds are wall-clock time of the first list that a new process reads, by each filter. The store is
filled without the engine: by its tables, whose triggers keep the counts, and its index of words.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from flowengine import Engine
from flowengine.journal.encoding import pack
from flowengine.journal.sqlite import search
from flowengine.journal.sqlite.store import SqliteStore
from flowengine.store_folder import DATABASE

COUNT = 1_000_000
_STARTED = 1_700_000_000_000
_FLOWS = [f"flow_{n}" for n in range(20)]
_ERRORS = ("the totals differ by 12 EUR", "connection reset by peer", "the API answered 503")
_TITLES = (
    "Order fulfilment",
    "Release of the shop",
    "Import of invoices",
    "Onboarding of Ida Berg",
)

FILTERS: dict[str, dict[str, Any]] = {
    "all": {},
    "flow": {"flow": "flow_3"},
    "status, common": {"status": "succeeded"},
    "status, rare": {"status": "cancelled"},
    "status, none": {"status": "stalled"},
    "label, common": {"labels": {"region": "eu"}},
    "label, rare": {"labels": {"customer": "c77"}},
    "since": {"since": _STARTED + COUNT * 900},
    "flow and status": {"flow": "flow_3", "status": "failed"},
    "label and status, both rare": {"labels": {"customer": "c77"}, "status": "cancelled"},
    "label and status, never together": {"labels": {"first": "yes"}, "status": "cancelled"},
    "labels, flow, status, since": {
        "labels": {"region": "eu", "customer": "c77"},
        "flow": "flow_17",
        "status": "succeeded",
        "since": _STARTED,
    },
}
"""What is listed → arguments of `Engine.executions.list`."""
SEARCHES: dict[str, dict[str, Any]] = {
    "one title": {"search": "number 424242"},
    "an error": {"search": "totals differ"},
    "the beginning of words": {"search": "conn res"},
    "a word that every execution has": {"search": "number"},
    "nothing": {"search": "nowhere"},
    "an error of a flow": {"search": "503", "flow": "flow_3"},
    "an error with a label, a status, a time": {
        "search": "answered",
        "labels": {"region": "us"},
        "status": "failed",
        "since": _STARTED + COUNT * 500,
    },
    "an id": {"search": "e0424242"},
}


class ListTimes(NamedTuple):
    """Seconds of the slowest list, with its name."""

    listed: tuple[float, str]
    found: tuple[float, str]
    counted: float


def seconds(folder: Path) -> ListTimes:
    """Return how long lists take in a new store in a folder."""
    fill(folder, COUNT)
    listed, found = (
        max((_first(folder, "executions", given), name) for name, given in filters.items())
        for filters in (FILTERS, SEARCHES)
    )
    return ListTimes(listed, found, _first(folder, "counts", {}))


def fill(folder: Path, count: int) -> None:
    """Create a store of executions that have ended or wait."""
    folder.mkdir(parents=True, exist_ok=True)
    store = SqliteStore(folder / DATABASE, "none")
    with store._database.writing() as connection:
        connection.executemany(
            "INSERT INTO executions (number, id, flow, version, hash, created_at, labels,"
            " started_by, status, changed_at, ended_at, error, title, key_inputs, failure)"
            " VALUES (?, ?, ?, '1', 'f', ?, ?, 'user:ana', ?, ?, ?, ?, ?, ?, ?)",
            (_row(number) for number in range(1, count + 1)),
        )
        connection.execute("INSERT INTO leases (execution, epoch) SELECT number, 0 FROM executions")
        connection.executemany(
            "INSERT INTO labels VALUES (?, ?, ?, ?)",
            (
                (*label, _at(number), number)
                for number in range(1, count + 1)
                for label in _labels(number, count).items()
            ),
        )
    search.index_all(store._database)
    store.close()


def _row(number: int) -> tuple[Any, ...]:
    status = _status(number)
    message = _ERRORS[number % 3] if status == "failed" else None
    at = _at(number)
    return (
        number,
        f"e{number:07}",
        _FLOWS[number % 20],
        at,
        pack(_labels(number, COUNT)),
        status,
        at + 5000,
        None if status == "waiting" else at + 5000,
        None if message is None else pack({"type": "Error", "message": message}),
        _TITLES[number % 4],
        pack({"number": number}),
        message,
    )


def _at(number: int) -> int:
    return _STARTED + number * 1000


def _status(number: int) -> str:
    if number % 10 == 3:
        return "failed"
    if number % 1000 == 7:
        return "cancelled"
    return "waiting" if number % 2000 == 11 else "succeeded"


def _labels(number: int, count: int) -> dict[str, str]:
    labels = {"region": "eu" if number % 2 else "us", "customer": f"c{number % 500}"}
    return {**labels, "first": "yes"} if number % 1000 != 7 and number < count // 2 else labels


def _first(folder: Path, method: str, given: dict[str, Any]) -> float:
    """Return the seconds that a call takes in a new process."""
    command = [sys.executable, "-m", "benchmarks.lists", str(folder), method, json.dumps(given)]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(run.stdout)


def _measure(folder: str, method: str, given: str) -> Iterator[float]:
    with Engine(folder) as engine:
        engine.store.counts(["none"])  # the connection is open
        began = time.perf_counter()
        getattr(engine, method)(**json.loads(given))
        yield time.perf_counter() - began


if __name__ == "__main__":
    print(*_measure(*sys.argv[1:]))
