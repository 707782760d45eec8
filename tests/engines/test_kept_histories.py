# Shows V51, V58
"""Executions that are shown again and again: only their new events are read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.folds import FoldRow, Folds
from flowengine.engines.inspection.replayed import Replayed
from flowengine.errors import StoreError
from flowengine.journal.reading import HistoryPort
from tests.engines import world

FLOW = """
flowengine: 1
id: f
state: {n: {type: integer, default: 0}}
steps:
  - {id: a, python: {function: "works:a"}, set: {n: "${{ state.n + 1 }}"}}
  - {id: b, approval: {title: Good?}}
  - {id: c, python: {function: "works:c"}}
outputs: {n: "${{ state.n }}"}
"""
WORKS = """
import time
from pathlib import Path

def hold():
    Path("held").touch()
    while not Path("go").exists():
        time.sleep(0.01)

def a():
    if not Path("fixed").exists():
        raise ValueError("no")

def c():
    if not Path("mended").exists():
        raise ValueError("not yet")
"""

MANY = """
flowengine: 1
id: many
steps:
  - id: rounds
    loop: {until: "${{ round.number >= 3 }}", max: 5}
    group: [{id: count, output: "${{ round.number }}"}]
  - id: each
    map: {over: 5, as: n, on_item_error: continue}
    group:
      - {id: odd, when: "${{ n % 2 == 1 }}", approval: {title: Odd?}}
      - {id: bad, when: "${{ n == 2 }}", fail: {message: two}}
  - id: outer
    group:
      - id: both
        parallel:
          - {id: ask, approval: {title: Fine?}}
          - {id: a, python: {function: "works:a"}}
      - id: then
        parallel:
          - {id: hold, python: {function: "works:hold"}}
          - {id: late, group: [{id: asks, approval: {title: Late?}}]}
  - {id: c, python: {function: "works:c"}}
"""

EACH = """
flowengine: 1
id: each
steps:
  - {id: each, map: {over: 8, as: n}, python: {function: "works:a"}}
  - {id: sign, approval: {title: Good?}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "works.py").write_text(WORKS)
    (tmp_path / "f.yaml").write_text(FLOW)
    (tmp_path / "many.yaml").write_text(MANY)
    (tmp_path / "each.yaml").write_text(EACH)
    return tmp_path


def test_what_is_kept_shows_the_same_as_a_new_reading_at_every_moment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine("store") as driver, Engine("store") as keeper, Engine("store") as fresh:
        keeper.keep_histories()
        reads = world.note_reads(keeper, monkeypatch)
        id = driver.start("f.yaml")

        def check() -> None:
            for tries in (False, True):
                shown, expected = (
                    engine.executions.show(id, tries=tries) for engine in (keeper, fresh)
                )
                assert shown == expected

        check()
        driver.resume(id)
        check()
        assert keeper.executions.show(id, step="a") == fresh.executions.show(id, step="a")
        Path("fixed").touch()
        result = driver.executions.retry(id)
        check()
        driver.approvals.approve(result.waits[0]["id"])
        check()
        Path("mended").touch()
        assert driver.executions.retry(id).status == "succeeded"
        check()
        known = len(list(driver.executions.events(id)))
        assert keeper.executions.show(id, tries=True)["status"] == "succeeded"
        assert reads[-1].since == known


def test_no_more_is_kept_than_permitted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("fixed").touch()
    with Engine("store") as engine:
        first, second = (engine.run("f.yaml").execution for _ in range(2))
        entries = len(list(engine.executions.events(first)))
        engine.keep_histories(2 * len(engine.executions.show(first)["steps"]) - 1)
        reads = world.note_reads(engine, monkeypatch)
        for id in (first, first, second, first):
            engine.executions.show(id)
        assert [read.since for read in reads if read.id == first] == [0, entries, 0]


def shown(engine: Engine, id: str) -> tuple[str, list[str]]:
    with engine.executions.folds(id) as (info, folds):
        return info["execution"], addresses(folds.steps_inside(""))


def addresses(steps: Iterable[Mapping[str, Any]]) -> list[str]:
    return [step["address"] for step in steps]


def until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 300
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)


def shapes(rows: list[FoldRow]) -> list[Any]:
    """Return rows without the values of their steps, which a page of them does not have."""
    keys = ("address", "step", "kind", "status", "attempts", "started_at", "ended_at")
    return [
        (
            *row[:2],
            row.step and {key: row.step.get(key) for key in keys},
            *row[3:-1],
            shapes(row.rows),
        )
        for row in rows
    ]


def test_while_a_journal_is_read_other_executions_are_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, go_on = threading.Event(), threading.Event()

    with Engine("store") as engine:
        slow, other = (engine.run("f.yaml").execution for _ in range(2))
        engine.keep_histories()
        events = type(engine.store).events

        def held(store: HistoryPort, id: str, *given: Any, **more: Any) -> Any:
            if id == slow and threading.current_thread() is reader:
                reading.set()
                assert go_on.wait(300)
            return events(store, id, *given, **more)

        monkeypatch.setattr(type(engine.store), "events", held)
        reader = threading.Thread(target=shown, args=(engine, slow))
        reader.start()
        try:
            assert reading.wait(300)
            assert shown(engine, other)[0] == other
        finally:
            go_on.set()
            reader.join()


def test_a_journal_that_cannot_be_read_is_not_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine("store") as engine:
        id = engine.run("f.yaml").execution
        engine.keep_histories()
        expected = shown(engine, id)
        engine.keep_histories()
        damaged: dict[str, Any] = {}
        with monkeypatch.context() as patch:
            patch.setattr(Replayed, "_add", lambda *_: damaged["key"])
            with pytest.raises(StoreError):
                shown(engine, id)
        assert shown(engine, id) == expected


def run_many(engine: Engine) -> str:
    """Run the flow with items, rounds and groups until it has failed, and return its id."""
    result = engine.run("many.yaml")
    for wait in result.waits:
        engine.approvals.approve(wait["id"])
    assert engine.executions.result(result.execution).status == "failed"
    return result.execution


@pytest.mark.endurance
# Shows V52
def test_what_was_is_the_same_from_what_is_kept_in_any_order(folder: Path) -> None:
    """Forwards, backwards and in leaps, also through retries that go back."""
    Path("go").touch()
    with Engine("store") as keeper, Engine("store") as fresh:
        keeper.keep_histories()
        many = run_many(keeper)
        id = keeper.run("f.yaml").execution
        Path("fixed").touch()
        keeper.approvals.approve(keeper.executions.retry(id).waits[0]["id"])
        Path("mended").touch()
        assert keeper.executions.retry(id).status == "succeeded"
        for one in (many, id):
            entries = list(fresh.executions.events(one))
            assert len(entries) > 3
            past = [fresh.executions.show(one, until=number) for number in range(len(entries) + 2)]
            keeper.executions.show(one)
            assert list(keeper.executions.events(one, from_seq=2)) == entries[2:]
            for number in (*range(len(past)), *reversed(range(len(past))), 2, len(entries), 3):
                with keeper.executions.folds(one, until=number) as (info, folds):
                    assert info == {**past[number], "steps": []}
                    expected = Folds.of(past[number]["steps"])
                    assert folds.statuses() == expected.statuses()
                    assert shapes(folds.level("").rows) == shapes(expected.level("").rows)
                assert keeper.executions.show(one, until=number) == past[number]
            assert keeper.executions.show(one) == fresh.executions.show(one)


# Shows V52
def test_what_was_before_an_upgrade_is_read_with_the_flow_of_that_time(folder: Path) -> None:
    with Engine("store") as keeper, Engine("store") as fresh:
        keeper.keep_histories()
        Path("fixed").touch()
        id = keeper.run("f.yaml").execution
        before = [fresh.executions.show(id, until=number) for number in range(1, 3)]
        Path("f.yaml").write_text(
            FLOW.replace("Good?", "Better?").replace(
                "  - {id: c",
                """\
  - {id: between, output: 1}
  - {id: c""",
            )
        )
        keeper.executions.upgrade("f.yaml", id)
        for engine in (fresh, keeper):
            for number in (2, 1):
                shown = engine.executions.show(id, until=number)
                assert shown["steps"] == before[number - 1]["steps"]
                assert [wait["title"] for wait in shown["waits"]] == ["Good?"] * (number - 1)
