"""Nested folders, as created by programs in sandboxes: too deep for recursion and for paths."""

from __future__ import annotations

import os
from pathlib import Path

DEPTH = 1500
"""Beyond the limits on recursion and on file descriptors."""


def make_deep(folder: Path, depth: int = DEPTH, name: str = "d") -> int:
    """Create nested folders, and return a descriptor of the deepest. The caller closes it."""
    folder.mkdir(exist_ok=True)
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    return here
