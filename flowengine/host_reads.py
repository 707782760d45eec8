"""What the check of a flow may read of this machine.

A flow in a file may import other files, texts and Python modules beside it. One that came as text,
from a user of a server, names no file of the server's machine, and only modules that its host
allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase

_MODULES: ContextVar[tuple[str, ...] | None] = ContextVar("modules", default=None)
"""Patterns of the modules that may be read. None: everything may be read."""
_FOLDER: ContextVar[bool] = ContextVar("folder", default=True)
"""Whether tools of the flow may use the directory that its executions work in."""
NO_FILES = "a flow that is sent to a server names no file of the server's machine"


@contextmanager
def only_modules(patterns: Sequence[str], *, folder: bool = False) -> Iterator[None]:
    """Let checks in the block read no files, and only modules whose names match a pattern.

    Args:
        patterns: The patterns.
        folder: Whether tools of the flow may use the directory that its executions work in.
    """
    modules, may_use = _MODULES.set(tuple(patterns)), _FOLDER.set(folder)
    try:
        yield
    finally:
        _MODULES.reset(modules)
        _FOLDER.reset(may_use)


def may_read_files() -> bool:
    """Return whether a check may read files that a flow names."""
    return _MODULES.get() is None


def may_use_folder() -> bool:
    """Return whether tools of a flow may use the directory that its executions work in."""
    return _FOLDER.get()


def may_read_module(name: str) -> bool:
    """Return whether a check may read the source of a module."""
    patterns = _MODULES.get()
    return patterns is None or any(fnmatchcase(name, pattern) for pattern in patterns)
