"""Directories that become part of a flow, such as skills, found by path or glob."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator

from flowengine.sdk.files.path_walk import LeadsOut, NotRegular, open_file, walked
from flowengine.sdk.texts.sizes import size_text

LEFT_OUT = "__pycache__"
"""Left behind by Python. Names that begin with a dot are left out, too."""


class UnreadableFolder(Exception):
    """A directory cannot be read.

    Args:
        message: The problem, with the path as the author knows it.
        hint: The remedy.
    """

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def find_folders(base: str, pattern: str) -> list[str]:
    """Return the directories that a path or glob matches, absolute and sorted.

    Args:
        base: The directory that it is relative to.
        pattern: The path or glob.
    """
    matches = glob.glob(os.path.join(glob.escape(base), pattern))
    paths = {os.path.normpath(path) for path in matches if os.path.isdir(path)}
    return sorted(path for path in paths if not os.path.basename(path).startswith("."))


def glob_root(base: str, pattern: str) -> str:
    """Return the directory that a glob searches, where new entries may match it."""
    parts = []
    for part in pattern.split("/"):
        if glob.has_magic(part):
            break
        parts.append(part)
    return os.path.normpath(os.path.join(base, *parts))


def read_folder(folder: str, largest: int) -> tuple[dict[str, bytes], list[str]]:
    """Return the files of a directory by relative path, and all paths that were read.

    Args:
        folder: Absolute path.
        largest: Bytes of all files together.

    Raises:
        UnreadableFolder: A file cannot be read, a path leads out of the directory, or the directory
            is too large.
    """
    contents: dict[str, bytes] = {}
    read = [folder]
    size = 0
    for path in _paths(folder, read):
        name = os.path.relpath(path, folder)
        contents[name] = _read(folder, name, largest - size + 1)
        size += len(contents[name])
        if size > largest:
            message = f"{folder!r} has more than {size_text(largest)}"
            raise UnreadableFolder(message, "leave out unneeded files")
        read.append(path)
    return contents, read


def _read(folder: str, name: str, most: int) -> bytes:
    """Return the beginning of a file in a directory."""
    path = os.path.join(folder, name)
    roots = (folder, os.path.realpath(folder))
    try:
        with walked(folder, name, roots=roots) as place:
            opened = open_file(place.name, place.folder)
        with open(opened, "rb") as file:
            return file.read(most)
    except NotRegular:
        raise UnreadableFolder(f"{path!r} is not a file", "remove it") from None
    except LeadsOut as error:
        message = f"{path!r} leads out of {folder!r} {error}".rstrip()
        raise UnreadableFolder(message, "copy the file into that directory") from None
    except OSError as error:
        message = f"{path!r} cannot be read: {error.strerror}"
        raise UnreadableFolder(message, "make it readable") from None


def _paths(folder: str, read: list[str]) -> Iterator[str]:
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _is_left_out(name))
        read.extend(os.path.join(here, name) for name in folders)
        for name in sorted(files):
            if not _is_left_out(name):
                yield os.path.join(here, name)


def _is_left_out(name: str) -> bool:
    return name.startswith(".") or name == LEFT_OUT
