"""Moving executions from one store to another, with all that is known of them.

While an execution is copied, its old store keeps driving it, and its new store holds it back. It
changes hands when the old store gives it up, which it refuses if anything happened since the copy.
So at any moment at most one of the two stores drives it, whichever process dies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol


class MovedWorkspace(NamedTuple):
    """The files of an environment that its execution has used, in an archive."""

    scope: str
    owner_id: str
    spec: str
    """Id of the environment's spec."""
    generation: int
    was_open: bool
    size: int
    """Bytes of the archive."""
    digest: str
    """SHA-256 of the archive."""


class ExecutionCopy(NamedTuple):
    """An execution as plain data."""

    data: Mapping[str, Any]
    """As returned by `MemoryStore.copy`, with all events, and `claims`: its claims on shared locks,
    as lists. Those of locks that it holds must not be made to wait."""
    flows: Mapping[str, bytes]
    """Hash → the compiled flows that it runs or has run."""
    files: Sequence[str]
    """Digests of the files that it refers to."""
    mark: Sequence[int]
    """Changes whenever anything happens to the execution, or others wait for its locks."""
    workspaces: Sequence[MovedWorkspace] = ()
    """Files of its environments, from `WorkspacesPort.pack`."""
    source: str = ""
    """Location of the store from which it is moved."""


class MovingPort(Protocol):
    """A store that executions can be moved from and to."""

    def copy_execution(self, id: str) -> ExecutionCopy:
        """Return an open execution that waits.

        Args:
            id: Full id.

        Raises:
            NotFound: It does not exist.
            Conflict: It has ended, or is running.
            UsageError: It cannot be moved.
        """

    def hold_copy(self, copy: ExecutionCopy) -> None:
        """Store a copy that is not driven yet, in place of an earlier one that is not driven.

        It has the shared locks of the execution from now on.

        Raises:
            Conflict: The store has an execution with this id that is driven, or a lock is not free.
            UsageError: The store does not support something that the execution needs.
        """

    def give_up(self, id: str, mark: Sequence[int]) -> bool:
        """Remove an execution that is as it was when it was copied, and return whether it was.

        Args:
            id: Full id.
            mark: `ExecutionCopy.mark`.
        """

    def drive_copy(self, id: str) -> bool:
        """Let a held copy be driven.

        Args:
            id: Full id.

        Returns:
            Whether there was one.
        """

    def held_copies(self, source: str) -> list[str]:
        """Return the ids of held copies, whose moves may have been interrupted.

        Args:
            source: Location of the store from which they are moved.
        """

    def drop_copy(self, id: str) -> None:
        """Remove a held copy, if there is one.

        Args:
            id: Full id of an execution that its old store will not give up, because it has ended.
        """


class WorkspacesPort(Protocol):
    """The files of environments of the executions in a store."""

    def pack(self, id: str, mark: Sequence[int]) -> Sequence[MovedWorkspace] | None:
        """Keep archives of the files of an execution's environments.

        Args:
            id: Full id of an execution that waits.
            mark: `ExecutionCopy.mark`.

        Returns:
            Which there are. None: something has happened since the mark.

        Raises:
            Conflict: An environment is still open.
            UsageError: They cannot be moved.
            StoreError: They cannot be read.
        """

    def fetch(self, workspace: MovedWorkspace) -> Path:
        """Return the path of an archive on this machine.

        Raises:
            StoreError: It is missing or damaged.
        """

    def put(
        self,
        id: str,
        workspaces: Sequence[MovedWorkspace],
        fetch: Callable[[MovedWorkspace], Path],
    ) -> None:
        """Keep files for a held copy, in place of earlier ones.

        Args:
            id: Full id.
            workspaces: They.
            fetch: Returns the path of an archive.

        Raises:
            StoreError: They are damaged, or cannot be written.
        """

    def remove(self, id: str) -> None:
        """Remove the files of an execution that is no longer in the store.

        If a process dies before, they are removed with those of other dead processes.
        """

    def close(self) -> None:
        """Remove temporary files."""
