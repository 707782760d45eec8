# Shows G13
"""A program runs as the same Python would in a module, in one process and over restarts."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from flowengine.agents import program_in_sandbox, programs
from flowengine.agents.text_calls.marked_form import ToolOffer
from tests.rows import each_row

PROGRAMS = yaml.safe_load(Path(__file__).with_name("programs.yaml").read_text())
DRIVER = Path(program_in_sandbox.__file__).read_text()
HOST = """
import json, os, sys, tempfile, time, types
given = json.load(sys.stdin)
driver = sys.modules["driver"] = types.ModuleType("driver")
exec(given["driver"], driver.__dict__)
TOOLS = {"order": {"number": "number"}, "echo": {"value": "value"},
         "renamed": {"from_": "from", "x": "x"}}

def answer(name, args):
    assert args.get("value") != "never"
    time.sleep(0.3 * (args.get("value") == "slow"))
    return {"order": {"number": args.get("number")}, "echo": args.get("value"),
            "renamed": sorted(args)}[name]

def run(key, code, restarts):
    begin, answers, before, now = True, [], 0, 1e9
    while True:
        sent = {"key": key, "now": now, "before": before, "answers": answers[before:],
                "more": False}
        if begin:
            sent.update(code=code, tools=TOOLS, seed="s", began=1e9, before=0, answers=answers)
        os.ftruncate(1, os.lseek(1, 0, 0))
        made = driver.program_round(sent)
        if "asks" not in made:
            return {**made, "printed": os.pread(1, 10**6, 0).decode()}
        before = len(answers)
        answers += [{"clock": "", **one, "at": now, "error": None,
                     "result": answer(one["name"], json.loads(one["args"]))}
                    for one in made["asks"]]
        now, begin = now + 3600, restarts

stdout = os.fdopen(os.dup(1), "w")
printed = tempfile.TemporaryFile()
os.dup2(printed.fileno(), 1)
made = {name: [run(name, code, restarts) for restarts in (False, True)]
        for name, code in given["programs"].items()}
json.dump(made, stdout)
stdout.close()
"""
"""Plays the host of programs in a process, since the driver changes clocks."""


@pytest.fixture(scope="module")
def ends() -> dict[str, list[dict[str, Any]]]:
    """How each program ends: without and with restarts."""
    codes = {name: one["code"] for name, one in PROGRAMS.items()}
    given = json.dumps({"driver": DRIVER, "programs": codes})
    done = subprocess.run(
        [sys.executable, "-I", "-c", HOST],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    made: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    return made


@each_row("name", PROGRAMS)
def test_a_program_runs_as_a_module(name: str, ends: dict[str, list[dict[str, Any]]]) -> None:
    wanted = PROGRAMS[name]
    for made in ends[name]:
        if "error" in wanted:
            assert wanted["error"] in made["error"]
        else:
            assert json.loads(made.get("value", json.dumps(made))) == wanted["value"]
        assert made["printed"] == wanted.get("printed", made["printed"])


def test_heads_are_python_whatever_a_server_names_its_tools_and_parameters() -> None:
    forged = "a)\nasync def evil(x: int"
    properties = {
        "ok": {"type": "string", "default": "x\ny"},
        **{name: {} for name in ("from", "cik-A", "cik.A", "$top", "1st", "", "ﬁ", "fi", forged)},
        "kind": {"type": [{"odd": 1}, "string"], "description": f"one\ntwo\x0b{forged}"},
    }
    schema = {"type": "object", "properties": properties, "required": ["$top"]}
    names = ["print", "print_", "7zip", "ToolError", "import", "a-b", "a_b", "len"]
    tools = programs.functions([ToolOffer(name, forged, schema) for name in names])
    head = programs.offer(tools).description.split("The tools:\n\n")[1]

    functions = ast.parse(
        "\n".join(f"{line}: ..." if line[0] == "a" else line for line in head.split("\n") if line)
    ).body
    assert [one.name for one in functions] == [*tools]  # type: ignore[attr-defined]
    named = "print__ print_ _7zip ToolError_ import_ a_b_ a_b len_"
    assert [*tools] == named.split()
    assert programs.parameters(tools["a_b"]) == {
        "_top": "$top", "ok": "ok", "from_": "from", "cik_A": "cik-A", "cik_A_": "cik.A",
        "_1st": "1st", "_": "", "fi_": "ﬁ", "fi": "fi",
        "a__async_def_evil_x__int": forged, "kind": "kind",
    }  # fmt: skip
