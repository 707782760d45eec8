# Shows F21
"""Detached flows: separate executions, started once, that outlive the step that starts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine import Engine, load

FLOW = """\
flowengine: 1
id: parent
inputs: {n: {type: integer, default: 2}}
signals: {go: {}}
flows:
  child:
    inputs: {n: {type: integer, maximum: 5}, more: {type: integer, default: "${{ inputs.n * 10 }}"}}
    outputs: {sum: "${{ steps.inner.output.n + inputs.more }}"}
    steps:
      - {id: inner, flow: leaf, with: {n: "${{ inputs.n }}"}}
  leaf:
    inputs: {n: {type: integer}}
    outputs: {n: {value: "${{ inputs.n + 1 }}", type: integer}}
    steps: [{id: a, output: 1}]
steps:
  - id: begin
    map: "${{ inputs.n }}"
    flow: child
    background: true
    with: {n: "${{ item }}"}
  - {id: after, run: "true"}
outputs: {ids: "${{ steps.begin.output.map(one, one.execution_id) }}"}
"""
pytestmark = pytest.mark.usefixtures("folder")


def write() -> str:
    Path("parent.yaml").write_text(FLOW)
    return "parent.yaml"


def test_it_is_an_execution_of_a_flow_like_any_other() -> None:
    with Engine("store") as engine:
        result = engine.run(write())
        assert result.outputs is not None
        hashes = {engine.store.execution(id).hash for id in result.outputs["ids"]}
        assert len(hashes) == 1
        assert hashes != {load("parent.yaml").hash}
        assert engine.executions.result(result.outputs["ids"][1]).outputs == {"sum": 12}
