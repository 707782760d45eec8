"""Files that programs can change, accessed from outside their sandbox.

The kernel resolves paths below their directory, and the size is checked before bytes are read. See
`workspaces.files`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from flowengine.sdk import EnvironmentFailure, LimitExceeded, NotAFile, PathEscape
from flowengine_envs.workspaces.files import PathRefused, Workspace, place_of

_PIECE = 1 << 20
FAULTS: dict[str, type[EnvironmentFailure]] = {
    "escape": PathEscape,
    "no_file": NotAFile,
    "missing": NotAFile,
    "too_large": LimitExceeded,
}
_Result = TypeVar("_Result")


class OutsideFiles:
    """Files of directories on this machine."""

    name: str
    """Names their environment in messages."""
    places: Sequence[Workspace]
    """The directories. Relative paths refer to the first."""

    async def write_file(self, path: str, data: bytes | Path, mode: int) -> None:
        """Write a file atomically, with the errors of `InWorkspace.put`."""
        await self._at(path, lambda place: _write(place, path, data, mode))

    async def read_file(self, path: str, take: Callable[[bytes], Any], largest: int) -> int:
        """Pass on a file piece by piece, like `InWorkspace.read_file`."""
        return await self._at(path, lambda place: _read(place, path, take, largest))

    async def entries(self, path: str, *, deep: bool) -> list[dict[str, Any]]:
        """Return the fields of `Entry` for a directory's entries, with the errors of `list`."""
        return await self._at(path, lambda place: place.entries(path, deep=deep))

    async def remove_entry(self, path: str) -> None:
        """Remove a file or an empty directory, with the errors of `InWorkspace.remove`."""
        await self._at(path, lambda place: place.remove(path))

    async def _at(self, path: str, work: Callable[[Workspace], _Result]) -> _Result:
        """Apply a function to the place of a path. Refusals are raised as errors of the sdk."""
        place = place_of(path, self.places)
        try:
            return await asyncio.to_thread(work, place)
        except PathRefused as refused:
            error = FAULTS.get(refused.kind, EnvironmentFailure)
            raise error(f"{self.name}: {path!r}: {refused.reason}") from None


def _write(workspace: Workspace, path: str, data: bytes | Path, mode: int) -> None:
    draft = workspace.write(path, mode)
    try:
        if isinstance(data, Path):
            with data.open("rb") as source:
                while piece := source.read(_PIECE):
                    draft.add(piece)
        else:
            draft.add(data)
        draft.finish()
    finally:
        draft.drop()


def _read(workspace: Workspace, path: str, take: Callable[[bytes], Any], largest: int) -> int:
    reading = workspace.read(path, largest)
    try:
        while piece := reading.piece(_PIECE):
            take(piece)
    finally:
        reading.close()
    return reading.mode
