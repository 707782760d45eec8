"""Stored history: reading, rewinding, forks, explanations, pruning (F36, F37, F44, F70)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flowengine
from flowengine.engines.engine import Engine
from flowengine.errors import Conflict, InputError, NotFound
from flowengine.kernel.notation.times import parse_time
from tests.engines import flows, world


@pytest.fixture(params=["memory", "sqlite"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    place = None if request.param == "memory" else tmp_path / "store"
    with Engine(place, durability="none", user="user:me") as engine:
        yield engine


def test_show_tells_inputs_attempts_outputs_and_errors_of_every_step(
    engine: Engine, tmp_path: Path
) -> None:
    result = engine.run(world.make(tmp_path, flows.RETRIES), labels={"a": "b"})
    shown = engine.show(result.execution)
    assert (shown["status"], shown["started_by"], shown["labels"]) == (
        "succeeded",
        "user:me",
        {"a": "b"},
    )
    steps = {step["address"]: step for step in shown["steps"]}
    assert list(steps)[:3] == ["both", "both/flaky", "both/slow"]
    flaky = steps["both/flaky"]
    assert (flaky["attempts"], flaky["output"], flaky["kind"]) == (2, 2, "python")
    assert parse_time(flaky["started_at"]) <= parse_time(flaky["ended_at"])
    assert steps["rounds@3"]["output"] == 13

    (full,) = engine.show(result.execution, step="both/flaky")["steps"]
    first, second = full["tries"]
    assert (first["status"], first["error"]["type"]) == ("failed", "Flaky")
    assert (second["status"], second["output"]) == ("succeeded", 2)
    assert second["input"]["args"] == {"attempt": 2}
    with pytest.raises(NotFound, match="has no step 'nowhere'"):
        engine.show(result.execution, step="nowhere")


def test_execution_is_found_by_the_beginning_of_its_id(engine: Engine, tmp_path: Path) -> None:
    result = engine.run(world.make(tmp_path, flows.CHAIN))
    assert engine.find(result.execution[:10]) == result.execution
    assert engine.show(result.execution[:10])["execution"] == result.execution


def test_events_give_the_journal_with_addresses_from_any_number_on(
    engine: Engine, tmp_path: Path
) -> None:
    result = engine.run(world.make(tmp_path, flows.CHAIN))
    entries = list(engine.events(result.execution))
    assert [(e["seq"], e["type"], e.get("address")) for e in entries] == [
        (0, "started", None),
        (1, "succeeded", "once_a"),
        (2, "succeeded", "b"),
        (3, "succeeded", "c"),
        (4, "succeeded", "once_d"),
    ]
    assert list(engine.events(result.execution, from_seq=3)) == entries[3:]
    assert list(engine.events(result.execution, follow=True)) == entries


FRAGILE = """
steps:
  - id: once_first
    python: effects:act
    with: {value: 1}
  - id: both
    parallel:
      - {id: sign, approval: Sure?}
      - id: flaky
        python: effects:fail_until
        with: {attempt: 2}
outputs: {first: "${{ steps.once_first.output }}", flaky: "${{ steps.both.output.flaky }}"}
"""


@pytest.mark.endurance
def test_retry_goes_on_from_what_failed_and_repeats_nothing_else(
    engine: Engine, tmp_path: Path
) -> None:
    result = engine.run(world.make(tmp_path, FRAGILE), id="it")
    assert (result.status, result.waits) == ("failed", [])
    result = engine.retry("it")
    assert (result.status, len(result.waits)) == ("waiting", 1)
    assert [wait["id"] for wait in engine.waits().items] == [result.waits[0]["id"]]
    decision = engine.approve(result.waits[0]["id"]).result
    assert decision is not None
    assert decision.outputs == {"first": 2, "flaky": 2}
    assert len(world.effects(tmp_path)) == 2
    assert [e["type"] for e in engine.events("it")] == [
        "started", "succeeded", "failed", "retry", "succeeded", "decided",
    ]  # fmt: skip
    (flaky,) = engine.show("it", step="both/flaky")["steps"]
    assert [attempt["status"] for attempt in flaky["tries"]] == ["failed", "succeeded"]


def test_retry_from_a_step_before_runs_that_again(engine: Engine, tmp_path: Path) -> None:
    engine.run(world.make(tmp_path, FRAGILE), id="it")
    engine.retry("it", step="once_first")
    assert [address for address, _, _ in world.effects(tmp_path)].count("once_first") == 2


def test_only_a_failed_execution_can_be_retried(engine: Engine, tmp_path: Path) -> None:
    result = engine.run(world.make(tmp_path, flows.CHAIN))
    with pytest.raises(Conflict, match="only a failed execution"):
        engine.retry(result.execution)
    engine.run(world.make(tmp_path / "b", flows.BROKEN), id="broken")
    with pytest.raises(NotFound, match="no step 'nowhere'"):
        engine.retry("broken", step="nowhere")
    assert engine.retry("broken").status == "failed"
    assert len(world.effects(tmp_path / "b")) == 1


def test_what_was_compensated_cannot_be_retried(engine: Engine, tmp_path: Path) -> None:
    text = flows.SAGA.replace(", next: sorry}", "}").split("    next: end")[0]
    assert engine.run(world.make(tmp_path, text), id="it").status == "failed"
    with pytest.raises(Conflict, match="was compensated"):
        engine.retry("it")


FORKED = """
state:
  level: {type: integer, default: 1}
steps:
  - id: once_a
    python: effects:act
    with: {value: 1}
    set: {level: "${{ output }}"}
  - id: b
    python: effects:act
    with: {value: "${{ state.level }}"}
  - id: sign
    approval: {title: "Level ${{ state.level }}"}
outputs: {a: "${{ steps.once_a.output }}", b: "${{ steps.b.output }}"}
"""


def test_fork_goes_on_from_a_step_with_edited_state(engine: Engine, tmp_path: Path) -> None:
    engine.run(world.make(tmp_path, FORKED), id="old")
    before = engine.show("old"), list(engine.events("old"))
    forked = engine.fork("old", from_step="b", set={"level": 10}, id="new")
    assert (engine.show("old"), list(engine.events("old"))) == before
    (wait,) = forked.waits
    assert wait["title"] == "Level 10"
    result = engine.approve(wait["id"]).result
    assert result is not None
    assert result.outputs == {"a": 2, "b": 11}
    shown = engine.show("new")
    assert shown["forked_from"] == "old at b"
    assert [address for address, _, _ in world.effects(tmp_path)] == ["once_a", "b", "b"]
    assert len({key for address, key, _ in world.effects(tmp_path) if address == "b"}) == 2
    assert engine.result("old").status == "waiting"


def test_fork_at_the_first_step_and_at_a_wait(engine: Engine, tmp_path: Path) -> None:
    engine.run(world.make(tmp_path, FORKED), id="old")
    first = engine.fork("old", from_step="once_a")
    assert [step["address"] for step in engine.show(first.execution)["steps"]] == [
        "once_a",
        "b",
        "sign",
    ]
    wait = engine.fork("old", from_step="sign", set={"level": 3}).waits[0]
    assert wait["title"] == "Level 3"
    assert wait["id"] != engine.result("old").waits[0]["id"]


def test_fork_of_a_retried_execution_and_of_a_fork(engine: Engine, tmp_path: Path) -> None:
    engine.run(world.make(tmp_path, FRAGILE), id="old")
    engine.retry("old")
    engine.approve(engine.result("old").waits[0]["id"])
    one = engine.fork("old", from_step="both/flaky")
    two = engine.fork(one.execution, from_step="both/flaky")
    result = engine.approve(two.waits[0]["id"]).result
    assert result is not None
    assert result.outputs == {"first": 2, "flaky": 4}


def test_fork_with_a_changed_flow_needs_the_same_past(engine: Engine, tmp_path: Path) -> None:
    engine.run(world.make(tmp_path, FORKED), id="old")
    after = world.make(tmp_path, FORKED.replace("Level ${{", "Now level ${{"))
    assert engine.fork("old", from_step="sign", flow=after).waits[0]["title"] == "Now level 2"
    before = world.make(
        tmp_path, FORKED.replace("id: once_a", "id: first").replace(".once_a", ".first")
    )
    with pytest.raises(Conflict, match="differs before 'sign'"):
        engine.fork("old", from_step="sign", flow=before)


def test_fork_that_cannot_be_is_told(engine: Engine, tmp_path: Path) -> None:
    engine.run(world.make(tmp_path, FORKED), id="old")
    with pytest.raises(NotFound, match="no step 'nowhere'"):
        engine.fork("old", from_step="nowhere")
    with pytest.raises(InputError, match="no state 'height'"):
        engine.fork("old", from_step="b", set={"height": 1})
    with pytest.raises(InputError):
        engine.fork("old", from_step="b", set={"level": "high"})


def test_results_of_attempts_beside_the_forked_step_are_kept(
    engine: Engine, tmp_path: Path
) -> None:
    text = """
steps:
  - id: both
    parallel:
      - {id: once_one, python: "effects:act", with: {value: 1}}
      - {id: two, python: "effects:act", effect: idempotent, with: {value: 2}}
outputs: {both: "${{ steps.both.output }}"}
"""
    engine.run(world.make(tmp_path, text), id="old")
    forked = engine.fork("old", from_step="both/two")
    assert (forked.status, forked.outputs) == ("succeeded", {"both": {"once_one": 2, "two": 3}})


def reason(engine: Engine, execution: str, address: str) -> Any:
    return next(found for found in engine.why(execution) if found["address"] == address)


def test_why_names_what_each_branch_waits_for_and_the_command_that_wakes_it(
    engine: Engine, tmp_path: Path
) -> None:
    text = """
signals:
  paid: {}
  keyed: {key: k7}
steps:
  - id: go
    next: {all: [sign, pay, order, later, slow]}
  - {id: sign, approval: {title: Sure?, assignees: ["user:ben"], need: 2}, next: meet}
  - {id: pay, wait: {signal: paid}, next: meet}
  - {id: order, wait: {signal: keyed}, next: meet}
  - {id: later, wait: 2h, next: meet}
  - {id: slow, output: 1, next: meet}
  - {id: meet, join: all}
"""
    result = engine.run(world.make(tmp_path, text), id="exec-one")
    short = engine.store.short_execution("exec-one")
    sign = reason(engine, result.execution, "sign")
    assert sign["what"] == "waiting for a decision by user:ben (0 of 2 votes): Sure?"
    assert sign["command"] == f"flowengine approve {engine.store.short_wait(sign['wait'])}"
    assert reason(engine, "exec-one", "pay")["command"] == f"flowengine signal {short} paid"
    order = reason(engine, "exec-one", "order")
    assert order["command"] == "flowengine signal --key k7 keyed"
    later = reason(engine, "exec-one", "later")
    assert (later["command"], later["due"] > later["since"]) == (f"flowengine resume {short}", True)
    meet = reason(engine, "exec-one", "meet")
    assert meet["what"] == "its join is waiting for 'sign', 'pay', 'order', 'later'"


def test_why_of_what_has_ended_stalled_or_was_only_recorded(engine: Engine, tmp_path: Path) -> None:
    engine.run(world.make(tmp_path / "a", flows.BROKEN), id="broken")
    (why,) = engine.why("broken")
    assert why["what"] == "failed with OutOfStock: no"
    assert why["command"] == "flowengine retry broken"

    wait = engine.run(world.make(tmp_path / "b", "steps:\n  - {id: s, approval: S?}\n"), id="open")
    engine.approve(wait.waits[0]["id"], resume=False)
    assert "a decision by user:me was recorded" in engine.why("open")[0]["what"]

    assert engine.result(engine.start(world.make(tmp_path / "c", flows.CHAIN))).status == "recorded"


def test_a_flow_can_be_run_again_when_all_its_executions_were_pruned(
    engine: Engine, tmp_path: Path
) -> None:
    flow = flowengine.load(world.make(tmp_path, "steps:\n  - {id: s, output: 1}\n"))
    engine.run(flow)
    assert engine.prune().executions == 1
    assert engine.run(flow).status == "succeeded"


def test_prune_removes_what_ended_with_its_files_and_nothing_else(
    engine: Engine, tmp_path: Path
) -> None:
    text = "steps:\n  - {id: sign, approval: Sure?}\n"
    note = tmp_path / "note.txt"
    note.write_text("x")
    open_ = engine.run(world.make(tmp_path, text))
    done = engine.run(world.make(tmp_path, text))
    engine.approve(done.waits[0]["id"], attach=[note])
    assert engine.prune(older_than=3600).executions == 0
    assert engine.prune(status=["failed"]).executions == 0
    pruned = engine.prune()
    assert (pruned.executions, pruned.artifacts) == (1, 1)
    assert [e["execution"] for e in engine.executions().items] == [open_.execution]
    with pytest.raises(NotFound):
        engine.show(done.execution)
