"""Time limits: of a test that has failed, and of the whole run.

pytest-timeout stops its timer when a test fails, because a debugger may follow. The cleanup of
a failed test may hang, though, and then the whole run would never end.

A run that exceeds the limit of continuous integration is interrupted, and names the tests that were
running.
"""

from __future__ import annotations

from typing import Any

import pytest

SETTINGS = pytest.StashKey[Any]()
"""The settings with which pytest-timeout started the timer of a test."""


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """Remember the settings. Returning None lets pytest-timeout set its timer."""
    item.stash[SETTINGS] = settings


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Start the timer again after pytest-timeout has stopped it, unless a debugger follows."""
    settings = node.stash.get(SETTINGS, None)
    if settings is not None and not node.config.getoption("usepdb"):
        node.config.hook.pytest_timeout_set_timer(item=node, settings=settings)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Watch in the process that reports: the processes of pytest-xdist have no reporter."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        config.pluginmanager.register(Running(reporter))


class Running:
    """Names the tests that were running when the run was interrupted."""

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter
        self._tests: dict[str, None] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._tests[nodeid] = None

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._tests.pop(nodeid, None)

    def pytest_keyboard_interrupt(self) -> None:
        self._reporter.ensure_newline()
        for test in self._tests:
            self._reporter.write_line(f"{test}: was running when the run was interrupted", red=True)
