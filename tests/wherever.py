"""Tests that take the same path for every value of a parameter: a run takes one of the values.

`wherever(*parameters)`, by default `sandbox`. `make endurance` runs all of them. The cases of a
test are distributed over the values, and the name of the test decides where this begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import pytest


def pytest_configure(config: pytest.Config) -> None:
    marker = "wherever(*parameters): takes the same path for all values, by default all sandboxes"
    config.addinivalue_line("markers", marker)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the cases of marked tests that are assigned to another value."""
    if config.option.endurance:
        return
    asked = set(config.args)
    left = {item for item in _elsewhere(items) if item.nodeid not in asked}
    if left:
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]


def _elsewhere(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    tests: dict[str, dict[object, list[pytest.Item]]] = {}
    for item in items:
        marker = item.get_closest_marker("wherever")
        callspec = getattr(item, "callspec", None)
        names = set(marker.args or ("sandbox",)) if marker else set()
        if callspec is not None and names & set(callspec.params):
            values = callspec.params.items()
            case = tuple((name, id(value)) for name, value in values if name not in names)
            cases = tests.setdefault(item.nodeid.partition("[")[0], {})
            cases.setdefault(case, []).append(item)
    for test, cases in tests.items():
        for number, places in enumerate(cases.values(), start=crc32(test.encode())):
            yield from (each for each in places if each is not places[number % len(places)])
