from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flowengine.execution_environment import register_provider, unregister_provider
from tests.engines.world import Clock
from tests.execution_environment.toy import Toy


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
