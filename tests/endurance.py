"""Expensive tests: `make test` runs a fixed sample of their cases, `make endurance` all of them.

- `endurance`: dozens of cases of one kind, such as kills, races, random flows and large documents,
  and single tests that cost more than half a CPU second. The sample is a twentieth.
- `endurance(sample=100)`: hundreds of cases, each of which is expensive. The sample is a hundredth.
- `endurance(sample=1)`: always runs, in a file whose other tests are marked.

The name of a test decides which of its cases are in the sample, so a commit elsewhere never changes
what runs. A test whose cases are long by themselves takes the fixture `tenth`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from zlib import crc32

import pytest

SAMPLE = 20
"""A run takes one of so many cases."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that runs all cases."""
    parser.addoption(
        "--endurance", action="store_true", help="run all cases of the tests with many cases"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"endurance(sample={SAMPLE}): a run takes one of so many cases of the test"
    )


@pytest.fixture(scope="session")
def tenth(pytestconfig: pytest.Config) -> int | None:
    """Which tenth of a case to run. None: all of it."""
    return None if pytestconfig.option.endurance else 0


def some_of(name: str, count: int, tenth: int | None) -> range:
    """Return which of many places a run tries: at most ten, from a place that the name decides."""
    step = 1 if tenth is None else -(-count // 10) | 1  # odd: places differ by whether they are
    return range(crc32(name.encode()) % step, count, step)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the cases beside the sample, except for those named on the command line."""
    if config.option.endurance:
        return
    marked = [item for item in items if item.get_closest_marker("endurance")]
    left_out = {
        item
        for item, number in zip(marked, _numbers(marked), strict=True)
        if item.nodeid not in config.args and number % _sample_of(item)
    }
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def _sample_of(item: pytest.Item) -> int:
    """Return which part of a test runs, or of one of its cases that is sampled less often."""
    own = [marker for marker in item.own_markers if marker.name == "endurance"]
    markers = own or item.iter_markers("endurance")
    sample: int = max(marker.kwargs.get("sample", SAMPLE) for marker in markers)
    return sample


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
