# Shows S34
"""The quota of a workspace holds even if programs try to hide their disk usage (S37)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flowengine.sdk import LimitExceeded
from flowengine.sdk.environments import Sandbox
from flowengine.util.files import remove_tree
from flowengine_envs.kinds.bash import BashProvider
from flowengine_envs.kinds.python import Python
from flowengine_envs.kinds.shell.provider import ShellProvider
from flowengine_envs.workspaces import disk_usage
from tests.envs.on_disk import tmp_path_factory  # noqa: F401 - for all tests here
from tests.envs.opening import opened
from tests.execution_environment.toy import until

LIMITS = {"disk": "4MiB"}
MORE = "limits.disk) is 4 MiB and 1000 files"
REMOVED = """
import os, time
kept = []
for n in range(64):
    kept.append(open("removed", "wb"))
    os.unlink("removed")
    kept[-1].write(bytes(1 << 20))
    kept[-1].flush()
    time.sleep(0.05)
"""
MAPPED = """
import mmap, os, time
kept = []
for n in range(64):
    with open("removed", "w+b") as file:
        os.unlink("removed")
        file.truncate(1 << 20)
        kept.append(mmap.mmap(file.fileno(), 0))
    kept[-1][:] = bytes(1 << 20)
    time.sleep(0.05)
"""
CLOSED = """
import os, time
for n in range(64):
    os.mkdir(f"closed{n}")
    with open(f"closed{n}/file", "wb") as file:
        file.write(bytes(1 << 20))
    os.chmod(f"closed{n}", 0)
    time.sleep(0.05)
"""
MANY = """
import os, time
for n in range(20_000):
    open(f"empty{n}", "w").close()
    if n % 300 == 0:
        time.sleep(0.05)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for n in range(64):
    with open(f"file{n}", "wb") as file:
        for _ in range(30):
            file.write(bytes(1 << 20))
            time.sleep(0.004)
"""
"""Keeps writing during the two seconds of grace after SIGTERM."""
RESERVED = """
import os
for n in range(64):
    with open(f"file{n}", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, 30 << 20)
"""
BOMB = """
import os
for _ in range(2469):
    os.mkdir("deep")
    os.chdir("deep")
for n in range(1500):
    os.mkdir(str(n))
os.chdir("/")
"""
"""Folders whose paths, if each were resolved from the root, would take a minute to measure."""
LONG_PATHS = """
import os
for _ in range(40):
    os.mkdir(b"\\xff" * 250)
    os.chdir(b"\\xff" * 250)
for n in range(1500):
    open(str(n), "w").close()
os.chdir("/")
"""
WAYS = {"removed": REMOVED, "mapped": MAPPED, "closed": CLOSED, "many": MANY}


@pytest.mark.endurance
@pytest.mark.parametrize("way", WAYS)
def test_what_is_hidden_counts(sandbox: type[Sandbox], tmp_path: Path, way: str) -> None:
    with opened(BashProvider(), sandbox, tmp_path, limits=LIMITS) as bash:
        result = bash.run(["python3", "-c", WAYS[way]], timeout=60)

        assert result.stopped == "disk"
        assert MORE in result.stderr
        assert bash.run("chmod -R u+rwx . ; rm -rf * ; echo usable").stdout == "usable\n"
        bash.run("mkdir -p closed; chmod 0 closed; sleep 0.5")
        assert bash.run("stat -c %a closed").stdout == "0\n"
        bash.run("rmdir closed")


def test_a_burst_stays_near_the_quota(sandbox: type[Sandbox], tmp_path: Path) -> None:
    assert burst(sandbox, tmp_path, STUBBORN) < (8 * 32) << 20


def test_space_is_not_reserved_in_a_moment(sandbox: type[Sandbox], tmp_path: Path) -> None:
    assert burst(sandbox, tmp_path, RESERVED) < (8 * 32) << 20


def burst(sandbox: type[Sandbox], workspace: Path, code: str) -> int:
    """Let code fill a 32 MiB workspace as fast as it can, and return the bytes written."""
    with opened(BashProvider(), sandbox, workspace, limits={"disk": "32MiB"}) as bash:
        result = bash.run(["python3", "-c", code], timeout=60)

    assert result.stopped == "disk"
    return sum(each.stat().st_blocks * 512 for each in workspace.glob("file*"))


def test_space_can_be_given_back(sandbox: type[Sandbox], tmp_path: Path) -> None:
    with opened(BashProvider(), sandbox, tmp_path, limits=LIMITS) as bash:
        result = bash.run("head -c 100k /dev/zero > file && fallocate -p -l 90k file && echo yes")

        assert result.stdout == "yes\n", result.stderr


@pytest.mark.endurance
@pytest.mark.wherever
def test_folders_in_folders_delay_nothing(sandbox: type[Sandbox], tmp_path: Path) -> None:
    with opened(Python(), sandbox, tmp_path) as python:
        try:
            assert python.run(BOMB, timeout=60).error is None
            assert python.run("6 * 7").value == 42
            assert len(python.list(deep=True)) == 65
        finally:
            remove_tree(tmp_path / "deep")


@pytest.mark.wherever
def test_paths_that_are_too_long_to_send_delay_nothing(
    sandbox: type[Sandbox], tmp_path: Path
) -> None:
    """1,500 files below 40 directories, whose names take 1,500 bytes each in JSON."""
    try:
        with opened(Python(), sandbox, tmp_path) as python:
            result = python.run(LONG_PATHS, timeout=60)

            assert result.error is None
            assert 0 < len(result.files) < 1500
            with pytest.raises(LimitExceeded, match="its paths have more than 8 MiB"):
                python.list(deep=True)
            assert python.run("6 * 7").value == 42
    finally:
        for folder in tmp_path.iterdir():
            remove_tree(folder)
    assert list(tmp_path.iterdir()) == []


def left_behind(code: str) -> str:
    """Return code whose child outlives the call and fills the disk."""
    return f"import subprocess\nsubprocess.Popen(['python3', '-c', {code!r}]) and None"


@pytest.mark.endurance
@pytest.mark.wherever
@pytest.mark.parametrize("way", ["removed", "mapped", "closed"])
def test_what_outlives_its_call_is_ended(sandbox: type[Sandbox], tmp_path: Path, way: str) -> None:
    with opened(Python(), sandbox, tmp_path, limits=LIMITS) as python:
        python.run("x = 41")
        python.run(left_behind("import time; time.sleep(0.5)\n" + WAYS[way] + "time.sleep(60)"))
        until(lambda: MORE in (told := python.run("x + 1")).stderr and told.value == 42)


@pytest.mark.wherever
def test_a_thread_that_outlives_its_call_is_ended(sandbox: type[Sandbox], tmp_path: Path) -> None:
    with opened(Python(), sandbox, tmp_path, limits=LIMITS) as python:
        python.run(
            f"import threading\nthreading.Thread(target=exec, args=({CLOSED!r}, {{}})).start()"
        )
        until(lambda: MORE in python.run("1").stderr)

        assert python.run("1 + 1").value == 2


@pytest.mark.endurance
@pytest.mark.wherever
def test_a_job_of_a_shell_is_ended_and_the_shell_stays(
    sandbox: type[Sandbox], tmp_path: Path
) -> None:
    with opened(ShellProvider(), sandbox, tmp_path, limits=LIMITS) as shell:
        shell.put("fill.py", f"import time; time.sleep(0.5)\n{CLOSED}\ntime.sleep(60)".encode())
        shell.run("x=41; python3 fill.py & disown")
        until(lambda: not shell.run("pgrep -f fill.py").output)

        assert shell.run("echo $((x + 1))").output == "42\n"
        assert sum(1 for each in tmp_path.iterdir() if each.name.startswith("closed")) < 64


def test_a_file_with_several_names_counts_once(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(bytes(1 << 20))
    for n in range(20):
        os.link(tmp_path / "one", tmp_path / f"name{n}")

    assert disk_usage.measure([os.open(tmp_path, os.O_RDONLY)], 1 << 30).size < 2 << 20
