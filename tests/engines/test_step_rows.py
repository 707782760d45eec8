# Shows V51
"""Steps as rows: every view is that of a replay, and little is replayed for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.executions import execution, linked_flows
from flowengine.engines.interventions import retrying
from flowengine.journal.sqlite.store import SqliteStore
from flowengine.kernel import advance
from flowengine.page.timeline import timeline
from tests.replacing import Limits

WORKS = """
from pathlib import Path

def work(n):
    if n == 17:
        raise ValueError("17")
    return "x" * 30

def late(n):
    if not Path("fixed").exists():
        raise ValueError("late")
    return ["y" * 2000]
"""
LONG = """
flowengine: 1
id: long
state: {n: {type: integer, default: 0}}
steps:
  - id: rounds
    loop: {until: "${{ round.number >= 9 }}", max: 20}
    group:
      - id: count
        python: "works:work"
        with: {n: "${{ round.number }}"}
        set: {n: "${{ state.n + 1 }}"}
      - {id: even, when: "${{ state.n % 2 == 0 }}", output: "${{ [state.n] }}"}
  - id: each
    map: {over: 30, as: n, on_item_error: continue}
    group:
      - id: one
        python: "works:work"
        effect: idempotent
        with: {n: "${{ n }}"}
        retry: {attempts: 2, delay: 1ms}
      - {id: late, when: "${{ n % 20 == 7 }}", approval: {title: "Good ${{ n }}?"}}
  - {id: plain, map: 12, python: "works:work", with: {n: "${{ item }}"}}
  - id: both
    parallel:
      - {id: sign, approval: {title: Good?}}
      - {id: pause, wait: 1ms}
  - {id: last, python: "works:late", with: {n: 1}}
outputs: {n: "${{ state.n }}"}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: Limits) -> Path:
    monkeypatch.chdir(tmp_path)
    limits(execution, SMALLEST_TAIL=1_000)
    (tmp_path / "works.py").write_text(WORKS)
    (tmp_path / "long.yaml").write_text(LONG)
    return tmp_path


@contextmanager
def server() -> Iterator[Engine]:
    """Return the engine of a server that was just started."""
    with Engine("store") as engine:
        yield engine


@contextmanager
def replaying(patch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """Return the engine of a server that finds no index."""
    with patch.context() as patched, server() as engine:
        patched.setattr(SqliteStore, "steps", lambda *_: None)
        yield engine


def overview(engine: Engine, id: str, until: int | None = None) -> Any:
    """Return what the page shows of the steps."""
    info, folds = engine.executions.folds(id, until=until)
    begun = info["started_at"]
    levels = [shown(folds.level(at).rows) for at in ("", "each", "each[7]", "rounds@3", "plain")]
    failed = [(step["address"], step["error"]) for step in folds.failures()[0]]
    lines = timeline(folds, begun, 2**45, "", 0, (0, 0)).bars
    return deepcopy((info, levels, folds.statuses(), failed, lines))


def one(engine: Engine, id: str, step: Any) -> Any:
    """Return a step with its values."""
    return deepcopy(engine.executions.show(id, step=step["address"]))


def shown(rows: Any) -> Any:
    """Return rows with what lists and timelines show of their steps."""
    keys = ("address", "step", "kind", "status", "attempts", "started_at", "ended_at", "error")
    return [
        (
            *row[:2],
            row.step and {key: row.step.get(key) for key in keys},
            *row[3:-1],
            shown(row.rows),
        )
        for row in rows
    ]


@pytest.fixture
def applied(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return what returns how many events were applied since the last call."""
    events = list[object]()
    apply = linked_flows.apply

    def counted(flows: Any, graph: Any, state: Any, event: Any, observe: Any = None) -> Any:
        events.append(event["type"])
        return apply(flows, graph, state, event, observe)

    monkeypatch.setattr(linked_flows, "apply", counted)

    def found() -> int:
        count = len(events)
        events.clear()
        return count

    return found


def compare(id: str, patch: pytest.MonkeyPatch, applied: Callable[[], int]) -> int:
    """Compare all views with those of a replay, and return the length of the journal."""
    with replaying(patch) as engine:
        entries = list(engine.executions.events(id))
        now, whole = overview(engine, id), engine.executions.show(id)
        single = {step["address"]: one(engine, id, step) for step in whole["steps"][::3]}
        moments = range(1, len(entries) + 2, 7)
        past = [overview(engine, id, until) for until in moments]
    applied()
    with server() as engine:
        assert overview(engine, id) == now
        if now[0]["status"] != "failed":  # how it can be continued depends on all events
            assert applied() < len(entries) / 2
        assert engine.executions.show(id) == whole
        for address, expected in single.items():
            assert one(engine, id, {"address": address}) == expected
    for until, expected in zip(moments, past, strict=True):
        with server() as engine:
            assert overview(engine, id, until) == expected
    with server() as engine:
        assert [overview(engine, id, until) for until in reversed(moments)] == past[::-1]
        for since in range(0, len(entries), 11):
            found = islice(engine.executions.events(id, from_seq=since), 5)
            assert list(found) == entries[since : since + 5]
    return len(entries)


def test_every_view_is_that_of_a_replay(
    folder: Path, monkeypatch: pytest.MonkeyPatch, applied: Callable[[], int]
) -> None:
    with Engine("store") as driver:
        result = driver.run("long.yaml")
        id = result.execution
        compare(id, monkeypatch, applied)
        approve_all(driver, result)
        assert driver.executions.result(id).status == "failed"
        compare(id, monkeypatch, applied)
        assert len(snapshots(driver, id)) > 3


def test_a_past_moment_is_replayed_from_a_snapshot_near_by(
    folder: Path, applied: Callable[[], int]
) -> None:
    with Engine("store") as driver:
        result = driver.run("long.yaml")
        approve_all(driver, result)
        id = result.execution
        length = len(list(driver.executions.events(id)))
    with server() as engine:
        applied()
        overview(engine, id, length // 2)
        assert applied() < length / 2
        list(islice(engine.executions.events(id, from_seq=length // 2), 5))
        assert applied() < length / 2


@pytest.mark.endurance
def test_a_fork_has_an_index_of_its_past(
    folder: Path, monkeypatch: pytest.MonkeyPatch, applied: Callable[[], int]
) -> None:
    with Engine("store") as driver:
        result = driver.run("long.yaml")
        approve_all(driver, result)
        Path("fixed").touch()
        fork = driver.executions.fork(result.execution, from_step="both/sign")
        compare(fork.execution, monkeypatch, applied)
        approve_all(driver, fork)
        assert driver.executions.result(fork.execution).status == "succeeded"
        compare(fork.execution, monkeypatch, applied)


@pytest.mark.endurance
def test_an_upgraded_execution_has_an_index_under_both_flows(
    folder: Path, monkeypatch: pytest.MonkeyPatch, applied: Callable[[], int]
) -> None:
    with Engine("store") as driver:
        result = driver.run("long.yaml")
        id = result.execution
        late = LONG.index("  - {id: plain")
        new = LONG[:late] + "      - {id: extra, output: 1}\n" + LONG[late:]
        Path("new.yaml").write_text(new.replace("works:late", "works:work"))
        [moved] = driver.executions.upgrade("new.yaml", id)
        assert moved["moved"], moved
        compare(id, monkeypatch, applied)
        approve_all(driver, driver.executions.result(id))
        assert driver.executions.result(id).status == "succeeded"
        compare(id, monkeypatch, applied)


def approve_all(driver: Engine, result: Any) -> None:
    while result.waits:
        driver.approvals.approve(result.waits[0]["id"])
        result = driver.executions.result(result.execution)


def snapshots(engine: Engine, id: str) -> list[int]:
    """Return the numbers of events that the snapshots of an execution include."""
    assert isinstance(engine.store, SqliteStore)
    query = "SELECT seq FROM snapshots JOIN executions ON number = execution WHERE id = ?"
    return [seq for (seq,) in engine.store._database.connection().execute(query, (id,))]


ENDS = """
flowengine: 1
id: ends
steps:
  - id: many
    map: {over: 40, as: n, on_item_error: continue}
    python: "works:work"
    with: {n: "${{ n + START }}"}
  - {id: made, python: "works:work", with: {n: 1}, UNDO}
  - {id: more, map: 40, python: "works:work", with: {n: "${{ item + 100 }}"}}
  - {id: last, python: "works:late", with: {n: 1}}
"""


@pytest.mark.parametrize(
    ("start", "undo", "how", "is_short"),
    [
        (100, "effect: pure", "retry", True),
        (0, "effect: pure", "retry", False),  # the failure of an item may be a cause
        (100, 'compensate: {python: "works:work", with: {n: 1}}', "fork", False),
    ],
)
def test_how_a_failed_one_continues_is_found_from_a_snapshot_before_its_failure(
    folder: Path, monkeypatch: pytest.MonkeyPatch, start: int, undo: str, how: str, is_short: bool
) -> None:
    text = ENDS.replace("START", str(start)).replace("UNDO", undo)
    Path("ends.yaml").write_text(text + ("on_error: compensate\n" if how == "fork" else ""))
    with Engine("store") as driver:
        id = driver.run("ends.yaml").execution
    applied: list[Any] = []

    def counted(graph: Any, state: Any, event: Any, *more: Any) -> Any:
        applied.append(event)
        return advance(graph, state, event, *more)

    monkeypatch.setattr("flowengine.engines.interventions.retracing.advance", counted)
    with server() as engine:
        length = len(list(engine.executions.events(id)))
        command = engine.executions.show(id)["command"]
        assert (0 < len(applied) < length / 2) == is_short
        applied.clear()
        [reason] = engine.executions.why(id)
        assert reason["command"] == command
        assert applied == []
    assert command.split()[1] == how
    monkeypatch.setattr(retrying, "_before_failure", lambda *_: None)
    with server() as engine:
        assert engine.executions.show(id)["command"] == command
