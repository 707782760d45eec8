"""Steps whose process died: `why` reports it, and what lets each continue (F70)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from flowengine.engines.engine import Engine
from tests.engines import world
from tests.testing.faulty_store import FaultyStore, ProcessDied


def step(action: str, more: str = "") -> str:
    return f"steps:\n  - id: it\n    {action}\n{more}"


@pytest.mark.parametrize(
    ("effect", "what", "command"),
    [
        ("idempotent", "attempt 1 was running when its process ended", "flowengine resume "),
        ("once", "it was interrupted. Did it take effect", " fail"),
    ],
)
def test_step_whose_process_died_is_told(
    tmp_path: Path, effect: str, what: str, command: str
) -> None:
    file = world.make(tmp_path, step("python: effects:act", f"    effect: {effect}\n"))
    store = FaultyStore()
    with suppress(ProcessDied), Engine(store) as engine:
        engine.subscribe(lambda update: store.die() if update.step is not None else None)
        engine.run(file, id="it")
    store.restart()
    with Engine(store) as engine:
        if effect == "once":
            assert engine.resume("it").status == "stalled"
        (reason,) = engine.executions.why("it")
        assert what in reason["what"]
        assert command in reason["command"]
        if effect == "once":
            decide = f"flowengine decide {reason['wait'][:4]}"
            assert list(reason["commands"].items()) == [
                ("fail", f"{decide} fail"),
                ("result", f"{decide} result --value JSON"),
                ("retry", f"{decide} retry"),
            ]
