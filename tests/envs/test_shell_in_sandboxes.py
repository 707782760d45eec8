# Shows S59, S64, S66, S71, S76, S77, S79, S86, S91
"""A persistent shell in every sandbox: results stay with their commands."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import select
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from flowengine.sdk import (
    EnvironmentBusy,
    EnvironmentClosed,
    EnvironmentStartFailed,
    ValidationError,
)
from flowengine.sdk.environments import Sandbox, background
from flowengine.sdk.environments.models import Secret
from flowengine_envs.kinds.shell.provider import ShellProvider
from flowengine_envs.kinds.shell.result import ShellResult
from flowengine_envs.kinds.shell.session import Shell
from tests.envs.enough import enough
from tests.envs.opening import on_host, opened


@pytest.fixture(autouse=True)
def clean_state(request: pytest.FixtureRequest) -> Any:
    """Replace the shared shell if the previous test has changed it."""
    if "shell" in request.fixturenames:
        shell: Shell = request.getfixturevalue("shell")
        yield
        if shell.healthy:
            shell.interrupt()
            try:
                shell.run("kill -9 $$", wait=10)
            except EnvironmentBusy:  # A test that failed has left a program that reads.
                shell.keys("C-c", "C-d")
                ended(shell)
    else:
        yield


def live(shell: Shell, number: int = 1) -> str:
    """Return the folder with the terminal's pipes, as programs see it."""
    return f"{shell.sandbox.scratch}/.flowengine-terminal-{number}"


def ended(shell: Shell) -> ShellResult:
    result = shell.wait(60)
    assert result.idle, result
    return result


# Shows S58
def test_output_and_exit_code_come_back(shell: Shell) -> None:
    result = shell.run("echo hi; echo wrong >&2; echo $DECLARED")

    assert (result.status, result.exit_code) == ("done", 0)
    assert result.output == "hi\nwrong\nyes\n"
    assert result.raw == b"hi\r\nwrong\r\nyes\r\n"
    assert 0 < result.duration < 30


@pytest.mark.wherever
@pytest.mark.parametrize(
    "text",
    [
        "'",
        '"',
        "$(touch pwned)",
        "`touch pwned`",
        "!!",
        "end\\",
        "a\tb",
        "%s %d",
        "#{pane_pid}",
        "-n",
        "né 🎈 \x01",
        "x" * 200_000,
    ],
    ids=lambda text: text[:8],
)
def test_commands_arrive_byte_for_byte(shell: Shell, text: str) -> None:
    quoted = "'" + text.replace("'", "'\\''") + "'"

    result = shell.run(f"printf %s {quoted} > got; printf %s {quoted}")

    assert shell.get("got") == text.encode()
    assert result.raw == text.encode()
    assert "pwned" not in {entry.path for entry in shell.list()}
    assert not Path("pwned").exists()


@pytest.mark.wherever
@pytest.mark.parametrize("text", ['echo "abc', "if true; then", "(", "cat <<END\nabc", "fi", "a |"])
def test_unfinished_syntax_is_told_at_once(shell: Shell, text: str) -> None:
    result = shell.run(text)

    assert result.status == "syntax_error"
    assert result.idle
    assert result.output
    assert shell.run("echo next").output == "next\n"


# Shows S62
def test_the_state_lasts(shell: Shell) -> None:
    shell.run("mkdir -p deep; cd deep; export A=1; B=2; f() { echo f$B; }; alias g='echo alias'")
    shell.run("umask 027")

    result = shell.run("f; g; umask; pwd; sh -c 'echo $A$B'")

    deep = f"{shell.sandbox.workdir}/deep"
    assert result.output == f"f2\nalias\n0027\n{deep}\n1\n"
    assert result.cwd == deep
    shell.run("false")
    assert shell.run("echo $?").output == "1\n"


@pytest.mark.parametrize(
    ("command", "code", "signal"),
    [
        ("exit 5", 5, None),
        ("exec true", 0, None),
        ("kill -9 $$", 137, 9),
        ("exec no-such", 127, None),
    ],
)
# Shows S62
def test_the_end_of_the_shell_is_told(
    shell: Shell, command: str, code: int, signal: int | None
) -> None:
    shell.run("cd /; X=1")

    result = shell.run(command)

    assert (result.status, result.exit_code, result.signal) == ("done", code, signal)
    assert result.shell_restarted
    following = shell.run("echo [$X]; pwd; echo the word exit 3")
    assert following.output == f"[]\n{shell.sandbox.workdir}\nthe word exit 3\n"
    assert not following.shell_restarted


@pytest.mark.wherever
# Shows S65
def test_codes_of_pipes_and_signals(shell: Shell) -> None:
    assert shell.run("false").exit_code == 1
    assert shell.run("(exit 3)").exit_code == 3
    assert list(shell.run("true | false | true").pipe_codes) == [0, 1, 0]
    killed = shell.run("bash -c 'kill -9 $$'")
    assert (killed.exit_code, killed.signal) == (137, 9)


def test_nothing_on_the_screen_ends_a_command(shell: Shell) -> None:
    shell.run("PS1='prompt> '")
    text = (
        "echo 'prompt> '; ls \"$FLOW\"; printf '\\033]7777;%020d\\033\\\\' 5; "
        "printf '%%end 1 1 1\\n%%output x\\n'; printf '\\033[2J\\033]0;title'; sleep 0.3; echo last"
    )

    result = shell.run(text)

    assert (result.status, result.exit_code) == ("done", 0)
    assert result.raw.endswith(b"last\r\n")
    assert b"%end 1 1 1\r\n%output x\r\n" in result.raw
    assert shell.run("echo alone").output == "alone\n"


HOSTILE = [
    "PS1='$(echo x)\\n> ' PS2=2 PROMPT_COMMAND='echo prompted'",
    "trap 'echo DEBUGGED' DEBUG; trap 'echo ERRED' ERR; trap 'echo BYE' EXIT",
    "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-",
    "printf() { :; }; exec() { :; }; return() { :; }; source() { :; }; eval() { :; }",
    "set -uxo pipefail",
    "set -v",
    "set -C -f; IFS=",
    "stty -echo -onlcr",
    "shopt -s extglob; set -o posix",
]


@pytest.mark.wherever
@pytest.mark.parametrize("hostile", [*HOSTILE, "\n".join(HOSTILE)], ids=range(len(HOSTILE) + 1))
def test_hostile_settings_change_no_code(shell: Shell, hostile: str) -> None:
    assert shell.run(hostile, wait=10).status == "done"

    first, second, third = (shell.run(each) for each in ("echo one", "(exit 4)", "true | false"))

    assert "one" in first.output
    assert (first.exit_code, second.exit_code) == (0, 4)
    assert list(third.pipe_codes) == [0, 1]
    assert ".gate" not in first.output + second.output + third.output


WRAPPERS = {
    "pixi": b"#!/bin/sh\nexport INNER=1\nbash --norc -i\nexit $?\n",
    "uv": b'#!/bin/sh\nshift\nexec "$@"\n',
    "conda": b"#!/bin/sh\nsh -c 'bash --norc -i; exit $?'\nexit $?\n",
    "poetry": b"""#!/usr/bin/env python3
import subprocess, sys
sys.exit(subprocess.run(["bash", "--norc", "-i"]).returncode)
""",
}


@pytest.mark.wherever
@pytest.mark.parametrize(
    "wrapper",
    [
        "bash --norc -i",
        "sh -i",
        "./pixi shell",
        "./uv run bash --norc -i",
        "./conda activate",
        "./poetry shell",
    ],
)
# Shows S68
def test_a_nested_shell_at_its_prompt_is_idle(shell: Shell, wrapper: str) -> None:
    for name, script in WRAPPERS.items():
        shell.put(name, script, 0o755)
    before = shell.run("echo $$").output

    assert shell.run(wrapper, wait=20).status == "done"
    inner = shell.run("echo $$; cd /")
    assert inner.output != before
    assert shell.run("pwd").output == "/\n"
    left = shell.run("exit 6", wait=20)
    assert (left.status, left.exit_code, left.shell_restarted) == ("done", 6, False)
    assert shell.run("echo $$").output == before


@pytest.mark.wherever
@pytest.mark.parametrize(
    "command",
    [
        "bash -c 'bash -c \"sleep 30; true\"; true'",
        "while :; do :; done",
        "sleep 30 | read x",
        "python3 -c 'import time; time.sleep(30)' uv run",
        "./mybash",
    ],
)
# Shows S68
def test_work_is_running_whatever_its_name(shell: Shell, command: str) -> None:
    shell.put("mybash", b"#!/bin/sh\nsleep 30\n", 0o755)

    result = shell.run(command, wait=0.8)

    assert result.status == "running"
    assert result.busy
    assert command.startswith("while") or result.processes
    shell.interrupt()
    assert ended(shell).exit_code == 130


@pytest.mark.wherever
# Shows S70
def test_background_jobs_do_not_keep_it_busy(shell: Shell) -> None:
    result = shell.run("sleep 100 &")
    assert (result.status, result.exit_code) == ("done", 0)
    assert len(result.jobs) == 1
    told = shell.run("jobs; jobs -p")
    assert "sleep 100" in told.output
    assert [(job.pid, job.command) for job in told.jobs] == [(result.jobs[0].pid, "sleep 100")]
    assert told.output.endswith(f"\n{result.jobs[0].pid}\n") or shell.sandbox.name != "host"
    shell.run("kill %1")


@pytest.mark.wherever
# Shows S70
def test_late_output_is_told_apart(shell: Shell) -> None:
    shell.run("(while ! [ -e go ]; do sleep 0.02; done; echo late; touch gone) &")
    (shell.workspace / "go").touch()
    until_so((shell.workspace / "gone").exists)

    result = shell.run("echo mine")

    assert result.output == "mine\n"
    assert "late\n" in result.background


@pytest.mark.wherever
@pytest.mark.parametrize(
    ("command", "kind", "prompt"),
    [
        ("read -p 'name? ' x", "line", "name? "),
        ("printf 'go on? [y/N] '; read x", "line", "go on? [y/N] "),
        ("cat", "line", ""),
        ("cat | cat", "line", ""),
        ("python3 -c 'input(\"in: \")'", "line", "in: "),
        ("read -s -p 'word: ' x", "secret", "word: "),
        ("python3 -c 'import getpass; getpass.getpass()'", "secret", "Password: "),
    ],
)
def test_waiting_for_input_is_recognised(
    shell: Shell, command: str, kind: str, prompt: str
) -> None:
    result = shell.run(command, wait=10)

    assert result.status == "waiting_for_input"
    assert result.waiting == (kind, prompt)
    assert shell.wait(0.5).status == "waiting_for_input"  # no input is typed automatically
    shell.send("Bob\n")
    shell.keys("C-d")
    ended(shell)


@pytest.mark.wherever
def test_input_is_sent(shell: Shell) -> None:
    shell.run("read -p 'name? ' x")
    with pytest.raises(EnvironmentBusy, match=r"command [0-9]+ runs"):
        shell.run("echo intruder")
    shell.send("Bob\n")
    assert ended(shell).output == "name? Bob\n"
    assert shell.run("echo [$x]").output == "[Bob]\n"

    shell.run("sleep 30", wait=0)
    until_so(lambda: runs(shell.wait(0), "sleep 30"))
    shell.keys("C-c")
    assert ended(shell).exit_code == 130


STOPS_TMUX = """
import os, signal, time
pid = os.getpid()
while not open(f"/proc/{pid}/stat").read().partition("(")[2].startswith("tmux"):
    pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
if not os.fork():
    while not os.path.exists("typing"):
        time.sleep(0.01)
    os.kill(pid, signal.SIGSTOP)
    open("stopped", "w").close()
    time.sleep(1)
    os.kill(pid, signal.SIGCONT)
    os.kill(os.getpid(), signal.SIGKILL)
line = input("Name? ")
time.sleep(0.5)
input(f"Hello {line}. Age? ")
"""


def test_input_that_is_typed_late_is_waited_for(shell: Shell) -> None:
    home = on_host(shell, shell.home)
    (home / "stops.py").write_text(STOPS_TMUX)
    assert shell.run("cd; python3 stops.py").status == "waiting_for_input"
    (home / "typing").touch()
    while not (home / "stopped").exists():
        time.sleep(0.01)
    shell.send("Ada\n")
    result = shell.wait(60)
    assert result.status == "waiting_for_input"
    assert result.output.endswith("Hello Ada. Age? ")
    shell.keys("C-d")
    assert ended(shell).exit_code == 1


@pytest.mark.usefixtures("little_grace")
def test_a_timeout_ends_the_command_and_keeps_the_shell(shell: Shell) -> None:
    shell.run("cd /; X=1")

    seconds = enough(lambda: shell.run("python3 -c 'print()'"))
    result = shell.run("echo begun; trap '' INT TERM; sleep 60", timeout=seconds)

    assert result.status == "timeout"
    assert result.output.startswith("begun\n")
    stubborn = "import signal,time\nfor s in (2, 15): signal.signal(s, signal.SIG_IGN)\n"
    result = shell.run(
        f"python3 -c '{stubborn}print(\"on\", flush=True)\ntime.sleep(60)'", timeout=seconds
    )
    assert (result.status, result.exit_code, result.output[:3]) == ("timeout", 137, "on\n")
    assert shell.run("pwd; echo $X").output == "/\n1\n"


@pytest.mark.wherever
def test_cancelling_the_caller_ends_the_command(shell: Shell) -> None:
    shell.run("cd /")

    async def cancelled() -> None:
        task = asyncio.ensure_future(shell.async_run("echo begun; sleep 60"))
        while not runs(await shell.async_wait(0.05), "sleep 60"):
            pass
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())

    result = shell.wait(60)
    assert (result.status, result.exit_code) == ("cancelled", 130)
    assert result.output.startswith("begun\n")
    assert not shell.interrupt()
    assert shell.run("pwd").output == "/\n"


@pytest.mark.wherever
def test_output_is_complete_and_not_wrapped(shell: Shell) -> None:
    lines = shell.run("seq 100000").output.split("\n")
    assert lines == [*map(str, range(1, 100_001)), ""]
    assert shell.run("printf %05000d 1").output == "1".zfill(5000)
    assert shell.run("printf 'a  \\n\\n\\nb   '").output == "a  \n\n\nb   "


@pytest.mark.wherever
def test_records_hold_raw_and_clean(shell: Shell) -> None:
    result = shell.run("printf '\\033[31mred\\033[0m\\n'; (exit 3)")

    entries = {}
    for name in ("raw", "clean"):
        data = shell.get(f"{shell.records}/{name}.log")
        while data:
            head, _, data = data.partition(b"\n")
            entry = json.loads(head)
            entries[name, entry["id"]] = (entry, data[: entry["bytes"]])
            data = data[entry["bytes"] + 1 :]
    entry, raw = entries["raw", result.id]
    assert raw == b"\x1b[31mred\x1b[0m\r\n"
    assert entries["clean", result.id][1] == b"red\n"
    assert (entry["exit"], entry["cwd"]) == (3, shell.sandbox.workdir)
    assert entry["start"] <= entry["end"]
    assert entry["command"].startswith("printf")


def test_records_are_bounded(sandbox: type[Sandbox], tmp_path: Path) -> None:
    with opened(ShellProvider(), sandbox, tmp_path) as shell:
        shell.run("echo first")
        folder = on_host(shell, shell.records)
        for name in ("raw", "clean"):
            os.truncate(folder / f"{name}.log", 16 * 1024 * 1024)  # as after many commands

        shell.run("echo second")

        for name in ("raw", "clean"):
            now, before = shell.get(f"{shell.records}/{name}.log"), folder / f"{name}.log.1"
            assert (b"first" in now, b"second" in now) == (False, True)
            assert before.stat().st_size == 16 * 1024 * 1024


@pytest.mark.endurance
def test_secrets_are_masked(sandbox: type[Sandbox], tmp_path: Path) -> None:
    config = {"env": {"TOKEN": Secret("hunter-2-very", revealed=True)}}
    with opened(ShellProvider(), sandbox, tmp_path, config=config) as shell:
        result = shell.run("echo $TOKEN; echo hunter-2-very; printf 'hunter-2-'; echo very")

        assert result.output == "***\n***\n***\n"
        assert b"hunter" not in result.raw
        assert "hunter" not in str(shell.run("echo hunter-2-very )"))
        inside = shell.run("mkdir $TOKEN; cd $TOKEN; bash -c 'sleep 1000; true' $TOKEN &")
        assert "hunter" not in str(inside)
        assert inside.cwd.endswith("/***")
        working = shell.run(f"bash -c 'sleep 1000; true' {'x' * 170} $TOKEN", wait=0)
        # One of them belongs to the job. An interrupt before bash is ready could get lost in it.
        while [each.command for each in working.processes].count("sleep 1000") < 2:
            working = shell.wait(0.05)
        assert "hunter" not in str(working)
        shell.interrupt()
        assert shell.wait(60).idle
        for name in ("raw", "clean"):
            assert b"hunter-2-very" not in shell.get(f"{shell.records}/{name}.log")


@contextmanager
def watching(shell: Shell) -> Iterator[Callable[[bytes], bytes]]:
    """Attach a viewer, and yield a function that reads until a text is shown."""
    command = shell.attach_command()
    child, fd = pty.fork()
    if child == 0:
        os.environ["TERM"] = "xterm"
        os.execvp("sh", ["sh", "-c", f"exec {command}"])
    seen = b""

    def read_until(text: bytes) -> bytes:
        nonlocal seen
        while text not in seen:
            ready, _, _ = select.select([fd], [], [], 60)
            assert ready, seen
            seen += os.read(fd, 65536)
        return seen

    read_until.keys = lambda data: os.write(fd, data)  # type: ignore[attr-defined]
    try:
        yield read_until
    finally:
        with suppress(OSError):
            os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(fd)


@pytest.mark.wherever
def test_watching_changes_nothing(shell: Shell) -> None:
    with watching(shell) as read_until:
        shell.run("echo wat''ched")
        read_until(b"watched")
        read_until.keys(b"touch typed\r")  # type: ignore[attr-defined]
        result = shell.run("stty size; (exit 4)")
        assert (result.output, result.exit_code) == ("50 200\n", 4)
        read_until(b"50 200")
    assert shell.run("echo on").output == "on\n"
    assert "typed" not in {entry.path for entry in shell.list()}


@pytest.mark.endurance
def test_nothing_in_the_sandbox_runs_a_program_of_who_watches(
    sandbox: type[Sandbox], tmp_path: Path
) -> None:
    pwned = tmp_path / "pwned"
    inside = tmp_path / "inside"
    inside.mkdir()
    with opened(ShellProvider(), sandbox, inside) as shell, watching(shell) as read_until:
        shell.run("echo be''gun")
        read_until(b"begun")
        other = shell.another()
        socket = f"{live(shell)}/socket"
        for word in ("display-popup -E", "detach-client -s term -E", "run-shell"):
            tried = other.run(f"tmux -S {socket} {word} 'echo > {pwned}; echo > ran'", wait=20)
        # tmux may answer before the program has run inside it.
        deadline = time.monotonic() + 60
        while other.run("ls ran").exit_code != 0:
            assert time.monotonic() < deadline, tried
        if shell.isolation != "none":
            assert not pwned.exists()


def test_who_watches_gets_text_and_colours_and_no_other_control(shell: Shell) -> None:
    hostile = (
        r"printf '\033]52;c;aGFja2Vk\a\033]0;title\a\033[31mred\033[0m\033[6n\033P+q\033\\\302\233'"
    )
    with watching(shell) as read_until:
        shell.run(f"{hostile}; printf '\\342\\200\\256dne'; echo; echo en''ded")
        seen = read_until(b"ended")

    assert b"red" in seen
    drawn = re.sub(rb"\x1b\[(\?(1049|7|25)[hl]|[0-9;]*[mHKJ])", b"", seen)
    assert b"\x1b" not in drawn
    assert b"\xc2\x9b" not in drawn
    assert b"\xe2\x80\xae" not in drawn


@pytest.mark.wherever
def test_watching_ends_with_the_shell_and_with_a_key(shell: Shell) -> None:
    other: Shell = shell.another()
    command = other.attach_command()
    with watching(other) as read_until:
        other.run("echo be''gun")
        read_until(b"begun")
        read_until.keys(b"q")  # type: ignore[attr-defined]
        read_until(b"1049l")
    with watching(other) as read_until:
        read_until(b"begun")
        other.end()
        read_until(b"has ended")
    again = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "there is no terminal to watch" in again.stderr
    with pytest.raises(EnvironmentClosed):
        other.attach_command()


@pytest.mark.wherever
def test_activate_holds_in_every_new_shell(sandbox: type[Sandbox], tmp_path: Path) -> None:
    subprocess.run(["python3", "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    with opened(
        ShellProvider(), sandbox, tmp_path, config={"activate": ". env/bin/activate"}
    ) as shell:
        # the script of a venv contains the path of the host
        assert shell.run("echo $VIRTUAL_ENV").output.endswith("/env\n")
        assert shell.run("exit 3").shell_restarted
        assert shell.run("echo $VIRTUAL_ENV; echo $PATH").output.count("/env") == 2


@pytest.mark.wherever
def test_activate_may_begin_a_shell_of_its_own(sandbox: type[Sandbox], tmp_path: Path) -> None:
    pixi = tmp_path / "pixi"
    pixi.write_text("#!/bin/sh\nINNER=1 bash --norc -i\n")
    pixi.chmod(0o755)
    with opened(ShellProvider(), sandbox, tmp_path, config={"activate": "./pixi shell"}) as shell:
        assert shell.run("echo $INNER").output == "1\n"
        result = shell.run("exit 3", wait=20)
        assert (result.exit_code, result.shell_restarted) == (3, True)
        assert shell.run("echo $INNER").output == "1\n"


@pytest.mark.wherever
@pytest.mark.parametrize("command", ["echo no such thing; false", "echo no such thing; sleep 60"])
def test_an_activate_that_fails_is_told(
    sandbox: type[Sandbox], tmp_path: Path, command: str
) -> None:
    config = {"activate": command, "activate_timeout": 0.5}
    with (
        pytest.raises(EnvironmentStartFailed, match="no such thing"),
        opened(ShellProvider(), sandbox, tmp_path, config=config),
    ):
        raise AssertionError("it has opened")


@pytest.mark.wherever
def test_shells_in_one_sandbox_run_at_once_and_know_nothing_of_each_other(
    sandbox: type[Sandbox], tmp_path: Path
) -> None:
    config = {
        "env": {"TOKEN": Secret("hunter-2-very", revealed=True)},
        "activate": "export ACTIVE=$((ACTIVE + 1))",
    }
    with opened(ShellProvider(), sandbox, tmp_path, config=config) as one:
        two: Shell = one.another()
        one.run("mkdir first second; cd first; X=1")
        assert two.run("cd second; echo [$X] $ACTIVE $TOKEN; X=2").output == "[] 1 ***\n"

        meet = "touch ../{0}; until [ -e ../{1} ]; do sleep 0.02; done; echo $X; pwd"
        assert one.run(meet.format("a", "b"), wait=0).status == "running"
        told = two.run(meet.format("b", "a"))
        home = one.workdir
        assert (told.output, told.cwd) == (f"2\n{home}/second\n", f"{home}/second")
        assert ended(one).output == f"1\n{home}/first\n"

        assert one.records != two.records
        assert b"second" not in one.get(f"{one.records}/raw.log").partition(b"touch ../a")[2]
        assert b"hunter" not in two.get(f"{two.records}/raw.log")
        assert two.run("exit 3").shell_restarted
        assert one.run("echo $X").output == "1\n"


@pytest.mark.endurance
@pytest.mark.wherever
def test_the_end_of_a_command_or_shell_leaves_the_other_shells(
    sandbox: type[Sandbox], tmp_path: Path
) -> None:
    with opened(ShellProvider(), sandbox, tmp_path) as one:
        two, three = one.another(), one.another()
        until = "until [ -e go ]; do sleep 0.02; done; echo on"
        assert two.run(until, wait=0).status == "running"
        assert one.run("sleep 60", wait=0).status == "running"
        until_so(lambda: runs(one.wait(0), "sleep 60"))
        with pytest.raises(EnvironmentBusy):
            two.run("echo intruder")
        one.interrupt()
        assert ended(one).exit_code == 130

        async def cancelled() -> None:
            task = asyncio.ensure_future(one.async_run("sleep 60"))
            while not runs(await one.async_wait(0.05), "sleep 60"):
                pass
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(cancelled())
        assert ended(one).status == "cancelled"

        three.run("sleep 60 & sleep 60", wait=0)
        folder = on_host(three, three.records).parent
        three.end()
        assert (folder / "records").exists()
        assert one.run(f"ls -d {live(one, 3)}").exit_code != 0
        with pytest.raises(EnvironmentClosed, match="shell 3 was ended"):
            three.run("echo on")
        with pytest.raises(ValidationError, match="first shell"):
            one.end()

        assert two.wait(0).status == "running"
        one.run("touch go")
        assert ended(two).output == "on\n"
        two.end()
        assert one.run("echo on").output == "on\n"


@pytest.mark.wherever
def test_another_shell_that_does_not_start_leaves_nothing(
    sandbox: type[Sandbox], tmp_path: Path
) -> None:
    config = {"activate": "[ ! -e broken ]"}
    with opened(ShellProvider(), sandbox, tmp_path, config=config) as one:
        one.run("touch broken")
        with pytest.raises(EnvironmentStartFailed, match="shell 2: activate"):
            one.another()
        assert one.run(f"ls -d {live(one, 2)}").exit_code != 0
        one.run("rm broken")
        assert one.another().run("echo on").output == "on\n"


@pytest.mark.endurance
def test_the_end_of_the_sandbox_ends_all_its_shells(sandbox: type[Sandbox], tmp_path: Path) -> None:
    mark = f"{uuid.uuid4().int % 10**12 + 10**12}"
    with opened(ShellProvider(), sandbox, tmp_path) as one:
        two: Shell = one.another()
        for shell in (one, two, one.another()):
            shell.run(f"sleep {mark} &")
        three = two.another()
        three.run(f"sleep {mark} &")
        until_so(lambda: commands_with(mark) == 4)
        three.end()
        until_so(lambda: commands_with(mark) == 3)
        background().run(one.finish(5))  # like the manager
        for shell in (one, two):
            with pytest.raises(EnvironmentClosed):
                shell.run("echo on")
    until_so(lambda: commands_with(mark) == 0)


def runs(result: ShellResult, command: str) -> bool:
    """Return whether a program runs. An earlier interrupt could hit the shell that starts it."""
    return command in [each.command for each in result.processes]


def until_so(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end, "it has not come so in time"
        time.sleep(0.02)


def commands_with(mark: str) -> int:
    """Count processes of the machine that have a word among their arguments."""
    found = 0
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += mark.encode() in each.read_bytes().split(b"\0")
    return found


@pytest.mark.wherever
@pytest.mark.parametrize("bad", [1, None, "a\0b", "x" * 5_000_000])
def test_what_is_no_command_is_refused(shell: Shell, bad: Any) -> None:
    with pytest.raises(ValidationError, match="environment 'box'"):
        shell.run(bad)
