"""The files of an execution for the steps of a flow with secrets: what holds one is not kept."""

from __future__ import annotations

import io
from os import PathLike
from typing import TYPE_CHECKING

from flowengine.sdk.scratch import scratch_folder

if TYPE_CHECKING:
    from flowengine.sdk import Artifacts, File
    from flowengine.secrets import Secrets


class ScreenedFiles:
    """Looks at a file before it is kept; an `Artifacts`.

    Args:
        files: Where files are kept.
        secrets: Those of the flow.
    """

    __slots__ = ("_files", "_secrets")

    def __init__(self, files: Artifacts, secrets: Secrets) -> None:
        self._files = files
        self._secrets = secrets

    def put(self, source: bytes | PathLike[str], name: str) -> File:
        """Keep bytes or a copy of a file, its secrets masked if the flow says so.

        Args:
            source: The bytes, or where the file is.

        Returns:
            The file as data.

        Raises:
            ValidationError: It holds a secret that is not declared with `in_files: mask`.
        """
        with scratch_folder() as folder:
            copy = folder / "masked"
            with (
                io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb") as given,
                copy.open("wb") as target,
            ):
                masked = self._secrets.mask_file(given, target, name)
            return self._files.put(copy if masked else source, name)

    def path(self, sha256: str) -> str:
        """Return where a kept file can be read."""
        return self._files.path(sha256)
