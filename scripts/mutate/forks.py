"""Children of the process that has collected the tests: limits, isolation, one test."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, Self, TextIO

import pytest

MEMORY = 6 << 30
"""Bytes that a child may use: a changed loop can fill the memory of the machine."""
MUTANT = "FLOWENGINE_MUTANT"
"""The variable that is set in a child. Tests then write nothing for later runs."""


class Outcome(NamedTuple):
    """The outcome of one test."""

    failed: bool
    cpu: float
    """Seconds, with those of the processes it started."""
    wall: float


class Reports:
    """A pytest plugin that notes whether the present test failed."""

    def __init__(self) -> None:
        self.failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take a report of setting up, calling or tearing down."""
        self.failed |= report.failed


class End(NamedTuple):
    """The end of a child."""

    child: int
    status: int
    """As from `os.waitstatus_to_exitcode`."""
    cpu: float
    log: list[str]
    """The lines that it wrote."""
    error: str
    """The traceback, if its work raised an error."""


class Children:
    """Child processes and their files, which end with the block of a `with`."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="mutate-")
        self._running: dict[int, Path] = {}
        self._started = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for child, folder in self._running.items():
            _clean(child, folder)
        self._folder.cleanup()

    def __len__(self) -> int:
        return len(self._running)

    def start(self, work: Callable[[TextIO], object]) -> int:
        """Fork a child that does some work and exits, and return its process id.

        The child is in a new process group. Its home, working directory and temporary files are
        in a new folder.

        Args:
            work: Receives a file in which it can log.
        """
        self._started += 1
        folder = Path(self._folder.name, str(self._started))
        (folder / "home").mkdir(parents=True)
        (folder / "log").touch()
        child = os.fork()
        if child:
            self._running[child] = folder
            return child
        try:
            _isolate(folder)
            with (folder / "log").open("w", buffering=1) as log:
                work(log)
            os._exit(0)
        except BaseException:
            (folder / "error").write_text(traceback.format_exc())
            os._exit(1)

    def wait(self) -> End:
        """Wait for the end of any child."""
        child, status, usage = os.wait3(0)
        folder = self._running.pop(child)
        log = (folder / "log").read_text().splitlines()
        path = folder / "error"
        error = path.read_text() if path.exists() else ""
        _clean(child, folder)
        cpu = usage.ru_utime + usage.ru_stime
        return End(child, os.waitstatus_to_exitcode(status), cpu, log, error)


def _isolate(folder: Path) -> None:
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    home = folder / "home"
    os.chdir(home)
    os.environ.update(HOME=str(home), PYTEST_DEBUG_TEMPROOT=str(folder), TMPDIR=str(folder))
    os.environ[MUTANT] = "yes"
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


def _clean(child: int, folder: Path) -> None:
    """End a child and the processes that it has left running, and remove its files.

    Programs that it started in other process groups are known by their home.
    """
    with suppress(OSError):
        os.killpg(child, signal.SIGKILL)
    home = f"HOME={folder}/home\0".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if home in (process / "environ").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def own_output(config: pytest.Config) -> None:
    """Capture output into new files, since children share those of their parent.

    The child prints nothing to the terminal and reads nothing from it.
    """
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    capture.start_global_capturing()


def run_test(item: pytest.Item, after: pytest.Item | None) -> Outcome:
    """Run a test, and keep the fixtures that the next one shares."""
    reports = Reports()
    plugins = item.config.pluginmanager
    plugins.register(reports)
    cpu, wall = used(), time.monotonic()
    try:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
    finally:
        plugins.unregister(reports)
    return Outcome(reports.failed, used() - cpu, time.monotonic() - wall)


def used() -> float:
    """Return the CPU time of this process and of those it waited for, in seconds."""
    return sum(
        one.ru_utime + one.ru_stime
        for one in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def limit(cpu: float, wall: float) -> None:
    """End this process by a signal if it needs so many more seconds of CPU, or of time."""
    signal.setitimer(signal.ITIMER_PROF, cpu)
    signal.setitimer(signal.ITIMER_REAL, wall)
