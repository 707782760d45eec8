# Shows E100b
"""What is killed when memory is at its limit: programs before the supervisor, and it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from flowengine.sdk.environments import Sandbox
from flowengine_envs.kinds.bash import Bash, BashProvider
from flowengine_envs.kinds.node import NodeProvider, NodeSandbox
from flowengine_envs.kinds.python import Python, PythonSandbox
from flowengine_envs.sandboxes.docker.sandbox import Docker
from flowengine_envs.sandboxes.processes import has
from tests.envs.containers import skip_without_docker
from tests.envs.opening import opened
from tests.execution_environment.toy import until

LIMITS = {"memory": "128MiB", "time": 60}
MET = "out of memory: limits.memory is 128 MiB"
GROWS = "x = []\nwhile True:\n    x.append(bytes([1]) * 100_000)\n"
PYTHON = {
    "at once": "x = bytearray(1 << 30)\nfor at in range(0, 1 << 30, 4096): x[at] = 1",
    "gradually": GROWS,
    "threads": f"def grow():\n    {GROWS.replace(chr(10), chr(10) + '    ')}\n"
    "import threading\n"
    "all = [threading.Thread(target=grow) for _ in range(4)]\n"
    "[each.start() for each in all], [each.join() for each in all]",
    "many small processes": "import os, time\n"
    "for _ in range(99):\n"
    "    if not os.fork():\n"
    "        x = bytes([1]) * 3_000_000; time.sleep(600)\n"
    "os.wait()\n"
    "os.killpg(0, 9)",
    "mapped": "import mmap\nm = mmap.mmap(-1, 1 << 30)\n"
    "for at in range(0, 1 << 30, 4096): m[at] = 1",
    "a file in memory": "import os\nfd = os.memfd_create('hidden')\n"
    "while True: os.write(fd, bytes(1 << 20))",
    "temporary files": "try:\n    with open('/tmp/full', 'wb') as file:\n"
    "        for _ in range(60): file.write(bytes(1 << 20))\nexcept OSError: pass\n" + GROWS,
}
STAYS = """\
import ctypes
lib = ctypes.CDLL(None)
lib.shmat.restype = ctypes.c_void_p
for _ in range(99):
    at = ctypes.c_void_p(lib.shmat(lib.shmget(0, 5_000_000, 0o1600), None, 0))
    ctypes.memset(at, 1, 5_000_000), lib.shmdt(at)
"""
"""System V's: it belongs to no process."""
GROWING = "const all = []; while (true) all.push(Buffer.alloc(1e5, 1));"
NODE = {
    "at once": "Buffer.alloc(4e9, 1)",
    "gradually": GROWING,
    "workers": "const { Worker } = require('worker_threads');\n"
    f"for (let i = 0; i < 3; i++) new Worker(`{GROWING}`, {{eval: true}});\n"
    "await new Promise(() => setInterval(() => {}, 1e6))",
}
BASH = {
    "a child": "tail /dev/zero",
    "a child of a child": "sh -c 'sh -c \"tail /dev/zero; exit 9\"; exit 9'",
    "children": "for i in 1 2 3; do tail /dev/zero & done; wait; exit 9",
    "a substitution": "x=$(tr '\\0' a < /dev/zero)",
    "beside output": "tail /dev/zero & yes | head -c 50000000; wait; exit 9",
}


SCORES = """
until [ $(cat /proc/self/oom_score_adj) = 1000 ]; do :; done
for each in /proc/[0-9]*; do echo $(cat $each/oom_score_adj) $(cat $each/stat); done
"""
"""Prints score, process id, name, state, parent of every process, when the shell has its score."""


def shared(provider: Any) -> Callable[..., Iterator[Any]]:
    """Return a fixture: an environment with little memory for all tests of a sandbox."""

    def made(sandbox: type[Sandbox], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
        with opened(provider, sandbox, tmp_path_factory.mktemp("memory"), limits=LIMITS) as box:
            yield box

    return pytest.fixture(scope="module")(made)


small_python, small_bash = shared(Python()), shared(BashProvider())


@pytest.fixture(scope="module")
def small_node(
    sandbox: type[Sandbox], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NodeSandbox]:
    if not has("node"):
        pytest.skip("no Node.js: apt-get install nodejs")
    folder = tmp_path_factory.mktemp("memory")
    with opened(NodeProvider(), sandbox, folder, limits=LIMITS) as node:
        yield node


@pytest.mark.wherever
@pytest.mark.parametrize("how", PYTHON)
def test_python_that_takes_all_memory_is_killed(small_python: PythonSandbox, how: str) -> None:
    result = small_python.run(PYTHON[how])

    assert str(result.error) == f"Crashed: {MET}", result
    after = small_python.run("1 + 1")
    assert (after.value, after.stderr) == (2, "")


@pytest.mark.wherever
def test_memory_that_belongs_to_no_process_is_freed(small_python: PythonSandbox) -> None:
    for _ in range(2):
        assert str(small_python.run(STAYS).error) == f"Crashed: {MET}"
        assert small_python.run("1 + 1").value == 2


@pytest.mark.wherever
@pytest.mark.parametrize("how", NODE)
def test_javascript_that_takes_all_memory_is_killed(small_node: NodeSandbox, how: str) -> None:
    assert str(small_node.run(NODE[how]).error) == f"Crashed: {MET}"

    after = small_node.run("return 2")
    assert (after.value, after.stderr) == (2, "")


@pytest.mark.wherever
@pytest.mark.parametrize("how", BASH)
def test_commands_that_take_all_memory_are_killed(small_bash: Bash, how: str) -> None:
    result = small_bash.run(BASH[how])

    assert (result.limit, MET in result.stderr) == ("memory", True), result
    after = small_bash.run("echo here")
    assert (after.stdout, after.stderr) == ("here\n", "")


def scores(bash: Bash) -> dict[int, tuple[int, int]]:
    """Return score and parent of each process in a container."""
    rows = [line.split() for line in bash.run(SCORES).stdout.splitlines()]
    return {int(row[1]): (int(row[0]), int(row[4])) for row in rows if len(row) > 4}


def test_programs_have_the_highest_score_and_the_supervisor_the_lowest(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Between them are keepers, and the reserve. What is killed of it is replaced."""
    skip_without_docker()
    folder = tmp_path_factory.mktemp("memory")
    with opened(BashProvider(), Docker, folder, limits=LIMITS) as bash:
        until(lambda: len(reserve_of(bash)) == 3)  # the last of them may have just been started
        found = scores(bash)
        reserve = reserve_of(bash)
        bash.run(f"kill -9 {' '.join(map(str, reserve))}")
        until(lambda: len(reserve_of(bash)) == len(reserve))
        again = reserve_of(bash)

    by_score = dict(found.values())
    assert sorted(by_score) == [0, 500, 750, 1000]
    supervisor = by_score[750]
    assert found[supervisor][0] == 0
    assert not reserve & again


def reserve_of(bash: Bash) -> set[int]:
    return {pid for pid, (score, _) in scores(bash).items() if score == 750}
