"""Files of environments in the object store, while their execution moves.

In Temporal, these files are in a directory of the worker at which the environments were open. They
go through the object store, because the process that moves an execution can be on another host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flowengine.engines.environments.moved_workspaces import check
from flowengine.journal.ports.moving import MovedWorkspace
from flowengine.sdk.scratch import make_scratch, remove_scratch

if TYPE_CHECKING:
    from flowengine.engines.temporal.objects import Objects


class ObjectWorkspaces:
    """Archives in the object store. See `WorkspacesPort`.

    Args:
        objects: Returns it, or raises the error that there is none.
        packed: Has a worker pack the files of an execution: full id, mark.
    """

    def __init__(
        self,
        objects: Callable[[], Objects],
        packed: Callable[[str, Sequence[int]], Sequence[MovedWorkspace] | None] | None = None,
    ) -> None:
        self._objects = objects
        self._packed = packed
        self._scratch: Path | None = None

    def pack(self, id: str, mark: Sequence[int]) -> Sequence[MovedWorkspace] | None:
        """Have archives kept in the object store."""
        assert self._packed is not None
        self._objects()
        packed = self._packed(id, mark)
        check(id, packed or ())
        return packed

    def fetch(self, workspace: MovedWorkspace) -> Path:
        """Copy an archive to a temporary directory, which is removed by `close`."""
        if self._scratch is None:
            self._scratch = make_scratch()
        path = self._scratch / workspace.digest
        path.unlink(missing_ok=True)
        self._objects().fetch_workspace(workspace.digest, workspace.size, path)
        return path

    def put(
        self,
        id: str,
        workspaces: Sequence[MovedWorkspace],
        fetch: Callable[[MovedWorkspace], Path],
    ) -> None:
        """Keep archives. A worker restores them when the execution needs an environment."""
        del id
        for workspace in workspaces:
            self._objects().put_workspace(fetch(workspace), workspace.digest)

    def remove(self, id: str) -> None:
        """Do nothing. The worker removes its files when the execution leaves."""

    def close(self) -> None:
        """Remove local copies."""
        if self._scratch is not None:
            remove_scratch(self._scratch)
            self._scratch = None
