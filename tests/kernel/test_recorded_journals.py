# Shows F25
"""A journal leads to the same states in every process, and names nothing by inner numbers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flowengine.flow.compile import compile_file
from flowengine.flow.expressions.evaluator import CelEvaluator
from flowengine.kernel import Graph, advance, new_state
from flowengine.kernel.commands import Observation
from flowengine.kernel.graph.compiled import OtherFormat
from flowengine.kernel.state import moves
from flowengine.kernel.state.records import State
from tests.kernel.replaying import PATTERNS, SCHEDULES, differing, record, record_patterns

FILES = sorted(PATTERNS.glob("[0-9][0-9]-*.yaml"))


@pytest.mark.endurance
def test_events_name_nothing_by_an_inner_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events must not reveal internals such as the number of layers or of a compensation."""
    recorded = [record(path, 0) for path in FILES]
    before = [replayed(one) for one in recorded]

    def every_seventh(state: State) -> int:
        state["inner"] += 7
        numbered.append(state["inner"])
        return state["inner"]

    numbered: list[int] = []
    monkeypatch.setattr(moves, "inner_number", every_seventh)
    assert [replayed(one) for one in recorded] == before
    assert len(numbered) > 20


def replayed(recorded: dict[str, Any]) -> list[Any]:
    """Return the outputs of the kernel for the events of a record, and its final state."""
    flow, state, seen = recorded["flow"], new_state(), list[Observation]()
    graph = Graph(flow, CelEvaluator(flow["expressions"], flow["id"]))
    commands = [advance(graph, state, event, seen) for event in recorded["events"]]
    return [commands, seen, state["status"], state["outputs"], state["last"]]


def test_a_flow_of_another_format_is_refused() -> None:
    flow: Any = {**compile_file(FILES[0]).flow, "format": 0}

    with pytest.raises(OtherFormat, match="it has format 0, but this version of flowengine runs"):
        Graph(flow, CelEvaluator(flow["expressions"], flow["id"]))


@pytest.mark.endurance
def test_patterns_replay_to_the_same_bytes_with_any_hash_seed(tmp_path: Path) -> None:
    """`scripts/replay.sh` compares these with other versions of Python."""
    record_patterns(tmp_path)

    assert differing(tmp_path) == ([], 43 * SCHEDULES)
    for seed in ("0", "1", "4711"):
        assert replayed_with(seed, tmp_path).startswith("Python")
    spoiled = next(tmp_path.glob("16-*.json"))
    recorded = json.loads(spoiled.read_text())
    spoiled.write_text(json.dumps({**recorded, "events": recorded["events"][:-1]}))
    assert differing(tmp_path)[0] == [spoiled.stem]


def replayed_with(hash_seed: str, folder: Path) -> str:
    """Return the output of another process, which finds the same bytes."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernel.replaying", str(folder)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed}, cwd=PATTERNS.parents[1],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
