"""Kept files: an execution can read its own, its origin's, and those passed to it."""

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
WAITS = """
flowengine: 1
id: waits
inputs: {id: {type: string}}
signals: {got: {key: "${{ inputs.id }}", data: {type: object}}}
steps:
  - {id: wait, wait: {signal: got}}
  - {id: read, call: std.read_file, with: {path: "${{ steps.wait.output.data.sha256 }}"}}
outputs: {text: "${{ steps.read.output.text }}"}
"""
SENDS = """
flowengine: 1
id: sends
signals: {got: {data: {type: object}}}
inputs: {file: {type: object, default: {}}, digest: {type: string}}
steps:
  - id: send
    emit: {signal: got, to: all, key: x, data: DATA}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("makes", MAKES), ("reads", READS), ("waits", WAITS)):
        Path(f"{name}.yaml").write_text(text)


def made(engine: Engine) -> tuple[ExecutionResult, dict[str, Any]]:
    result = engine.run("makes.yaml")
    assert result.outputs is not None, result.error
    assert result.outputs["text"] == "content\n"
    file: Any = result.outputs["file"]
    return result, file


def test_who_only_knows_the_digest_of_a_file_of_others_reads_nothing() -> None:
    with Engine("store") as engine:
        _, file = made(engine)
        for path in (file["sha256"], file["path"]):
            result = engine.run("reads.yaml", {"path": path})
            assert result.status == "failed"


def test_inputs_hand_over_a_file_which_stays_as_long_as_its_reader() -> None:
    with Engine("store") as engine:
        _, file = made(engine)
        given = {"path": file["sha256"], "file": file}
        assert engine.run("reads.yaml", given, id="one").outputs == {"text": "content\n"}
        again = engine.start("reads.yaml", {**given, "path": file["path"]})
        assert engine.resume(again).outputs == {"text": "content\n"}
        assert engine.store.fetch_artifact(file["sha256"], "one").read_bytes() == b"content\n"


@pytest.mark.parametrize(
    ("data", "readable"),
    [
        ('"${{ inputs.file }}"', True),
        ('{path: x, name: x, size: 8, sha256: "${{ inputs.digest }}"}', False),
    ],
    ids=["its own", "made up"],
)
def test_messages_hand_over_only_what_their_sender_can_read(data: str, readable: bool) -> None:
    Path("sends.yaml").write_text(SENDS.replace("DATA", data))
    with Engine("store") as engine:
        _, file = made(engine)
        waits = engine.run("waits.yaml", {"id": "x"})
        given = {"digest": file["sha256"], **({"file": file} if readable else {})}
        assert engine.run("sends.yaml", given).status == "succeeded"
        result = engine.resume(waits.execution)
    assert result.status == ("succeeded" if readable else "failed")


def test_a_fork_has_the_files_of_its_origin_also_when_that_is_gone() -> None:
    with Engine("store") as engine:
        origin, file = made(engine)
        fork = engine.fork(origin.execution, at="read", id="fork")
        assert fork.outputs is not None, fork.error
        assert fork.outputs["text"] == "content\n"
        with engine.store._database.writing() as connection:  # type: ignore[attr-defined]
            connection.execute(
                "UPDATE executions SET ended_at = 1 WHERE id = ?", (origin.execution,)
            )
        assert engine.store.prune(1).executions == 1
        assert engine.store.fetch_artifact(file["sha256"], "fork").read_bytes() == b"content\n"
