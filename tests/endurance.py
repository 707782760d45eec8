"""Expensive tests: each run takes some of their cases.

`make test` runs one of twenty slices, chosen by the number of commits, and `make endurance` runs
all of them. With `endurance`, twenty consecutive commits cover all cases of a test:

- `endurance`: dozens of cases of one kind, such as kills, races, random flows and large documents,
  and single tests that cost more than half a CPU second.
- `endurance(slices=100)`: hundreds of cases, each of which is expensive.
- `endurance(slices=1)`: always runs, in a file whose other tests are marked.

A test whose cases are long by themselves takes the fixture `tenth`: then two hundred commits
cover all of it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from zlib import crc32

import pytest

SLICES = 20


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that chooses a slice."""
    parser.addoption(
        "--slice",
        default="",
        choices=["", "all", *map(str, range(SLICES))],
        help="which slice of the endurance tests to run; by default the number of commits decides",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the slice, once for all processes that run tests."""
    config.addinivalue_line(
        "markers", "endurance(slices=20): a run takes one of so many slices of the test's cases"
    )
    config.option.slice = config.option.slice or str(_commits(config.rootpath) % SLICES)


@pytest.fixture(scope="session")
def tenth(pytestconfig: pytest.Config) -> int | None:
    """Which tenth of a case to run: 0 to 9, chosen by the number of commits. None: all of it."""
    if pytestconfig.option.slice == "all":
        return None
    return _commits(pytestconfig.rootpath) // SLICES % 10


def _commits(root: Path) -> int:
    """Return the number of commits so far, or 0 without a repository."""
    command = ["git", "rev-list", "--count", "HEAD"]
    try:
        printed = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(printed)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the cases of other slices, except for those named on the command line."""
    if config.option.slice == "all":
        return
    marked = [item for item in items if item.get_closest_marker("endurance")]
    chosen, commits = int(config.option.slice), _commits(config.rootpath)
    left_out = {
        item
        for item, number in zip(marked, _numbers(marked), strict=True)
        if item.nodeid not in config.args
        and not is_chosen(number, _slices_of(item), chosen, commits)
    }
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def is_chosen(number: int, slices: int, chosen: int, commits: int) -> bool:
    """Return whether a case runs.

    Args:
        number: Of the case. Neighbors differ in it.
        slices: A divisor or a multiple of twenty. So many consecutive commits cover all cases.
        chosen: The slice of a test with twenty slices.
        commits: Number of commits so far. It decides between the others.
    """
    return number % slices == (commits // SLICES * SLICES + chosen) % slices


def _slices_of(item: pytest.Item) -> int:
    """Return the number of slices of a test, or of one of its cases that is in more of them."""
    own = [marker for marker in item.own_markers if marker.name == "endurance"]
    markers = own or item.iter_markers("endurance")
    slices: int = max(marker.kwargs.get("slices", SLICES) for marker in markers)
    return slices


def _numbers(items: list[pytest.Item]) -> Iterator[int]:
    """Yield the number of each case: tests with few cases begin anywhere."""
    cases: dict[str, Iterator[int]] = {}
    for item in items:
        test = item.nodeid.partition("[")[0]
        yield next(cases.setdefault(test, count(crc32(test.encode()))))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the command that repeats each failed case."""
    found = terminalreporter.getreports("failed") + terminalreporter.getreports("error")
    reports = [one for one in found if isinstance(one, pytest.TestReport)]
    for case in dict.fromkeys(one.nodeid for one in reports if "endurance" in one.keywords):
        terminalreporter.write_line(f"to repeat it: make endurance ARGS='{case}'")
