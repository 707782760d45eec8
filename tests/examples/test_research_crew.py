"""The research crew: questions at once, handoffs, a report that a person sends back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.examples.conftest import EXAMPLES, Shell

HERE = EXAMPLES / "research_crew"


@pytest.fixture(autouse=True)
def folder(flowengine: Shell) -> Path:
    shutil.copytree(HERE, flowengine.folder, dirs_exist_ok=True)
    return flowengine.folder


def test_a_report_is_written_sent_back_and_published(flowengine: Shell, folder: Path) -> None:
    first = flowengine("run", "research.yaml", code=4)
    assert "dig[0]/lead" in first.err
    assert "calls transfer_to_engineer()" in first.err
    assert "calls transfer_to_historian()" in first.err
    assert "dig[0]/engineer.calls#2[1]/engineer.std.read_file" in first.err
    [wait] = flowengine("--json", "approvals", "list").json()
    assert "20 nautical miles (lenses.md)" in wait["subject"]["report"]
    assert "fire the other in 1755 (eddystone.md)" in wait["subject"]["report"]

    change = ("--choice", "revise", "--comment", "Make it shorter.")
    flowengine("approvals", "decide", wait["id"], *change, code=4)
    [wait] = flowengine("--json", "approvals", "list").json()
    done = flowengine("-q", "approve", wait["id"])

    assert done.out == (HERE / "output.txt").read_text()
    assert (folder / "report.md").read_text() == wait["subject"]["report"]
    assert len(wait["subject"]["report"]) < 200


def test_what_a_person_edits_is_published(flowengine: Shell, folder: Path) -> None:
    flowengine("run", "research.yaml", code=4)
    [wait] = flowengine("--json", "approvals", "list").json()
    flowengine("approve", wait["id"], "--edit", "report=# Mine")

    assert (folder / "report.md").read_text() == "# Mine"


def test_a_rejected_report_is_not_written(flowengine: Shell, folder: Path) -> None:
    flowengine("run", "research.yaml", code=4)
    [wait] = flowengine("--json", "approvals", "list").json()
    done = flowengine("-q", "reject", wait["id"])

    assert done.out.startswith("published: false\n")
    assert not (folder / "report.md").exists()
