# Shows S34
"""Programs that fill the disk are ended while some of it is free, and files have a size (S37)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowengine.sdk import LimitExceeded
from flowengine.sdk.environments import Sandbox
from flowengine.util.files import remove_tree
from flowengine_envs.kinds.bash import BashProvider
from flowengine_envs.kinds.docker.provider import DockerProvider
from flowengine_envs.kinds.python import Python
from flowengine_envs.kinds.results import CodeResult
from flowengine_envs.kinds.shell.provider import ShellProvider
from flowengine_envs.link import bootstrap
from flowengine_envs.link.channel import COMMAND
from flowengine_envs.link.parts import part
from flowengine_envs.sandboxes.docker.sandbox import Docker
from flowengine_envs.sandboxes.host import HostSandbox
from flowengine_envs.workspaces.free_space import SHORT
from tests.envs.containers import skip_without_docker
from tests.envs.opening import opened
from tests.execution_environment.toy import until

SIZE = 64 << 20
RESERVE = SIZE // 10
FILL = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
kept = []
for n in range(20_000):
    %s
    time.sleep(%g)
"""
WRITE = {
    "files": "open(f'file{n}', 'wb').write(bytes(1 << 18))",
    "removed": "kept += [open('it', 'wb', 0)]; os.unlink('it'); kept[-1].write(bytes(1 << 18))",
    "closed": "os.mkdir(f'd{n}', 0o300); open(f'd{n}/it', 'wb').write(bytes(1 << 18))",
    "sparse": "os.pwrite(os.open('it', os.O_RDWR | os.O_CREAT), bytes(1 << 18), n << 20)",
}
WAYS = {way: FILL % (write, 0.01) for way, write in WRITE.items()}
WAYS["empty"] = FILL % ("open(f'file{n}', 'w').close()", 0.0005)
"""Ways to fill a disk slowly, by programs that ignore the request to end: the reserve lasts for a
quarter of a second, so that who watches it on a busy machine is in time."""
BOMB = """
import json
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
import json
import os
for _ in range(40):
    os.mkdir(b"\\xff" * 250)
    os.chdir(b"\\xff" * 250)
for n in range(1500):
    open(str(n), "w").close()
os.chdir("/")
"""


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """Return a folder on a small file system of its own."""
    folder = tmp_path / "small"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},nr_inodes=4000", "small", str(folder)]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("this user cannot mount file systems")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def left(folder: Path) -> int:
    """Return the free bytes around a folder, or 0 if no more files can be made."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize * bool(status.f_favail)


def emptied(folder: Path) -> None:
    for each in folder.iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()


@pytest.mark.endurance
@pytest.mark.parametrize("way", WAYS)
def test_who_fills_the_disk_is_ended_before_it_is_full(
    sandbox: type[Sandbox], small: Path, way: str
) -> None:
    with opened(BashProvider(), sandbox, small) as bash:
        bash.run("head -c 50M /dev/zero > before")
        result = bash.run(["python3", "-c", WAYS[way]], timeout=60)

        assert result.stopped == "disk"
        assert result.stderr.endswith(f"{SHORT}\n")
        assert left(small) > 0
        assert bash.run("echo small > file; cat file").stdout == "small\n"
        assert bash.run("sleep 0.1; rm before; sleep 0.1; echo cleared").stdout == "cleared\n"
        assert left(small) > RESERVE


def test_a_call_that_fills_the_disk_is_a_limit_that_was_met(
    sandbox: type[Sandbox], small: Path
) -> None:
    with opened(Python(), sandbox, small) as python:
        python.run("x = 41")
        result = python.run(WAYS["files"], timeout=60)

        assert (result.limit, result.error.type) == ("disk", "LimitExceeded")
        assert SHORT in result.error.message
        assert 0 < left(small) < RESERVE
        emptied(small)
        assert python.run("1 + 1").value == 2


def test_a_command_of_a_container_that_fills_the_disk_is_ended(small: Path) -> None:
    skip_without_docker()
    with opened(DockerProvider(), Docker, small) as docker:
        slowly = WAYS["files"].replace("0.01", "0.03")  # the daemon takes a while to end it
        result = docker.run(["python3", "-c", slowly])

        assert (result.stopped, result.limit) == ("disk", "disk")
        assert SHORT in result.stderr
        assert 0 < left(small) < RESERVE


def test_a_file_has_at_most_its_size_also_with_holes(
    sandbox: type[Sandbox], tmp_path: Path
) -> None:
    for kind in (BashProvider, DockerProvider) if sandbox is Docker else (BashProvider,):
        with opened(kind(), sandbox, tmp_path, limits={"disk": "4MiB"}) as it:
            for fill in ("head -c 5M /dev/zero > big", "truncate -s 5M big"):
                result = it.run(["sh", "-c", f"{fill} || (stat -c %s big; exit 3)"])

                assert result.exit_code == 3
                assert int(result.stdout) <= 4 << 20


def test_space_can_be_given_back_but_not_reserved(sandbox: type[Sandbox], tmp_path: Path) -> None:
    with opened(BashProvider(), sandbox, tmp_path, limits={"disk": "4MiB"}) as bash:
        result = bash.run("head -c 100k /dev/zero > file && fallocate -p -l 90k file && echo yes")

        assert result.stdout == "yes\n", result.stderr
        if sandbox is not HostSandbox:
            assert "not supported" in bash.run("fallocate -l 1M reserved").stderr


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


@pytest.mark.endurance
@pytest.mark.parametrize("code", [BOMB, LONG_PATHS])
@pytest.mark.parametrize("kind", [BashProvider, DockerProvider])
def test_nor_do_they_in_containers(kind: type[BashProvider], code: str, tmp_path: Path) -> None:
    skip_without_docker()
    try:
        with opened(kind(), Docker, tmp_path) as it:
            assert it.run(["python3", "-c", code], timeout=20).exit_code == 0
            assert it.run(["echo", "a"], timeout=20).stdout == "a\n"
    finally:
        for folder in tmp_path.iterdir():
            remove_tree(folder)
    assert list(tmp_path.iterdir()) == []


def is_left_alone(folder: Path) -> bool:
    """Return whether a folder is short of space, and nothing writes into it."""
    before = left(folder)
    time.sleep(0.3)
    return before < RESERVE and left(folder) == before


def told(result: CodeResult) -> str:
    return f"{result.stderr}{result.error}"


def left_behind(code: str) -> str:
    """Return code whose child outlives the call and fills the disk."""
    return (
        "import subprocess\n"
        f"subprocess.Popen(['python3', '-c', {code!r}], start_new_session=True) and None"
    )


@pytest.mark.endurance
@pytest.mark.wherever
@pytest.mark.parametrize("way", WAYS)
def test_what_outlives_its_call_is_ended(sandbox: type[Sandbox], small: Path, way: str) -> None:
    with opened(Python(), sandbox, small) as python:
        python.run(left_behind(f"import time; time.sleep(0.5)\n{WAYS[way]}\ntime.sleep(60)"))
        until(lambda: SHORT in told(python.run("6 * 7")))

        assert left(small)
        assert python.run("6 * 7").value == 42


@pytest.mark.wherever
def test_a_thread_that_outlives_its_call_is_ended(sandbox: type[Sandbox], small: Path) -> None:
    code = WAYS["files"].replace("signal.signal", "#")
    with opened(Python(), sandbox, small) as python:
        python.run(
            f"import threading\nthreading.Thread(target=exec, args=({code!r}, {{}})).start()"
        )
        until(lambda: SHORT in told(python.run("1")))

        assert left(small)
        emptied(small)
        assert python.run("1 + 1").value == 2


@pytest.mark.wherever
def test_a_shell_that_fills_the_disk_itself_and_ignores_signals_is_ended(
    sandbox: type[Sandbox], small: Path
) -> None:
    fill = (
        "trap '' TERM INT; while :; do n=$((n+1)); head -c 250K /dev/zero > f$n; sleep 0.01; done"
    )
    with opened(ShellProvider(), sandbox, small) as shell:
        result = shell.run(fill, timeout=60)

        assert (result.status, result.limit) == ("disk", "disk")
        assert SHORT in "".join(result.notes)
        assert left(small)


@pytest.mark.endurance
@pytest.mark.wherever
def test_a_job_of_a_shell_is_ended_and_the_shell_stays(sandbox: type[Sandbox], small: Path) -> None:
    with opened(ShellProvider(), sandbox, small) as shell:
        shell.put("fill.py", f"import time; time.sleep(0.5)\n{WAYS['files']}".encode())
        shell.run("x=41; python3 fill.py & disown")
        until(lambda: is_left_alone(small))

        assert left(small)
        assert shell.run("echo $((x + 1))").output == "42\n"


def test_a_sandbox_for_one_program_ends_with_the_reserve(small: Path) -> None:
    options = {
        "argv": ["python3", "-c", WAYS["files"]],
        "cwd": str(small),
        "folders": [str(small), str(small)],
        **{"env": {}, "limits": {}, "mounts": {}, "forwards": [], "unreadable": False},
    }
    stream = bootstrap.first_process() + part(json.dumps(options).encode())
    ended = subprocess.run(COMMAND, input=stream, capture_output=True, check=False)

    assert (ended.returncode, ended.stderr.decode()) == (1, f"it was ended: {SHORT}\n")
    assert left(small)
