"""Grants for all executions of a flow: stored, and consumed by several processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.results import ExecutionResult
from flowengine.errors import Conflict, NotFound

ACTS = """
def write(path: str, text: str = "") -> str:
    with open("acted.txt", "a") as file:
        file.write(f"{path} ")
    return path
"""
FLOW = """
flowengine: 1
id: it
inputs:
  paths: {type: array, items: {type: string}}
  account: {type: string, default: a}
tools:
  write: {python: "acts:write", approval: APPROVAL BIND}
steps:
  - id: w
    map: "${{ inputs.paths }}"
    call: write
    with: {path: "${{ item }}"}
"""
ANY = {"path": "*"}
pytestmark = pytest.mark.usefixtures("folder")
FILES = {"acts.py": ACTS}


def acted() -> list[str]:
    file = Path("acted.txt")
    return sorted(file.read_text().split()) if file.exists() else []


def write(approval: str = "ask", bind: str = "", id: str = "it") -> str:
    text = FLOW.replace("APPROVAL", approval).replace("BIND", bind and f", with: {bind}")
    Path(f"{id}.yaml").write_text(text.replace("id: it", f"id: {id}"))
    return f"{id}.yaml"


def begin(engine: Engine, *paths: str, flow: str = "it.yaml", **inputs: str) -> ExecutionResult:
    return engine.run(flow, {"paths": list(paths), **inputs})


def grant(engine: Engine, result: ExecutionResult, **given: Any) -> ExecutionResult:
    wanted: Any = {"scope": "flow", **given}
    after = engine.approvals.approve(result.waits[0]["id"], grant=wanted).result
    assert after is not None
    return after


PROGRAM = """
import sys
from flowengine import Engine
with Engine("store") as engine:
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(6):
        print(engine.run("it.yaml", {"paths": [f"{sys.argv[1]}{number}"]}).status)
"""


@pytest.mark.endurance
def test_a_tool_whose_code_has_changed_is_asked_about() -> None:
    write()
    with Engine("store") as engine:
        grant(engine, begin(engine, "a"), args=ANY)
    Path("acts.py").write_text(ACTS.replace('"acted.txt"', '"elsewhere.txt"'))
    program = "from flowengine import Engine\nwith Engine('store') as engine:\n" + (
        "    print(engine.run('it.yaml', {'paths': ['b']}).status)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["waiting"]
    assert acted() == ["a"]
    assert not Path("elsewhere.txt").exists()


@pytest.mark.endurance
def test_revocation_holds_at_once_also_for_a_call_that_was_answered() -> None:
    """A grant revoked between its answer and the call no longer applies: a human is asked."""
    write()
    with Engine("store") as engine, Engine("store") as other:
        grant(engine, begin(engine, "a"), args=ANY)
        [given] = engine.approvals.grants()
        store: Any = engine.store
        decide = store.decide

        def revoked_right_after(wait: str, vote: Any) -> Any:
            stands = decide(wait, vote)
            if vote.uses is not None:
                other.approvals.revoke(given["id"], by="user:ben")
            return stands

        store.decide = revoked_right_after
        result = begin(engine, "b")
        [wait] = result.waits
        assert wait["rule"] == "the grant that answered was revoked by user:ben"
        assert acted() == ["a"]
        assert engine.approvals.approve(wait["id"]).result.status == "succeeded"  # type: ignore[union-attr]
        assert begin(engine, "c").status == "waiting"
        [given] = engine.approvals.grants()
        assert (given["status"], given["revoked_by"]) == ("revoked", "user:ben")
        with pytest.raises(Conflict, match="revoked by user:ben"):
            engine.approvals.revoke(given["id"])
        with pytest.raises(NotFound):
            engine.approvals.revoke("nothing")


@pytest.mark.endurance
def test_two_processes_use_a_grant_up_exactly() -> None:
    write()
    with Engine("store") as engine:
        grant(engine, begin(engine, "a"), args=ANY, uses=7)
        line = [sys.executable, "-c", PROGRAM]
        pipe = subprocess.PIPE
        both = [
            subprocess.Popen([*line, name], stdin=pipe, stdout=pipe, text=True) for name in "pq"
        ]
        for one in both:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        for one in both:
            assert one.stdin is not None
            one.stdin.write("\n")
            one.stdin.flush()
        said = "".join(one.communicate(timeout=120)[0] for one in both).split()
        assert sorted(said) == ["succeeded"] * 7 + ["waiting"] * 5
        assert engine.approvals.grants()[0]["used"] == 7
    assert len(acted()) == 8
