"""An engine that is ended at any moment leaves nothing, or the next one ends it (E22, E86)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
KILLS = 12
ENDS = 6


def ended(folder: Path, signals: str, times: int) -> list[dict[str, Any]]:
    """End an engine so many times while everything is open, and return what was seen."""
    argv = [sys.executable, "-m", "tests.attacks.killed", str(folder), "one", signals, str(times)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == times
    for each in told:
        assert each["left"] == {}, each
        assert "said" not in each, each["said"]  # neither `envs reap` nor the execution failed
        assert each["listed"], each  # until then, `envs list` tells of all that is there
    assert any(each["open"] for each in told)  # some were ended with environments open
    return told


@pytest.mark.timeout(1200)
def test_killed_with_everything_open_nothing_is_left(tmp_path: Path) -> None:
    ended(tmp_path, "KILL", KILLS)


@pytest.mark.timeout(1200)
def test_told_to_end_it_leaves_nothing_at_all_and_can_be_resumed(tmp_path: Path) -> None:
    for each in ended(tmp_path, "INT,TERM", ENDS):
        assert each["left without reaping"] == {}, each
        assert each["code"] in {0, 130}, each
        if each["code"]:
            assert "to resume: flowengine resume" in each["told"]
