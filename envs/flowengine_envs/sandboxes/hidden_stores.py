"""Stores of the engine in folders that sandboxes are to see: they are hidden there.

The store that is in use is known, and a folder with it is not mounted at all. Those of other
projects are found by what they are when a folder is mounted.
"""

from __future__ import annotations

import os
from pathlib import Path

from flowengine.sdk.engine_files import holds_store, is_own_path, own_names
from flowengine_envs.workspaces.obeyed_files import searched


def is_store(folder: Path) -> bool:
    """Return whether a folder is a store itself, or belongs to one."""
    return is_own_path(str(folder)) or holds_store(os.listdir(folder))


def stores(root: Path) -> list[tuple[str, bool]]:
    """Return what belongs to stores below a folder, and whether each is a folder.

    Args:
        root: The folder, of which a part is searched: see `obeyed_files.searched`.

    Returns:
        Relative paths, those above before those below. Of a store with a name of its own, that is
        the folder that it is in.
    """
    found: dict[str, bool] = {}
    for folder, entries in searched(root):
        if any(folder == each or folder.startswith(f"{each}/") for each in found):
            continue
        names = [name for name, _ in entries]
        if folder and holds_store(names):
            found[folder] = True
            continue
        try:
            own = own_names(str(root / folder), names)
        except OSError:  # it was removed meanwhile
            continue
        for name, is_folder in entries:
            if name in own:
                found[f"{folder}/{name}" if folder else name] = is_folder
    return list(found.items())
