# Shows F34
"""Agents' work is shown from an index beside the snapshots, exactly like from a replay."""

from __future__ import annotations

import sqlite3
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flowengine.engines.executions import execution as executions
from flowengine.engines.executions import linked_flows
from flowengine.engines.executions.step_index import NAME as INDEX
from flowengine.engines.inspection import replayed
from flowengine.errors import StoreError
from flowengine.journal.encoding import pack
from flowengine.journal.records import ListPart
from flowengine.journal.sqlite.rows import list_sum
from tests.agents.flows import Case, call, flow
from tests.replacing import Limits

AGENT = "first: {instructions: You add., tools: [add, boom], retry: {attempts: 2, delay: 1ms}}"
SCRIPT: list[Any] = [
    {"calls": [call("add", a=1, b=2), call("boom", why="x" * 300)]},
    {"calls": [call("boom", why="y"), call("fly")]},
    {"raise": "RateLimited"},
    {"calls": [call("add", a=3, b=4)]},
    *({"calls": [call("boom", why=f"{n}")], "text": "z" * 200} for n in range(5)),
    {"text": "10"},
]


@pytest.fixture(autouse=True)
def often(limits: Limits) -> None:
    """Take frequent snapshots, so that most is in the index."""
    limits(executions, SMALLEST_TAIL=500)


@pytest.fixture
def applied(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record the events applied in order to show something."""
    events: list[Any] = []
    apply = linked_flows.apply

    def noted(flows: Any, graph: Any, state: Any, event: Any, *more: Any) -> Any:
        events.append(event)
        return apply(flows, graph, state, event, *more)

    monkeypatch.setattr(linked_flows, "apply", noted)
    return events


def both_ways(case: Case, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the result of `show`, after comparing it with that of a replay."""
    with case.engine_open() as engine, monkeypatch.context() as patch:
        shown = engine.executions.show(case.id)
        patch.setattr(replayed, "read_index", lambda *_, **__: None)
        assert shown == engine.executions.show(case.id)
    return shown


def parts(case: Case) -> list[Any]:
    with case.engine_open() as engine:
        return [part for part in engine.store.load(case.id).lists if part.name == INDEX]


def test_it_is_shown_as_by_a_replay_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, applied: list[Any]
) -> None:
    case = Case(tmp_path, flow(AGENT), SCRIPT)
    assert case.run().status == "succeeded"
    assert len(parts(case)) > 3
    applied.clear()

    with case.engine_open() as engine:
        shown: Any = engine.executions.show(case.id)

    assert len(applied) < len(case.journal()) / 2
    assert both_ways(case, monkeypatch) == shown
    by_address = {one["address"]: one for one in shown["steps"]}
    assert by_address["ask/first@4"]["attempts"] == 1
    assert by_address["ask/first@3"]["attempts"] == 2
    assert "x" * 300 in str(by_address["ask/first@1/boom"]["error"])


@pytest.mark.parametrize("what", [{}, [], [[0]], [[2, 99, None]], [[7] * 9]])
def test_an_index_that_cannot_be_is_damage(tmp_path: Path, what: Any) -> None:
    case = Case(tmp_path, flow(AGENT), SCRIPT)
    case.run()
    first = parts(case)[0]
    damaged = ListPart(first.name, first.first, zlib.compress(pack(what)))
    path = next((tmp_path / "store.db").glob("*.db"))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "UPDATE lists SET items = ?, sum = ? WHERE name = ? AND first = 0",
            (damaged.items, list_sum(damaged), INDEX),
        )

    with case.engine_open() as engine, pytest.raises(StoreError, match=case.id):
        engine.executions.show(case.id)
