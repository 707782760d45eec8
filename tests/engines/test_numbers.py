"""A number without a fraction is an integer of Python where one is declared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine.engines.engine import Engine
from tests.engines import world


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine(tmp_path / "store") as engine:
        yield engine


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
