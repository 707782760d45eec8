"""Access to files below a directory, never outside it, and never to the engine's own files.

`path_walk` opens them, so a concurrent replacement of a directory by a link has no effect.
"""

from __future__ import annotations

import errno
import fcntl
import fnmatch
import os
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from flowengine.sdk.errors import NotAFile, PathEscape, StepError, ToolError, ValidationError
from flowengine.sdk.files.path_walk import DirectoryEntry, LeadsOut, NotRegular, open_file, walked
from flowengine.sdk.texts.sizes import size_text
from flowengine.store_folder import APPLICATION_ID, DATABASE, DEFAULT, STORED, in_use, state_folder
from flowengine.util.files import MACHINE_FOLDER, user_folder

_ID_AT = 68
"""Where the header of a database has its `application_id` (https://sqlite.org/fileformat.html)."""
_STORED = frozenset(STORED)
_MOST_SEARCHED = 64 * 1024 * 1024
"""Maximum characters of the paths that a search looks at: a million files of a usual project."""
_SHOWN = 200
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
    own = _folders_of_user()
    try:
        return {n for n in names if is_own_name(n, opened) or _is_own_entry(n, opened, own)}
    finally:
        os.close(opened)


def _is_own_entry(name: str, folder: int, own: Collection[tuple[int, int]]) -> bool:
    """Return whether an entry of a directory is the engine's, or a store's database."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            return (status.st_dev, status.st_ino) in own
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


def is_store(start: bytes) -> bool:
    """Return whether a file is the database of a store.

    Args:
        start: Its first 100 bytes.
    """
    id = int.from_bytes(start[_ID_AT : _ID_AT + 4], "big")
    return start.startswith(b"SQLite format 3\0") and id == APPLICATION_ID


def _own_folders() -> tuple[str, ...]:
    return user_folder(), state_folder(), MACHINE_FOLDER


def _parts_below(folder: str, real: str) -> list[str] | None:
    """Return the parts of a path without links below a directory, or None if it is elsewhere."""
    inside = os.path.relpath(real, _real(folder)).split(os.sep)
    return None if inside[0] == os.pardir else inside


@lru_cache(maxsize=8)
def _real(folder: str) -> str:
    return os.path.realpath(folder)


def _folders_of_user() -> set[tuple[int, int]]:
    """Return the identities of the directories with configuration and state, under any name."""
    found = set()
    for path in _own_folders():
        with suppress(OSError):
            status = os.stat(path)
            found.add((status.st_dev, status.st_ino))
    return found


def _holds_store(folder: int) -> bool:
    try:
        os.stat(DATABASE, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


class Below:
    """A directory that contains all paths.

    Args:
        root: Its path.
        rule: The message for a path that leads out of the directory.
        outside: The type of that error.
        no_file: The type of the error for a directory, device or pipe instead of a file.
        name: Names the directory in messages. Default: its path.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        rule: str = "files are reached below it only",
        outside: type[StepError] = PathEscape,
        no_file: type[StepError] = NotAFile,
        name: str = "",
    ) -> None:
        self._root = os.fspath(root)
        self._name = name or f"'{os.path.abspath(self._root)}'"
        self._rule = rule
        self._outside_type = outside
        self._no_file_type = no_file

    def _outside(self, path: str, why: str) -> StepError:
        return self._outside_type(f"'{path}' {why}: {self._rule}", retryable=False)

    @property
    def _leads_out(self) -> str:
        return f"leads out of {self._name}"

    def _never_inside(self, path: str, why: str) -> StepError:
        """Return the error of a path that always leads out, regardless of the files."""
        error = self._outside(path, why)
        error.data = {"field": "path"}
        return error

    def _own(self, path: str) -> StepError:
        return self._outside_type(
            f"'{path}' belongs to the engine: stores and its configuration are reached by its "
            "commands only",
            retryable=False,
        )

    def _no_file(self, path: str) -> StepError:
        return self._no_file_type(f"'{path}' is not a file", retryable=False)

    def read(self, path: str, limit: int) -> bytes:
        """Return the content of a file.

        Args:
            path: Relative path.
            limit: Largest size.

        Returns:
            Its bytes.

        Raises:
            ToolError: The file does not exist or is too large.
        """
        file = self.open(path)
        try:
            info = os.fstat(file)
            with _naming(path), os.fdopen(file, "rb", closefd=False) as stream:
                # A sparse file may have no data at all, and a file may grow while it is read.
                data = b"" if info.st_size > limit else stream.read(limit + 1)
        finally:
            os.close(file)
        if max(info.st_size, len(data)) > limit:
            raise ToolError(
                f"'{path}' has more than {size_text(limit)}: read it in a 'python' or 'run' step",
                retryable=False,
            )
        return data

    def open(self, path: str) -> int:
        """Open a file for reading.

        Args:
            path: Relative path.

        Returns:
            Its descriptor.

        Raises:
            ToolError: The file does not exist.
        """
        with self._walk(path) as place, _naming(path):
            info = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
            if info.st_nlink > 1 and is_in_use(info):
                raise self._own(path)
            try:
                file = open_file(place.name, place.folder)
            except NotRegular:
                raise self._no_file(path) from None
            try:
                if is_store(os.pread(file, 100, 0)):  # by another name, such as a hard link
                    raise self._own(path)
            except BaseException:
                os.close(file)
                raise
        return file

    def write(self, path: str, data: bytes) -> None:
        """Write a file atomically. Missing directories are created.

        Args:
            path: Relative path.
            data: The new content.

        Raises:
            ToolError: The path is a directory.
        """
        with self._walk(path, make=True) as place, _naming(path):
            before = None
            with suppress(FileNotFoundError):
                before = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
                if not stat.S_ISREG(before.st_mode):
                    raise self._no_file(path)
            new = f".{os.urandom(8).hex()}.tmp"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                with os.fdopen(os.open(new, flags, 0o666, dir_fd=place.folder), "wb") as stream:
                    if before is not None:
                        with suppress(PermissionError):  # root does not take over users' files
                            os.fchown(stream.fileno(), before.st_uid, before.st_gid)
                        # new content must not inherit the setuid bit
                        os.fchmod(stream.fileno(), before.st_mode & 0o777)
                    stream.write(data)
                    stream.flush()
                    os.fsync(stream.fileno())
                os.replace(new, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
                os.fsync(place.folder)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(new, dir_fd=place.folder)
                raise

    def remove(self, path: str) -> None:
        """Remove a file if it exists.

        Args:
            path: Relative path.

        Raises:
            ToolError: It is a directory.
        """
        with self._walk(path) as place, _naming(path), suppress(FileNotFoundError):
            os.unlink(place.name, dir_fd=place.folder)

    def folder(self, path: str) -> str:
        """Return the path of a directory, with links resolved.

        Args:
            path: Relative path. Links are followed if they stay below the root.

        Raises:
            PathEscape: The path leads out of the root.
            ToolError: The directory does not exist.
        """
        with self._walk(path, enter=True) as place, _naming(path):
            return os.readlink(f"/proc/self/fd/{place.folder}")

    def glob(self, path: str, pattern: str) -> list[str]:
        """Return the files below a directory that match a pattern.

        `*`, `?` and `[...]` stand for parts of a name, `**` for any number of directories. Names
        that begin with a dot match only if the pattern names the dot. Links are followed if they
        stay below the working directory, except by `**`.

        Args:
            path: Relative path of the directory.
            pattern: Relative pattern.

        Returns:
            Paths relative to the working directory, sorted.

        Raises:
            PathEscape: The pattern leads out of the directory.
            ToolError: There are too many files to search.
        """
        parts: list[str] = []
        for part in pattern.split("/"):
            if part not in {"", "."} and not (part == "**" and parts[-1:] == ["**"]):
                parts.append(part)
        if pattern.startswith("/") or ".." in parts:
            raise self._never_inside(pattern, f"is a pattern that {self._leads_out}")
        start = [part for part in path.split("/") if part not in {"", "."}]
        self._check_names(path)
        return sorted(self._matches(start, parts))

    def _matches(self, start: list[str], parts: list[str]) -> Iterator[str]:
        """Yield the paths that match a pattern.

        Each directory is read once, even if several parts of the pattern match it.

        Raises:
            ToolError: There are too many files to search.
        """
        if parts[-1:] == ["**"]:
            parts = [*parts, "*"]
        pending = [(start, {0})] if parts else []
        seen = 0
        while pending:
            folder, places = pending.pop()
            length = sum(map(len, folder)) + len(folder)
            places |= {at + 1 for at in places if parts[at] == "**"}  # it stands for nothing, too
            for name, mode in self._entries(folder):
                seen += length + len(name)
                if seen > _MOST_SEARCHED:
                    shown = "/".join(start)[:_SHOWN] or "."
                    message = f"'{shown}' has too many files to search: search a directory in it"
                    raise ToolError(message, retryable=False)
                deeper = stat.S_ISDIR(mode) and not name.startswith(".")
                below = {at for at in places if parts[at] == "**" and deeper}
                steps = [*folder, name]
                if after := {
                    at + 1 for at in places if parts[at] != "**" and _fits(name, parts[at])
                }:
                    kind = self._resolved(steps, mode)
                    if len(parts) in after and stat.S_ISREG(kind):
                        yield "/".join(steps)
                    if stat.S_ISDIR(kind):
                        below |= after - {len(parts)}
                if below:
                    pending.append((steps, below))

    def _entries(self, folder: list[str]) -> list[tuple[str, int]]:
        """Return names and modes (of links themselves) in a directory."""
        path = "/".join(folder) or "."
        with self._walk(path, enter=True) as place, _naming(path):
            names = os.listdir(place.folder)
            entries, own = [], _folders_of_user()
            for name in names:
                with suppress(FileNotFoundError):
                    info = os.stat(name, dir_fd=place.folder, follow_symlinks=False)
                    is_own = (info.st_dev, info.st_ino) in own
                    if not (is_own_name(name, place.folder) or is_own):
                        entries.append((name, info.st_mode))
        return entries

    def _resolved(self, parts: list[str], mode: int) -> int:
        """Return the mode of an entry.

        For a link, return the mode of its target inside the root, or 0.
        """
        if not stat.S_ISLNK(mode):
            return mode
        try:
            with self._walk("/".join(parts)) as place:
                return os.stat(place.name, dir_fd=place.folder, follow_symlinks=False).st_mode
        except StepError:
            return 0

    def _check_names(self, path: str) -> None:
        """Refuse a path that obviously leads out, before anything is opened."""
        if path.startswith("/"):
            raise self._never_inside(path, "is an absolute path")
        if "\0" in path:
            raise ValidationError(f"{path!r} contains a null character")
        depth = 0
        for name in path.split("/"):
            depth += {"": 0, ".": 0, "..": -1}.get(name, 1)
            if depth < 0:
                raise self._never_inside(path, self._leads_out)

    @contextmanager
    def _walk(
        self, path: str, *, make: bool = False, enter: bool = False
    ) -> Iterator[DirectoryEntry]:
        """Open the directory that contains a path's last name, or with `enter` that directory."""
        self._check_names(path)
        root = self._root
        roots = (os.path.abspath(root), os.path.realpath(root))
        own = _folders_of_user()

        def check(folder: int, name: str) -> None:
            if name:
                is_own = is_own_name(name, folder)
            else:
                status = os.fstat(folder)
                is_own = (status.st_dev, status.st_ino) in own
            if is_own:
                raise self._own(path)

        with _naming(path):
            if is_own_path(root):
                raise self._own(path)
            try:
                with walked(root, path, roots=roots, enter=enter, make=make, check=check) as place:
                    yield place
            except LeadsOut as error:
                raise self._outside(path, f"{self._leads_out} {error}".rstrip()) from None


def _fits(name: str, pattern: str) -> bool:
    if name.startswith(".") and not pattern.startswith("."):
        return False
    return fnmatch.fnmatchcase(name, pattern)


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Report errors of the operating system with the path as written in the flow."""
    try:
        yield
    except OSError as error:
        raise ToolError(
            f"'{path}': {error.strerror}", retryable=error.errno in {errno.EINTR, errno.EAGAIN}
        ) from None


# Locks between processes: files that one of them holds at a time.


def take_lock(path: str | os.PathLike[str], *, wait: bool = False) -> int | None:
    """Lock a file, which is created if it is missing, without following a link.

    Args:
        path: Its path.
        wait: Whether to wait until its holder closes it or ends.

    Returns:
        Its descriptor, which holds the lock until it is closed. None: another holder has it.

    Raises:
        OSError: It cannot be opened, or its file system has no locks.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(path, flags, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(file)
        return None
    except BaseException:
        os.close(file)
        raise
    return file
