"""Hides stores of the engine in directories that sandboxes see.

The store in use is known, and a directory that contains it is not mounted at all. Stores of other
projects are recognized by their content when a directory is mounted.
"""

from __future__ import annotations

import os
from pathlib import Path

from flowengine.sdk.engine_files import holds_store, is_own_path, own_names
from flowengine_envs.workspaces.obeyed_files import searched


def is_store(folder: Path) -> bool:
    """Return whether a directory is a store or belongs to one."""
    return is_own_path(str(folder)) or holds_store(os.listdir(folder))


def stores(root: Path) -> list[tuple[str, bool]]:
    """Return the parts of stores below a directory, and whether each is a directory.

    Args:
        root: The directory. Only a part of it is searched, see `obeyed_files.searched`.

    Returns:
        Relative paths, parents before children. For a store with its own name, the directory that
        contains it.
    """
    hidden: dict[str, bool] = {}
    for folder, entries in searched(root):
        if any(folder == each or folder.startswith(f"{each}/") for each in hidden):
            continue
        names = [name for name, _ in entries]
        if folder and holds_store(names):
            hidden[folder] = True
            continue
        try:
            own = own_names(str(root / folder), names)
        except OSError:  # removed concurrently
            continue
        for name, is_folder in entries:
            if name in own:
                hidden[f"{folder}/{name}" if folder else name] = is_folder
    return list(hidden.items())
