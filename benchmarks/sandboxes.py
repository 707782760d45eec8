"""Code and commands in a sandbox, against the same without one."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flowengine.execution_environment import EnvironmentManager

PRINTED = 50 * 1024 * 1024


class Measured:
    """The three kinds, open, with their times."""

    def __init__(self, folder: Path, provider: str = "namespace") -> None:
        self._folder = folder
        self._provider = provider
        self._manager = EnvironmentManager(folder / "environments")

    def __enter__(self) -> Measured:
        return self

    def __exit__(self, *exc: object) -> None:
        self._manager.close()

    def _open(self, kind: str) -> Any:
        spec = {
            "kind": kind,
            "scope": "session",
            "owner_id": "bench",
            "provider": self._provider,
        }
        return self._manager.ensure(spec).resource

    def python_call(self) -> float:
        """Seconds of a trivial call, the median of many."""
        python = self._open("python")
        return median(lambda: python.run("1"), 500)

    def open_python(self) -> float:
        """Seconds from nothing to the first result."""
        began = time.perf_counter()
        self._open("python").run("1")
        return time.perf_counter() - began

    def shell_call(self) -> float:
        """Seconds of `true` in a shell that lasts, the median of many."""
        shell = self._open("shell")
        return median(lambda: shell.run("true"), 300)

    def bash_call(self) -> tuple[float, float]:
        """Seconds of `true` in the sandbox and as a plain child, each of its quicker quarter."""
        bash = self._open("bash")
        bare = ["bash", "--noprofile", "--norc", "-c", "true"]
        bash.run("true")
        return alternating(
            lambda: bash.run("true"),
            lambda: subprocess.run(bare, check=True, capture_output=True),
            200,
        )

    def ready(self) -> tuple[float, float]:
        """Seconds from nothing to an open container, and of a bare `docker run`."""
        from flowengine_envs.sandboxes.docker.daemon import connect
        from flowengine_envs.sandboxes.docker.image import build

        bare = ["docker", "run", "--rm", "--network=none", build(connect()), "true"]
        spec = {"kind": "bash", "scope": "session", "owner_id": "ready", "provider": "docker"}

        def ours() -> float:
            began = time.perf_counter()
            handle = self._manager.ensure(spec)
            took = time.perf_counter() - began
            self._manager.release(handle)
            return took

        opened = statistics.median(ours() for _ in range(7))
        return opened, median(lambda: subprocess.run(bare, check=True), 7)

    def printed(self) -> tuple[float, float, int]:
        """Seconds for 50 MB of output, cut or into a file, and kB that this process grew by."""
        bash = self._open("bash")
        command = f"head -c {PRINTED} /dev/zero"
        before = peak(anew=True)
        ours = median(lambda: cleared(bash, bash.run(command)), 5)
        grown = peak() - before

        def plain() -> None:
            with (self._folder / "printed").open("wb") as file:
                subprocess.run(f"{command} | cat", shell=True, check=True, stdout=file)

        return ours, median(plain, 5), grown


def peak(*, anew: bool = False) -> int:
    """Return the most memory in kB that this process has had, perhaps counted from now on."""
    if anew:  # what ran before in this process may have had far more
        Path("/proc/self/clear_refs").write_text("5")
    [told] = [
        line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line
    ]
    return int(told.split()[1])


def cleared(bash: Any, result: Any) -> None:
    """Take the file of the output away."""
    assert result.truncated
    bash.remove(result.stdout_file)


def median(work: Callable[[], object], rounds: int) -> float:
    return statistics.median(timed(work) for _ in range(rounds))


def alternating(
    first: Callable[[], object], second: Callable[[], object], rounds: int
) -> tuple[float, float]:
    """Return the lower quartiles of two things that take turns.

    Whatever else runs meets both, but slows more what takes more processes: so not the medians.
    """
    pairs = [(timed(first), timed(second)) for _ in range(rounds)]
    return quartile([p[0] for p in pairs]), quartile([p[1] for p in pairs])


def quartile(times: list[float]) -> float:
    return statistics.quantiles(times, n=4)[0]


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
