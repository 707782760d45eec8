from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.language.stage import Stage


@pytest.fixture
def stage(folder: Path) -> Iterator[Stage]:
    stage = Stage(folder)
    yield stage
    stage.close()
