"""The cost of tests: a limit on CPU seconds per folder, in `budget.toml`.

    make test ARGS=--budget

A run with `--budget` fails if a folder exceeds its limit, and prints the ten most expensive tests.
Every run of several processes ends with the number of CPUs and the time of a loop that is the same
everywhere, before and after the tests, so that times of different machines can be compared.

The processes that run the tests are counted, with the children that they have waited for.

A process that several tests share, such as a browser, is counted when it is waited for, at any
test. Time beyond the duration of that test on all CPUs must come from others. It is counted
as `shared`.
"""

from __future__ import annotations

import os
import resource
import time
import timeit
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

BUDGET = Path(__file__).with_name("budget.toml")
COST = "processor seconds"
SHARED = "processor seconds of processes of several tests"
CPUS = len(os.sched_getaffinity(0))
DEAREST = 10


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that enforces the budget."""
    parser.addoption(
        "--budget", action="store_true", help=f"fail when a folder costs more than {BUDGET.name}"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Measure in workers, and add up in the process that reports."""
    config.pluginmanager.register(Meter())
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Machine())
    if config.getoption("--budget") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Bill())


class Meter:
    """Measures the cost of each phase of a test."""

    def __init__(self) -> None:
        self.before, self.at = used(), time.monotonic()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> None:
        cost, seconds = used() - self.before, time.monotonic() - self.at
        own = min(cost, seconds * CPUS)
        item.user_properties[:] = [(COST, own), (SHARED, cost - own)]
        self.before, self.at = self.before + cost, self.at + seconds


class Machine:
    """Says how fast the machine is, with the duration of the tests."""

    def __init__(self) -> None:
        self.before, self.begun = reference_loop(), time.monotonic()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        seconds, after = time.monotonic() - self.begun, reference_loop()
        load = " ".join(f"{one:.1f}" for one in os.getloadavg())
        terminalreporter.write_line(
            f"{seconds:.0f} s on {CPUS} CPUs; reference loop {self.before:.2f} s before and "
            f"{after:.2f} s after the tests; load {load}"
        )


def reference_loop() -> float:
    """Return the seconds that 300,000 additions in a dictionary take, the best of three times."""
    adding = "for n in range(300_000): counts[n % 1000] = counts.get(n % 1000, 0) + n"
    return min(timeit.repeat(adding, "counts = {}", repeat=3, number=1))


def used() -> float:
    """Return the CPU seconds used so far by this process and its ended children."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(sum(resource.getrusage(one)[:2]) for one in who)


class Bill:
    """Adds up the cost by folder, and enforces the budget."""

    def __init__(self) -> None:
        self.tests: dict[str, float] = defaultdict(float)
        self.shared = 0.0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == COST and isinstance(value, float):
                self.tests[report.nodeid] += value
            elif name == SHARED and isinstance(value, float):
                self.shared += value

    @property
    def folders(self) -> dict[str, float]:
        """The cost of the tests in each folder."""
        folders = defaultdict(float, shared=self.shared)
        for test, cost in self.tests.items():
            folders[folder_of(test)] += cost
        return folders

    def over(self) -> list[str]:
        """Return a line for each folder that exceeds its limit."""
        allowed = tomllib.loads(BUDGET.read_text())["seconds"]
        return [
            f"{folder}: {cost:.0f} processor seconds, {allowed.get(folder, 0)} allowed"
            for folder, cost in sorted(self.folders.items())
            if cost > allowed.get(folder, 0)
        ]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.OK and self.over():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write = terminalreporter.write_line
        terminalreporter.section("processor seconds")
        for folder, cost in sorted(self.folders.items(), key=lambda pair: -pair[1]):
            write(f"{cost:8.1f}  {folder}")
        write("the dearest:")
        for test, cost in sorted(self.tests.items(), key=lambda pair: -pair[1])[:DEAREST]:
            write(f"{cost:8.1f}  {test}")
        for line in self.over():
            write(f"over budget: {line}", red=True)


def folder_of(test: str) -> str:
    """Return the folder that a test counts for. Files outside of folders form one group."""
    parts = test.partition("::")[0].split("/")
    return parts[1] if len(parts) > 2 else "tests"
