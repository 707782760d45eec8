"""Executions whose values are nested as deeply as may be: all that is written can be read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine

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
        shown: Any = engine.executions.show(id)
        error, depth = shown["error"], 0
        while error["cause"] is not None:
            error, depth = error["cause"], depth + 1
        assert (depth, error["type"], error["data"]) == (20, "Boom", {"a": 1})
        assert error["step"] == "s" + 98 * "/more" + "/boom"
        assert engine.executions.why(id)
        assert engine.executions.retry(id).status == "failed"


def test_the_deepest_flow_is_cancelled(tmp_path: Path) -> None:
    store, id = ran(tmp_path, "{id: ask, approval: {title: Go on?}}")
    with Engine(store) as engine:
        engine.executions.cancel(id)
        assert engine.resume(id).status == "cancelled"
        assert engine.executions.show(id)["status"] == "cancelled"


NOT_STORED = {
    "- {id: ask, approval: {title: Go on?}}": "",
    "- {id: ask, python: 'tools:take', effect: once, with: {x: '${{ state.x }}'}}": "",
    """- id: ask
    approval:
      title: Go on?
      form: {type: object, properties: {a: {default: '${{ state.x }}'}}}""": "",
    """- id: ask
    emit: {signal: go, to: 01m8epk8mjqz01m8epk8mjqzaa, data: '${{ state.x }}'}""": (
        "signals: {go: {}}"
    ),
    "- {id: ask, when: '${{ state.n > 0 }}', fail: {type: Boom, data: '${{ state.x }}'}}": "",
    "- {id: ask, output: 1}": "outputs: {x: '${{ state.x }}'}",
}
"""Last step → more of a flow whose state, wait, message, error or outputs are nested too deeply."""


@pytest.mark.endurance
@pytest.mark.parametrize("in_memory", [True, False])
def test_what_cannot_be_stored_fails_its_execution_and_no_other(
    tmp_path: Path, in_memory: bool
) -> None:
    (tmp_path / "deep.yaml").write_text(DEEP.replace("LAST", "{id: done, output: 1}"))
    files = []
    for number, (last, more) in enumerate(NOT_STORED.items()):
        text = NESTS.replace("- {id: ask, approval: {title: Go on?}}", last)
        files.append(tmp_path / f"nests{number}.yaml")
        files[-1].write_text(text + more)
    (tmp_path / "tools.py").write_text("def take(x: object) -> None: ...\n")
    store = None if in_memory else tmp_path / "store"

    async def main() -> None:
        async with Engine(store, durability="none") as engine:
            nests = [asyncio.ensure_future(engine.run_async(file)) for file in files]
            others = [engine.run_async(tmp_path / "deep.yaml", {"n": n}) for n in range(20)]
            assert {result.status for result in await asyncio.gather(*others)} == {"succeeded"}
            for result in await asyncio.gather(*nests):
                error: Any = result.error
                assert (result.status, error["type"]) == ("failed", "ValidationError")
                assert "nested more than 1024 deep" in error["message"]
                assert len(error["message"]) < 200
                check(engine, result.execution)

    def check(engine: Engine, id: str) -> None:
        assert engine.executions.show(id)["status"] == "failed"
        assert engine.executions.show(id)["outputs"] is None
        assert list(engine.executions.events(id))[-1]["type"] == "halted"
        assert "1024" in str(engine.executions.why(id))
        assert not engine.approvals.list(execution=id).items

    asyncio.run(main())


def test_an_execution_that_became_too_deep_in_another_process_fails(tmp_path: Path) -> None:
    """All that came before is on disk, because no snapshot was due."""
    (tmp_path / "tools.py").write_text("def large() -> str:\n    return 'x' * 100_000\n")
    text = NESTS.replace("{'a': state.x}", f"{10 * '['}state.x{10 * ']'}").replace("1500", "110")
    more = "  - {id: more, python: 'tools:large'}\n  - {id: after, approval: {title: Again?}}\n"
    (tmp_path / "nests.yaml").write_text(text + more)
    with Engine(tmp_path / "store", durability="none") as engine:
        wait = engine.run(tmp_path / "nests.yaml").waits[0]
    with Engine(tmp_path / "store", durability="none") as engine:
        result = engine.approvals.approve(wait["id"]).result
        assert result is not None
        assert (result.status, result.waits) == ("failed", [])
        assert result.error is not None
        assert "more than 1024 deep" in result.error["message"]
