"""Files of environments in a directory of this host, as archives for executions that move."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from flowengine.engines.environments.requests import EXECUTION, REGION
from flowengine.errors import StoreError
from flowengine.execution_environment.registry.archives import MOST_ARCHIVED, pack, unpack
from flowengine.execution_environment.registry.workspaces import LeftWorkspace, Workspaces
from flowengine.journal.ports.moving import MovedWorkspace
from flowengine.sdk.process_identity import this_process
from flowengine.sdk.scratch import make_scratch, remove_scratch

_SPEC = re.compile(r"env_[0-9a-f]{1,64}")


class FolderWorkspaces:
    """The files of environments below one directory. See `WorkspacesPort`.

    Args:
        folder: Returns the directory of an `EnvironmentManager`.
    """

    def __init__(self, folder: Callable[[], str]) -> None:
        self._folder = folder
        self._scratch: Path | None = None

    def pack(self, id: str, mark: Sequence[int]) -> list[MovedWorkspace]:
        """Keep archives in a temporary directory, until `close`."""
        del mark  # a living process that uses them has claimed them
        self.close()
        self._scratch = make_scratch()
        return [self._packed(left, self._scratch) for left in self._workspaces().left(id)]

    def _packed(self, left: LeftWorkspace, scratch: Path) -> MovedWorkspace:
        draft = scratch / "draft"
        pack(left.path, draft)
        digest, size = digest_of(draft), draft.stat().st_size
        draft.rename(scratch / digest)
        scope, owner_id, path, generation, was_open = left
        return MovedWorkspace(scope, owner_id, path.name, generation, was_open, size, digest)

    def fetch(self, workspace: MovedWorkspace) -> Path:
        """Return the path of an archive."""
        assert self._scratch is not None
        return self._scratch / workspace.digest

    def put(
        self,
        id: str,
        workspaces: Sequence[MovedWorkspace],
        fetch: Callable[[MovedWorkspace], Path],
    ) -> None:
        """Restore files for the next process that drives an execution."""
        check(id, workspaces)
        for workspace in workspaces:
            scope = EXECUTION if workspace.scope == EXECUTION else REGION
            given = LeftWorkspace(
                scope,
                workspace.owner_id,
                Path(workspace.spec),
                workspace.generation,
                workspace.was_open,
            )
            archive = fetch(workspace)
            try:
                self._workspaces().put(given, lambda path, archive=archive: unpack(archive, path))  # type: ignore[misc]
            except OSError as error:
                raise StoreError(
                    f"the files of execution {id} cannot be kept in {self._folder()}: "
                    f"{error.strerror or error}"
                ) from error

    def remove(self, id: str) -> None:
        """Remove files that `pack` or `put` has found or made."""
        workspaces = self._workspaces()
        for left in workspaces.left(id):
            workspaces.end_scope(left.scope, left.owner_id)

    def close(self) -> None:
        """Remove the archives."""
        if self._scratch is not None:
            remove_scratch(self._scratch)
            self._scratch = None

    def _workspaces(self) -> Workspaces:
        return Workspaces(Path(self._folder()).absolute(), this_process(), os.urandom(6).hex())


def check(id: str, workspaces: Iterable[MovedWorkspace]) -> None:
    """Check descriptions from another store.

    Args:
        id: Full id of the execution.
        workspaces: They.

    Raises:
        StoreError: One is not of this execution, or too large.
    """
    for workspace in workspaces:
        is_own = (
            workspace.owner_id == id
            if workspace.scope == EXECUTION
            else workspace.owner_id.startswith(f"{id}/")
        )
        is_known = workspace.scope in (EXECUTION, REGION) and _SPEC.fullmatch(workspace.spec)
        if not is_own or not is_known or not 0 <= workspace.size <= MOST_ARCHIVED:
            raise StoreError(f"the files of an environment of execution {id} are described wrongly")


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
