"""Arguments that once hung a command, or crashed it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flowengine import Engine
from flowengine.errors import UsageError
from tests.cli.conftest import CommandLine, also_served

HELLO = "flowengine: 1\nid: hello\nsteps: [{id: a, output: 1}]\n"
ASK = "flowengine: 1\nid: ask\nsteps: [{id: ask, approval: 'Go on?'}]\n"


def test_a_named_pipe_is_no_flow_and_that_of_a_shell_is_read(
    flowengine: CommandLine, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "flow.yaml")
    for command in ("check", "run"):
        assert "it is a pipe" in flowengine(command, tmp_path / "flow.yaml", code=9).err

    ends = os.pipe()
    os.write(ends[1], HELLO.encode())
    os.close(ends[1])
    assert "ok" in flowengine("check", f"/dev/fd/{ends[0]}").out
    os.close(ends[0])


@also_served
def test_a_list_may_be_as_long_as_anybody_says(flowengine: CommandLine) -> None:
    flowengine("run", flowengine.write("hello.yaml", HELLO))
    flowengine("run", flowengine.write("ask.yaml", ASK), code=4)

    assert "hello" in flowengine("list", "-n", "9" * 20).out
    assert "Go on?" in flowengine("approvals", "list", "-n", "9" * 20).out


def test_what_is_named_may_stand_on_both_sides_of_an_option(
    flowengine: CommandLine, tmp_path: Path
) -> None:
    flow = flowengine.write("ask.yaml", ASK)
    names = flowengine.write("names.yaml", "steps: {ask: sure}\n")
    flowengine("run", flow, "--id", "one", code=4)
    flowengine("run", flow, "--id", "two", code=4)
    changed = flowengine.write("ask.yaml", ASK.replace("id: ask, app", "id: sure, app"))

    said = flowengine("upgrade", changed, "--map", names, "one").out

    assert "one" in said
    assert "two" not in said
    other = flowengine.write("hello.yaml", HELLO)
    assert flowengine("check", changed, "--strict", other).out.count("ok") == 2
    assert "unknown argument --mpa" in flowengine("upgrade", changed, "--mpa", "x", code=2).err


@pytest.mark.endurance
@pytest.mark.parametrize("number", [150, 900])
def test_flows_that_run_one_another_too_deeply_are_an_error_of_the_file(
    flowengine: CommandLine, number: int
) -> None:
    inner = [f"  f{n}: {{steps: [{{id: a, flow: f{n + 1}}}]}}\n" for n in range(number)]
    last = f"  f{number}: {{steps: [{{id: a, output: 1}}]}}\n"
    text = f"flowengine: 1\nid: deep\nflows:\n{''.join(inner)}{last}steps: [{{id: a, flow: f0}}]\n"
    flow = flowengine.write("deep.yaml", text)

    for command in ("check", "run", "graph"):
        assert "run one another too deeply" in flowengine(command, flow, code=3).err


def test_a_folder_that_is_no_text_is_named(
    flowengine: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/b\xffd"))
    folder.mkdir()
    (folder / "hello.yaml").write_text(HELLO)
    with Engine() as engine, pytest.raises(UsageError, match=r"b\\xffd/hello.yaml' is not valid"):
        engine.run(folder / "hello.yaml")
    monkeypatch.chdir(folder)

    said = flowengine("run", "hello.yaml", code=2).err
    assert "the current directory" in said
    assert "b\\xffd' is not valid UTF-8\n" in said
    with pytest.raises(UsageError, match="is not valid UTF-8"):
        Engine(tmp_path / "store")
