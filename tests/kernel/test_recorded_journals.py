# Shows F25
"""Journals recorded once lead to the same state forever, in every process.

`journals/NAME.json` contains a compiled flow, the events of one execution, and the digest of the
state after every tenth event and the last. With `UPDATE_GOLDEN=1`, missing ones are recorded. If
one no longer replays, open executions of users would fail too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flowengine.flow.compile import compile_file
from flowengine.flow.expressions import CelEvaluator
from flowengine.kernel import Graph, advance, new_state
from flowengine.kernel.commands import Observation
from flowengine.kernel.graph.compiled import OtherFormat
from flowengine.kernel.state import moves
from flowengine.kernel.state.records import State
from tests.kernel.replaying import SCHEDULES, differing, digests, record_patterns
from tests.simulation.simulator import Fails, Simulator

HERE = Path(__file__).parent / "journals"
FLOWS = sorted(HERE.glob("*.yaml"))
SEEDS = range(6)


def record(path: Path, seed: int) -> dict[str, Any]:
    """Run a flow once in the order of a seed, and return the record."""
    flow = compile_file(path).flow
    graph = Graph(flow, CelEvaluator(flow["expressions"], flow["id"]))

    def task(run: Any) -> Any:
        if played.random.random() < 0.2:
            raise Fails("Flaky", retryable=played.random.random() < 0.7)
        return {"n": len(played.journal), "text": run.address}

    script = {step["id"]: task for step in flow["steps"]}
    played = Simulator(graph, script, seed=seed).start({"n": 9, "who": "Ada"})
    for _ in range(500):
        asked = [w for w in played.waits() if w["kind"] in ("approval", "question")]
        if played.random.random() < 0.1:
            played.send("go", {"n": played.random.randrange(9)}, id=str(len(played.journal)))
        elif asked and played.random.random() < 0.5:
            wait = played.random.choice(asked)
            played.decide(wait["address"], played.random.choice(wait["choices"])["id"])
        elif not played.step() and not asked:
            break
    kept = json.loads(json.dumps({"flow": flow, "events": played.journal}))
    for step in kept["flow"]["steps"]:
        step.pop("task", None)  # not read by the kernel, and contains paths of a machine
    return kept  # type: ignore[no-any-return]


def journals() -> list[Path]:
    return [HERE / f"{path.stem}-{seed}.json" for path in FLOWS for seed in SEEDS]


@pytest.mark.parametrize("path", journals(), ids=lambda path: path.stem)
def test_recorded_journal_gives_the_recorded_states(path: Path) -> None:
    if os.environ.get("UPDATE_GOLDEN") and not path.exists():
        name, _, seed = path.stem.rpartition("-")
        recorded = record(HERE / f"{name}.yaml", int(seed))
        recorded["states"] = digests(recorded)
        path.write_text(json.dumps(recorded, separators=(",", ":")) + "\n")
    recorded = json.loads(path.read_text())

    assert digests(recorded) == recorded["states"]


def test_events_name_nothing_by_an_inner_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events must not reveal internals such as the number of layers or of a compensation."""
    before = [told(json.loads(path.read_text())) for path in journals()]

    def every_seventh(state: State) -> int:
        state["inner"] += 7
        return state["inner"]

    monkeypatch.setattr(moves, "inner_number", every_seventh)
    assert [told(json.loads(path.read_text())) for path in journals()] == before


def told(recorded: dict[str, Any]) -> list[Any]:
    """Return the outputs of the kernel for the events of a record, and its final state."""
    flow, state, seen = recorded["flow"], new_state(), list[Observation]()
    graph = Graph(flow, CelEvaluator(flow["expressions"], flow["id"]))
    commands = [advance(graph, state, event, seen) for event in recorded["events"]]
    assert state["inner"]
    return [commands, seen, state["status"], state["outputs"], state["last"]]


def test_a_flow_of_another_format_is_refused() -> None:
    flow: Any = {**compile_file(FLOWS[0]).flow, "format": 1}

    with pytest.raises(OtherFormat, match="it has format 1, but this version of flowengine runs"):
        Graph(flow, CelEvaluator(flow["expressions"], flow["id"]))


def test_journals_are_long_enough_to_mean_something() -> None:
    events = [len(json.loads(path.read_text())["events"]) for path in journals()]

    assert sum(events) > 250


@pytest.mark.endurance
def test_patterns_are_recorded_and_replay(tmp_path: Path) -> None:
    """`scripts/replay.sh` compares these with other versions of Python."""
    record_patterns(tmp_path)

    assert differing(tmp_path) == ([], 43 * SCHEDULES)
    spoiled = next(tmp_path.glob("16-*.json"))
    recorded = json.loads(spoiled.read_text())
    spoiled.write_text(json.dumps({**recorded, "events": recorded["events"][:-1]}))
    assert differing(tmp_path)[0] == [spoiled.stem]


@pytest.mark.endurance
@pytest.mark.parametrize("hash_seed", ["0", "1", "4711"])
def test_replay_does_not_depend_on_the_hash_seed(hash_seed: str) -> None:
    """A process with another hash seed produces the same bytes."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernel.replaying", str(HERE)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed}, cwd=HERE.parents[2],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
