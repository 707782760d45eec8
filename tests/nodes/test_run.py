"""Scripts, commands and their processes on the host."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from flowengine.engines.attempts import processes
from flowengine.engines.attempts.processes import KEPT, ProcessRunner
from flowengine.kernel.commands import Run
from flowengine.kernel.graph.compiled import SecretText
from flowengine.sdk import Command
from flowengine.sdk.processes import MARK, as_text, mark_of, this_process
from flowengine_nodes import commands
from tests.alive import alive
from tests.execution_environment.toy import until
from tests.received import RECEIVED
from tests.replacing import Limits

from .conftest import Bench


# Shows F97
def test_script_runs_with_bash_in_a_fresh_directory_that_is_gone_afterwards(bench: Bench) -> None:
    result = bench.do("run", {"script": "set -o pipefail; pwd; ls -A; echo oops >&2"})

    assert result == {
        "exit_code": 0,
        "stdout": result["stdout"],
        "stderr": "oops\n",
        "value": None,
        "files": {},
    }
    folder = result["stdout"].strip()
    assert Path(folder) not in {bench.workdir, Path.cwd()}
    assert not Path(folder).exists()


def test_values_come_as_variables_and_leave_through_the_output_file(bench: Bench) -> None:
    script = (
        'python3 - <<"E"\nimport json, os\n'
        'names = ["TEXT", "WHOLE", "REAL", "YES", "LIST", "MAP", "NONE"]\n'
        'json.dump([os.environ.get(name) for name in names], open(os.environ["FLOW_OUTPUT"], "w"))'
        "\nE\n"
    )
    env = {
        "TEXT": "a 'b'",
        "WHOLE": 3,
        "REAL": 1.5,
        "YES": True,
        "LIST": [1, "é"],
        "MAP": {"k": None},
        "NONE": None,
    }

    value = bench.do("run", {"script": script}, {"env": env})["value"]

    assert value[:4] == ["a 'b'", "3", "1.5", "true"]
    assert [json.loads(item) for item in value[4:6]] == [[1, "é"], {"k": None}]
    assert value[6] is None


@pytest.mark.parametrize(
    ("given", "read"),
    [("text\n", "text\n"), ({"a": [1]}, '{"a": [1]}'), (b"\x00\xff", "\x00\ufffd"), (None, "")],
)
def test_standard_input_is_text_or_json(bench: Bench, given: Any, read: str) -> None:
    assert bench.do("run", {"script": "cat"}, {"stdin": given})["stdout"] == read


def test_argv_goes_to_the_program_as_it_is(bench: Bench) -> None:
    code = "import sys; print(sys.argv[1:])"

    result = bench.do("run", {}, {"command": [sys.executable, "-c", code, "$HOME; ls", 1, [2]]})

    assert result["stdout"] == "['$HOME; ls', '1', '[2]']\n"


def test_cwd_is_taken_from_the_working_folder(bench: Bench) -> None:
    (bench.workdir / "sub").mkdir()

    assert bench.do("run", {"script": "pwd"}, {"cwd": "sub"})["stdout"] == (
        f"{bench.workdir}/sub\n"
    )
    error = bench.fail("run", {"script": "pwd"}, {"cwd": "nope"})
    assert error["type"] == "ValidationError"
    assert f"{bench.workdir}/nope" in error["message"]


def test_exit_code_that_is_not_accepted_fails_with_the_result(bench: Bench) -> None:
    script = {"script": "echo partly; echo 'disk full' >&2; exit 4"}

    error = bench.fail("run", script)

    assert error["type"] == "ExitCode"
    assert error["message"] == "exit code 4: disk full"
    assert error["data"]["exit_code"] == 4
    assert error["data"]["stdout"] == "partly\n"
    assert bench.do("run", {**script, "accept": [0, 4]})["exit_code"] == 4
    assert bench.do("run", {**script, "accept": "any"})["exit_code"] == 4
    assert bench.fail("run", {"script": "true", "accept": [4]})["type"] == "ExitCode"


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["no-such-program"], 127, "no-such-program: command not found"),
        (["/etc/passwd"], 126, "/etc/passwd: not allowed to run it"),
    ],
)
def test_program_that_cannot_be_started_says_so(
    bench: Bench, argv: list[str], code: int, said: str
) -> None:
    error = bench.fail("shell", {}, {"command": argv})

    assert error["type"] == "ExitCode"
    assert error["message"].partition(" (")[0] == f"exit code {code}: {said}"


@pytest.mark.parametrize("given", [{"script": "./none.sh"}, {"command": ["./none.sh"]}])
def test_a_missing_script_names_the_directory_and_the_option(
    bench: Bench, given: dict[str, Any]
) -> None:
    task = {"script": given["script"]} if "script" in given else {}
    input = {"command": given["command"]} if "command" in given else {}
    alone = bench.fail("run", task, input)
    inside = bench.fail("run", task, {**input, "cwd": "."})

    folder = bench.workdir
    assert (
        f"(it ran in an empty directory. 'cwd: .' is {folder}, which --workdir" in alone["message"]
    )
    assert (
        f"(it ran in {folder}/.: 'cwd' is relative to the --workdir, {folder})" in inside["message"]
    )
    assert "--workdir" not in alone["data"]["stderr"]
    other = bench.fail("run", {"script": "exit 126"})
    assert other["message"] == "exit code 126"


def test_the_value_of_a_command_is_read_as_it_is_meant(bench: Bench) -> None:
    for name, case in RECEIVED.items():
        (bench.workdir / "value.json").write_bytes(case.sent())
        result = bench.do("run", {"script": "cat $FLOW_WORKDIR/value.json > $FLOW_OUTPUT"})
        assert result["value"] == {"v": case.value}, name


@pytest.mark.parametrize(
    ("task", "input", "complaint"),
    [
        ({}, {"command": []}, "'command' must have at least 1 item, not 0"),
        ({}, {"command": "rm -rf /"}, "'command' must be a list"),
        ({}, {"command": ["a", None]}, "item 1 of 'command' is null"),
        ({}, {"command": ["echo", "a\0b"]}, "null character"),
        ({"script": "true"}, {"env": {"A=B": 1}}, "'env' has the key \"A=B\", which must match"),
        ({"script": "echo '{' > $FLOW_OUTPUT"}, {}, "$FLOW_OUTPUT cannot be read as JSON"),
        ({"script": "true", "files": {"r": "r.csv"}}, {}, "no file 'r.csv' to be kept as 'r'"),
    ],
)
def test_what_makes_no_command_is_refused(
    bench: Bench, task: dict[str, Any], input: dict[str, Any], complaint: str
) -> None:
    error = bench.fail("run", task, input)

    assert error["type"] == "ValidationError"
    assert complaint in error["message"]


def test_environment_too_large_for_the_system_names_the_way_out(bench: Bench) -> None:
    error = bench.fail("run", {"script": "true"}, {"env": {"BIG": "x" * 10**6}})

    assert "Large values belong in 'stdin'" in error["message"]


# Files


# Shows F95
def test_named_files_are_kept_with_name_size_and_digest(bench: Bench) -> None:
    script = "mkdir -p out; printf abc > report.csv; printf 1 > out/b.txt; printf 2 > out/a.txt"

    files = bench.do(
        "run", {"script": script, "files": {"report": "report.csv", "parts": "out/*.txt"}}
    )["files"]

    digest = hashlib.sha256(b"abc").hexdigest()
    assert files["report"] == {
        "path": bench.kept.path(digest),
        "name": "report.csv",
        "size": 3,
        "sha256": digest,
    }
    assert [part["name"] for part in files["parts"]] == ["a.txt", "b.txt"]


@pytest.mark.parametrize(
    ("planted", "refused"),
    [
        ("mkfifo", None),
        ("ln -s /etc/hostname", "PathEscape"),
        ("truncate -s 1G", "ValidationError"),
    ],
)
def test_what_stands_in_place_of_the_value_is_not_followed_or_waited_for(
    bench: Bench, planted: str, refused: str | None
) -> None:
    step = {"script": f'rm -f "$FLOW_OUTPUT"; {planted} "$FLOW_OUTPUT"'}

    if refused is None:
        assert bench.do("run", step)["value"] is None
    else:
        assert bench.fail("run", step)["type"] == refused


def test_a_value_that_is_too_deep_is_told(bench: Bench) -> None:
    script = "echo done; head -c 100000 /dev/zero | tr '\\0' [ > $FLOW_OUTPUT"
    error = bench.fail("run", {"script": script})

    assert error["type"] == "ValidationError"
    assert "cannot be read as JSON" in error["message"]
    assert error["data"] == {"exit_code": 0, "stdout": "done\n", "stderr": ""}


def test_kept_file_is_put_where_a_later_command_can_read_and_change_it(bench: Bench) -> None:
    file = bench.do("run", {"script": "printf abc > r.csv", "files": {"r": "r.csv"}})["files"]["r"]
    read_and_change = (
        "import json, os\n"
        "path = json.loads(os.environ['FILES'])[0]['path']\n"
        "print(open(path).read(), os.path.basename(path))\n"
        "open(path, 'w').write('changed')\n"
    )

    by_variable = bench.do(
        "run", {}, {"command": [sys.executable, "-c", read_and_change], "env": {"FILES": [file]}}
    )
    by_argument = bench.do("run", {}, {"command": ["cat", file]})
    by_input = bench.do("run", {"script": "cat"}, {"stdin": [file]})

    assert by_variable["stdout"] == "abc r.csv\n"
    assert by_argument["stdout"] == "abc"
    assert json.loads(by_input["stdout"])[0]["path"].endswith("/r.csv")


def test_file_that_is_no_longer_kept_is_named(bench: Bench) -> None:
    file = {"path": "/x", "name": "r.csv", "size": 1, "sha256": "0" * 64}

    error = bench.fail("run", {}, {"command": ["cat", file]})

    assert error["message"] == "the file r.csv (000000000000) is no longer kept"


def test_command_that_fails_keeps_the_files_that_are_there(bench: Bench) -> None:
    script = "printf abc > log; exit 1"

    error = bench.fail("run", {"script": script, "files": {"log": "log", "report": "report"}})

    assert error["type"] == "ExitCode"
    assert list(error["data"]["files"]) == ["log"]


def test_output_beyond_the_bound_is_kept_as_a_file(bench: Bench) -> None:
    script = "echo BEGIN; head -c 300000 /dev/zero | tr '\\0' x; echo END"

    result = bench.do("run", {"script": script})

    text = result["stdout"]
    assert text.startswith("BEGIN\n")
    assert text.endswith("END\n")
    assert len(text) < KEPT + 200
    left_out = 300_000 + len("BEGIN\nEND\n") - KEPT
    assert f"... {left_out} bytes left out, all is in the output's stdout_file ..." in text
    assert result["stdout_file"]["size"] == 300_000 + len("BEGIN\nEND\n")


# Secrets


def test_secret_reaches_the_command_and_is_masked_in_all_that_comes_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "s3cr3t/value")
    script = (
        'echo "key $TOKEN"; echo "$TOKEN" | base64 >&2; printf \'{"k": "%s"}\' "$TOKEN" '
        '> $FLOW_OUTPUT; test "$TOKEN" = "Bearer s3cr3t/value"'
    )
    env = {"TOKEN": SecretText(["Bearer ", ["KEY"]])}

    result = bench.do("run", {"script": script}, {"env": env}, secrets={"KEY": {"env": "API_KEY"}})

    assert result["stdout"] == "key Bearer ***\n"
    assert result["value"] == {"k": "Bearer ***"}
    assert "***" in result["stderr"]
    assert "s3cr3t" not in repr(result)


def test_command_does_not_inherit_a_secret_that_it_was_not_given(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "s3cr3t-value")
    monkeypatch.setenv("PLAIN", "seen")
    script = 'echo "${API_KEY-none} $PLAIN"'

    result = bench.do("run", {"script": script}, secrets={"KEY": {"env": "API_KEY"}})

    assert result["stdout"] == "none seen\n"


def test_secret_in_output_that_went_to_a_file_is_masked_there(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "s3cr3t-value")
    script = 'for i in {1..10000}; do echo "$KEY $i"; done'
    env = {"KEY": SecretText([["KEY"]])}

    result = bench.do("run", {"script": script}, {"env": env}, secrets={"KEY": {"env": "API_KEY"}})

    assert "s3cr3t" not in result["stdout"]
    assert b"s3cr3t" not in Path(result["stdout_file"]["path"]).read_bytes()


# Processes


def marked_processes() -> list[int]:
    """Return the processes of this process's steps. Other tests use the same execution ID."""
    start, end = f"{MARK}=01k8exec:".encode(), f"@{as_text(this_process())}".encode()
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            environ = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        marks = [each for each in environ if each.startswith(start) and each.endswith(end)]
        if marks and alive(int(name)):
            found.append(int(name))
    return found


def test_withdrawn_step_ends_with_all_its_processes_even_those_that_ignore_it(
    bench: Bench, tmp_path: Path, limits: Limits
) -> None:
    limits(processes, GRACE=0.2)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    script = (
        "trap '' TERM\n"
        "setsid -f bash -c 'trap \"\" TERM; while :; do sleep 1000; done'\n"
        "sleep 1000 &\n"
        f"echo started > {fifo}\n"
        "while :; do sleep 1000; done\n"
    )
    programs = ProcessRunner(bench.kept, mark_of("01k8exec", 9), lambda value: value)

    async def withdraw() -> None:
        task = asyncio.create_task(
            programs.run(["bash", "-c", script], env=dict(os.environ), cwd=str(tmp_path))
        )
        await asyncio.to_thread(fifo.read_text)
        # A process that just begins its program has no variables for a moment.
        await asyncio.to_thread(until, lambda: len(marked_processes()) >= 3)
        task.cancel()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(withdraw())

    assert not marked_processes()


def test_withdrawn_script_may_clean_up_within_the_grace_period(
    bench: Bench, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    note = tmp_path / "cleaned"
    script = (
        f"trap 'kill $!; echo done > {note}; exit' TERM; echo started > {fifo}; sleep 1000 & wait"
    )
    runner = bench.runner("run", {"script": script}, {}, {})
    run = Run(1, 1, 0, "s", None, {}, None)

    async def withdraw() -> None:
        task = asyncio.create_task(runner.attempt(bench.execution, run))
        await asyncio.to_thread(fifo.read_text)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(withdraw())

    assert note.read_text() == "done\n"
    assert not marked_processes()


def children_of_this_process() -> set[str]:
    """Return the child processes not yet reaped. Other tests may have left some."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if stat.read_text().rpartition(")")[2].split()[1] == str(os.getpid()):
                found.add(stat.parent.name)
    return found


def test_many_commands_at_once_leave_no_descriptor_and_no_child(bench: Bench) -> None:
    runner = bench.runner("run", {"script": "echo $N >&2; cat"}, {"stdin": "x"}, {})
    before = len(os.listdir("/proc/self/fd"))
    children = children_of_this_process()

    async def run_all() -> list[Any]:
        runs = [Run(n, 1, 0, "s", None, {"stdin": str(n)}, None) for n in range(30)]
        return [*await asyncio.gather(*(runner.attempt(bench.execution, run) for run in runs))]

    results = asyncio.run(run_all())

    assert [result.value["stdout"] for result in results] == [str(n) for n in range(30)]
    assert len(os.listdir("/proc/self/fd")) == before
    assert children_of_this_process() == children


def test_a_command_may_ask_for_a_timeout(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps have a `timeout`, and other kinds may set one for their commands."""
    monkeypatch.setattr(commands, "Command", partial(Command, timeout=0.5))

    result = bench.do("run", {"script": "sleep 60", "accept": "any"})

    error = bench.fail("run", {"script": "sleep 60"})

    assert (result["exit_code"], result["stdout"], result["limit"]) == (124, "", "time")
    assert error["type"] == "Timeout"
    assert error["message"] == "exit code 124: it took longer than 0.5 s and was stopped"
    assert result["stderr"] == "it took longer than 0.5 s and was stopped\n"
