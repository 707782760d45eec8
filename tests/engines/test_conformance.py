# Shows F79
"""The engines of this project pass the suite for engines (F79)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from flowengine import Conflict, Engine
from flowengine.engines.deciding import Approvals
from tests.engines.temporal_server import RunningWorker, StoreNamed
from tests.testing.engine_conformance import CHECKS, Check, check_the_first_decision_counts

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


def test_an_engine_that_breaks_a_rule_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = Approvals.decide

    def careless(approvals: Approvals, *given: Any, **more: Any) -> object:
        with suppress(Conflict):
            return decide(approvals, *given, **more)
        return None

    for word in ("approve", "reject"):
        monkeypatch.setattr(Approvals, word, partialmethod(careless, choice=word))
    with pytest.raises(AssertionError, match="the decisions: expected"):
        check_the_first_decision_counts(lambda: Engine(tmp_path / "store"))
