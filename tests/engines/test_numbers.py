"""Numbers that cannot be kept are refused at every door, with what is kept instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine.engines.engine import Engine
from flowengine.errors import InputError
from flowengine.kernel.graph import Plain
from tests.engines import world

FLOW = """
inputs: {n: {type: number, default: 1}, any: {default: 1}}
signals:
  said: {}
steps:
  - id: ask
    approval:
      title: Right?
      subject: {n: "${{ inputs.n }}"}
      edit: true
      form: {properties: {n: {type: number}, list: {type: array}}}
  - {id: wait, wait: {signal: said}}
"""
BAD = [
    (float("inf"), "infinity"),
    (float("-inf"), "minus infinity"),
    (float("nan"), "not a number"),
    (2**64, "an integer of 65 bits"),
    (-(2**63) - 1, "an integer of 64 bits"),
]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine(tmp_path / "store") as engine:
        yield engine


Door = Callable[[Engine, Path, Any], Any]


def _input(engine: Engine, flow: Path, value: Any) -> Any:
    return engine.run(flow, {"any": {"deep": [1, value]}})


def _declared(engine: Engine, flow: Path, value: Any) -> Any:
    return engine.run(flow, {"n": value})


def _asked(engine: Engine, flow: Path) -> str:
    return engine.run(flow).waits[0]["id"]


def _form(engine: Engine, flow: Path, value: Any) -> Any:
    return engine.approve(_asked(engine, flow), form={"list": [value]})


def _edit(engine: Engine, flow: Path, value: Any) -> Any:
    return engine.approve(_asked(engine, flow), edits={"n": value})


def _signal(engine: Engine, flow: Path, value: Any) -> Any:
    return engine.signal("said", {"x": value}, execution=engine.run(flow).execution)


@pytest.mark.parametrize("door", [_input, _declared, _form, _edit, _signal])
@pytest.mark.parametrize(("value", "told"), BAD)
def test_number_that_cannot_be_kept_is_refused(
    engine: Engine, tmp_path: Path, door: Door, value: Any, told: str
) -> None:
    with pytest.raises(InputError, match=told):
        door(engine, world.make(tmp_path, FLOW), value)


@pytest.mark.parametrize("value", [1.5, -(2**63), 2**64 - 1, 0, True])
def test_all_other_numbers_are_kept_as_they_are(
    engine: Engine, tmp_path: Path, value: Plain
) -> None:
    flow = world.make(
        tmp_path,
        'inputs: {x: {}}\nsteps: [{id: a, output: "${{ inputs.x }}"}]\n'
        'outputs: {x: "${{ steps.a.output }}"}\n',
    )
    assert engine.run(flow, {"x": value}).outputs == {"x": value}
