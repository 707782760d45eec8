"""`limits.stored`: what one execution may put into its journal, in each store and after crashes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flowengine.engines.engine import Engine
from flowengine.flow.models.declarations import Limits
from flowengine.kernel.graph.linked import DEFAULT_LIMITS
from tests.engines import world

SIZES = """
from flowengine.sdk import StepError

def text(size: int) -> str:
    return "x" * size

def fail(size: int) -> None:
    raise StepError("y" * size, type="Full", data={"about": "z" * size}, retryable=False)
"""
GROWING = """
limits: {stored: 200kB}
inputs:
  size: {type: integer}
steps:
  - id: grow
    loop: {until: "${{ round.number >= 200 }}", max: 200}
    python: sizes:text
    effect: pure
    with: {size: "${{ inputs.size }}"}
  - {id: unreached, output: 1}
"""
PAUSED = """
limits: {stored: 200kB}
inputs:
  size: {type: integer}
steps:
  - {id: before, python: "sizes:text", effect: pure, with: {size: "${{ inputs.size }}"}}
  - {id: sure, approval: Sure?}
  - {id: after, python: "sizes:text", effect: pure, with: {size: "${{ inputs.size }}"}}
"""
HANDLED = """
limits: {stored: 200kB}
steps:
  - {id: first, python: "sizes:text", effect: pure, with: {size: 190000}}
  - id: large
    python: sizes:text
    effect: pure
    with: {size: 20000}
    on_error: [{output: "${{ error.type }}"}]
  - id: fail
    python: sizes:fail
    effect: pure
    with: {size: 20000}
    on_error: [{type: Full, output: "${{ size(error.message) }}"}]
  - {id: small, python: "sizes:text", effect: pure, with: {size: 10}}
outputs:
  found: "${{ [steps.large.output, steps.fail.output, steps.small.output] }}"
"""


def make(folder: Path, text: str) -> Path:
    file = world.make(folder, text)
    (folder / "sizes.py").write_text(SIZES)
    return file


def error_of(result: Any) -> Any:
    assert result.status == "failed"
    assert result.error["type"] == "LimitExceeded"
    return result.error


def test_the_result_that_exceeds_it_fails_its_step(tmp_path: Path) -> None:
    assert Limits().stored == DEFAULT_LIMITS["stored"] == 1024**3
    file = make(tmp_path, GROWING)
    rounds = {}
    for store in (None, tmp_path / "store"):
        with Engine(store) as engine:
            result = engine.run(file, {"size": 9_000})
            error = error_of(result)
            journal = list(engine.executions.events(result.execution))
        rounds[store] = sum(event["type"] == "succeeded" for event in journal)
        assert error["data"]["limit"] == "stored"
        assert error["data"]["value"] == 200_000 >= error["data"]["stored"]
        assert error["data"]["stored"] + error["data"]["size"] > 200_000
        assert "of the 200,000 bytes that limits.stored allows" in error["message"]
    assert set(rounds.values()) == {22}  # 22 x 9,000 bytes, and 50 bytes for each event


def test_it_counts_what_other_processes_have_stored(tmp_path: Path) -> None:
    for size, status in ((99_000, "succeeded"), (100_500, "failed")):
        file = make(tmp_path, PAUSED)
        with Engine(tmp_path / "store") as engine:
            wait = engine.run(file, {"size": size}).waits[0]
        with Engine(tmp_path / "store") as engine:
            result = engine.approvals.approve(wait["id"]).result
        assert result is not None
        assert result.status == status


def test_a_fork_and_a_retry_count_what_they_begin_with(tmp_path: Path) -> None:
    def results(execution: str) -> int:
        return sum(event["type"] == "succeeded" for event in engine.executions.events(execution))

    file = make(tmp_path, GROWING)
    with Engine(tmp_path / "store") as engine:
        first = engine.run(file, {"size": 9_000}).execution
        forked = engine.executions.fork(first, from_step="grow")
        error_of(engine.executions.retry(first))
        assert results(first) == results(forked.execution) == 22
        raised = make(tmp_path / "raised", GROWING.replace("200kB", "400kB"))
        error_of(engine.executions.retry(first, flow=raised))
        assert results(first) == 44


def test_errors_are_cut_and_small_results_still_fit(tmp_path: Path) -> None:
    with Engine(None) as engine:
        result = engine.run(make(tmp_path, HANDLED))
    assert result.outputs == {"found": ["LimitExceeded", 1_000, "x" * 10]}
