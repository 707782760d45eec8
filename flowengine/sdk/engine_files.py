"""Detection of the engine's own files, which tools, environments and copies must not touch.

A store contains the data of all executions, and the configuration directories contain the host
policies. Write access to them decides which code runs. They are recognized by name, by the files
beside them and by content, because a project can have several stores, and links or other names for
the same file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from flowengine.configuration_folders import MACHINE_FOLDER, user_folder
from flowengine.sdk.path_walk import open_file
from flowengine.store_folder import (
    APPLICATION_ID,
    DATABASE,
    DEFAULT,
    STORED,
    in_use,
    state_folder,
)

_HEADER = b"SQLite format 3\0"
_ID_AT = 68
"""Where the header of a database has its `application_id` (https://sqlite.org/fileformat.html)."""
_STORED = frozenset(STORED)
_WORKSPACES = "environments"
"""The directory of environments, in those of stores and workers in the state directory."""


def is_own_name(name: str, folder: int) -> bool:
    """Return whether a name in an open directory is one of the engine's files or directories.

    Args:
        name: The name as written, compared case-insensitively because some file systems are.
        folder: The descriptor of the directory.
    """
    folded = name.casefold()
    if folded == DEFAULT or folded.startswith(DATABASE):
        return True
    return folded in _STORED and _holds_store(folder)


def holds_store(names: Iterable[str]) -> bool:
    """Return whether a directory is a store, by the names in it."""
    return any(name.casefold() == DATABASE for name in names)


def own_names(folder: str, names: Iterable[str]) -> set[str]:
    """Return the engine's names in a directory. Suitable as `ignore` of `shutil.copytree`."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return {name for name in names if is_own_name(name, opened) or _is_own_entry(name, opened)}
    finally:
        os.close(opened)


def _is_own_entry(name: str, folder: int) -> bool:
    """Return whether an entry of a directory is the engine's, or a store's database."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            return is_own_folder(status)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink == 1:
            return False  # only a hard link gives a database another name
        if is_in_use(status):
            return True
        with open(open_file(name, folder), "rb") as file:
            return is_store(file.read(100))
    except OSError:
        return False


def is_in_use(status: os.stat_result) -> bool:
    """Return whether a file belongs to a database that this process has open.

    The check must not open the file: see `flowengine.store_folder.in_use`.
    """
    identity = (status.st_dev, status.st_ino)
    if identity in in_use:
        return True
    for path in [*in_use.values()]:
        for ending in ("-wal", "-shm"):
            with suppress(OSError):
                beside = os.stat(path + ending)
                if (beside.st_dev, beside.st_ino) == identity:
                    return True
    return False


def is_own_path(path: str) -> bool:
    """Return whether a path leads into an engine directory, except to files of an environment."""
    real = os.path.realpath(path)
    if DEFAULT in (part.casefold() for part in real.split(os.sep)):
        return True
    return any(
        inside is not None and _WORKSPACES not in inside
        for inside in (_parts_below(folder, real) for folder in _own_folders())
    )


def own_folder_above(path: Path) -> str | None:
    """Return the engine's directory in which a path without links is, or None."""
    return next((own for own in _own_folders() if _parts_below(own, str(path)) is not None), None)


def configuration_near(path: Path) -> Path | None:
    """Return the user's configuration directory if a path without links contains it or is in it."""
    own = Path(os.path.realpath(user_folder()))
    is_near = own.is_relative_to(path) or path.is_relative_to(own)
    return own if is_near and own.is_dir() else None


def is_own_file(path: str) -> bool:
    """Return whether a file is the engine's, by its path or as the database of a store."""
    if is_own_path(path) or os.path.basename(path).casefold().startswith(DATABASE):
        return True
    try:
        if is_in_use(os.stat(path)):
            return True
        with open(open_file(os.path.realpath(path)), "rb") as file:
            return is_store(file.read(100))
    except OSError:
        return False


def is_own_folder(status: os.stat_result) -> bool:
    """Return whether a directory, under any name, contains the engine's configuration or state."""
    return (status.st_dev, status.st_ino) in _folders_of_user()


def is_store(start: bytes) -> bool:
    """Return whether a file is the database of a store.

    Args:
        start: Its first 100 bytes.
    """
    id = int.from_bytes(start[_ID_AT : _ID_AT + 4], "big")
    return start.startswith(_HEADER) and id == APPLICATION_ID


def _own_folders() -> tuple[str, ...]:
    return user_folder(), state_folder(), MACHINE_FOLDER


def _parts_below(folder: str, real: str) -> list[str] | None:
    """Return the parts of a path without links below a directory, or None if it is elsewhere."""
    inside = os.path.relpath(real, _real(folder)).split(os.sep)
    return None if inside[0] == os.pardir else inside


@lru_cache(maxsize=8)
def _real(folder: str) -> str:
    return os.path.realpath(folder)


def _folders_of_user() -> Iterator[tuple[int, int]]:
    for path in _own_folders():
        with suppress(OSError):
            status = os.stat(path)
            yield status.st_dev, status.st_ino


def _holds_store(folder: int) -> bool:
    try:
        os.stat(DATABASE, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True
