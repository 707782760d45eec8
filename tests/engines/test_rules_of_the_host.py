"""Rules of the host: they apply to the calls of all flows, and are checked before each call."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines import rule_files
from flowengine.engines.results import ExecutionResult
from flowengine.journal.encoding import pack, unpack
from tests.replacing import Limits

FUNCTIONS = """
import flowengine
def act(n=0, **more):
    with open("acted.txt", "a") as file:
        file.write(f"{n} ")
    return n
@flowengine.quick
def pure(n: int) -> int:
    with open("acted.txt", "a") as file:
        file.write(f"{n} ")
    return n
"""
pytestmark = pytest.mark.usefixtures("folder")
FILES = {"acts.py": FUNCTIONS}


def acted() -> str:
    file = Path("acted.txt")
    return file.read_text() if file.exists() else ""


def host(*rules: str, where: str = "config/flowengine") -> Path:
    """Write the user's rules, or the project's."""
    path = Path(where) / "rules.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(["rules:\n", *(f"  - {rule}\n" for rule in rules)]))
    return path


def flow(
    approval: str = "none", rules: str = "[]", step: str = "{id: a, call: get, with: {n: 1}}"
) -> str:
    Path("flow.yaml").write_text(f"""
flowengine: 1
id: it
rules: {rules}
tools:
  get: {{python: "acts:act", approval: {approval}}}
  put: {{python: "acts:act", effect: idempotent}}
  pure: {{python: "acts:pure", effect: pure}}
steps: [{step}]
""")
    return "flow.yaml"


def run(*given: Any, **more: Any) -> ExecutionResult:
    with Engine("store") as engine:
        return engine.run(flow(*given, **more))


def outcome(result: ExecutionResult) -> str:
    """Return the outcome of a call: `allow`, `ask` or `deny`."""
    if result.status == "waiting":
        return "ask"
    if result.status == "succeeded":
        return "allow"
    assert result.error is not None
    assert result.error["type"] == "Refused", result.error
    return "deny"


def test_rules_of_the_machine_count_as_those_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowengine.engines.engine.MACHINE_FOLDER", "etc/flowengine")
    host("{allow: get}", where="etc/flowengine")
    assert outcome(run("ask")) == "allow"
    host("{deny: get}")
    assert outcome(run("ask")) == "deny"


def test_another_process_approves_and_goes_on() -> None:
    host("{ask: get}")
    [wait] = run().waits
    done = subprocess.run(
        [sys.executable, "-m", "flowengine", "--store", "store", "approve", wait["id"]],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert acted() == "1 "


# Changed meanwhile


def test_a_file_that_a_step_writes_counts_for_the_step_behind_it(limits: Limits) -> None:
    limits(rule_files, ABSENT_SECONDS=3600.0)
    rules = Path("config/flowengine/rules.yaml")
    rules.parent.mkdir(parents=True)
    Path("acts.py").write_text(
        f"{FUNCTIONS}\ndef write():\n    with open({str(rules)!r}, 'w') as file:\n"
        "        file.write('rules: [{deny: get}]')\n"
    )
    step = "{id: w, python: 'acts:write'}, {id: a, call: get, with: {n: 1}}"

    assert outcome(run(step=step)) == "deny"
    assert acted() == ""


# Broken


# Rules are compiled once for a store

RUN = """
import sys
from flowengine.cli.program import main
code = main(["--store", "store", "-q", "run", "flow.yaml"])
slow = [one for one in ("yaml", "pydantic", "flowengine.flow.compile") if one in sys.modules]
print(code, *slow)
"""


def run_alone() -> list[str]:
    """Run the flow in a new process, and return its exit code and loaded modules."""
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.stdout.split()


@pytest.mark.endurance
def test_unchanged_rules_are_not_compiled_again() -> None:
    path = host('{deny: "get", when: "${{ args.n > 5 }}"}')
    flow(step="{id: a, call: get, with: {n: 9}}")
    first = run_alone()
    assert first[1:] == ["yaml", "pydantic", "flowengine.flow.compile"]
    assert run_alone() == [first[0]]
    assert acted() == ""

    path.write_text(path.read_text().replace("> 5", "> 10"))
    assert run_alone()[0] == "0"
    assert acted() == "9 "


@pytest.mark.parametrize(
    "kept",
    [
        b"",
        b"\xc1",
        b"\x80",
        b"\x82\xa5rules\xc0\xabexpressions\x90",
        b"\x82\xa5rules\x91\x90\xabexpressions\x90",
    ],
)
def test_damaged_rules_in_the_store_are_compiled_again(kept: bytes) -> None:
    host('{deny: "get"}')
    assert outcome(run()) == "deny"
    _keep(kept)

    assert outcome(run()) == "deny"
    assert acted() == ""
    assert _kept() != kept


def test_rules_that_somebody_else_put_into_the_store_are_not_believed() -> None:
    host('{deny: "get"}')
    assert outcome(run()) == "deny"
    kept = unpack(_kept())
    none = pack({"rules": [], "expressions": []}).hex()
    _keep(pack({**kept, "compiled": none}))

    assert outcome(run()) == "deny"
    assert acted() == ""
    assert unpack(_kept()) == kept


def _keep(kept: bytes) -> None:
    with sqlite3.connect("store/flowengine.db") as database:
        changed = database.execute(
            "UPDATE sources SET extra = ? WHERE hash = 'rules'", (kept,)
        ).rowcount
    database.close()
    assert changed == 1


def _kept() -> bytes:
    database = sqlite3.connect("store/flowengine.db")
    try:
        [(extra,)] = database.execute("SELECT extra FROM sources WHERE hash = 'rules'")
    finally:
        database.close()
    found: bytes = extra
    return found
