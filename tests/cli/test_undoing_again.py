"""Failed compensations: which steps remain, and a fork that compensates just these."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import CommandLine, also_served

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
try again   flowengine fork first --from-step three/compensate
"""


def _tries(flowengine: CommandLine, execution: str) -> list[dict[str, Any]]:
    shown = flowengine("--json", "show", execution, "--step", "three/compensate").json()
    tries: list[dict[str, Any]] = shown["steps"][0]["tries"]
    return tries


@pytest.mark.endurance
@also_served
def test_what_was_not_undone_is_listed_and_a_fork_undoes_it_and_nothing_twice(
    flowengine: CommandLine, tmp_path: Path
) -> None:
    flowengine.write("bank.py", BANK)
    ran = flowengine("run", flowengine.write("saga.yaml", SAGA), "--id", "first", code=1)
    assert "".join(f"  {line}\n" for line in TOLD.splitlines()) in ran.err
    assert "RuntimeError at refused: no; could not be undone: three/compensate, two/comp" in ran.err
    assert "  traceback of three/compensate\n" in ran.err
    assert "  look        flowengine show first --step three/compensate\n" in ran.err
    assert flowengine("show", "first").out.endswith(TOLD)
    first_try = _tries(flowengine, "first")
    for words in (["show", "first"], ["resume", "first"]):
        found = flowengine("--json", *words, code=words[0] == "resume").json()
        assert found["not_undone"] == ["three", "two"]
        assert found["command"] == "flowengine fork first --from-step three/compensate"
    assert (tmp_path / "undone").read_text() == "four one "
    for words in (["retry", "first"], ["retry", "first", "--step", "refused"]):
        refused = flowengine(*words, code=7).err
        assert "flowengine fork first --from-step three/compensate\n" in refused, (
            "not another booking"
        )

    still = flowengine("fork", "first", "--from-step", "three/compensate", "--id", "second", code=1)
    assert "flowengine fork second --from-step three/compensate" in still.err
    assert (tmp_path / "undone").read_text() == "four one "
    tries = _tries(flowengine, "second")
    assert [one["status"] for one in tries] == ["failed", "failed"], "none was interrupted"
    names = ("started_at", "ended_at", "error")
    assert [tries[0][name] for name in names] == [first_try[0][name] for name in names]

    (tmp_path / "open").touch()
    again = flowengine("fork", "second", "--from-step", "three/compensate", "--id", "third", code=1)

    assert (tmp_path / "undone").read_text() == "four one three two "
    assert "error: RuntimeError at refused: no" in again.err
    events = flowengine("--json", "show", "third").json()["steps"]
    assert [s["address"] for s in events if s["status"] == "failed"] == ["refused"]


@pytest.mark.endurance
@also_served
def test_what_a_fork_has_undone_is_not_undone_again(
    flowengine: CommandLine, tmp_path: Path
) -> None:
    flowengine.write(
        "bank.py", BANK.replace('not Path("open").exists()', "not Path(name).exists()")
    )
    flowengine("run", flowengine.write("saga.yaml", SAGA), "--id", "first", code=1)
    (tmp_path / "three").touch()
    flowengine("fork", "first", "--from-step", "three/compensate", "--id", "second", code=1)

    half = "undone      three, by the fork second\ntry again   flowengine fork second"
    assert f"not undone  two\n{half} --from-step two/comp" in flowengine("show", "first").out
    again = flowengine("fork", "first", "--from-step", "three/compensate", code=7).err
    assert "'three' was undone by execution second, a fork of this one" in again
    assert "undo what is left: flowengine fork second --from-step two/compensate\n" in again
    again = flowengine("fork", "first", "--from-step", "two/compensate", code=7).err
    assert "'three' was undone by execution second" in again

    (tmp_path / "two").touch()
    flowengine("fork", "second", "--from-step", "two/compensate", "--id", "third", code=1)

    shown = flowengine("show", "first").out
    assert shown.endswith(
        "undone      three, by the fork second\nundone      two, by the fork third\n"
    )
    assert flowengine("show", "second").out.endswith("undone      two, by the fork third\n")
    why = flowengine("why", "first").out
    assert "nothing: what it did not undo was undone in second, third" in why
    assert "fork first" not in why + shown
    found = flowengine("--json", "show", "first").json()
    assert found["undone_by"] == {"three": "second", "two": "third"}
    assert not found.keys() & {"command", "not_undone"}
    assert (
        "flowengine show third\n"
        in flowengine("fork", "first", "--from-step", "two/compensate", code=7).err
    )
    assert "fork first" not in flowengine("retry", "first", code=7).err
    assert (tmp_path / "undone").read_text() == "four one three two "


@also_served
def test_a_fork_warns_of_what_would_be_undone_twice(flowengine: CommandLine) -> None:
    flowengine.write("bank.py", BANK.replace("raise ValueError", "pass  # "))
    flowengine("run", flowengine.write("saga.yaml", SAGA), "--id", "first", code=1)

    forked = flowengine("fork", "first", "--from-step", "three", "--id", "second", code=1).err

    assert "the fork keeps results that execution first has undone: one, two; if it comp" in forked
    [warning] = flowengine("--json", "show", "second").json()["warnings"]
    assert warning["about"] == "fork"
    assert "undone" not in flowengine("fork", "first", "--from-step", "one", code=1).err


@also_served
def test_what_was_undone_is_tried_again_in_a_fork(flowengine: CommandLine) -> None:
    """A retry is impossible. The proposed command starts at the first compensated step."""
    flowengine.write("bank.py", BANK.replace("raise", "if not Path('open').exists(): raise"))
    saga = [
        line for line in SAGA.splitlines(True) if "id: two" not in line and "id: th" not in line
    ]
    ran = flowengine("run", flowengine.write("saga.yaml", "".join(saga)), "--id", "first", code=1)
    command = "flowengine fork first --from-step one"
    assert f"try again   {command}\n" in ran.err
    assert flowengine("--json", "show", "first").json()["command"] == command
    assert command in flowengine("why", "first").out
    assert command in flowengine("retry", "first", code=7).err

    flowengine.write("open", "")
    flowengine("fork", "first", "--from-step", "one", "--id", "second")


GROUP = """\
flowengine: 1
id: group
tools:
  pay: {python: "bank:pay", effect: EFFECT}
  back: {python: "bank:give_back", effect: EFFECT}
steps:
  - id: g
    group:
      - {id: a, call: pay, with: {name: a}, compensate: {call: back, with: {name: "${{ output }}"}}}
      - {id: b, python: "bank:refuse"}
    on_error: compensate
"""


@also_served
@pytest.mark.parametrize("effect", ["once", "idempotent"])
def test_a_fork_at_a_group_has_no_attempt_of_what_was_in_it(
    flowengine: CommandLine, tmp_path: Path, effect: str
) -> None:
    """Steps that started together with the group never ran in the fork: none was interrupted."""
    note = "with open('paid', 'a') as file:\n        file.write(f'{name} ')\n    return name"
    flowengine.write("bank.py", BANK.replace("return name", note))
    group = flowengine.write("group.yaml", GROUP.replace("EFFECT", effect))
    ran = flowengine("run", group, "--id", "first", code=1)
    assert "try again   flowengine fork first --from-step g\n" in ran.err
    again = flowengine("fork", "first", "--from-step", "g", "--id", "second", code=1)
    assert "interrupted" not in again.err
    assert (tmp_path / "paid").read_text() == "a a "
    steps = flowengine("--json", "show", "second").json()["steps"]
    assert sorted((step["address"], step["status"]) for step in steps) == [
        ("g", "failed"),
        ("g/a", "succeeded"),
        ("g/a/compensate", "succeeded"),
        ("g/b", "failed"),
    ]
