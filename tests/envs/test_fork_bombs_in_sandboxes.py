# Shows S34
"""Fork bombs: a timeout ends them, and the sandbox stays usable (S35)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flowengine.sdk.environments import Sandbox
from flowengine_envs.kinds.bash import Bash, BashProvider
from flowengine_envs.kinds.python import Python, PythonSandbox
from tests.envs.opening import opened

pytestmark = [pytest.mark.usefixtures("little_grace"), pytest.mark.endurance]

LIMITS = {"processes": 150}
FORK = "import os\nwhile True: os.fork()"
GROWING = "import os\nheld = []\nwhile True:\n    os.fork()\n    held.append(bytearray(4_000_000))"
STUBBORN = """
import os
while True:
    try:
        os.fork()
    except BaseException:
        pass
"""
LEAVING = """
import os
while True:
    try:
        os.fork()
        os.setsid()
    except OSError:
        pass
"""
"""Each process is in a separate session, so that no single call reaches all of them."""
UNTIL_TOLD = """
import os, time
print('begun', flush=True)
while not os.path.exists('told'):
    time.sleep(0.05)
print('on')
"""
"""It starts no process, as there may be no room for one."""
SOON = 90
"""In seconds: a timeout, the grace period, and slack for a machine busy with forks."""


@pytest.fixture(scope="module")
def boxed(sandbox: type[Sandbox], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bash]:
    folder = tmp_path_factory.mktemp("forks")
    with opened(BashProvider(), sandbox, folder, limits=LIMITS) as bash:
        yield bash


@pytest.fixture(scope="module")
def boxed_python(
    sandbox: type[Sandbox], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PythonSandbox]:
    folder = tmp_path_factory.mktemp("forks")
    with opened(Python(), sandbox, folder, limits=LIMITS) as python:
        yield python


def forks_of_a_command(bash: Bash, code: str) -> None:
    began = time.monotonic()
    result = bash.run(["python3", "-c", code], timeout=1)

    assert result.timed_out
    assert time.monotonic() - began < SOON
    after = bash.run("echo usable")
    assert after.stdout == "usable\n", after


@pytest.mark.wherever
def test_a_command_that_forks_is_ended_by_its_timeout(boxed: Bash) -> None:
    forks_of_a_command(boxed, STUBBORN)


def test_another_command_goes_on_beside_forks_that_are_ended(boxed: Bash) -> None:
    """Those that have left their session are ended too.

    All processes are paused while the forks are killed, and the others resume.
    """
    begun = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(
            boxed.run,
            ["python3", "-c", UNTIL_TOLD],
            timeout=2 * SOON,
            on_output=lambda *_: begun.set(),
        )
        assert begun.wait(SOON)
        forks_of_a_command(boxed, LEAVING)
        boxed.run("touch told")

        assert other.result().stdout == "begun\non\n"


def test_a_sandbox_survives_forks_that_take_all_of_its_memory(
    sandbox: type[Sandbox], tmp_path: Path
) -> None:
    """Each process allocates memory as it forks: memory runs out long before process IDs."""
    with opened(Python(), sandbox, tmp_path, limits={"memory": "128MiB"}) as python:
        result = python.run(GROWING, timeout=20)

        assert result.error is not None
        assert "limits.memory is 128 MiB" in f"{result.error}{result.stderr}"
        after = python.run("1 + 1")
        assert (after.value, after.stderr) == (2, "")


@pytest.mark.wherever
@pytest.mark.parametrize("code", [FORK, STUBBORN], ids=["fork", "stubborn"])
def test_code_that_forks_is_ended_by_its_timeout(boxed_python: PythonSandbox, code: str) -> None:
    boxed_python.run("x = 41")
    began = time.monotonic()
    result = boxed_python.run(code, timeout=1)

    assert result.error is not None
    assert result.error.type in {"Timeout", "BlockingIOError"}  # the code may fail by itself first
    assert time.monotonic() - began < SOON
    after = boxed_python.run("x + 1")
    assert result.namespace_lost or after.value == 42
    assert boxed_python.run("1 + 1").value == 2
