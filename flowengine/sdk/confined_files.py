"""Access to files below a directory, never outside it, and never to the engine's own files.

`path_walk` opens them, so a concurrent replacement of a directory by a link has no effect.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from flowengine.sdk.engine_files import is_in_use, is_own_folder, is_own_name, is_own_path, is_store
from flowengine.sdk.errors import NotAFile, PathEscape, StepError, ToolError, ValidationError
from flowengine.sdk.path_walk import DirectoryEntry, LeadsOut, NotRegular, open_file, walked
from flowengine.sdk.sizes import size_text


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
        """Return the error of a path that leads out whatever files there are."""
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
                f"'{path}' has more than {size_text(limit)}; read it in a 'python' or 'run' step",
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
            new = f".{secrets.token_hex(8)}.tmp"
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

        Each directory is read once, whatever number of parts of the pattern it may stand for.
        """
        if parts[-1:] == ["**"]:
            parts = [*parts, "*"]
        pending = [(start, {0})] if parts else []
        while pending:
            folder, places = pending.pop()
            places |= {at + 1 for at in places if parts[at] == "**"}  # it stands for nothing, too
            for name, mode in self._entries(folder):
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
            entries = []
            for name in names:
                with suppress(FileNotFoundError):
                    info = os.stat(name, dir_fd=place.folder, follow_symlinks=False)
                    if not (is_own_name(name, place.folder) or is_own_folder(info)):
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

        def check(folder: int, name: str) -> None:
            if is_own_name(name, folder) if name else is_own_folder(os.fstat(folder)):
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
