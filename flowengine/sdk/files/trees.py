"""Reads whole directories that programs may change meanwhile, without following links."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from flowengine.sdk.files.confined_files import own_names
from flowengine.sdk.files.path_walk import LeadsOut, NotRegular, open_file, walked

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PIECE = 1024 * 1024


class TreeEntry(NamedTuple):
    """A file, directory, link or other entry of a directory."""

    path: str
    """Relative to the searched directory."""
    folder: int
    """Descriptor of the directory that contains it, open until the next entry is requested."""
    info: os.stat_result
    """Of a link itself."""

    @property
    def name(self) -> str:
        """Its name in its directory."""
        return os.path.basename(self.path)


def tree(root: Path, deepest: int) -> Iterator[TreeEntry]:
    """Yield the entries below a directory, parents before children.

    The engine's own files and directories are left out, and so are entries that are removed
    meanwhile. Each directory is opened in the one that contains it, so no link is followed.

    Args:
        root: The directory.
        deepest: Maximum depth of directories.

    Raises:
        RecursionError: Directories are nested more deeply.
        OSError: A directory cannot be read.
    """
    folders = [_opened("", str(root), None)]
    try:
        while folders:
            path, folder, names = folders[-1]
            if not names:
                os.close(folders.pop().descriptor)
                continue
            with suppress(FileNotFoundError, NotADirectoryError):  # removed or replaced meanwhile
                name = names.pop()
                entry = TreeEntry(os.path.join(path, name), folder, os.lstat(name, dir_fd=folder))
                yield entry
                if stat.S_ISDIR(entry.info.st_mode):
                    if len(folders) > deepest:
                        raise RecursionError(f"{root} has directories more than {deepest} deep")
                    folders.append(_opened(entry.path, name, folder))
    finally:
        for each in folders:
            os.close(each.descriptor)


class _Folder(NamedTuple):
    path: str
    descriptor: int
    names: list[str]
    """Names that were not yielded yet, the next one last."""


def _opened(path: str, name: str, above: int | None) -> _Folder:
    folder = os.open(name, _FOLDER, dir_fd=above)
    try:
        names = os.listdir(folder)
        left_out = own_names(f"/proc/self/fd/{folder}", names)
    except BaseException:
        os.close(folder)
        raise
    return _Folder(path, folder, sorted({*names} - left_out, reverse=True))


def copy_tree(source: Path, target: Path, deepest: int, count: Callable[[int], None]) -> None:
    """Copy the files, directories and links of a directory, with modes and times.

    Args:
        source: The directory. Devices and pipes in it are left out.
        target: The copy, which must not exist, and which no other program may change.
        deepest: Maximum depth of directories.
        count: Called with the size of each file before it is copied. It may raise an error.

    Raises:
        RecursionError: Directories are nested more deeply.
        OSError: A file cannot be read or written.
    """
    folders = [(target, os.stat(source))]
    target.mkdir()
    for entry in tree(source, deepest):
        copy = target / entry.path
        if stat.S_ISDIR(entry.info.st_mode):
            copy.mkdir()
            folders.append((copy, entry.info))
        elif stat.S_ISLNK(entry.info.st_mode):
            copy.symlink_to(os.readlink(entry.name, dir_fd=entry.folder))
        elif stat.S_ISREG(entry.info.st_mode):
            _copy_file(entry, copy, count)
    for copy, info in reversed(folders):
        os.chmod(copy, stat.S_IMODE(info.st_mode))
        os.utime(copy, ns=(info.st_atime_ns, info.st_mtime_ns))


def _copy_file(entry: TreeEntry, copy: Path, count: Callable[[int], None]) -> None:
    try:
        file = open_file(entry.name, entry.folder)
    except NotRegular:  # replaced meanwhile
        return
    try:
        count(os.fstat(file).st_size)
        shutil.copy2(f"/proc/self/fd/{file}", copy)
    finally:
        os.close(file)


def are_equal(roots: tuple[Path, Path], path: str) -> bool:
    """Return whether a path names regular files with the same content in both directories."""
    above, name = os.path.split(path)
    files: list[int] = []
    try:
        for root in roots:
            with walked(root, above, enter=True) as place:
                files.append(open_file(name, place.folder))
        first, other = files
        if os.fstat(first).st_size != os.fstat(other).st_size:
            return False
        while (piece := os.read(first, _PIECE)) == os.read(other, _PIECE):
            if not piece:
                return True
    except (OSError, LeadsOut):
        pass
    finally:
        for file in files:
            os.close(file)
    return False
