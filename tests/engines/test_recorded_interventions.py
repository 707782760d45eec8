# Shows V30
"""Retries, forks and upgrades that are only recorded: another process takes them from there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flowengine import Conflict
from flowengine.engines.engine import Engine
from tests.engines import world

FAILING = """
version: "1"
inputs: {wrong: {type: boolean, default: true}}
state: {more: {type: integer, default: 1}}
steps:
  - {id: one, python: "effects:act", effect: once, with: {value: 1}}
  - {id: stop, when: "${{ inputs.wrong && state.more == 1 }}", fail: {type: Nope, message: no}}
  - {id: two, python: "effects:act", effect: once, with: {value: 2}}
"""
FIXED = FAILING.replace('"1"', '"2"').replace("fail: {type: Nope, message: no}", "output: 1")
ASKING = """
version: "1"
steps:
  - {id: ask, approval: {title: Go?}}
  - {id: two, python: "effects:act", effect: once, with: {value: 2}}
"""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine(tmp_path / "store", durability="none") as engine:
        yield engine


def done(folder: Path) -> list[str]:
    return [address for address, _, _ in world.effects(folder)]


def test_a_recorded_retry_is_due_and_its_steps_begin_once_elsewhere(
    engine: Engine, tmp_path: Path
) -> None:
    engine.run(world.make(tmp_path, FAILING), id="it")
    assert done(tmp_path) == ["one"]
    fixed = world.make(tmp_path, FIXED)

    recorded = engine.executions.retry("it", flow=fixed, resume=False)

    assert not recorded.ended
    assert done(tmp_path) == ["one"]
    assert [(one.execution, one.deaths) for one in engine.due()] == [("it", 0)]
    with pytest.raises(Conflict, match="only a failed execution can be retried"):
        engine.executions.retry("it", resume=False)
    with Engine(tmp_path / "store", durability="none") as other:
        result = other.resume("it")
    assert (result.status, result.waits) == ("succeeded", [])
    assert done(tmp_path) == ["one", "two"]


def test_a_recorded_fork_is_due_and_continues_elsewhere(engine: Engine, tmp_path: Path) -> None:
    engine.run(world.make(tmp_path, FAILING), id="it")

    recorded = engine.executions.fork(
        "it", from_step="stop", set={"more": 2}, id="fork", resume=False
    )

    assert (recorded.execution, recorded.ended) == ("fork", False)
    assert done(tmp_path) == ["one"]
    assert [one.execution for one in engine.due()] == ["fork"]
    with Engine(tmp_path / "store", durability="none") as other:
        assert other.resume("fork").status == "succeeded"
    assert done(tmp_path) == ["one", "two"]
    assert engine.executions.result("it").status == "failed"


def test_a_recorded_upgrade_leaves_the_decided_steps_to_another_process(
    engine: Engine, tmp_path: Path
) -> None:
    [wait] = engine.run(world.make(tmp_path, ASKING), id="it").waits
    engine.approvals.approve(wait["id"], resume=False)
    changed = world.make(tmp_path, ASKING.replace('"1"', '"2"'))

    [info] = engine.executions.upgrade(changed, "it", resume=False)

    assert (info["verdict"], info["moved"]) == ("continues", True)
    assert done(tmp_path) == []
    assert [one.execution for one in engine.due()] == ["it"]
    with Engine(tmp_path / "store", durability="none") as other:
        result = other.resume("it")
    assert (result.status, result.waits) == ("succeeded", [])
    assert done(tmp_path) == ["two"]
    assert engine.executions.show("it")["version"] == "2"
