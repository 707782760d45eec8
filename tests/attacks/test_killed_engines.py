# Shows E86
"""An engine that ends at any moment leaves nothing, or the next one removes it (E22, E86)."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flowengine_envs.sandboxes.docker import image
from flowengine_envs.sandboxes.docker.daemon import connect
from tests.attacks import everything

ROOT = Path(__file__).parents[2]
ALL = everything.FLOW.count("{kind: ") - 1
"""Number of environments that are recorded: all but the file with the database."""


@pytest.fixture(scope="module", autouse=True)
def _image() -> None:
    """Build the image of the sandboxes beforehand, since that is not part of an engine's end."""
    image.build(connect())


def ended(folder: Path, **how: object) -> dict[str, Any]:
    """End an engine as described in `killed`, and return the report."""
    argv = [sys.executable, "-m", "tests.attacks.killed", str(folder / "place"), json.dumps(how)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["left"] == {}, told
    assert "said" not in told, told["said"]  # both `envs release --all` and the execution succeeded
    assert told["listed"], told  # until then, `envs list` is complete
    return told


MOMENTS = range(10)
EVERYTHING_OPEN = len(MOMENTS)
"""The last of the moments: every environment is open, and the steps never end."""


def moment(number: int) -> dict[str, Any]:
    """Return a random moment of a run, or `EVERYTHING_OPEN`.

    One in three opens all environments in the background, so that more is in progress at once.
    """
    if number == EVERYTHING_OPEN:
        return {"opened": ALL, "hold": True}
    draw = random.Random(f"one{number}")
    opened = draw.randint(1, ALL)
    after = draw.uniform(0, 2 if opened == ALL else 0.5)
    return {"opened": opened, "after": after, "ahead": number % 3 == 1}


@pytest.mark.endurance
@pytest.mark.parametrize("number", [*MOMENTS, EVERYTHING_OPEN])
def test_killed_at_any_moment_nothing_is_left(number: int, tmp_path: Path) -> None:
    """In one of five, the execution is resumed. It must end, and also leave nothing behind."""
    told = ended(tmp_path, sign="KILL", **moment(number), resume=number % 5 == 2)

    assert number != EVERYTHING_OPEN or told["open"] == ALL


def left_nothing(told: dict[str, Any]) -> None:
    assert told["left without reaping"] == {}, told
    assert told["code"] in {0, 130}, told
    if told["code"]:
        assert "to resume: flowengine resume" in told["told"]


@pytest.mark.endurance
@pytest.mark.parametrize("number", [*MOMENTS, EVERYTHING_OPEN])
# Shows E22
def test_told_to_end_at_any_moment_it_leaves_nothing_at_all(number: int, tmp_path: Path) -> None:
    """Number 9 receives no signal and ends by itself."""
    moments = {"opened": ALL + 1} if number == 9 else moment(number)
    told = ended(tmp_path, sign=("TERM", "INT")[number % 2], **moments, resume=number % 5 == 2)

    left_nothing(told)
    assert number != EVERYTHING_OPEN or (told["open"], told["code"]) == (ALL, 130)
