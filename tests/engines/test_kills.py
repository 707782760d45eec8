# Shows F31
"""Processes killed with SIGKILL at any moment (F30, F31)."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from flowengine.engines.engine import Engine
from flowengine.errors import NotFound
from tests.engines import child, flows, world

KILLS = 6
"""Kills per flow and block. There are five blocks and seven flows."""


def prepared(folder: Path, name: str) -> Path:
    """Return a compiled flow file in its own folder. Its effects take a while."""
    file = world.make(folder, flows.ALL[name])
    (folder / "slowly").touch()
    with Engine(folder / "store", durability="process") as engine:
        engine.load(file)  # children are killed while they run it, not while they compile
    return file


def progress(file: Path, id: str) -> str:
    """Return whether an execution has `begun` or `ended`, or `nothing` if it does not exist yet."""
    with Engine(file.parent / "store", durability="process") as engine:
        try:
            return "ended" if engine.executions.result(id).ended else "begun"
        except NotFound:
            return "nothing"


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(5))
@pytest.mark.parametrize("name", flows.ALL)
# Shows F30
def test_killed_at_random_moments_it_ends_as_if_undisturbed(
    name: str, block: int, tmp_path: Path
) -> None:
    file = prepared(tmp_path / "calm", name)
    child.start(child.finish, file, "first").join()
    (tmp_path / "calm" / "effects.txt").unlink()
    began = time.monotonic()
    child.start(child.finish, file, "calm").join()
    length = time.monotonic() - began
    with Engine(file.parent / "store", durability="process") as engine:
        calm = world.outcome(engine, "calm")
    done = world.check_effects(file.parent)

    draw = random.Random(f"{name} {block}")
    kills = executions = 0
    while kills < KILLS:
        executions += 1
        file = prepared(tmp_path / f"run{executions}", name)
        for _ in range(8):
            process = child.start(child.finish, file, "killed")
            time.sleep(draw.uniform(0.2 * length, length))
            killed = child.kill(process)
            reached = progress(file, "killed")
            if reached == "ended":
                length *= 0.9  # too late, as the machine has become faster
                break
            length *= 1.05 if reached == "nothing" else 1
            kills += killed and reached == "begun"
        with Engine(file.parent / "store", durability="process") as engine:
            world.finish(engine, file, "killed")
            assert world.outcome(engine, "killed") == calm
        assert world.check_effects(file.parent) == done
