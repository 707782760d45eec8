"""Location of a test engine's environments: in the state folder of its user."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from flowengine.store_folder import known


def environments_in(store: Path) -> Path:
    """Return the folder for a store, or a path that does not exist if there is none."""
    private = known(os.path.abspath(store))
    return Path(private, "environments") if private else store / "nothing"


def environments_for(store: Path, env: Mapping[str, str]) -> Path:
    """Return the folder for the only store of a user whose home is a folder of the test."""
    found = list(Path(env["HOME"], ".local/state/flowengine/stores").glob("*"))
    assert len(found) <= 1
    return found[0] / "environments" if found else store / "nothing"
