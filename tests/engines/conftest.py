from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple

import pytest

from flowengine.engines.temporal.objects import VARIABLE
from flowengine.execution_environment import register_provider, unregister_provider
from tests.engines.temporal_server import (
    RunningWorker,
    StoreNamed,
    free_port,
    listens,
    new_namespaces,
    server_of_run,
)
from tests.engines.world import Clock
from tests.execution_environment.toy import Toy
from tests.replacing import patches_everywhere
from tests.shared import shared_folder, shared_while


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def toy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Toy]:
    """A provider, and a folder that contains the test module's functions as `things.py`."""
    monkeypatch.chdir(tmp_path)
    Path("things.py").write_text(request.module.FUNCTIONS)
    provider = Toy()
    register_provider(provider)
    yield provider
    unregister_provider("toy")


class Temporal(NamedTuple):
    """A development server of Temporal."""

    store: StoreNamed
    objects: str
    """A directory for large values and files."""
    page: str
    """The address of Temporal's own page."""


@pytest.fixture(scope="session")
def temporal(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Temporal]:
    """A server that all tests share, with namespaces of this process."""
    folder, own = shared_folder(tmp_path_factory) / "temporal", token_hex(4)
    with server_of_run(folder, page=free_port()) as (addresses, page):
        shared_while(request, lambda: listens(addresses))

        @cache
        def store(name: str) -> str:
            return new_namespaces(addresses, f"{name}-{own}")[0]

        objects = str(tmp_path_factory.mktemp("objects"))
        yield Temporal(store, objects, f"http://127.0.0.1:{page}")


@pytest.fixture(scope="session")
def shared_store(temporal: Temporal) -> Iterator[str]:
    """A store with a worker that is stopped normally."""
    address = temporal.store("shared")
    with patches_everywhere() as patch:
        patch.setenv(VARIABLE, temporal.objects)
        worker = RunningWorker(address)
    with worker:
        yield address
        assert worker.stop() == 0


@pytest.fixture(scope="module")
def server(temporal: Temporal) -> Iterator[StoreNamed]:
    """Stores whose workers and clients share a directory for large values and files."""
    with patches_everywhere() as patch:
        patch.setenv(VARIABLE, temporal.objects)
        yield temporal.store


@pytest.fixture(scope="module")
def store(server: StoreNamed, shared_store: str) -> str:
    """A store with a worker."""
    return shared_store
