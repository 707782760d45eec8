"""Shared code of the kinds that run programs in a workspace: its files, and limits of calls.

A kind implements how a file is read and written where its programs run. The file operations are
here.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.sdk import LimitExceeded, ToolError
from flowengine.sdk.environments import Request, Resource, awaitable, blocking
from flowengine.sdk.network_hints import reachable
from flowengine_envs.link.call_limits import CallLimits
from flowengine_envs.workspaces.files import LISTED, is_listable
from flowengine_envs.workspaces.own_folder import OWN

if TYPE_CHECKING:
    from flowengine.sdk.models import ResourceLimits

LARGEST_READ = 256 * 1024 * 1024
"""Bytes of a file that `get` reads into memory, unless the caller sets a limit."""


class WorkspaceEntry(NamedTuple):
    """An entry of the workspace."""

    path: str
    """Path relative to the workspace."""
    kind: str
    """`file`, `folder`, `link`, `pipe`, `socket`, `device`."""
    size: int
    mode: int
    modified: float
    """Seconds since 1970."""


ReadFile = Callable[[str, Callable[[bytes], Any], int], Awaitable[int]]
"""Passes on a file up to a maximum size and returns its mode: `InWorkspace.read_file`."""


async def read_bytes(read: ReadFile, path: str, largest: int) -> bytes:
    """Return the bytes of a file. Arguments and errors are those of `InWorkspace.get`."""
    parts: list[bytes] = []
    await read(path, parts.append, largest)
    return b"".join(parts)


async def copy_out(read: ReadFile, path: str, to: Path, largest: int) -> int:
    """Copy a file and return its size. Arguments and errors are those of `InWorkspace.fetch`."""
    with to.open("wb") as copy:
        try:
            mode = await read(path, copy.write, largest)
            os.fchmod(copy.fileno(), mode & 0o777)
            return copy.tell()
        except BaseException:
            os.unlink(to)
            raise


class InWorkspace(Resource):
    """Runs programs in a workspace, whose files are copied in and out unchanged."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self.request = request
        self.limits: ResourceLimits = request.limits
        self.workspace = request.workspace
        """Directory on the host. Programs can create links in it, so read it only with `get`."""
        self.call_limits = CallLimits(self.name, request.limits)

    @property
    def workdir(self) -> str:
        """The workspace as programs see it."""
        raise NotImplementedError

    @property
    def home(self) -> str:
        """The home directory as programs see it. It is outside the workspace, but lasts as long."""
        raise NotImplementedError

    @property
    def network(self) -> str | list[str]:
        """What programs may reach: `any`, `none`, `public`, or a list."""
        return reachable(self.request)

    @property
    def own(self) -> str:
        """The directory, as programs see it, for files kept apart from the user's."""
        return f"{self.home}/{OWN}"

    @property
    def declared(self) -> dict[str, str]:
        """The variables that the spec declares for programs, with secrets in plain text."""
        return {name: _revealed(value) for name, value in self.request.config.env.items()}

    @property
    def taken_out(self) -> tuple[int, str]:
        """Bytes of files that a step may keep, and the setting that limits them."""
        return self.call_limits.taken_out

    async def write_file(self, path: str, data: bytes | Path, mode: int) -> None:
        """Write a file atomically. Implemented by kinds, with the errors of `put`."""
        raise NotImplementedError

    async def read_file(self, path: str, take: Callable[[bytes], Any], largest: int) -> int:
        """Pass on a file piece by piece and return its permissions. Implemented by kinds.

        Args:
            path: As for `get`.
            take: Called with each piece.
            largest: Maximum size in bytes. A larger file is refused before anything is read. If it
                grows beyond that, reading stops, because programs control its content.

        Raises:
            LimitExceeded: It is larger.
        """
        raise NotImplementedError

    async def entries(self, path: str, *, deep: bool) -> list[dict[str, Any]]:
        """Return the fields of `WorkspaceEntry` for a directory's entries. Implemented by kinds."""
        raise NotImplementedError

    async def remove_entry(self, path: str) -> None:
        """Remove a file or an empty directory. Implemented by kinds."""
        raise NotImplementedError

    async def _put(self, path: str, data: bytes | Path, mode: int = 0o644) -> None:
        """Write a file of the workspace, and create its parent directories.

        Args:
            path: Relative to the workspace, or absolute as programs see it. May be in `home`.
            data: Its bytes, or a file of the host.
            mode: Its permissions.

        Raises:
            PathEscape: The path leads outside the workspace.
            NotAFile: Something other than a file has this name.
        """
        await self.write_file(path, data, mode)

    async def _get(self, path: str, largest: int = LARGEST_READ) -> bytes:
        """Read a file of the workspace into memory.

        Args:
            path: Relative to the workspace, or absolute as programs see it. May be in `home`.
            largest: Maximum size in bytes. Default: 256 MiB.

        Returns:
            Its bytes.

        Raises:
            PathEscape: The path leads outside the workspace.
            NotAFile: The file does not exist.
            LimitExceeded: It is larger. `fetch` copies it to a file.
        """
        return await read_bytes(self.read_file, path, largest)

    async def _fetch(self, path: str, to: Path, largest: int | None = None) -> int:
        """Copy a file of the workspace to the host, with its permissions.

        Args:
            path: Relative to the workspace, or absolute as programs see it. May be in `home`.
            to: The file to write.
            largest: Maximum size in bytes, including holes of a sparse file. Default: `limits.disk`
                of the spec, or else 1 GiB.

        Returns:
            Its size in bytes.

        Raises:
            PathEscape: The path leads outside the workspace.
            NotAFile: The file does not exist.
            LimitExceeded: It is larger.
        """
        most = self.taken_out[0] if largest is None else largest
        return await copy_out(self.read_file, path, to, most)

    async def _list(self, path: str = ".", *, deep: bool = False) -> list[WorkspaceEntry]:
        """List a directory of the workspace.

        Args:
            path: Relative to the workspace, or absolute as programs see it. May be in `home`.
            deep: Whether to include everything below it.

        Returns:
            Its entries, sorted by path, up to 64 directories deep. Links are not followed.

        Raises:
            PathEscape: The path leads outside the workspace.
            NotAFile: The directory does not exist.
            LimitExceeded: It has more than 10,000 entries, or their names exceed 8 MiB in total.
        """
        entries = await self.entries(path, deep=deep)
        if not all(map(_is_entry, entries)) or not is_listable(entries):
            raise ToolError(f"{self.name}: {path!r}: its listing cannot be read")
        return as_entries(entries, f"{self.name}: {path!r}")

    async def _remove(self, path: str) -> None:
        """Remove a file, a link or an empty directory of the workspace.

        Args:
            path: Relative to the workspace, or absolute as programs see it. May be in `home`.

        Raises:
            PathEscape: The path leads outside the workspace.
            NotAFile: It does not exist.
        """
        await self.remove_entry(path)

    put = blocking(_put)
    async_put = awaitable(_put)
    get = blocking(_get)
    async_get = awaitable(_get)
    fetch = blocking(_fetch)
    async_fetch = awaitable(_fetch)
    list = blocking(_list)
    async_list = awaitable(_list)
    remove = blocking(_remove)
    async_remove = awaitable(_remove)


def as_entries(entries: list[dict[str, Any]], place: str) -> list[WorkspaceEntry]:
    """Return a complete listing.

    Args:
        entries: As `Workspace.entries` returns it.
        place: The listed directory, for the message.

    Raises:
        LimitExceeded: It is incomplete.
    """
    if len(entries) > LISTED:
        message = f"{place}: it has more than {LISTED:,} entries; list its directories one by one"
        raise LimitExceeded(message)
    return [WorkspaceEntry(**each) for each in entries]


def _is_entry(entry: Any) -> bool:
    """Return whether a listed item is a valid entry: code in the sandbox may have forged it."""
    return (
        isinstance(entry, dict)
        and entry.keys() == set(WorkspaceEntry._fields)
        and all(isinstance(entry[each], str) for each in ("path", "kind"))
        and all(isinstance(entry[each], int) for each in ("size", "mode"))
        and isinstance(entry["modified"], (int, float))
    )


def _revealed(value: Any) -> str:
    return str(value.reveal()) if hasattr(value, "reveal") else str(value)
