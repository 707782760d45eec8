"""In random lives of agents, no payment is made without approval."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attacks.lives import life


@pytest.mark.endurance
@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_done_that_nobody_allowed(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("FLOWENGINE_STORE", raising=False)
    folder = tmp_path / "life"
    folder.mkdir()

    life(folder, seed, events=6)
