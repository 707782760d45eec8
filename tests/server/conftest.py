from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.api import EXPENSE, PARCEL, Api

SETTINGS = """
groups: {finance: [carla]}
access:
  - {who: [vera], role: viewer}
  - {who: [sam], role: starter, flows: ["expense*"]}
  - {who: [ben, "group:finance"], role: approver}
  - {who: [otto], role: operator}
  - {who: [ada], role: admin}
  - {who: [cora], role: viewer, flows: ["expense"], content: true}
"""


@pytest.fixture
def flows() -> tuple[str, ...]:
    """The texts of the flows that the server offers."""
    return (EXPENSE, PARCEL)


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flows: tuple[str, ...]) -> Iterator[Api]:
    config = tmp_path / "config" / "flowengine"
    config.mkdir(parents=True)
    (config / "settings.yaml").write_text(SETTINGS)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    api = Api(tmp_path, flows)
    yield api
    api.close()
