"""When steps cannot be undone: which, and a fork that undoes just these."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import CommandLine

BANK = """\
from pathlib import Path


def pay(name: str) -> str:
    return name


def give_back(name: str) -> None:
    if name in ("two", "three") and not Path("open").exists():
        raise ValueError(f"closed for {name}")
    with open("undone", "a") as file:
        file.write(f"{name} ")


def refuse() -> None:
    raise RuntimeError("no")
"""
SAGA = """\
flowengine: 1
id: saga
tools:
  pay: {python: "bank:pay"}
  back: {python: "bank:give_back"}
steps:
  - {id: one, call: pay, with: {name: one}, compensate: {call: back, with: {name: "${{ output }}"}}}
  - {id: two, call: pay, with: {name: two}, compensate: {call: back, with: {name: "${{ output }}"}}}
  - {id: three, call: pay, with: {name: three}, compensate: {call: back, with: {name: "${{ output }}"}}}
  - {id: four, call: pay, with: {name: four}, compensate: {call: back, with: {name: "${{ output }}"}}}
  - {id: refused, python: "bank:refuse"}
on_error: compensate
"""  # noqa: E501
TOLD = """\
not undone  three
not undone  two
try again   flowengine fork first --at three/compensate
"""


def test_what_was_not_undone_is_listed_and_a_fork_undoes_it_and_nothing_twice(
    flowengine: CommandLine, tmp_path: Path
) -> None:
    flowengine.write("bank.py", BANK)
    ran = flowengine("run", flowengine.write("saga.yaml", SAGA), "--id", "first", code=1)
    assert "".join(f"  {line}\n" for line in TOLD.splitlines()) in ran.err
    assert "  traceback of three/compensate\n" in ran.err
    assert "  look        flowengine show first --step three/compensate\n" in ran.err
    assert flowengine("show", "first").out.endswith(TOLD)
    for words in (["show", "first"], ["resume", "first"]):
        found = flowengine("--json", *words, code=words[0] == "resume").json()
        assert found["not_undone"] == ["three", "two"]
        assert found["command"] == "flowengine fork first --at three/compensate"
    assert (tmp_path / "undone").read_text() == "four one "

    still = flowengine("fork", "first", "--at", "three/compensate", "--id", "second", code=1)
    assert "flowengine fork second --at three/compensate" in still.err
    assert (tmp_path / "undone").read_text() == "four one "

    (tmp_path / "open").touch()
    again = flowengine("fork", "second", "--at", "three/compensate", "--id", "third", code=1)

    assert (tmp_path / "undone").read_text() == "four one three two "
    assert "error: RuntimeError at refused: no" in again.err
    events = flowengine("--json", "show", "third").json()["steps"]
    assert [s["address"] for s in events if s["status"] == "failed"] == ["refused"]


def test_what_was_undone_is_tried_again_in_a_fork(flowengine: CommandLine) -> None:
    """It cannot be retried; the command that is proposed starts at the first that was undone."""
    flowengine.write("bank.py", BANK.replace("raise", "if not Path('open').exists(): raise"))
    saga = [
        line for line in SAGA.splitlines(True) if "id: two" not in line and "id: th" not in line
    ]
    ran = flowengine("run", flowengine.write("saga.yaml", "".join(saga)), "--id", "first", code=1)
    command = "flowengine fork first --at one"
    assert f"try again   {command}\n" in ran.err
    assert flowengine("--json", "show", "first").json()["command"] == command
    assert command in flowengine("why", "first").out
    assert command in flowengine("retry", "first", code=7).err

    flowengine.write("open", "")
    flowengine("fork", "first", "--at", "one", "--id", "second")
