"""Resources that tests share: one that was lost is made anew, and the test that lost it says why.

A shared fixture is checked after each test that uses it: by `healthy` of its value, as environments
have it, or by what the fixture passed to `shared_while`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_HOLDS = pytest.StashKey[dict[Any, Callable[[], bool]]]()


def shared_while(request: pytest.FixtureRequest, holds: Callable[[], bool]) -> None:
    """Say how to see that the value of the requesting fixture is usable."""
    definition = getattr(request, "_fixturedef")  # noqa: B009 - pytest does not declare it
    request.config.stash.setdefault(_HOLDS, {})[definition] = holds


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """Return the temporary directory of all processes of this run."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: Any) -> Iterator[None]:
    """Finish lost fixtures, so that the next test has them made again, and fail."""
    lost = {each: _cause(each) for each in _definitions(item) if _is_lost(item, each)}
    try:
        return (yield)
    finally:
        for definition in lost:
            try:
                definition.finish(item._request)  # pytest has no public way to finish a fixture
            except Exception as error:
                lost[definition] += f"; closing it failed: {error}"
        if lost:
            told = [f"{each.argname}{cause}" for each, cause in lost.items()]
            pytest.fail(f"lost during this test: {', '.join(told)}", pytrace=False)


def _definitions(item: Any) -> Iterator[Any]:
    """Yield the shared fixtures that exist and that a test uses."""
    for named in item._fixtureinfo.name2fixturedefs.values():  # nor to list those of a test
        for definition in named:
            if definition.scope != "function" and definition.cached_result is not None:
                yield definition


def _is_lost(item: pytest.Item, definition: Any) -> bool:
    value, _key, error = definition.cached_result
    holds = item.config.stash.get(_HOLDS, {}).get(definition)
    return error is None and not (getattr(value, "healthy", True) if holds is None else holds())


def _cause(definition: Any) -> str:
    """Return what an environment says when it is used."""
    try:
        definition.cached_result[0].list()
    except Exception as error:
        return f": {error}"
    return ""
