# Shows S71, S86
"""Full-screen programs, shells that fail to start, and endless output."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine.sdk import EnvironmentStartFailed
from flowengine.sdk.environments import Sandbox
from flowengine_envs.kinds.bash import Bash, BashProvider
from flowengine_envs.kinds.shell.provider import ShellProvider
from flowengine_envs.kinds.shell.result import ShellResult
from flowengine_envs.kinds.shell.session import Shell
from tests.envs.enough import enough
from tests.envs.opening import on_host, opened

MIB = 1 << 20


@pytest.fixture(scope="module")
def terminal(shell: Shell) -> Shell:
    shell.run("seq 1000 > numbers")
    return shell


def waiting(shell: Shell, result: ShellResult | None = None) -> str:
    """Return the screen once the program waits for a key."""
    result = result or shell.wait(60)
    assert result.status == "waiting_for_input", result
    assert result.waiting is not None
    assert result.waiting.kind == "keys"
    return "\n".join(line.rstrip() for line in shell.screen().split("\n"))


@pytest.mark.wherever
# Shows S79
def test_a_pager_is_led_by_keys(terminal: Shell) -> None:
    screen = waiting(terminal, terminal.run("echo before; less numbers; echo after", wait=20))
    assert screen.startswith("1\n2\n3\n")

    terminal.keys("Space")
    assert waiting(terminal).startswith("50\n51\n")
    terminal.send("/777\n")
    assert waiting(terminal).startswith("777\n")
    terminal.keys("Up")
    assert waiting(terminal).startswith("776\n")
    terminal.keys("q")
    result = terminal.wait(60)

    assert (result.status, result.output) == ("done", "before\nafter\n")


@pytest.mark.wherever
def test_a_prompt_of_python_waits_for_keys_and_gets_no_enter(terminal: Shell) -> None:
    result = terminal.run("python3 -q", wait=20)

    assert result.status == "waiting_for_input"
    assert result.waiting is not None
    assert result.waiting.prompt == ">>> "
    assert terminal.wait(1).output == result.output == ">>> "  # no input is typed automatically
    terminal.send("6 * 7\n")
    assert "42" in terminal.wait(60).output
    terminal.send("exit()\n")
    assert terminal.wait(60).status == "done"


@pytest.mark.wherever
def test_silent_work_is_shown_as_a_tree(terminal: Shell) -> None:
    result = terminal.run("sh -c 'sleep 31; :'; python3 -c 'while True: pass'", wait=1)

    assert (result.status, result.output) == ("running", "")
    assert [(each.command, each.state) for each in result.processes] == [
        ("sh -c sleep 31; :", "S"),
        ("sleep 31", "S"),
    ]
    terminal.interrupt()
    terminal.wait(60)


@pytest.mark.wherever
# Shows S79
def test_an_editor_writes_what_was_typed(terminal: Shell) -> None:
    waiting(terminal, terminal.run("vi -u NONE note", wait=20))

    terminal.keys("i")
    terminal.send("first\nsecond")
    terminal.keys("Escape")
    screen = waiting(terminal)
    terminal.send(":wq\n")
    result = terminal.wait(60)

    assert screen.startswith("first\nsecond\n~\n")
    assert (result.status, result.exit_code) == ("done", 0)
    assert terminal.get("note") == b"first\nsecond\n"


@pytest.mark.endurance
@pytest.mark.wherever
@pytest.mark.parametrize("broken", ["echo not today; false", "echo not today; sleep 60"])
# Shows S91
def test_an_activate_that_fails_in_a_later_shell_is_told_and_tried_again(
    sandbox: type[Sandbox], tmp_path: Path, broken: str
) -> None:
    config = {
        "activate": f"if [ -e broken ]; then {broken}; else export ACTIVE=yes; fi",
        "activate_timeout": 0.5,
    }
    with opened(ShellProvider(), sandbox, tmp_path, config=config) as shell:
        assert shell.run("touch broken; exit 3", wait=20).shell_restarted
        for _ in range(2):
            with pytest.raises(EnvironmentStartFailed, match="not today"):
                shell.run("echo [$ACTIVE]")
        shell.remove("broken")
        assert shell.run("echo [$ACTIVE]").output == "[yes]\n"


def growth(before: int) -> int:
    """Return the peak growth of this process's memory in bytes since `before`."""
    return _memory("VmHWM") - before


def _memory(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise AssertionError(name)


@pytest.fixture
def before() -> int:
    """Return this process's memory in bytes, and reset its peak."""
    Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS")


@pytest.mark.endurance
@pytest.mark.wherever
# Shows E33, S36
def test_more_output_than_is_kept_costs_the_engine_nothing(
    sandbox: type[Sandbox], tmp_path: Path, before: int
) -> None:
    with opened(BashProvider(), sandbox, tmp_path, limits={"output": "100kB"}) as bash:
        result = bash.run("head -c 300000000 /dev/zero | tr '\\0' x; echo the end", timeout=60)

        assert result.exit_code == 0
        assert result.stdout.startswith("xxx")
        assert result.stdout.endswith("xxxthe end\n")
        assert f"{300_000_008 - 100_000} bytes left out" in result.stdout
        assert growth(before) < 64 * MIB
        assert result.stdout_file is not None
        assert on_host(bash, result.stdout_file).stat().st_size == 256 * MIB


@pytest.mark.endurance
@pytest.mark.wherever
# Shows S36
def test_output_without_end_ends_with_its_command(
    sandbox: type[Sandbox], tmp_path: Path, bash: Bash, before: int
) -> None:
    seconds = enough(lambda: bash.run("yes | head -c 1M; yes | head -c 1M >&2"), least=0.3)
    both = bash.run("yes out & yes err >&2", timeout=seconds)
    assert both.timed_out
    for text in (both.stdout, both.stderr):
        assert len(text) < 101_000
        assert "bytes left out" in text

    with opened(ShellProvider(), sandbox, tmp_path, limits={"output": "100kB"}) as shell:
        seconds = enough(lambda: shell.run("yes | head -n 100000"), least=0.3)
        shown = shell.run("yes", timeout=seconds)

        assert shown.status == "timeout"
        assert len(shown.raw) < 101_000
        assert shown.left_out > 0
        assert shell.run("echo on").output == "on\n"
    assert growth(before) < 64 * MIB
