"""`files`: a directory that steps read and write, and that other environments mount.

By default it is a copy. Changes do not affect the original until a step writes them back.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel

from flowengine.sdk import (
    EnvironmentStartFailed,
    EnvironmentUnavailable,
    LimitExceeded,
    Refused,
    printable,
)
from flowengine.sdk.environments import (
    Capabilities,
    Provider,
    Request,
    Resource,
    Spec,
    both_forms,
)
from flowengine.sdk.environments.models import Config, has_reference
from flowengine.sdk.files.confined_files import Below
from flowengine.sdk.files.trees import are_equal, copy_tree, tree
from flowengine.sdk.processes import remove_tree
from flowengine.sdk.texts.sizes import size_text
from flowengine_envs.sandboxes.mounts import named_folder
from flowengine_envs.workspaces.obeyed_files import kept_back_from

_LARGEST = 256 * 1024 * 1024
"""Maximum size in bytes of a file that is read into memory."""
_DEEPEST = 500
"""Maximum depth of directories in a copy that is compared with the original."""
_MOST = 1_000_000
"""Maximum number of files in a copy that is compared with the original."""
_SHOWN = 100
"""Paths of a log message, and characters of each."""
_MOST_BYTES = 64 * 1024 * 1024
"""Maximum bytes of all their paths."""


class FolderChanges(NamedTuple):
    """Differences between a copy and its original: sorted relative paths."""

    added: list[str]
    changed: list[str]
    removed: list[str]
    left_out: tuple[str, ...] = ()
    """Changes that were not written to the original: settings and hooks that name programs."""


class Folder(Resource):
    """A directory.

    Args:
        path: Its location.
        original: The directory that it is a copy of, if any.
        writable: Whether it may be written.
    """

    def __init__(
        self, request: Request, path: Path, original: Path | None, *, writable: bool
    ) -> None:
        super().__init__(request)
        self.path = Path(os.path.realpath(path))
        """Its location on this machine, with links resolved."""
        self.original = original
        """The directory that it is a copy of. None if it is not a copy."""
        self.writable = writable
        """Whether it may be written."""
        self._below = Below(path, f"{self.name} is {path}")
        self._log = request.log

    async def _read(self, path: str, limit: int = _LARGEST) -> bytes:
        """Return the content of a file.

        Args:
            path: Relative path.
            limit: Maximum size in bytes, at most 256 MiB.

        Returns:
            Its bytes.

        Raises:
            PathEscape: The path leads outside the directory.
            NotAFile: The path names a directory, a device or a pipe.
            ToolError: The file does not exist, or is larger.
        """
        return await asyncio.to_thread(self._below.read, path, min(limit, _LARGEST))

    read, async_read = both_forms(_read)

    async def _write(self, path: str, data: bytes | str) -> None:
        """Write a file atomically, and create its parent directories.

        Args:
            path: Relative path.
            data: Its new content. Text is encoded as UTF-8.

        Raises:
            PathEscape: The path leads outside the directory.
            NotAFile: The path names a directory, a device or a pipe.
            Refused: The directory is read-only.
        """
        self._check_writable()
        content = data.encode() if isinstance(data, str) else data
        await asyncio.to_thread(self._below.write, path, content)

    write, async_write = both_forms(_write)

    async def _list(self, pattern: str = "**", path: str = ".") -> list[str]:
        """Return the files that match a pattern.

        Args:
            pattern: Relative pattern: `*`, `?`, `[...]`, `**` for any number of directories.
            path: Directory to search.

        Returns:
            Relative paths, sorted.

        Raises:
            PathEscape: The pattern leads outside the directory.
        """
        return await asyncio.to_thread(self._below.glob, path, pattern)

    list, async_list = both_forms(_list)

    async def _changes(self) -> FolderChanges:
        """Return how the copy differs from its original. Without an original, nothing differs.

        Raises:
            LimitExceeded: It has more than 1,000,000 files, directories nested more than 500 deep,
                or paths of more than 64 MiB in total.
        """
        if self.original is None:
            return FolderChanges([], [], [])
        return await asyncio.to_thread(_compare, self.original, self.path)

    changes, async_changes = both_forms(_changes)

    async def _write_back(self) -> FolderChanges:
        """Write the copy's changes back to the original, file by file.

        Settings that name programs, such as `.vscode` and `.envrc`, are left out. With them, code
        that changed the copy could run programs on this machine. For a Git repository, its history,
        branches and index are written back, but not its settings and hooks. A directory that has
        become a repository under another name than `.git` is left out entirely, and so are files
        whose paths have about 4,000 bytes or more.

        Returns:
            The changes that were written back, and those left out.

        Raises:
            Refused: The directory is read-only.
            LimitExceeded: As for `changes`.
        """
        self._check_writable()
        if self.original is None:
            return await self._changes()
        changes = await asyncio.to_thread(
            _without_obeyed, await self._changes(), self.original, self.path
        )
        if changes.left_out:
            more = len(changes.left_out) - _SHOWN
            shown = ", ".join(path[:_SHOWN] for path in changes.left_out[:_SHOWN])
            self._log.warning(
                "settings of Git, editors, shells and agents are not written back, since they name "
                "programs to run. Copy them yourself if they are yours: %s%s",
                printable(shown),
                f" and {more} more" if more > 0 else "",
            )
        await asyncio.to_thread(_bring, self._below, self.original, changes)
        return changes

    write_back, async_write_back = both_forms(_write_back)

    def _check_writable(self) -> None:
        if not self.writable:
            raise Refused(f"{self.name} is read-only")


class Files(Provider[Folder]):
    """Opens directories."""

    kind = "files"
    inert = True

    def config_model(self) -> type[BaseModel]:
        class FilesConfig(Config):
            """A directory."""

            path: str | None = None
            """The directory, relative to the working directory. None: an empty one."""
            mode: Literal["copy", "ro", "rw"] = "copy"
            """Work on a copy, read the directory itself, or read and write it."""

        return FilesConfig

    def capabilities(self, sandbox: Capabilities) -> Capabilities:
        """Return the guarantees for a directory."""
        return Capabilities(
            "none",
            {"filesystem": "paths are walked below the directory", "disk": "counted while copying"},
        )

    async def probe(self, spec: Spec) -> None:
        """Check that the directory exists."""
        writable = spec.policy.writable
        if writable not in (None, [], ["."]):
            raise EnvironmentUnavailable(
                f"{spec}: a directory is writable as a whole (policy.writable: ['.']) or not at "
                "all ([]), not in parts"
            )
        path = spec.config.path
        if path is not None and not has_reference(path):  # Otherwise it is known only at opening.
            await asyncio.to_thread(named_folder, spec, path)

    async def ensure(self, request: Request) -> Folder:
        """Open the directory. A copy is made once and is available again after a wait."""
        config = request.config
        writable = config.mode != "ro" and request.policy.writable != []
        if config.path is None:
            return Folder(request, request.workspace, None, writable=writable)
        original = await asyncio.to_thread(named_folder, request.spec, config.path)
        if config.mode != "copy":
            return Folder(request, original, None, writable=writable)
        await asyncio.to_thread(_copy, original, request)
        return Folder(request, request.workspace, original, writable=writable)

    def health_check(self, resource: Folder) -> bool:
        """Return whether the directory still exists."""
        return not resource.given_back and resource.path.is_dir()

    async def release(self, resource: Folder) -> None:
        """Do nothing: a copy is part of the workspace, which is removed with its scope."""


def _copy(original: Path, request: Request) -> None:
    """Copy a directory into the workspace atomically, unless that was done before."""
    target = request.workspace
    if any(target.iterdir()):
        return
    part = target.with_name(f"{target.name}.part")
    remove_tree(part)
    try:
        copy_tree(original, part, _DEEPEST, _counted(request))
        os.replace(part, target)
    except RecursionError:
        raise EnvironmentStartFailed(
            f"{request.spec}: copying {original}: directories in it are too deep"
        ) from None
    except OSError as error:
        raise EnvironmentStartFailed(f"{request.spec}: copying {original}: {error}") from error
    finally:
        remove_tree(part)


def _counted(request: Request) -> Callable[[int], None]:
    """Return a function that adds up sizes of files until they exceed the limit."""
    limit, total = request.limits.disk, 0

    def count(size: int) -> None:
        nonlocal total
        total += size
        if limit is not None and total > limit:
            raise LimitExceeded(
                f"{request.spec}: the directory has more than {size_text(limit)} (limits.disk)",
                data={"limit": "disk", "value": limit},
            )

    return count


def _files(root: Path) -> set[str]:
    """Return the regular files below a directory as relative paths, without following links.

    The engine's own files are left out. They are not copied, so they do not count as missing.
    """
    names: set[str] = set()
    size = 0
    try:
        for count, entry in enumerate(tree(root, _DEEPEST)):
            if stat.S_ISREG(entry.info.st_mode):
                names.add(entry.path)
            size += len(entry.path)
            if count > _MOST or size > _MOST_BYTES:
                break
        else:
            return names
    except RecursionError:
        pass
    raise LimitExceeded(
        f"{root} is not compared: it has directories more than {_DEEPEST} deep, more than "
        f"{_MOST:,} files, or paths of more than {size_text(_MOST_BYTES)}"
    )


def _compare(original: Path, copy: Path) -> FolderChanges:
    old, new = _files(original), _files(copy)
    return FolderChanges(
        sorted(new - old),
        sorted(path for path in new & old if not are_equal((original, copy), path)),
        sorted(old - new),
    )


def _without_obeyed(changes: FolderChanges, original: Path, copy: Path) -> FolderChanges:
    """Move changes that programs of this machine would obey to `left_out`."""
    kept_back = kept_back_from(original, copy)
    added, changed, removed = (
        [path for path in each if not kept_back(path)]
        for each in (changes.added, changes.changed, changes.removed)
    )
    left_out = {*changes.added, *changes.changed, *changes.removed} - {*added, *changed, *removed}
    return FolderChanges(added, changed, removed, tuple(sorted(left_out)))


def _bring(copy: Below, original: Path, changes: FolderChanges) -> None:
    target = Below(original, f"the original is {original}")
    for path in (*changes.added, *changes.changed):
        target.write(path, copy.read(path, _LARGEST))
    for path in changes.removed:
        target.remove(path)
