# Shows F34
"""Agents' work is shown from rows, exactly like from a replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine.engines.executions import execution as executions
from flowengine.engines.executions import linked_flows
from flowengine.journal.sqlite.store import SqliteStore
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
    """Take frequent snapshots, so that little is replayed."""
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
        patch.setattr(SqliteStore, "steps", lambda *_: None)
        assert shown == engine.executions.show(case.id)
    return shown


def test_it_is_shown_as_by_a_replay_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, applied: list[Any]
) -> None:
    case = Case(tmp_path, flow(AGENT), SCRIPT)
    assert case.run().status == "succeeded"
    applied.clear()

    with case.engine_open() as engine:
        shown: Any = engine.executions.show(case.id)

    assert len(applied) < len(case.journal()) / 2
    assert both_ways(case, monkeypatch) == shown
    by_address = {one["address"]: one for one in shown["steps"]}
    assert by_address["ask/first@4"]["attempts"] == 1
    assert by_address["ask/first@3"]["attempts"] == 2
    assert "x" * 300 in str(by_address["ask/first@1/boom"]["error"])
