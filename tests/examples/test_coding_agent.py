"""The coding agent: risky calls wait, and are approved, rejected or edited by an approver."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.examples.conftest import EXAMPLES, PROGRAM, Shell
from tests.execution_environment.toy import until
from tests.own_environments import environments_for

HERE = EXAMPLES / "coding_agent"

pytestmark = pytest.mark.skipif(not shutil.which("bwrap"), reason="apt-get install bubblewrap")


@pytest.fixture(autouse=True)
def project(flowengine: Shell) -> Path:
    shutil.copytree(HERE, flowengine.folder, dirs_exist_ok=True)
    return flowengine.folder / "project"


def asked(flowengine: Shell) -> dict[str, Any]:
    [wait] = flowengine("--json", "approvals", "list").json()
    found: dict[str, Any] = wait
    return found


def test_risky_calls_wait_and_the_change_comes_back_in_the_end(
    flowengine: Shell, project: Path
) -> None:
    before = {path.name: path.read_bytes() for path in project.glob("*.py")}
    flowengine("run", "coding_agent.yaml", code=4)  # reads, edits and tests have run by now

    removal = asked(flowengine)
    assert removal["subject"] == {"command": "rm -r /src/drafts"}
    flowengine("reject", removal["id"], "--comment", "Keep the drafts.", code=4)

    rights = asked(flowengine)
    assert rights["subject"] == {"command": "chmod -R 777 /src"}
    edited = "cd /src && ls && chmod 644 slugs.py"
    flowengine("approve", rights["id"], "--edit", f"command={edited}", code=4)

    publication = asked(flowengine)
    assert (publication["title"], publication["subject"]) == ("Call publish?", {})
    assert {path.name: path.read_bytes() for path in project.glob("*.py")} == before
    done = flowengine("-q", "approve", publication["id"])

    assert done.out == (HERE / "output.txt").read_text()
    assert '"[^a-z0-9]+"' in (project / "slugs.py").read_text()
    assert (project / "drafts" / "ideas.txt").exists()
    shown = flowengine("--json", "show", newest(flowengine)).json()
    calls = {one["address"]: str(one) for one in shown["steps"]}
    assert "Keep the drafts." in calls["repair/coder@4/run"]
    assert "check.py\\ndrafts" in calls["repair/coder@5/run"]  # the edited command ran


def newest(flowengine: Shell) -> str:
    [execution] = flowengine("--json", "list").json()
    return str(execution["execution"])


@pytest.mark.endurance
def test_an_agent_whose_process_was_killed_goes_on_in_its_copy(
    flowengine: Shell, project: Path
) -> None:
    """The outcome of the interrupted command is unknown. The agent receives a note, and checks."""
    edit = {"path": "slugs.py", "old": '[^a-z0-9]"', "new": '[^a-z0-9]+"'}
    wait = "cd /src && touch begun && sleep 100 && touch ended"
    script = [
        {"calls": [{"name": "std.edit_file", "arguments": edit}]},
        {"calls": [{"name": "run", "arguments": {"command": wait}}]},
        {"calls": [{"name": "std.glob", "arguments": {"pattern": "*"}}]},
        {"calls": [{"name": "std.search_files", "arguments": {"text": "+"}}]},
        {"text": "It begun, and the edit is there."},
    ]
    (flowengine.folder / "killed.json").write_text(json.dumps(script))
    words = ["-i", f"tests={wait}", "--model", "scripted/killed.json"]

    def kept(pattern: str) -> list[Path]:
        store = flowengine.folder / ".flowengine"
        return [*environments_for(store, flowengine.env).glob(pattern)]

    process = subprocess.Popen(
        [PROGRAM, "-q", "run", "coding_agent.yaml", *words],
        cwd=flowengine.folder,
        env=flowengine.env,
        stdin=subprocess.DEVNULL,
    )
    try:
        until(lambda: kept("workspaces/*/*/*/begun"))
    finally:
        process.kill()
        process.wait()

    done = flowengine("-q", "resume", newest(flowengine))

    assert done.out == "answer: It begun, and the edit is there.\n"
    shown = flowengine("--json", "show", newest(flowengine)).json()
    calls = {one["address"]: str(one) for one in shown["steps"]}
    assert "was interrupted while it ran" in calls["repair/coder@2/run"]
    files = calls["repair/coder@3/std.glob"]
    assert "begun" in files
    assert '"ended"' not in files
    assert "slugs.py" in calls["repair/coder@4/std.search_files"]
    assert '"[^a-z0-9]"' in (project / "slugs.py").read_text()
    assert not kept("entries/*")
