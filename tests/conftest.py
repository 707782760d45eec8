from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

pytest_plugins = [
    "tests.cases.collecting",
    "tests.endurance",
    "tests.in_temporal",
    "tests.order",
    "tests.budget",
    "tests.replacing",
    "tests.rest",
    "tests.shared",
    "tests.time_limit",
    "tests.wherever",
]

# The tests start thousands of programs. Without a cache, as in many container images, each of them
# would compile all of its modules.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

MEMORY = "/dev/shm"
ROOM = 4 * 2**30
"""Free bytes required there."""


def _has_room(folder: str) -> bool:
    """Return whether a folder has enough space for the tests, and permits running programs."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    free = found.f_bavail * found.f_frsize
    return free >= ROOM and not found.f_flag & os.ST_NOEXEC and os.access(folder, os.W_OK)


# Test data is temporary. On a disk, each of a million small writes would wait for the previous one;
# in memory, the tests cost a fifth less. TMPDIR selects another folder.
if "TMPDIR" not in os.environ and _has_room(MEMORY):
    os.environ["TMPDIR"] = tempfile.tempdir = MEMORY

# Shells ignore SIGINT for background jobs, and nohup ignores SIGHUP. Child processes would inherit
# that, and tests that send these signals would have no effect.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Examples must not fail because of a busy machine. Each run draws the same ones, so that failures
# are due to changes rather than chance. --hypothesis-profile=explore draws others.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("flowengine", settings.get_profile("explore"), derandomize=True)
settings.load_profile("flowengine")

# Hypothesis collects constants from all loaded modules, which depend on the previous tests.
providers._get_local_constants = Constants


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-skips",
        action="store_true",
        help="fail when a test was skipped: what it needs belongs on the machine",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return the number of processes for `-n auto`: three per CPU.

    Tests wait about half of the time: for a process, a container, or a timeout. With two per CPU,
    the CPUs were idle for a quarter of the time.
    """
    return 3 * len(os.sched_getaffinity(0))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Exclude the tests themselves, a million objects, from garbage collection.

    No garbage is created while they are collected. Objects loaded later, such as the model library,
    are rarely scanned.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, *gc.get_threshold()[1:])
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def user_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A state folder for this run, so that the developer's own stays untouched."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("state")
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """The current folder of a user without settings: new, with the `FILES` of the test's module.

    The module's `VARIABLES` are in the environment.
    """
    monkeypatch.chdir(tmp_path)
    variables = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    for name, value in {**variables, **getattr(request.module, "VARIABLES", {})}.items():
        monkeypatch.setenv(name, value)
    for name, text in getattr(request.module, "FILES", {}).items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files of this process and of those that it starts."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def time_is(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the date of this process, in seconds: `time_is(time.time() + 60)`."""

    def set_time(now: float) -> None:
        monkeypatch.setattr(time, "time", lambda: now)
        monkeypatch.setattr(time, "time_ns", lambda: round(now * 1e9))

    return set_time


class Failures:
    """Names each test that failed at once, so that an aborted run has named it too."""

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._reporter.ensure_newline()
            self._reporter.write_line(f"{report.nodeid}: {report.longreprtext[-2000:]}", red=True)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:  # the processes of pytest-xdist have none
        config.pluginmanager.register(Failures(reporter))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if session.config.getoption("--no-skips") and reporter and reporter.stats.get("skipped"):
        reporter.write_line("skipped tests count as failures here (--no-skips)", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
