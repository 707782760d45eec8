"""Every final state can be read, from a folder and from memory, and forked."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine, ExecutionResult
from flowengine.errors import Conflict
from tests.command_line import flowengine
from tests.language.recursion import Recursion, draw_file
from tests.language.stage import Stage
from tests.language.test_recursion import Calls

FLOWS = 12
SHOWN = 1
"""Number of executions with the same outcome that are also shown on the command line."""


def drawn(seed: int) -> tuple[dict[str, Any], dict[str, int]]:
    """Return a random flow whose handlers, and those of its subflow, return arbitrary values.

    Some flows end with an approval that is never decided.
    """
    draw = random.Random(seed)
    file, fates = draw_file(seed)
    for flow in (file, *file.get("flows", {}).values()):
        flow["outputs"]["x"] = {"value": flow["outputs"]["x"], "type": "integer"}
        given = draw.choice([{"x": 1}, {"x": 1}, {"x": "text"}, {}, {"x": 1, "y": 1}, 5, "x", None])
        flow["state"]["given"] = {"default": given}
        if draw.random() < 0.7:
            handler = {"output": "${{ state.given }}", "compensate": draw.random() < 0.3}
            flow["on_error"] = [draw.choice([{"type": "Odd", **handler}, handler])]
    if draw.random() < 0.2:
        file["steps"].append({"id": "stay", "approval": "Is anybody there?"})
    return file, fates


def seeds() -> Iterator[int]:
    """Yield seeds of flows. Most of these fail unless errors are handled."""
    for seed in count():
        if seed % 12 == 0 or Recursion(*draw_file(seed)).play().status == "failed":
            yield seed


def ended(stage: Stage, engine: Engine, seed: int) -> ExecutionResult:
    """Run a random flow to its end. If it still waits after a while, cancel it."""
    file, fates = drawn(seed)
    Calls(stage, file, fates)
    result = stage.do(engine.run_async(stage.flow(file), id=f"run{seed}"))
    for _ in range(30):
        if result.status == "waiting":  # a pause before another attempt
            stage.clock.seconds += 5
            result = stage.do(engine.resume_async(result.execution))
    if result.status == "waiting":
        result = stage.do(engine.executions.cancel_async(result.execution))
    if result.status == "succeeded":
        assert list(result.outputs or {}) == ["x"]
        assert all(type(value) is int for value in (result.outputs or {}).values())
    else:
        assert result.outputs is None
    return result


def read(engine: Engine, result: ExecutionResult) -> list[str]:
    """Read everything about an execution, and return the addresses of its steps."""
    id = result.execution
    shown = engine.executions.show(id)
    error = None if result.error is None else result.error["type"]
    [listed] = [one for one in engine.executions.list().items if one["execution"] == id]
    assert listed["status"] == shown["status"] == result.status
    assert (shown.get("error") or {}).get("type") == error
    assert shown["outputs"] == engine.executions.result(id).outputs == result.outputs
    assert list(engine.executions.events(id))
    engine.executions.why(id)
    assert engine.executions.diff(id, id)["same"]
    return [step["address"] for step in shown["steps"]]


@pytest.mark.endurance
def test_whatever_ended_is_read_back(stage: Stage) -> None:
    ends: Counter[str] = Counter()
    for seed in islice(seeds(), FLOWS):
        result = ended(stage, stage.engine, seed)
        addresses = read(stage.engine, result)
        store = stage.folder / f"store{seed}"
        with Engine(store, clock=stage.clock, workdir=stage.folder, ttl=1e6) as engine:
            assert ended(stage, engine, seed)[1:] == result[1:]
        with Engine(store, clock=stage.clock, workdir=stage.folder, ttl=1e6) as engine:
            assert read(engine, result) == addresses
            _fork(stage, engine, result, random.Random(seed).choice(addresses))
        if ends[result.status] < SHOWN:
            _show(store, result.execution)
        ends[result.status] += 1
        ends["handled"] += result.outputs == {"x": 1}
        error = result.error or {"message": ""}
        ends["misfit"] += "the 'output' of this handler" in error["message"]
    assert min(ends[how] for how in ("succeeded", "failed", "cancelled", "handled", "misfit")), ends


def _show(store: Path, id: str) -> None:
    """Show it on the command line."""
    for words in (["show", id], ["list"], ["events", id], ["diff", id, id]):
        done = flowengine("--store", store, *words)
        assert done.code == 0, (id, words, done.err)


def _fork(stage: Stage, engine: Engine, result: ExecutionResult, at: str) -> None:
    """Fork an execution at a step, and read the fork, whether it succeeds or not."""
    try:
        forked = stage.do(engine.executions.fork_async(result.execution, from_step=at))
    except Conflict:
        return
    shown = engine.executions.show(forked.execution)
    assert (shown["status"], shown["outputs"]) == (forked.status, forked.outputs)
