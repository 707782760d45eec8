"""Reads and writes files of the workspace unchanged, without following links that lead outside.

`path_walk` opens them, so a concurrent replacement of a directory by a link has no effect. A file
is written under another name in its directory and then renamed. It therefore appears atomically,
and replaces a link instead of following it.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, Optional

from flowengine.sdk.files.path_walk import LeadsOut, NotRegular, kind_of, open_file, walked
from flowengine.sdk.texts.sizes import size_text

_IN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
LISTED = 10_000
"""Maximum number of entries in a listing. One more means that it is incomplete."""
_MOST_BYTES = 8 * 1024 * 1024
"""Maximum bytes of all their paths as JSON, in which a byte of a name can take six."""
_DRAFT = ".flowengine-draft-"
"""Name prefix of files being written."""
_DEPTH = 64
"""Maximum directory depth, because each level needs an open descriptor."""


class PathRefused(Exception):
    """A path was refused.

    Args:
        kind: `escape`, `no_file`, `missing`, `too_large` or `failed`.
        reason: The reason, without the path.
    """

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


class Workspace:
    """A directory whose files are read and written.

    Args:
        folder: Its path.
        root: Its absolute path as programs see it. Default: the same.
    """

    def __init__(self, folder: str, root: str = "") -> None:
        self.root = root or folder
        self.fd = os.open(folder, _IN_FOLDER)

    def read(self, path: str, largest: int) -> Reading:
        """Open a file for reading.

        Args:
            path: Relative to the workspace, or absolute below it.
            largest: Maximum size in bytes, including holes of a sparse file.

        Returns:
            The open file.

        Raises:
            PathRefused: It leads outside, is not a file, is too large, or cannot be opened.
        """
        with _refusing():
            with walked(self.fd, self.below(path)) as place:
                fd = open_file(place.name, place.folder)
            try:
                return Reading(fd, largest)
            except BaseException:
                os.close(fd)
                raise

    def write(self, path: str, mode: int) -> Draft:
        """Start writing a file, and create its parent directories.

        Args:
            path: Relative to the workspace, or absolute below it.
            mode: Its permissions.

        Returns:
            The draft that receives the bytes.

        Raises:
            PathRefused: It leads outside, is not a file name, or cannot be written.
        """
        *folders, name = self._named(path)
        with _refusing(), walked(self.fd, "/".join(folders), enter=True, make=True) as place:
            folder = os.dup(place.folder)
            try:
                return Draft(folder, name, mode)
            except BaseException:
                os.close(folder)
                raise

    def remove(self, path: str) -> None:
        """Remove a file, a link or an empty directory.

        Args:
            path: Relative to the workspace, or absolute below it.

        Raises:
            PathRefused: It leads outside or cannot be removed.
        """
        *folders, name = self._named(path)
        with _refusing(), walked(self.fd, "/".join(folders), enter=True) as place:
            if stat.S_ISDIR(os.lstat(name, dir_fd=place.folder).st_mode):
                os.rmdir(name, dir_fd=place.folder)
            else:
                os.unlink(name, dir_fd=place.folder)

    def entries(self, path: str, *, deep: bool) -> list[dict[str, Any]]:
        """List a directory.

        Args:
            path: Relative to the workspace, or absolute below it.
            deep: Whether to include subdirectories. Links are listed, not followed.

        Returns:
            `path`, `kind`, `size`, `mode`, `modified` of each, sorted. One more than `LISTED` if
            there are more entries.

        Raises:
            PathRefused: It leads outside, is not a directory, or its paths are too long in total.
        """
        below = self.below(path)
        with _refusing(), walked(self.fd, below) as place:
            fd = os.open(place.name, _IN_FOLDER | os.O_NOFOLLOW, dir_fd=place.folder)
        prefix = "" if below == "." else below + "/"
        listed_entries: list[dict[str, Any]] = []
        size = 0
        with _refusing():
            for name, info in _walk(fd, prefix, deep=deep):
                listed_entries.append(
                    {
                        "path": name,
                        "kind": kind_of(info.st_mode),
                        "size": info.st_size,
                        "mode": stat.S_IMODE(info.st_mode),
                        "modified": info.st_mtime,
                    }
                )
                size += _sent_bytes(name)
                if size > _MOST_BYTES:
                    raise PathRefused(
                        "too_large", f"its paths have more than {size_text(_MOST_BYTES)}"
                    )
                if len(listed_entries) > LISTED:
                    break
        return sorted(listed_entries, key=lambda each: str(each["path"]))

    def files(self, most: int) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the paths of files, except those being written, until their bytes are too many.

        Args:
            most: Maximum number of entries to check.
        """
        size = 0
        with suppress(OSError):
            for name, info in islice(_walk(os.dup(self.fd), "", deep=True), most):
                size += _sent_bytes(name)
                if size > _MOST_BYTES:
                    return
                if stat.S_ISREG(info.st_mode):
                    yield name, info

    def below(self, path: str) -> str:
        """Return a path relative to the workspace, without resolving links."""
        if "\0" in path:
            raise PathRefused("escape", "it contains a null character")
        parts = path.split("/")
        if path.startswith("/"):
            root = self.root.split("/")
            if parts[: len(root)] != root:
                raise PathRefused("escape", f"it is not below {self.root}")
            parts = parts[len(root) :]
        if ".." in parts:
            raise PathRefused("escape", "it has '..'")
        return "/".join(part for part in parts if part not in {"", "."}) or "."

    def _named(self, path: str) -> list[str]:
        parts = self.below(path).split("/")
        if parts[-1] == "." or path.endswith("/"):
            raise PathRefused("no_file", "it is a directory")
        return parts


def is_listable(entries: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a listing can come from `Workspace.entries`."""
    size = sum(_sent_bytes(each["path"]) for each in entries)
    return len(entries) <= LISTED + 1 and size <= _MOST_BYTES


def _sent_bytes(path: str) -> int:
    return len(json.dumps(path))


def place_of(path: str, places: Sequence[Workspace]) -> Workspace:
    """Return the place that a path refers to.

    Args:
        path: A relative path refers to the first place.
        places: Possible locations of files.
    """
    for place in places:
        if path == place.root or path.startswith(f"{place.root}/"):
            return place
    return places[0]


class Reading:
    """A file being read, up to a number of bytes.

    Args:
        fd: The descriptor of a regular file.
        largest: Maximum bytes, also if it grows while being read.

    Raises:
        PathRefused: It is larger.
    """

    def __init__(self, fd: int, largest: int) -> None:
        status = os.fstat(fd)
        if status.st_size > largest:
            raise _too_large(largest, status.st_size)
        self.mode = stat.S_IMODE(status.st_mode)
        """Its permissions."""
        self._fd = fd
        self._largest = largest
        self._left = largest

    def piece(self, size: int) -> bytes:
        """Return the next bytes, or none at the end. Failures raise `PathRefused`.

        Args:
            size: Maximum number of bytes.
        """
        with _refusing():
            data = os.read(self._fd, min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise _too_large(self._largest, os.fstat(self._fd).st_size)
        return data

    def close(self) -> None:
        os.close(self._fd)


def _not_a_file(kind: str) -> PathRefused:
    return PathRefused("escape" if kind == "link" else "no_file", f"it is {kind}")


def _too_large(largest: int, size: int) -> PathRefused:
    return PathRefused("too_large", f"it has {size_text(size)}, of at most {size_text(largest)}")


class Draft:
    """A file being written.

    Args:
        folder: Descriptor of its directory, which is closed at the end.
        mode: Its permissions.

    Raises:
        PathRefused: Something other than a file has this name.
    """

    def __init__(self, folder: int, name: str, mode: int) -> None:
        self._folder = folder
        self._name = name
        self._mode = mode
        with suppress(FileNotFoundError):
            kind = kind_of(os.lstat(name, dir_fd=folder).st_mode)
            if kind != "file":
                raise _not_a_file(kind)
        self._draft = f"{_DRAFT}{os.urandom(8).hex()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd: Optional[int] = os.open(self._draft, flags, 0o600, dir_fd=folder)  # noqa: UP045

    def add(self, data: bytes) -> None:
        """Write the next bytes. Failures raise `PathRefused`."""
        assert self._fd is not None
        part = memoryview(data)
        with _refusing():
            while part:
                part = part[os.write(self._fd, part) :]

    def finish(self) -> None:
        """Move the file into place. Failures raise `PathRefused`."""
        assert self._fd is not None
        with _refusing():
            os.fchmod(self._fd, self._mode)
            os.replace(self._draft, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._draft = ""
        self.drop()

    def drop(self) -> None:
        """Discard it, unless it is already in place."""
        if self._fd is None:
            return
        os.close(self._fd)
        self._fd = None
        if self._draft:
            with suppress(OSError):
                os.unlink(self._draft, dir_fd=self._folder)
        os.close(self._folder)


@contextmanager
def _refusing() -> Iterator[None]:
    """Convert system errors to errors about a path."""
    try:
        yield
    except LeadsOut as error:
        how = str(error) or "by '..'"
        raise PathRefused("escape", f"it leads out of the workspace {how}") from None
    except NotRegular as error:
        raise _not_a_file(error.kind) from None
    except OSError as error:
        kinds = {
            errno.ENOENT: "missing",
            errno.EISDIR: "no_file",
            errno.ENOTDIR: "no_file",
            errno.ENXIO: "no_file",
            errno.ELOOP: "escape",
            errno.EXDEV: "escape",
        }
        kind = kinds.get(error.errno or 0, "failed")
        raise PathRefused(kind, error.strerror or str(error)) from None


def _walk(
    fd: int, prefix: str, *, deep: bool, depth: int = _DEPTH
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the entries of a directory, links as links. The descriptor is closed."""
    folders = []
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                if entry.name.startswith(_DRAFT):
                    continue
                with suppress(OSError):
                    info = entry.stat(follow_symlinks=False)
                    yield prefix + entry.name, info
                    if deep and depth and stat.S_ISDIR(info.st_mode):
                        folders.append(entry.name)
        for name in folders:
            with suppress(OSError):
                below = os.open(name, _IN_FOLDER | os.O_NOFOLLOW, dir_fd=fd)
                yield from _walk(below, f"{prefix}{name}/", deep=deep, depth=depth - 1)
    finally:
        os.close(fd)
