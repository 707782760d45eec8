"""Content-addressed files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path
    from typing import BinaryIO

    from flowengine.journal.records import Artifact


class ArtifactPort(Protocol):
    """Keeps files for executions."""

    def put_artifact(self, execution: str, content: bytes | PathLike[str], name: str) -> Artifact:
        """Keep a file for as long as an execution is kept.

        It is on disk when this returns, so events may refer to it from then on.

        Args:
            execution: Full id of the execution that refers to it.
            content: The bytes, or the path of a file to copy.
            name: Its display name. Directories and control characters in it are dropped.

        Returns:
            Its cleaned name, size and digest.

        Raises:
            NotFound: The execution does not exist.
        """

    def hold_artifact(self, content: bytes | PathLike[str], name: str) -> Artifact:
        """Keep a file for a week, or longer if an execution refers to it within that time.

        Args:
            content: As for `put_artifact`.
            name: As for `put_artifact`.

        Returns:
            Its cleaned name, size and digest.
        """

    def open_artifact(self, sha256: str, execution: str | None = None) -> BinaryIO:
        """Open an artifact for reading.

        Args:
            sha256: Its digest.
            execution: Full id of the reading execution, which must refer to it. None: the engine
                itself.

        Raises:
            NotFound: The artifact does not exist, or the execution does not refer to it.
        """

    def fetch_artifact(self, sha256: str, execution: str | None = None) -> Path:
        """Return the path of an artifact on this machine, for programs that need a file.

        A store that keeps its artifacts elsewhere copies it first. The file must not be changed
        there.

        Args:
            sha256: Its digest.
            execution: As for `open_artifact`.

        Raises:
            NotFound: As for `open_artifact`.
        """
