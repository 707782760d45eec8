"""An engine that is killed at any moment leaves nothing that the next one does not end (E86)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KILLS = 6


@pytest.mark.parametrize("seed", ["one", "two"])
@pytest.mark.timeout(240)
def test_killed_with_everything_open_nothing_is_left(tmp_path: Path, seed: str) -> None:
    argv = [sys.executable, "-m", "tests.attacks.killed", str(tmp_path), seed, str(KILLS)]

    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == KILLS
    for kill in told:
        assert kill["left"] == {}, kill
        assert "said" not in kill, kill  # neither `envs reap` nor the execution failed
    assert any(kill["open"] for kill in told)  # some were killed with environments open
