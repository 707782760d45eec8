"""Closed and full streams, missing folders, binary arguments: no tracebacks."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.command_line import PROGRAM, compile_flow


def shell(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which `F` is the program."""
    return subprocess.run(
        ["bash", "-c", line.replace("F ", f"{PROGRAM} ")],
        cwd=folder,
        capture_output=True,
        text=True,
        errors="backslashreplace",
        check=False,
    )


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("redirect", "code"),
    [
        ("2>&-", 0),
        (">&-", 0),
        ("<&- >&- 2>&-", 0),
        ("2>/dev/full", 0),
        (">/dev/full", 74),
        (">/dev/full 2>/dev/full", 74),
        ("2> >(true)", 0),
    ],
)
def test_a_stream_that_is_closed_or_full_does_not_make_a_success_a_failure(
    flowengine: CommandLine, hello: Path, redirect: str, code: int
) -> None:
    compile_flow(hello)

    done = shell(flowengine.folder, f"F run {hello.name} {redirect}")

    assert done.returncode == code
    assert "Traceback" not in done.stderr
    [run] = flowengine("--json", "list").json()
    assert run["status"] == "succeeded"
    if redirect == ">/dev/full":
        assert "cannot be written to standard output: No space left on device\n" in done.stderr
    if redirect.startswith("2>"):
        assert done.stdout == "message: Hello, world!\n"


@pytest.mark.endurance
@pytest.mark.parametrize("command", ["list", "--json list", "--help", "run --help", "schema"])
def test_results_that_cannot_be_written_are_an_error(
    flowengine: CommandLine, hello: Path, command: str
) -> None:
    flowengine("run", hello)

    done = shell(flowengine.folder, f"F {command} >/dev/full")

    assert (done.returncode, done.stderr.count("\n")) == (74, 1)
    assert shell(flowengine.folder, f"F {command} >&-").returncode == 0


@pytest.mark.endurance
def test_a_failure_stays_one_with_closed_streams(flowengine: CommandLine) -> None:
    assert shell(flowengine.folder, "F run none.yaml >&- 2>&-").returncode == 9


@pytest.mark.endurance
def test_what_a_function_prints_to_a_full_stream_does_not_fail_it(flowengine: CommandLine) -> None:
    flowengine.write("talk.py", "def talk():\n    print('x' * 100_000, flush=True)\n")
    flow = flowengine.write(
        "talk.yaml", 'flowengine: 1\nid: talk\nsteps:\n  - {id: a, python: "talk:talk"}\n'
    )

    compile_flow(flow)

    assert shell(flowengine.folder, f"F run {flow.name} 2>/dev/full").returncode == 0


@pytest.mark.parametrize(
    "command",
    [
        "run h\udcff.yaml", "run hello.yaml -i name=\udcff", "show \udcff", "r\udcff",
        "list --flow \udcff", "--store \udcff list", "signal --key \udcff x",
    ],
)  # fmt: skip
@pytest.mark.usefixtures("hello")
def test_an_argument_that_is_not_utf_8_is_refused(flowengine: CommandLine, command: str) -> None:
    """Python decodes such bytes as lone surrogates."""
    done = flowengine(*command.split(), code=2)

    assert "\\xff" in done.err
    assert done.err.endswith("is not valid UTF-8\n")


def test_an_argument_of_a_process_that_is_not_utf_8_is_refused(flowengine: CommandLine) -> None:
    done = shell(flowengine.folder, "F show $'\\xff'")

    assert (done.returncode, "'\\xff' is not valid UTF-8\n" in done.stderr) == (2, True)


@pytest.mark.parametrize("command", ["run ../hello.yaml", "list", "init", "check ../hello.yaml"])
@pytest.mark.usefixtures("hello")
def test_a_current_folder_that_is_gone_is_said(flowengine: CommandLine, command: str) -> None:
    (flowengine.folder / "gone").mkdir()

    done = shell(flowengine.folder, f"cd gone; rmdir ../gone; F {command}")

    assert done.returncode == 9
    assert done.stderr.startswith("error: the current directory cannot be used: No such file")


@pytest.mark.endurance
@pytest.mark.parametrize("given", ["-i @/dev/zero", "-i - </dev/zero"])
@pytest.mark.usefixtures("hello")
def test_input_without_an_end_is_refused(flowengine: CommandLine, given: str) -> None:
    done = shell(flowengine.folder, f"ulimit -v 4000000; F run hello.yaml {given}")

    assert done.returncode == 3
    assert "has more than 64 MiB" in done.stderr


def test_what_nobody_has_foreseen_is_a_message_and_a_code(
    flowengine: CommandLine, hello: Path
) -> None:
    code = (
        "from flowengine.cli import entry_point, program\n"
        "program.load = lambda words: 1 / 0\n"
        "entry_point.script()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(flowengine.folder)}
    words = ["-c", code, "run", hello.name]

    done = subprocess.run(
        [str(Path(PROGRAM).with_name("python")), *words],
        cwd=flowengine.folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 70
    assert done.stderr.startswith("error: unexpected ZeroDivisionError: division by zero\n")
    assert "Traceback" not in done.stderr


def test_inputs_can_be_a_yaml_file(flowengine: CommandLine, hello: Path) -> None:
    flowengine.write("in.yaml", "name: no\n")
    flowengine.write("twice.yaml", "name: a\nname: b\n")
    flowengine.write("list.yml", "[1]\n")
    flowengine.write("in.json", json.dumps({"name": "Ben"}))

    assert flowengine("run", hello, "-i", "@in.yaml").out == "message: Hello, no!\n"
    assert flowengine("run", hello, "-i", "@in.json").out == "message: Hello, Ben!\n"
    assert "twice.yaml:2:1: error" in flowengine("run", hello, "-i", "@twice.yaml", code=3).err
    assert "must be a map" in flowengine("run", hello, "-i", "@list.yml", code=3).err


@pytest.mark.endurance
def test_a_log_of_both_streams_has_them_in_order(flowengine: CommandLine) -> None:
    lines = shell(flowengine.folder, "F init 2>&1").stdout.splitlines()

    assert [line.split()[0] for line in lines[:2]] == ["created", "created"]
    assert lines[-1].startswith("next: ")
