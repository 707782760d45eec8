"""Opens environments with an unwritable registry, and prints the results.

    python -m tests.attacks.unusable PLACE [full]

`full`: PLACE is small, and is filled while one environment is open.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path

from flowengine.execution_environment import EnvironmentManager, register_provider
from flowengine.sdk import EnvironmentFailure
from tests.execution_environment.crash import Boxes
from tests.execution_environment.toy import SPEC, Toy


def main(place: Path, how: str = "") -> None:
    """Try everything, and print the results."""
    register_provider(Boxes())
    register_provider(Toy())
    sys.stdout.write(json.dumps(outcome(place, how)))


def outcome(place: Path, how: str = "") -> dict[str, object]:
    """Return the result of each try."""
    told: dict[str, object] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        EnvironmentManager(place / "environments") as manager,
    ):
        spec = {"kind": "box", "config": {"folder": folder}}
        if how == "full":
            before = manager.ensure({**spec, "resource_key": "before"})
            fill(place / "filling")
        try:
            manager.ensure(spec)
        except EnvironmentFailure as error:
            told["refused"] = f"{error.name}: {error.message}"
        told["begun"] = len(os.listdir(folder)) - (how == "full")
        told["in memory"] = manager.ensure(SPEC).state
        other = manager.ensure({**spec, "resource_key": "other", "registry": "none"})
        told["without registry"] = other.state
        manager.release(other)
        if how == "full":
            told["released"] = len(manager.release(before).released)
            (place / "filling").unlink()
            told["room again"] = manager.ensure(spec).state
        try:
            told["reaped"] = len(manager.reap())
        except EnvironmentFailure as error:
            told["reaped"] = f"{error.name}: {error.message}"
    told["entries"] = len(list(place.glob("environments/entries/*.json")))
    return told


def fill(path: Path) -> None:
    """Write until the disk is full."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
