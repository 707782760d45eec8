"""What all kinds that run programs in a workspace have in common: its files, and limits of calls.

A kind says how a file is read and written where its programs run; the verbs are here.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.sdk import LimitExceeded, ToolError
from flowengine.sdk.environments import Request, Resource, awaitable, blocking
from flowengine_envs.link.call_limits import CallLimits
from flowengine_envs.workspaces.files import LISTED, is_listable
from flowengine_envs.workspaces.own_folder import OWN

if TYPE_CHECKING:
    from flowengine.sdk.models import Limits

LARGEST_READ = 256 * 1024 * 1024
"""Bytes of a file that `get` reads into memory, where the caller says nothing."""


class Entry(NamedTuple):
    """Something in the workspace."""

    path: str
    """Relative to the workspace."""
    kind: str
    """`file`, `folder`, `link`, `pipe`, `socket`, `device`."""
    size: int
    mode: int
    modified: float
    """Seconds since 1970."""


ReadFile = Callable[[str, Callable[[bytes], Any], int], Awaitable[int]]
"""Hands on a file of so many bytes at most and returns its mode: `InWorkspace.read_file`."""


async def read_bytes(read: ReadFile, path: str, largest: int) -> bytes:
    """Return the bytes of a file; arguments and errors as of `InWorkspace.get`."""
    parts: list[bytes] = []
    await read(path, parts.append, largest)
    return b"".join(parts)


async def copy_out(read: ReadFile, path: str, to: Path, largest: int) -> int:
    """Copy a file and return its size; arguments and errors as of `InWorkspace.fetch`."""
    with to.open("wb") as copy:
        try:
            mode = await read(path, copy.write, largest)
            os.fchmod(copy.fileno(), mode & 0o777)
            return copy.tell()
        except BaseException:
            os.unlink(to)
            raise


class InWorkspace(Resource):
    """Runs programs in a workspace, whose files go in and out byte for byte."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self.request = request
        self.limits: Limits = request.limits
        self.workspace = request.workspace
        """Folder on the host. Programs can put links there: read it with `get`, not by hand."""
        self.call_limits = CallLimits(self.name, request.limits)

    @property
    def workdir(self) -> str:
        """The workspace as programs see it."""
        raise NotImplementedError

    @property
    def home(self) -> str:
        """The home folder as programs see it. It is not in the workspace, but lasts as long."""
        raise NotImplementedError

    @property
    def network(self) -> str | list[str]:
        """What programs may reach: `any`, `none`, `public`, or a list."""
        sandbox = self.request.sandbox
        if sandbox is not None and "network" not in sandbox.capabilities().holds:
            return "any"
        return self.request.policy.network or "none"

    @property
    def own(self) -> str:
        """The folder for what is kept beside the user's files, as programs see it."""
        return f"{self.home}/{OWN}"

    @property
    def declared(self) -> dict[str, str]:
        """The variables that the spec declares for programs; secrets in the clear."""
        return {name: _revealed(value) for name, value in self.request.config.env.items()}

    @property
    def taken_out(self) -> tuple[int, str]:
        """Bytes of files that a step may keep, and what says so."""
        return self.call_limits.taken_out

    async def write_file(self, path: str, data: bytes | Path, mode: int) -> None:
        """Write a file whole or not at all; for kinds, which raise what `put` does."""
        raise NotImplementedError

    async def read_file(self, path: str, take: Callable[[bytes], Any], largest: int) -> int:
        """Hand on a file piece by piece and return its permissions; for kinds, as `write_file`.

        Args:
            path: As that of `get`.
            take: Called with each piece.
            largest: Bytes that it may have. One that has more is refused before any is read, and
                one that becomes larger meanwhile is not read on: programs decide what is in it.

        Raises:
            LimitExceeded: It has more.
        """
        raise NotImplementedError

    async def entries(self, path: str, *, deep: bool) -> list[dict[str, Any]]:
        """Return the fields of `Entry` of what is in a folder; for kinds, as `write_file`."""
        raise NotImplementedError

    async def remove_entry(self, path: str) -> None:
        """Remove a file or an empty folder; for kinds, as `write_file`."""
        raise NotImplementedError

    async def _put(self, path: str, data: bytes | Path, mode: int = 0o644) -> None:
        """Write a file of the workspace; its folders are made.

        Args:
            path: Relative to the workspace, or absolute as programs see it, also in `home`.
            data: Its bytes, or a file of the host.
            mode: Its permissions.

        Raises:
            PathEscape: The path leads out of the workspace.
            NotAFile: There is something of this name that is no file.
        """
        await self.write_file(path, data, mode)

    async def _get(self, path: str, largest: int = LARGEST_READ) -> bytes:
        """Read a file of the workspace into memory.

        Args:
            path: Relative to the workspace, or absolute as programs see it, also in `home`.
            largest: Bytes that it may have; default: 256 MiB.

        Returns:
            Its bytes.

        Raises:
            PathEscape: The path leads out of the workspace.
            NotAFile: There is no such file.
            LimitExceeded: It has more bytes; `fetch` copies it to a file.
        """
        return await read_bytes(self.read_file, path, largest)

    async def _fetch(self, path: str, to: Path, largest: int | None = None) -> int:
        """Copy a file of the workspace to the host, with its permissions.

        Args:
            path: Relative to the workspace, or absolute as programs see it, also in `home`.
            to: The file to write.
            largest: Bytes that it may have, holes of a sparse file included; default: `limits.disk`
                of the spec, else 1 GiB.

        Returns:
            How many bytes it has.

        Raises:
            PathEscape: The path leads out of the workspace.
            NotAFile: There is no such file.
            LimitExceeded: It has more bytes.
        """
        most = self.taken_out[0] if largest is None else largest
        return await copy_out(self.read_file, path, to, most)

    async def _list(self, path: str = ".", *, deep: bool = False) -> list[Entry]:
        """List a folder of the workspace.

        Args:
            path: Relative to the workspace, or absolute as programs see it, also in `home`.
            deep: Whether with all below it.

        Returns:
            What is there, sorted by path, 64 folders deep; links are not followed.

        Raises:
            PathEscape: The path leads out of the workspace.
            NotAFile: There is no such folder.
            LimitExceeded: It has more than 10,000 entries, or their names more than 8 MiB together.
        """
        found = await self.entries(path, deep=deep)
        if not all(map(_is_entry, found)) or not is_listable(found):
            raise ToolError(f"{self.name}: {path!r}: its listing cannot be read")
        return as_entries(found, f"{self.name}: {path!r}")

    async def _remove(self, path: str) -> None:
        """Remove a file or an empty folder of the workspace; of a link the link.

        Args:
            path: Relative to the workspace, or absolute as programs see it, also in `home`.

        Raises:
            PathEscape: The path leads out of the workspace.
            NotAFile: There is no such thing.
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


def as_entries(found: list[dict[str, Any]], place: str) -> list[Entry]:
    """Return a listing, if it is whole.

    Args:
        found: As `Workspace.entries` returns it.
        place: What it is of, for the message.

    Raises:
        LimitExceeded: There are more than it has.
    """
    if len(found) > LISTED:
        message = f"{place}: it has more than {LISTED:,} entries; list its folders one by one"
        raise LimitExceeded(message)
    return [Entry(**each) for each in found]


def _is_entry(found: Any) -> bool:
    """Return whether what was listed is an entry: that may have been written in the sandbox."""
    return (
        isinstance(found, dict)
        and found.keys() == set(Entry._fields)
        and all(isinstance(found[each], str) for each in ("path", "kind"))
        and all(isinstance(found[each], int) for each in ("size", "mode"))
        and isinstance(found["modified"], (int, float))
    )


def _revealed(value: Any) -> str:
    return str(value.reveal()) if hasattr(value, "reveal") else str(value)
