from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

pytest_plugins = ["tests.endurance", "tests.budget", "tests.rest"]

# Thousands of programs start below. Without this each of them would compile all of its modules
# where the machine forbids to keep what was compiled, as images of containers like to.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

MEMORY = "/dev/shm"
ROOM = 4 * 2**30
"""Bytes that have to be free there."""


def _has_room(folder: str) -> bool:
    """Return whether what the tests write finds room in a folder, and programs run there."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    free = found.f_bavail * found.f_frsize
    return free >= ROOM and not found.f_flag & os.ST_NOEXEC and os.access(folder, os.W_OK)


# Nothing of what the tests write has to outlast them, and on a disk each of a million small writes
# waits for the one before: in memory they cost a fifth less. Elsewhere with TMPDIR.
if "TMPDIR" not in os.environ and _has_room(MEMORY):
    os.environ["TMPDIR"] = tempfile.tempdir = MEMORY

# A shell ignores SIGINT for what it runs in the background, and nohup ignores SIGHUP. All programs
# below would inherit that: tests that send these signals would find that nothing happens.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A busy machine is no fault of an example. Each run draws the same ones, so that what a change did
# is told from luck; others are drawn with --hypothesis-profile=explore.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("flowengine", settings.get_profile("explore"), derandomize=True)
settings.load_profile("flowengine")

# Those that it finds in the source of all modules that are loaded depend on what ran before.
providers._get_local_constants = Constants


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-skips",
        action="store_true",
        help="fail when a test was skipped: what it needs belongs on the machine",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return how many processes run the tests by `-n auto`: three for each processor.

    About half of the time a test waits: for a process, a container, a timeout that it is about.
    With two for each, a quarter of the processors' time was idle.
    """
    return 3 * len(os.sched_getaffinity(0))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the tests themselves, a million objects, out of each collection of garbage.

    While they are made none of them is garbage. What they load later, such as the library of
    models, is searched seldom.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, *gc.get_threshold()[1:])
        gc.enable()


LOADING = (
    # The library of models, three seconds of a processor, and that of MCP, one.
    ("tests/agents/models/", "tests/cli/test_chat.py", "tests/nodes/test_web_search.py"),
    (
        "tests/envs/mcp/",
        "tests/agents/test_agent_servers.py",
        "tests/agents/test_agents_of_other_files.py",
        "tests/agents/test_bound_arguments.py",
        "tests/agents/test_equipped_agents.py",
        "tests/agents/test_limited_tools.py",
        "tests/engines/test_changed_server_tools.py",
        "tests/engines/test_mcp_tools.py",
        "tests/tool_environment/test_kinds_of_tools.py",
    ),
)
"""Tests that need a library that takes long to load, by library."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what loads much one after the other: then one process has to, and not each of them."""
    items.sort(key=lambda item: [not item.nodeid.startswith(tests) for tests in LOADING])


@pytest.fixture(scope="session", autouse=True)
def user_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A state folder for this run: nothing is written into that of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("state")
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if session.config.getoption("--no-skips") and reporter and reporter.stats.get("skipped"):
        reporter.write_line("skipped tests count as failures here (--no-skips)", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
