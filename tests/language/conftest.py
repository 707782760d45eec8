from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.language.stage import Stage


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    stage = Stage(tmp_path)
    yield stage
    stage.close()
