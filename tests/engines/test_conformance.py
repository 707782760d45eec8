# Shows F79
"""The engines of this project pass the suite for engines (F79)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flowengine import Engine
from tests.engines.temporal_server import RunningWorker, StoreNamed
from tests.testing.engine_conformance import CHECKS, Check

each = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)


@each
def test_a_directory(check: Check, tmp_path: Path) -> None:
    check(lambda: Engine(tmp_path / "store", linger=0.1))


@pytest.fixture(scope="module")
def own_store(server: StoreNamed) -> Iterator[str]:
    """A store in which no other test has deployed flows."""
    with RunningWorker(server("conformance")):
        yield server("conformance")


@each
def test_temporal(check: Check, own_store: str) -> None:
    check(lambda: Engine(own_store, linger=0.1))
