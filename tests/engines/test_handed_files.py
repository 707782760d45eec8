"""Kept files stay as long as one of their readers (also `handed_files.cases.yaml`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.results import ExecutionResult

MAKES = """
flowengine: 1
id: makes
steps:
  - {id: make, run: {script: "echo content > made.txt", files: {made: made.txt}}, in: host}
  - {id: read, call: std.read_file, with: {path: "${{ steps.make.output.files.made.sha256 }}"}}
outputs:
  file: "${{ steps.make.output.files.made }}"
  text: "${{ steps.read.output.text }}"
"""
READS = """
flowengine: 1
id: reads
inputs: {path: {type: string}, file: {type: object, default: {}}}
steps:
  - {id: read, call: std.read_file, with: {path: "${{ inputs.path }}"}}
outputs: {text: "${{ steps.read.output.text }}"}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("makes", MAKES), ("reads", READS)):
        Path(f"{name}.yaml").write_text(text)


def made(engine: Engine) -> tuple[ExecutionResult, dict[str, Any]]:
    result = engine.run("makes.yaml")
    assert result.outputs is not None, result.error
    assert result.outputs["text"] == "content\n"
    file: Any = result.outputs["file"]
    return result, file


def test_inputs_hand_over_a_file_which_stays_as_long_as_its_reader() -> None:
    with Engine("store") as engine:
        _, file = made(engine)
        given = {"path": file["sha256"], "file": file}
        assert engine.run("reads.yaml", given, id="one").outputs == {"text": "content\n"}
        again = engine.start("reads.yaml", {**given, "path": file["path"]})
        assert engine.resume(again).outputs == {"text": "content\n"}
        assert engine.store.fetch_artifact(file["sha256"], "one").read_bytes() == b"content\n"


def test_a_fork_has_the_files_of_its_origin_also_when_that_is_gone() -> None:
    with Engine("store") as engine:
        origin, file = made(engine)
        fork = engine.executions.fork(origin.execution, from_step="read", id="fork")
        assert fork.outputs is not None, fork.error
        assert fork.outputs["text"] == "content\n"
        with engine.store._database.writing() as connection:  # type: ignore[attr-defined]
            connection.execute(
                "UPDATE executions SET ended_at = 1 WHERE id = ?", (origin.execution,)
            )
        assert engine.store.prune(1).executions == 1
        assert engine.store.fetch_artifact(file["sha256"], "fork").read_bytes() == b"content\n"
