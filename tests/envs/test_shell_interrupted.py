# Shows S64
"""Interrupts and input of a shell right before a command starts and right after it ends."""

from __future__ import annotations

import asyncio

import pytest

from flowengine_envs.kinds.shell.result import ShellResult
from flowengine_envs.kinds.shell.session import Shell


@pytest.fixture(autouse=True, scope="module")
def marked(shell: Shell) -> None:
    """Set a variable that shows that the shell is still the same one."""
    shell.run("KEPT=kept")


def ended(shell: Shell) -> ShellResult:
    result = shell.wait(60)
    assert result.idle, result
    assert not result.shell_restarted
    assert shell.run("echo $KEPT").output == "kept\n"
    return result


@pytest.mark.wherever
def test_an_interrupt_before_the_command_begins_is_remembered(shell: Shell) -> None:
    for _ in range(5):
        assert shell.run("sleep 1000", wait=0).busy
        assert shell.interrupt()

        result = ended(shell)

        assert (result.status, result.exit_code, result.pipe_codes) == ("done", 130, [130])
        assert result.signal == 2


@pytest.mark.wherever
def test_a_call_withdrawn_before_the_command_begins_ends_it(shell: Shell) -> None:
    async def withdrawn() -> None:
        task = asyncio.ensure_future(shell.async_run("sleep 1000"))
        while (await shell.async_wait(0)).idle:
            pass
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    for _ in range(3):
        asyncio.run(withdrawn())

        assert ended(shell).status == "cancelled"


@pytest.mark.endurance
@pytest.mark.wherever
def test_an_interrupt_while_a_command_starts_that_is_a_shell_itself(shell: Shell) -> None:
    """A forked copy of the shell may swallow the interrupt before it becomes `bash`."""
    shell.run(f"(trap 'echo heard' INT; echo there; {UNTIL_GO}; exec bash -c 'sleep 1000; true')",
              wait=0)  # fmt: skip
    until(shell, "there\n")
    assert shell.interrupt()
    until(shell, "heard\n")
    shell.put("go", b"")

    result = ended(shell)

    assert (result.status, result.exit_code) == ("done", 130)
    shell.remove("go")


def until(shell: Shell, end: str) -> None:
    result = shell.wait(0.02)
    while not result.output.endswith(end):
        assert result.busy, result
        result = shell.wait(0.02)


LATE = b"""\
import os, select, signal, subprocess, sys, termios, tty

signal.signal(signal.SIGINT, lambda *_: None)
cooked, status, first = termios.tcgetattr(0), 0, True
while True:
    tty.setraw(0, termios.TCSANOW)
    line = b""
    while not line.endswith(b"\\r"):
        line += os.read(0, 1)
    if first and b"/" in line and b"gate" not in line:
        first = False
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.poll()
    termios.tcsetattr(0, termios.TCSANOW, cooked)
    typed = line.rpartition(b"\\x15")[2].decode().strip("\\r")
    status = subprocess.run(["bash", "-c", f"(exit {status})\\n{typed}"]).returncode % 256
    status = 130 if status == 254 else status
"""
"""A shell that begins to execute the first command once another line is typed."""


@pytest.mark.wherever
def test_a_line_that_arrives_after_its_replacement_leaves_no_trace(shell: Shell) -> None:
    """Its terminal passes on a typed line late: the supervisor has typed the next one by then."""
    shell.put("late.py", LATE)
    shell.run("cp $(readlink -f $(command -v python3)) sh")
    home = shell.run("python3 -c 'import sys; print(sys.base_prefix)'").output.strip()
    assert shell.run(f"PYTHONHOME={home} ./sh late.py").idle

    shell.run("echo begun; sleep 1000", wait=0)
    until(shell, "begun\n")
    assert shell.interrupt()
    result = shell.wait(60)

    assert (result.output, result.exit_code) == ("begun\n", 130)
    assert shell.run("echo on").output == "on\n"
    shell.run("kill -9 $PPID")
    ended(shell)


UNTIL_GO = "until [ -e go ]; do :; done"


@pytest.mark.endurance
@pytest.mark.wherever
def test_an_interrupt_at_any_moment_of_the_start_of_a_program_ends_it(shell: Shell) -> None:
    """Bash forks, goes to its prompt, and its copy may take the terminal after that."""
    for number in range(200):
        shell.run("sleep 1000", wait=0)
        shell.wait(number % 20 / 1000)
        shell.interrupt()

        assert ended(shell).exit_code == 130


@pytest.mark.wherever
# Shows S71
def test_input_before_the_command_begins_is_for_the_command(shell: Shell) -> None:
    for _ in range(3):
        shell.run("read x; echo got-$x", wait=0)
        shell.send("Bob\n")

        assert ended(shell).output == "Bob\ngot-Bob\n"


@pytest.mark.wherever
def test_keys_after_a_command_do_not_silence_the_next(shell: Shell) -> None:
    """Ctrl-C may arrive while the shell reports the end of the previous command."""
    for _ in range(5):
        shell.run("true")
        shell.keys("C-c")

        result = shell.run("echo hi; echo ho >&2")

        assert (result.output, result.exit_code) == ("hi\nho\n", 0)
    ended(shell)
