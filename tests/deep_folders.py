"""Folders in folders, as programs in sandboxes can make them: too deep for recursion and paths."""

from __future__ import annotations

import os
from pathlib import Path

DEPTH = 1500
"""More than a function may call itself, and than file descriptors are to be had."""


def make_deep(folder: Path, depth: int = DEPTH, name: str = "d") -> int:
    """Make folders in a folder; return a descriptor of the deepest, to be closed."""
    folder.mkdir(exist_ok=True)
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    return here
