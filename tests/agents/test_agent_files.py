# Shows F95
"""Kept files of steps are read by agents (F95)."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.agents.flows import Case, call, flow

HEAD = """
flowengine: 1
id: f
defaults: {model: scripted/test}
environments: {box: {kind: bash}}
"""
STEPS = """
steps:
  - id: make
    run: {script: "printf 'rain, then sun' > report.txt", files: {report: report.txt}}
    in: box
  - {id: attach, python: "attach:attach", with: {file: "${{ steps.make.output.files.report }}"}}
  - id: ask
    agent: first
    with: {prompt: Read it., files: ["${{ steps.attach.output }}"]}
outputs: {answer: "${{ steps.ask.output }}", file: "${{ steps.attach.output }}"}
"""
ATTACH = """
from pathlib import Path

from flowengine.sdk import StepContext

def attach(context: StepContext, file: dict) -> dict:
    text = Path(file["path"]).read_text()
    return context.execution.artifacts.put(text.upper().encode(), "forecast.txt")
"""
AGENT = "first: {instructions: You read., tools: [std.read_file, std.read_document]}"


@pytest.mark.endurance
@pytest.mark.skipif(not shutil.which("bwrap"), reason="apt-get install bubblewrap")
def test_an_agent_reads_what_a_step_in_a_sandbox_made_and_a_function_attached(
    tmp_path: Path,
) -> None:
    (tmp_path / "attach.py").write_text(ATTACH)
    (tmp_path / "mine.txt").write_text("mine")
    content = b"RAIN, THEN SUN"
    digest = hashlib.sha256(content).hexdigest()

    def reads(request: Any) -> dict[str, Any]:
        told = request.messages[-1]["content"]
        found = re.search(r"- forecast.txt \((\S+), 14 bytes\)", told)
        assert found, told
        store = str(Path(found[1]).parents[2] / "store.db")
        return {
            "calls": [
                call("std.read_file", path=found[1]),
                call("std.read_file", path=digest),
                call("std.read_document", path=digest),
                call("std.read_file", path=store),
                call("std.read_file", path="0" * 64),
                call("std.read_file", path="mine.txt"),
            ]
        }

    case = Case(tmp_path, flow(AGENT, STEPS, HEAD), [reads, {"text": "Rain."}])

    outputs = case.run().outputs
    assert outputs["answer"] == "Rain."
    file = outputs["file"]
    assert (file["name"], file["size"], file["sha256"]) == ("forecast.txt", 14, digest)
    answers = [one["content"] for one in case.sent(1)[-6:]]
    assert answers[:2] == [f"1\t{content.decode()}"] * 2
    assert content.decode() in answers[2]
    assert "Refused" in answers[3]
    assert answers[4].startswith("Error: ")
    assert answers[5] == "1\tmine"
