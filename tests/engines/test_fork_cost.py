"""A fork reads the journal of its origin once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine.engines.engine import Engine
from flowengine.engines.executions import linked_flows
from flowengine.kernel.advance import advance
from tests.engines import world


def test_fork_of_a_compensated_execution_replays_its_journal_twice_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
on_error: compensate
steps:
  - {id: pay, output: 1, compensate: {call: std.print, with: {text: paid back}}}
  - {id: no, fail: {type: Nope, message: no}}
"""
    engine = Engine(tmp_path / "store", durability="process")
    assert engine.run(world.make(tmp_path, text), id="it").status == "failed"
    applied: list[str] = []

    def counted(graph: Any, state: Any, event: Any, *more: Any, **named: Any) -> Any:
        applied.append(event["type"])
        return advance(graph, state, event, *more, **named)

    monkeypatch.setattr(linked_flows, "advance", counted)
    forked = engine.executions.fork("it", from_step="no")
    assert forked.status == "failed"
    # Each replay begins with this event.
    assert applied.count("started") == 2
    engine.close()
