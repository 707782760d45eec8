"""Numbers that cannot be stored are rejected everywhere, with an alternative."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine.engines.engine import Engine
from flowengine.errors import InputError
from flowengine.kernel.graph.compiled import Plain
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
    (2**64, "an integer above"),
    (-(2**63) - 1, "an integer below"),
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
    return engine.approvals.approve(_asked(engine, flow), form={"list": [value]})


def _edit(engine: Engine, flow: Path, value: Any) -> Any:
    return engine.approvals.approve(_asked(engine, flow), edit={"n": value})


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


WHOLE = """
inputs:
  n: {type: integer}
  deep: {type: object, properties: {list: {type: array, items: {type: integer}}}}
state: {s: {type: integer, default: 0}}
signals:
  said:
    key: k
    data: {type: object, properties: {n: {type: [integer, "null"]}}, required: [n]}
steps:
  - {id: made, python: "whole:made"}
  - id: ask
    approval: {title: Right?, form: {properties: {n: {type: integer}}, required: [n]}}
  - {id: wait, wait: {signal: said}}
outputs:
  input: ${{ inputs.n + 1 }}
  deep: ${{ inputs.deep.list.map(x, x + 1) }}
  made: ${{ steps.made.output + 1 }}
  form: ${{ steps.ask.output.form.n + 1 }}
  signal: ${{ steps.wait.output.data.n + 1 }}
  state: ${{ state.s + 1 }}
"""


@pytest.mark.parametrize("way", ["execution", "key"])
def test_a_float_without_a_fraction_is_an_integer_where_one_is_declared(
    engine: Engine, tmp_path: Path, way: str
) -> None:
    flow = world.make(tmp_path, WHOLE)
    (tmp_path / "whole.py").write_text("def made() -> int:\n    return 2.0\n")

    asked = engine.run(flow, {"n": 1.0, "deep": {"list": [1.0, 2, 3e3]}})
    waiting = engine.approvals.approve(asked.waits[0]["id"], form={"n": 4.0}).result
    to: dict[str, Any] = {"execution": asked.execution} if way == "execution" else {"key": "k"}
    for resume in (False, True):
        sent = engine.signal("said", {"n": 5.0}, id="m", resume=resume, **to)

    assert waiting is not None
    assert sent.result is not None
    outputs = {"input": 2, "deep": [2, 3, 3001], "made": 3, "form": 5, "signal": 6, "state": 1}
    assert sent.result.outputs == outputs
    assert all(
        type(one) is int for one in [*sent.result.outputs["deep"], sent.result.outputs["made"]]
    )


def test_so_in_state_that_a_fork_writes(engine: Engine, tmp_path: Path) -> None:
    flow = world.make(
        tmp_path,
        "state: {s: {type: integer, default: 0}}\nsteps: [{id: a, output: 1}]\n"
        'outputs: {s: "${{ state.s + 1 }}"}\n',
    )
    forked = engine.executions.fork(engine.run(flow).execution, from_step="a", set={"s": 7.0})
    assert (forked.outputs, type((forked.outputs or {})["s"])) == ({"s": 8}, int)


def test_so_in_constants_of_a_flow(engine: Engine, tmp_path: Path) -> None:
    flow = world.make(
        tmp_path,
        """
state:
  n: {type: integer, default: 2.0}
  deep: {type: array, items: {type: integer}, default: [1.0]}
  sum: {type: integer, default: 0.0, reducer: add}
steps:
  - {id: first, output: "${{ state.n + state.deep[0] }}"}
  - {id: write, set: {n: 3.0, deep: [4.0], sum: 5.0}}
outputs:
  first: ${{ steps.first.output }}
  written: ${{ [state.n + 1, state.deep[0] + 1, state.sum + 1] }}
""",
    )

    outputs = engine.run(flow).outputs

    assert repr(outputs) == "{'first': 3, 'written': [4, 5, 6]}"


def test_a_fraction_is_no_integer(engine: Engine, tmp_path: Path) -> None:
    flow = world.make(tmp_path, "inputs: {n: {type: integer}}\nsteps: [{id: a, output: 1}]\n")
    with pytest.raises(InputError, match=r"'n' must be a whole number, not 1\.5"):
        engine.run(flow, {"n": 1.5})
