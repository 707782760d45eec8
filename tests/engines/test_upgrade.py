"""Open executions that are held, cut off or killed while they move to a changed flow (F75)."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.journal.encoding import pack
from flowengine.journal.sqlite.store import SqliteStore
from tests.engines import world

ORDER = """
version: "1"
inputs: {amount: {type: integer, default: 5}}
state: {notes: {type: array, default: [], reducer: append}}
signals: {paid: {key: "${{ execution.id }}", data: {type: integer}}}
steps:
  - id: look
    output: {seen: "${{ inputs.amount }}"}
    set: {notes: looked}
  - id: sign
    approval: {title: "Fine?", choices: [approve, reject]}
    next: {outcome: {approve: pay, reject: end}}
  - id: pay
    wait: {signal: paid}
  - id: done
    output: {looked: "${{ steps.look.output.seen }}", paid: "${{ steps.pay.output.data }}"}
outputs: {done: "${{ steps.done.output }}", notes: "${{ state.notes }}"}
"""


def edited(tmp_path: Path, *changes: tuple[str, str], text: str = ORDER) -> Path:
    """Write a changed flow, and return its file."""
    for old, new in (('version: "1"', 'version: "2"'), *changes):
        assert old in text, old
        text = text.replace(old, new)
    return world.make(tmp_path / "changed", text)


def waiting(engine: Engine, tmp_path: Path, text: str = ORDER, **inputs: Any) -> str:
    """Run a flow until it waits, and return the execution's ID."""
    result = engine.run(world.make(tmp_path, text), inputs)
    assert result.status == "waiting"
    return result.execution


def test_what_a_living_process_holds_is_left_alone_and_told(tmp_path: Path) -> None:
    changed = edited(tmp_path, ("output: {looked:", "output: {added: 1, looked:"))
    store = tmp_path / "store"
    with Engine(store) as engine, Engine(store) as other:
        id = waiting(engine, tmp_path)
        world.hold(other, id)
        for check in (True, False):
            (info,) = engine.executions.upgrade(changed, check=check)
            assert (info["verdict"], info["moved"]) == ("held", False)
        other.close()
        (info,) = engine.executions.upgrade(changed)
        assert info["moved"]


def test_replay_of_the_whole_journal_gives_the_state_of_the_snapshot(tmp_path: Path) -> None:
    changed = edited(tmp_path, ("id: sign", "id: check"))
    store = SqliteStore(tmp_path / "flowengine.db")
    with Engine(store) as engine:
        id = waiting(engine, tmp_path)
        engine.executions.upgrade(changed, mapping={"steps": {"sign": "check"}})
        engine.approvals.approve(engine.approvals.list().items[0]["id"])
        state = pack(engine.executions._read(id).state)
        with closing(sqlite3.connect(tmp_path / "flowengine.db")) as connection, connection:
            connection.execute("UPDATE snapshots SET sum = sum + 1")
        assert store.load(id).snapshot is None
        assert pack(engine.executions._read(id).state) == state
        assert engine.executions.prune().executions == 0
        assert pack(engine.executions._read(id).state) == state


CHILD = """
import os, sys
from flowengine import Engine
from flowengine.journal.sqlite.store import SqliteStore

commit = SqliteStore.commit

def dying(self, appends):
    if any(one.moved for one in appends):
        if sys.argv[3] == "before":
            os.kill(os.getpid(), 9)
        commit(self, appends)
        os.kill(os.getpid(), 9)
    return commit(self, appends)

SqliteStore.commit = dying
with Engine(sys.argv[1]) as engine:
    engine.executions.upgrade(sys.argv[2])
"""


@pytest.mark.endurance
@pytest.mark.parametrize(("when", "version"), [("before", "1"), ("after", "2")])
def test_a_crash_in_the_middle_leaves_it_on_one_side(
    tmp_path: Path, when: str, version: str
) -> None:
    changed = edited(tmp_path, ("output: {looked:", "output: {added: 1, looked:"))
    store = tmp_path / "store"
    with Engine(store) as engine:
        id = waiting(engine, tmp_path)
    words = [sys.executable, "-c", CHILD, str(store), str(changed), when]
    assert subprocess.run(words, env=dict(os.environ), check=False).returncode == -9
    with Engine(store) as engine:
        assert engine.executions.list().items[0]["version"] == version
        engine.approvals.approve(engine.approvals.list().items[0]["id"])
        result = engine.signal("paid", 1, key=id).result
        assert result is not None
        assert result.outputs is not None
        assert result.outputs["done"].get("added") == (1 if when == "after" else None)


RUNNING = """
steps:
  - id: pay
    run: {command: [echo, "1"]}
    in: host
    effect: pure
  - {id: done, output: "${{ steps.pay.output.stdout }}"}
outputs: {done: "${{ steps.done.output }}"}
"""


def cut_off(engine: Engine, tmp_path: Path) -> str:
    """Start an execution whose process dies while its first step runs."""
    id = engine.start(world.make(tmp_path, RUNNING))
    world.cut_off(engine, id)
    return id


def test_an_attempt_that_was_cut_off_is_run_again_under_the_new_form(tmp_path: Path) -> None:
    with Engine(None) as engine:
        id = cut_off(engine, tmp_path)
        for old, new in (("effect: pure", "effect: once"), ("effect: pure", "on_crash: retry")):
            text = RUNNING.replace(old, new)
            (info,) = engine.executions.upgrade(world.make(tmp_path / "changed", text))
            assert info["verdict"] == "cannot"
            assert "is running or was interrupted" in info["obstacles"][0]["why"]
        text = RUNNING.replace('- {id: done, output: "', '- {id: done, output: "so ')
        (info,) = engine.executions.upgrade(world.make(tmp_path / "changed", text))
        assert (info["moved"], info["status"]) == (True, "succeeded")
        assert engine.executions.result(id).outputs == {"done": "so 1\n"}
        told = [one["type"] for one in engine.executions.events(id)]
        assert told == ["started", "upgraded", "cut", "succeeded"]
