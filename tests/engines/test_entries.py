# Shows V51
"""The entries of a journal from a number on: those before the last snapshot are not read."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine import Engine
from tests.engines import world

WORKS = """
from pathlib import Path

def work(n):
    return "x" * 300

def check():
    if not Path("mended").exists():
        raise ValueError("not yet")
"""
LONG = """
flowengine: 1
id: long
steps:
  - {id: begin, python: "works:work", with: {n: 0}}
  - id: each
    map: {over: 150, as: n}
    python: "works:work"
    with: {n: "${{ n }}"}
  - {id: sign, approval: {title: Good?}}
  - {id: check, python: "works:check"}
  - {id: last, approval: {title: Still?}}
"""
GROWING = """
flowengine: 1
id: growing
state: {notes: {type: array, default: [], reducer: append}}
steps:
  - id: each
    loop: {until: "${{ round.number >= 150 }}", max: 200}
    python: "works:work"
    with: {n: 1}
    set: {notes: "${{ [output] }}"}
  - {id: sign, approval: {title: "Good ${{ size(state.notes) }}?"}}
"""
FILES = {"works.py": WORKS, "long.yaml": LONG, "growing.yaml": GROWING}


def snapshot_of(engine: Engine, execution: str) -> int:
    """Return the number of the first event after the last snapshot."""
    found = engine.store.load(execution).snapshot
    assert found is not None
    return found[0]


def test_entries_after_the_last_snapshot_are_those_of_the_whole_journal(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine("store") as engine:
        id = engine.run("long.yaml").execution
        whole, first = list(engine.executions.events(id)), snapshot_of(engine, id)
        assert 50 < first < len(whole)
        reads = world.note_reads(engine, monkeypatch)
        for number in range(first, len(whole) + 2):
            assert list(engine.executions.events(id, from_seq=number)) == whole[number:]
        begun, newest = engine.executions.newest(id)
        assert begun == first
        assert [next(newest) for _ in whole[first:]] == whole[first:]
        assert next(newest) is None
        assert not any(read.events for read in reads)
        assert list(engine.executions.events(id, from_seq=first - 1)) == whole[first - 1 :]


def test_a_list_that_grows_is_part_of_the_state_at_the_snapshot(folder: Path) -> None:
    with Engine("store") as engine:
        result = engine.run("growing.yaml")
        first, newest = engine.executions.newest(result.execution)
        assert first > 50
        engine.approvals.approve(result.waits[0]["id"])
        assert list(newest) == list(engine.executions.events(result.execution))[first:]


def test_they_continue_through_a_retry_that_goes_back_behind_the_snapshot(folder: Path) -> None:
    with Engine("store") as engine:
        result = engine.run("long.yaml")
        id = result.execution
        first, newest = engine.executions.newest(id)
        engine.approvals.approve(result.waits[0]["id"])
        assert engine.executions.result(id).status == "failed"
        Path("mended").touch()
        [wait] = engine.executions.retry(id, step="begin").waits
        engine.approvals.approve(wait["id"])
        assert engine.executions.result(id).status == "waiting"
        seen = []
        for entry in newest:
            if entry is None:
                break
            seen.append(entry)
        whole = list(engine.executions.events(id))
        assert any("back" in entry for entry in seen)
        assert seen == whole[first:]
        assert engine.executions.newest(id)[0] > first


def test_an_event_of_a_long_execution_is_shown_among_all_without_its_past(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine("store") as engine:
        result = engine.run("long.yaml")
        feed = engine.executions.feed_all()
        assert next(feed) is None
        engine.approvals.approve(result.waits[0]["id"], resume=False)
        Path("mended").touch()
        engine.resume(result.execution)
        first = snapshot_of(engine, result.execution)
        whole = list(engine.executions.events(result.execution))
        reads = world.note_reads(engine, monkeypatch)
        seen = []
        for event in feed:
            if event is None:
                break
            seen.append(event.entry)
        assert seen
        assert seen == whole[-len(seen) :]
        assert sum(read.events for read in reads) <= first
