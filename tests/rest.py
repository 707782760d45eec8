"""Tests must not leave work running in their process.

A callback that reschedules itself forever on the shared loop would take CPU time and memory from
later tests, without failing any. So each worker process of `-n` checks at its end that it is idle.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

PAUSE = 0.5
MOST = 0.05
"""Maximum CPU seconds during `PAUSE`."""
LOOKS = 20


def pytest_configure(config: pytest.Config) -> None:
    """Measure in workers, and report in the main process."""
    config.pluginmanager.register(Rest())


class Rest:
    """Finds worker processes that are not idle at their end."""

    def __init__(self) -> None:
        self.restless: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        worker: Any = session.config
        if hasattr(worker, "workeroutput"):
            worker.workeroutput["restless"] = list(_restless())
        elif self.restless and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.restless += getattr(node, "workeroutput", {}).get("restless", [])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self.restless:
            terminalreporter.write_line(line, red=True)


def _restless() -> Iterator[str]:
    """Yield a line if this process is busy although no test runs."""
    begun, seen = time.process_time(), dict[str, None]()
    for _ in range(LOOKS):
        time.sleep(PAUSE / LOOKS)
        seen |= dict.fromkeys(_lines_of_tests())
    used = time.process_time() - begun
    if used > MOST:
        where = ", ".join(seen) or "in no line of a test"
        yield f"a test left something that never rests ({used:.2f} s in {PAUSE} s): {where}"


def _lines_of_tests() -> Iterator[str]:
    """Yield the test code positions of other threads."""
    for thread, innermost in sys._current_frames().items():
        frame = innermost if thread != threading.get_ident() else None
        while frame is not None:
            if "/tests/" in frame.f_code.co_filename:
                yield f"{frame.f_code.co_filename}:{frame.f_lineno}"
            frame = frame.f_back
