# Shows F21
"""Detached flows: separate executions, started once, that outlive the step that starts them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flowengine import Engine, load
from flowengine.cli.program import main

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
    detach: true
    with: {n: "${{ item }}"}
  - {id: after, run: "true"}
outputs: {ids: "${{ steps.begin.output.map(one, one.execution_id) }}"}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


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


def test_the_command_line_runs_it_too_and_tells_of_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", write()]) == 0
    told = capsys.readouterr()
    ids = told.out.split()[-2:]
    assert told.err.count(" child") == 2

    assert main(["--json", "list", "--flow", "child"]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    text = json.dumps(shown)
    assert text.count("succeeded") == 2
    assert all(id.strip("-[], ") in text for id in ids)
