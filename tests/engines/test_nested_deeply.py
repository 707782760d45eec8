"""Executions whose values are nested as deeply as may be: all that is written can be read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine, InputError

DEEP = """
flowengine: 1
id: deep
inputs: {n: {type: integer}}
limits: {depth: 100}
flows:
  down:
    inputs: {n: {type: integer}}
    steps:
      - id: more
        when: ${{ inputs.n > 0 }}
        flow: down
        with: {n: "${{ inputs.n - 1 }}"}
      - LAST
steps:
  - {id: s, flow: down, with: {n: "${{ inputs.n }}"}}
"""
FAILS = "{id: boom, fail: {type: Boom, message: bang, data: {a: 1}}}"
NESTS = """
flowengine: 1
id: nests
limits: {activations: 5000, steps: 5000}
state:
  x: {default: {}}
  n: {type: integer, default: 0}
steps:
  - id: grow
    set: {x: "${{ {'a': state.x} }}", n: "${{ state.n + 1 }}"}
    next: {first: [{to: grow, when: "${{ state.n < 1500 }}"}, {else: ask}]}
  - {id: ask, approval: {title: Go on?}}
"""


def ran(folder: Path, last: str) -> tuple[str, str]:
    """Run the nested flow with a last step, and return its store and its execution."""
    (folder / "deep.yaml").write_text(DEEP.replace("LAST", last))
    with Engine(folder / "store", durability="none") as engine:
        return str(folder / "store"), engine.run(folder / "deep.yaml", {"n": 98}).execution


def test_an_error_from_the_deepest_flow_is_read_and_keeps_its_first_causes(tmp_path: Path) -> None:
    store, id = ran(tmp_path, FAILS)
    with Engine(store) as engine:
        shown: Any = engine.show(id)
        error, depth = shown["error"], 0
        while error["cause"] is not None:
            error, depth = error["cause"], depth + 1
        assert (depth, error["type"], error["data"]) == (20, "Boom", {"a": 1})
        assert error["step"] == "s" + 98 * "/more" + "/boom"
        assert engine.why(id)
        assert engine.retry(id).status == "failed"


def test_the_deepest_flow_is_cancelled(tmp_path: Path) -> None:
    store, id = ran(tmp_path, "{id: ask, approval: {title: Go on?}}")
    with Engine(store) as engine:
        engine.cancel(id)
        assert engine.resume(id).status == "cancelled"
        assert engine.show(id)["status"] == "cancelled"


def test_a_state_that_cannot_be_stored_stops_no_other_execution(tmp_path: Path) -> None:
    (tmp_path / "nests.yaml").write_text(NESTS)
    (tmp_path / "deep.yaml").write_text(DEEP.replace("LAST", "{id: done, output: 1}"))

    async def main() -> None:
        async with Engine(tmp_path / "store", durability="none") as engine:
            nests = asyncio.ensure_future(engine.run_async(tmp_path / "nests.yaml"))
            others = [engine.run_async(tmp_path / "deep.yaml", {"n": n}) for n in range(20)]
            assert {result.status for result in await asyncio.gather(*others)} == {"succeeded"}
            with pytest.raises(InputError, match="nested more than 1024 deep") as caught:
                await nests
            assert len(caught.value.message) < 200

    asyncio.run(main())
