"""Arguments that once hung a command, or crashed it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flowengine import Engine
from flowengine.errors import UsageError
from tests.cli.conftest import CommandLine

HELLO = "flowengine: 1\nid: hello\nsteps: [{id: a, output: 1}]\n"


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
