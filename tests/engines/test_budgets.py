# Shows F74
"""Budgets under an engine that crashes: the recorded calls are those that the tools saw (F74)."""

from __future__ import annotations

from pathlib import Path

from flowengine.engines.engine import Engine
from tests.engines import child, world

MANY = """
budget: {tool_calls: 1000}
steps: [{id: each, map: {over: 80, concurrency: 1}, python: "effects:act", effect: idempotent}]
"""


def test_a_killed_process_forgets_no_call(tmp_path: Path) -> None:
    file = world.make(tmp_path, MANY)
    (tmp_path / "slowly").touch()
    kills = 0
    while kills < 6:
        process = child.start(child.begin, tmp_path / "store", file, "it")
        before = len(world.effects(tmp_path))
        world.until(lambda before=before: len(world.effects(tmp_path)) > before)  # type: ignore[misc]
        kills += child.kill(process)
    with Engine(tmp_path / "store") as engine:
        engine.resume("it")
        [budget] = engine.executions.show("it")["budgets"]

    seen = len(world.effects(tmp_path))
    assert seen <= budget["tool_calls"]["used"] <= seen + kills
