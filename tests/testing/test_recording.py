# Shows F72
"""Any execution becomes a test case that reproduces its history offline (F72)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from flowengine import Engine
from flowengine.engines.flows import load
from flowengine.errors import Conflict, NotFound
from flowengine.testing.recording import RecordedCase, record, text_of
from tests.engines import flows, world
from tests.language.stage import Stage
from tests.language.test_any_order import SCRIPT, accepted, drawn
from tests.simulation.simulator import Fails
from tests.testing.faulty_store import FaultyStore, ProcessDied

TOOLS = 'tools:\n  act: {python: "tools:act", effect: idempotent}\n'


@pytest.fixture
def stage(folder: Path) -> Iterator[Stage]:
    stage = Stage(folder)
    yield stage
    stage.close()


def same(engine: Engine, execution: str) -> RecordedCase:
    """Record an execution, and check that the case reproduces its history."""
    recorded = record(engine, execution, "recorded")
    assert recorded.differences == [], text_of(recorded.case)
    return recorded


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(5))
@pytest.mark.parametrize("name", flows.ALL)
def test_flows_that_were_killed_at_any_write_become_cases(
    name: str, block: int, tmp_path: Path
) -> None:
    calm = FaultyStore()
    file = world.make(tmp_path / "calm", flows.ALL[name])
    with Engine(calm) as engine:
        world.finish(engine, file, "it", flow=load(file))
        same(engine, "it")
        writes = calm.writes
    for write in range(block, writes, 5):
        file = world.make(tmp_path / f"at{write}", flows.ALL[name])
        store, flow = FaultyStore(faults={write: "die after"}), load(file)
        with pytest.raises(ProcessDied), Engine(store) as engine:
            world.finish(engine, file, "it", flow=flow)
        store.restart(power_cut=False)
        store.faults.clear()
        with Engine(store) as engine:
            with suppress(NotFound, Conflict):
                same(engine, "it")  # as left by the killed process
            world.finish(engine, file, "it", flow=flow)
            same(engine, "it")


def test_one_that_waited_for_a_worker_becomes_a_case_that_needs_none(tmp_path: Path) -> None:
    file = world.make(
        tmp_path,
        'steps:\n  - {id: a, python: "effects:act"}\n'
        '  - {id: b, python: "effects:act", needs: [gpu], timeout: 30s}\n',
    )
    with Engine(tmp_path / "store") as plain, Engine(tmp_path / "store", offers=["gpu"]) as able:
        assert plain.run(file, id="it").status == "waiting"
        assert able.resume("it").status == "succeeded"
        same(plain, "it")


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(10))
def test_random_flows_become_cases(stage: Stage, block: int) -> None:
    stage.world.script = SCRIPT
    recorded = 0
    for seed in range(block, 100, 10):
        wild = bool(seed % 4)
        flow = drawn(stage, seed, wild=wild)
        shares = "concurrency" in flow or '"scope"' in json.dumps(flow)  # not supported by cases
        if shares or accepted(stage, seed, wild=wild) is None:
            continue
        result = stage.run(flow, {name: bool(seed & 1) for name in "pqr"}, id=f"e{seed}")
        same(stage.engine, result.execution)
        recorded += 1
    assert recorded


def test_what_an_operator_did_is_part_of_the_case(stage: Stage) -> None:
    text = (
        TOOLS
        + """
state: {n: {type: integer, default: 0}}
steps:
  - {id: a, call: act, with: {value: 1}, set: {n: 1}}
  - {id: b, call: act, with: {value: "${{ state.n }}"}}
outputs: {b: "${{ steps.b.output }}"}
"""
    )
    stage.world.script = {"b": Fails("Broken", retryable=False)}
    stage.run(text, id="it")
    stage.world.script = {}
    forked = stage.do(
        stage.engine.executions.fork_async("it", from_step="b", set={"n": 7}, id="fork")
    )
    retried = stage.do(stage.engine.executions.retry_async("it"))

    assert (forked.outputs, retried.outputs) == ({"b": 7}, {"b": 1})
    fork = same(stage.engine, "fork").case
    again = same(stage.engine, "it").case
    assert [(one["fork"], one["set"]) for one in fork["operator"]] == [("b", {"n": 7})]
    assert [one["retry"] for one in again["operator"]] == ["b"]
    assert fork["expect"]["outputs"] == {"b": 7}


def test_no_secret_gets_into_a_case(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", "hunter2hunter2")
    text = """
secrets: {KEY: {env: THE_KEY}}
tools:
  act: {python: "tools:act", effect: idempotent}
  get: {python: "tools:act", with: {value: "Bearer ${{ secrets.KEY }}"}}
steps:
  - {id: a, call: act, with: {value: "${{ inputs.told }}"}}
  - {id: b, call: get}
inputs: {told: {type: string}}
outputs: {a: "${{ steps.a.output }}"}
"""
    stage.world.script = {"a": lambda call: f"got {call.value}", "b": lambda call: call.value}
    result = stage.run(text, {"told": "my key is hunter2hunter2"})
    shown = text_of(same(stage.engine, result.execution).case)

    assert "hunter2" not in shown
    assert "Bearer ***" in shown


def test_bytes_and_odd_texts_come_back(stage: Stage) -> None:
    odd = {
        "b": b"\x00\xff",
        "yes": "no",
        "t": " a: b\n\n#c\n",
        "n": None,
        "e": "${{ x }}",
        "": "é\x7f",
    }
    text = (
        TOOLS
        + "steps: [{id: a, call: act, with: {value: 1}}]\noutputs: {a: '${{ steps.a.output }}'}"
    )
    result = stage.run_script(text, {"a": odd})

    assert result.outputs == {"a": odd}
    same(stage.engine, result.execution)


def test_a_secret_in_a_configuration_stands_in_the_case_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", "hunter2hunter2")
    (tmp_path / "flow.yaml").write_text("""
flowengine: 1
id: flow
secrets: {KEY: {env: THE_KEY}}
steps:
  - id: a
    http: {url: "http://127.0.0.1:9/${{ secrets.KEY }}", headers: {k: "Bearer ${{ secrets.KEY }}"}}
    on_error: continue
""")
    with Engine(None) as engine:
        result = engine.run(tmp_path / "flow.yaml")
        shown = text_of(same(engine, result.execution).case)

    assert "hunter2" not in shown
    assert shown.count("${{ secrets.KEY }}") == 2


MOVED = """
flowengine: 1
id: it
tools: {act: {python: "acts:act", effect: idempotent}}
steps:
  - {id: a, call: act}
  - {id: ok, approval: {title: "Go?"}}
  - {id: b, output: before}
outputs: {o: "${{ steps.b.output }}"}
"""


def moved(engine: Engine, after: str) -> str:
    """Run the flow to its approval, migrate it to another version, and let it end."""
    Path("acts.py").write_text("def act() -> int:\n    return 1\n")
    path = Path("it.yaml")
    path.write_text(MOVED)
    [wait] = engine.run(path, id="it").waits
    path.write_text(after)
    assert [one["moved"] for one in engine.executions.upgrade(path)] == [True]
    assert engine.approvals.approve(wait["id"]).result.status == "succeeded"  # type: ignore[union-attr]
    return "it"


def test_an_execution_that_was_moved_becomes_a_case_of_the_version_that_it_ran_last(
    folder: Path,
) -> None:
    after = MOVED.replace("output: before", "output: after")
    after = after.replace("  - {id: b", "  - {id: c}\n  - {id: b")
    with Engine("store") as engine:
        recorded = same(engine, moved(engine, after))
        assert engine.executions.result("it").outputs == {"o": "after"}
    assert recorded.case["expect"]["outputs"] == {"o": "after"}
    assert recorded.case["expect"]["path"] == ["a", "ok", "c", "b"]


def test_one_whose_way_the_new_version_would_not_have_gone_is_refused_with_the_reason(
    folder: Path,
) -> None:
    after = MOVED.replace("  - {id: ok", "  - {id: new, call: act}\n  - {id: ok")
    with Engine("store") as engine:
        moved(engine, after)
        with pytest.raises(
            Conflict, match="With the later version alone, its history differs: "
        ) as caught:
            record(engine, "it", "recorded")
    assert "'new' begins where 'ok' did" in caught.value.message
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("run the later version with the same inputs")
