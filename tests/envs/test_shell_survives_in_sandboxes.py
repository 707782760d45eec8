# Shows S62
"""Commands that damage their own shell: no later call is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from flowengine.sdk import ValidationError
from flowengine.sdk.environments import Sandbox
from flowengine.sdk.environments.models import Secret
from flowengine_envs.kinds.python import Python
from flowengine_envs.kinds.shell.provider import ShellProvider
from tests.envs.opening import opened
from tests.envs.test_shell_in_sandboxes import live, runs


@pytest.mark.endurance
@pytest.mark.wherever
@pytest.mark.parametrize(
    "hostile",
    [".() { :; }", "enable -n .", "source() { :; }; .() { echo no; false; }; command() { :; }"],
)
def test_a_shell_without_its_source_builtin_takes_the_next_command(
    sandbox: type[Sandbox], tmp_path: Path, hostile: str
) -> None:
    with opened(ShellProvider(), sandbox, tmp_path) as shell:
        shell.run("cd /; X=1")
        shell.run(hostile)
        for _ in range(2):
            result = shell.run("echo $X $PWD; (exit 4)")
            assert (result.status, result.exit_code, result.output) == ("done", 4, "1 /\n")
            assert not result.shell_restarted
        # At the prompt of another shell, commands work as before.
        assert shell.run("bash --norc -i", wait=20).status == "done"
        assert shell.run("echo inner").output == "inner\n"


@pytest.mark.wherever
def test_a_shell_that_can_take_no_command_is_replaced(
    sandbox: type[Sandbox], tmp_path: Path
) -> None:
    config = {"activate": "export ACTIVE=yes"}
    with opened(ShellProvider(), sandbox, tmp_path, config=config) as shell:
        shell.run("X=1; enable -n . source")

        result = shell.run("echo [$X] [$ACTIVE]")

        assert (result.status, result.output) == ("done", "[] [yes]\n")
        assert result.shell_restarted


@pytest.mark.endurance
@pytest.mark.wherever
def test_a_shell_that_has_ended_by_itself_is_replaced(
    sandbox: type[Sandbox], tmp_path: Path
) -> None:
    """Its end may be noticed before, during or after the typing of the next command."""
    config = {"activate": "export ACTIVE=yes"}
    with opened(ShellProvider(), sandbox, tmp_path, config=config) as shell:
        for number in range(40):
            assert shell.run("X=1; exec 0</dev/null").status == "done"

            result = shell.run(f"echo {number} [$X] [$ACTIVE]")

            assert (result.status, result.output) == ("done", f"{number} [] [yes]\n")
            assert result.shell_restarted
            assert result.duration < 4  # no timeout had to expire
        assert shell.run("stty size").output == "50 200\n"


@pytest.mark.wherever
def test_a_call_that_was_cancelled_is_not_in_the_way_of_the_next(
    sandbox: type[Sandbox], tmp_path: Path
) -> None:
    with opened(ShellProvider(), sandbox, tmp_path) as shell:
        with pytest.raises(ValidationError, match="no command was run yet"):
            shell.wait()
        shell.run("cd /")

        async def cancelled() -> str:
            for _ in range(3):
                task = asyncio.ensure_future(shell.async_run("echo begun; sleep 60"))
                while not runs(await shell.async_wait(0.05), "sleep 60"):
                    pass
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                assert task.cancelled()
                result = await shell.async_run("pwd")
            return str(result.output)

        assert asyncio.run(cancelled()) == "/\n"


@pytest.mark.wherever
def test_a_call_of_python_that_was_cancelled_is_not_in_the_way_of_the_next(
    sandbox: type[Sandbox], tmp_path: Path
) -> None:
    config = {"on_busy": "refuse"}
    with opened(Python(), sandbox, tmp_path, config=config) as python:

        async def cancelled() -> object:
            begun, loop = asyncio.Event(), asyncio.get_running_loop()
            for _ in range(3):
                begun.clear()
                code = "print('begun', flush=True)\nimport time\ntime.sleep(60)"
                task = asyncio.ensure_future(
                    python.async_run(
                        code, on_output=lambda *_: loop.call_soon_threadsafe(begun.set)
                    )
                )
                await begun.wait()
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                assert task.cancelled()
                result = await python.async_run("6 * 7")
            return result.value

        assert asyncio.run(cancelled()) == 42


@pytest.mark.wherever
def test_a_shell_whose_folder_was_removed_goes_on(sandbox: type[Sandbox], tmp_path: Path) -> None:
    with opened(ShellProvider(), sandbox, tmp_path) as shell:
        other = shell.another()
        shell.run("X=1")
        # Another shell may remove it before the next command.
        other.run(f"rm -rf {live(shell)}")
        assert shell.run("echo $X").output == "1\n"

        result = shell.run(f"rm -rf {live(shell)}", wait=60)
        assert result.status == "done"
        result = shell.run("echo $X; (exit 4)")
        assert (result.output, result.exit_code) == ("1\n", 4)

        result = shell.run(f"rm -rf {live(shell)}; exit 3", wait=60)
        assert (result.status, result.shell_restarted) == ("done", True)
        assert shell.run("echo [$X]").output == "[]\n"

        result = shell.run(f"rm -rf {live(shell)}; echo > {live(shell)}; exit 3", wait=60)
        assert result.status == "lost"
        assert not shell.healthy


KILLED = """python3 - $$ {live} <<'END' & disown
import os, signal, sys
shell, live = sys.argv[1:]
open('watching', 'w').close()
while True:
    for name in os.listdir(f'/proc/{{shell}}/fd'):
        try:
            folder, _, pipe = os.readlink(f'/proc/{{shell}}/fd/{{name}}').rpartition('/')
        except OSError:
            continue
        if folder == live and pipe.isdigit() and int(pipe) > 2:
            os.kill(int(shell), signal.SIGKILL)
            sys.exit()
END
"""
"""A job that kills the shell as soon as it finds that the pipe of a third command is open."""


@pytest.mark.wherever
def test_a_shell_that_is_killed_before_it_reads_a_command_is_replaced(
    sandbox: type[Sandbox], tmp_path: Path
) -> None:
    with opened(ShellProvider(), sandbox, tmp_path) as shell:
        shell.run(KILLED.format(live=live(shell)))
        shell.run("until [ -e watching ]; do sleep 0.01; done")

        while not shell.run("echo there", wait=60).shell_restarted:
            pass  # it was faster than the job

        assert shell.run("echo again", wait=60).output == "again\n"


FORGED = "ready.99999 ready.1 ready.x ready. exit.x exit. {0..60}.x {0..60}. $'\\377.\\377'"


@pytest.mark.endurance
@pytest.mark.wherever
@pytest.mark.parametrize("make", ["touch", "mkdir", "mkfifo"])
def test_files_that_programs_make_up_end_neither_the_shell_nor_its_sandbox(
    sandbox: type[Sandbox], tmp_path: Path, make: str
) -> None:
    with opened(ShellProvider(), sandbox, tmp_path) as shell:
        shell.run("X=1")
        for forged in FORGED.split():
            place = f"{live(shell)}/{forged}"
            assert shell.run(f"{make} {place}; echo made", wait=60).output == "made\n", forged
            assert shell.run(f"echo $X; rm -rf {place}", wait=60).output == "1\n", forged


@pytest.mark.endurance
@pytest.mark.wherever
def test_lines_are_told_as_they_come(sandbox: type[Sandbox], tmp_path: Path) -> None:
    config = {"env": {"TOKEN": Secret("hunter-2-very", revealed=True)}}
    told: list[tuple[str, str]] = []
    with opened(ShellProvider(), sandbox, tmp_path, config=config) as shell:

        def take(stream: str, text: str) -> None:
            told.append((stream, text))
            if text == "begun\n":
                (shell.workspace / "go").touch()

        wait = "until [ -e go ]; do sleep 0.02; done"
        result = shell.run(
            f"echo begun; {wait}; printf 'hunter-2-'; sleep 0.2; echo very; printf 'n\\303\\251'",
            timeout=60,
            on_output=take,
        )

        assert result.output == "begun\n***\nné"
        assert told[0] == ("stdout", "begun\n")
        assert "".join(text for _, text in told) == result.output
        # More output than one read returns, and only output written while the call waits.
        told.clear()
        result = shell.run("seq 300000; sleep 0.1", timeout=60, on_output=take)
        assert told[0][1].startswith("1\n2\n")
        told.clear()
        assert shell.run("sleep 1; echo late", wait=0, on_output=take).status == "running"
        assert shell.wait(60).output == "late\n"
        assert told == []
