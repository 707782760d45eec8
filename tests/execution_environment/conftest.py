from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine import registry
from flowengine.execution_environment import (
    EnvironmentManager,
    register_provider,
    unregister_provider,
)
from tests.execution_environment.toy import FakeClock, Toy


@pytest.fixture(autouse=True)
def own_temporary_folder(temporary: Path) -> None:
    """Isolate the test from files that other tests left in the system's temporary folder."""


@pytest.fixture
def toy() -> Iterator[Toy]:
    provider = Toy()
    register_provider(provider)
    yield provider
    provider.behave()
    unregister_provider("toy")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., EnvironmentManager]]:
    """Creates managers, and closes them at the end."""
    made: list[EnvironmentManager] = []

    def manager(**settings: Any) -> EnvironmentManager:
        made.append(EnvironmentManager(tmp_path / "environments", **settings))
        return made[-1]

    yield manager
    toy = registry.registered_providers.get("toy")
    if isinstance(toy, Toy):
        toy.behave()  # otherwise hanging calls would hang forever on a clock that stands still
    for each in made:
        each.close()


@pytest.fixture
def manager(make: Callable[..., EnvironmentManager]) -> EnvironmentManager:
    return make()
