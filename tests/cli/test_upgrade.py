"""`flowengine upgrade`: what operators see and do when a flow has changed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import CommandLine, also_served

FLOW = """
flowengine: 1
id: order
version: "1"
state: {notes: {type: array, default: [], reducer: append}}
steps:
  - id: look
    output: 1
    set: {notes: looked}
  - id: sign
    approval: {title: "Fine?"}
    next: {outcome: {approve: done, reject: end}}
  - id: done
    output: ${{ state.notes }}
outputs: {done: "${{ steps.done.output }}"}
"""


@pytest.fixture
def order(flowengine: CommandLine) -> str:
    """An open execution of the flow in `order.yaml`."""
    flowengine("run", flowengine.write("order.yaml", FLOW), code=4)
    return flowengine.newest()


def change(flowengine: CommandLine, *changes: tuple[str, str]) -> Path:
    text = FLOW
    for old, new in (('"1"', '"2"'), *changes):
        assert old in text
        text = text.replace(old, new)
    return flowengine.write("order.yaml", text)


@also_served
def test_what_can_go_on_is_moved_after_a_check(flowengine: CommandLine, order: str) -> None:
    file = change(flowengine, ("output: 1", "output: 2"))
    checked = flowengine("upgrade", file, "--check")
    short, *words = checked.out.split()
    assert order.startswith(short)
    assert words == ["waiting", "continues"]
    assert checked.err == "1 of 1 can be moved, none was\n"
    assert flowengine("--json", "list").json()[0]["version"] == "1"

    moved = flowengine("upgrade", file)
    assert moved.out.rstrip().endswith("moved")
    assert moved.err == "1 of 1 moved\n"
    assert flowengine("--json", "list").json()[0]["version"] == "2"
    again = flowengine("upgrade", file)
    assert (again.out, again.err) == (
        "",
        "no open execution of this flow runs another version of it\n",
    )
    assert "already runs this version" in flowengine("upgrade", file, order).out


@also_served
def test_what_to_write_into_the_mapping_is_said_and_works(
    flowengine: CommandLine, order: str
) -> None:
    file = change(flowengine, ("id: sign", "id: check"), ("notes", "remarks"))
    done = flowengine("upgrade", file, code=7)
    assert "needs a mapping" in done.out
    assert "  step sign: it is running, and the new flow has no such step\n" in done.out
    _, _, block = done.out.partition("--map:\n")
    written = yaml.safe_load(block)
    assert written == {"state": {"notes": "NEW"}, "steps": {"sign": "NEW"}}
    assert "notes: NEW  # remarks, null" in done.out
    assert "sign: NEW  # check" in done.out

    mapping = block.replace("notes: NEW", "notes: remarks").replace("sign: NEW", "sign: check")
    path = flowengine.write("map.yaml", mapping)
    assert "continues" in flowengine("upgrade", file, "--map", path, "--check").out
    flowengine("upgrade", file, "--map", path)
    wait = flowengine("--json", "approvals", "list").json()[0]["id"]
    assert flowengine("approve", wait).out == "done: [looked]\n"


@also_served
@pytest.mark.parametrize(
    ("mapping", "said", "code"),
    [
        (
            "steps: {sign: done}",
            "  step sign: it was of the kind 'approval' and 'done' is a step without an action\n",
            7,
        ),
        (
            "steps: {sign: null}",
            "error: steps: 'sign' cannot be dropped, it needs a new name\n  it has: done, look\n",
            2,
        ),
        ("steps:\n  sign: {", "error: map.yaml:2:10: not YAML: ", 3),
    ],
    ids=["another kind", "nothing", "broken"],
)
def test_a_mapping_that_does_not_fit_is_told(
    flowengine: CommandLine, order: str, mapping: str, said: str, code: int
) -> None:
    del order
    file = change(
        flowengine,
        ("  - id: sign\n", ""),
        ('    approval: {title: "Fine?"}\n', ""),
        ("    next: {outcome: {approve: done, reject: end}}\n", ""),
    )
    flowengine.write("map.yaml", mapping)
    done = flowengine("upgrade", file, "--map", "map.yaml", code=code)
    assert said in done.out + done.err


@also_served
def test_a_mapping_is_a_file(flowengine: CommandLine, order: str) -> None:
    del order
    done = flowengine("upgrade", change(flowengine), "--map", "sign=check", code=9)
    assert done.err == (
        "error: cannot read sign=check: No such file or directory\n"
        "  --map takes a file that holds, for example: steps: {old_name: new_name}\n"
    )


@also_served
def test_what_cannot_be_moved_says_why_and_goes_on_as_it_was(
    flowengine: CommandLine, order: str
) -> None:
    file = change(
        flowengine,
        ('approval: {title: "Fine?"}', "wait: 1h"),
        ("next: {outcome: {approve: done, reject: end}}", "next: done"),
    )
    done = flowengine("upgrade", file, code=7)
    assert "cannot" in done.out
    assert "it was of the kind 'approval' and is of the kind 'wait'" in done.out
    [info] = flowengine("--json", "upgrade", file, code=7).json()
    assert (info["verdict"], info["moved"], info["write"]) == ("cannot", False, {})
    wait = flowengine("--json", "approvals", "list").json()[0]["id"]
    assert flowengine("approve", wait).out == "done: [looked]\n"


@also_served
def test_files_that_are_no_mapping_are_refused(flowengine: CommandLine, order: str) -> None:
    file = change(flowengine, ("id: sign", "id: check"))
    for text, code in (("[1]", 3), ("{", 3), ("steps: {sign: nowhere}", 2), ("stps: {}", 2)):
        path = flowengine.write("map.yaml", text)
        flowengine("upgrade", file, "--map", path, code=code)
    flowengine("upgrade", file, "--map", "nothing.yaml", code=9)
    flowengine("upgrade", "nothing.yaml", code=9)
    flowengine("upgrade", file, "nothing", code=9)


@also_served
def test_an_input_that_the_mapping_gives_is_shown(flowengine: CommandLine, order: str) -> None:
    flow = change(flowengine, ("state:", "inputs: {who: {type: string}}\nstate:"))
    mapping = flowengine.write("map.yaml", "values: {inputs: {who: Ana}}\n")

    flowengine("upgrade", flow, "--map", mapping)

    assert flowengine("--json", "show", order).json()["inputs"] == {"who": "Ana"}
    assert "  who: Ana\n" in flowengine("show", order).out


def test_the_command_for_a_fork_works_as_printed(flowengine: CommandLine, order: str) -> None:
    file = change(flowengine, ("${{ state.notes }}", "${{ steps.look.output + 1 }}"))
    refused = flowengine("upgrade", file, "--check", code=7)
    command = refused.out.partition("start a new execution from there: flowengine ")[2].split()
    assert command[:1] + command[2:] == ["fork", "--from-step", "sign", "--file", str(file)]
    forked = flowengine(*command, "--id", "f1", code=4)
    flowengine("approve", forked.ids[-1])
    assert flowengine("--json", "show", "f1").json()["outputs"] == {"done": 2}
    assert flowengine("--json", "show", order).json()["status"] == "waiting"
