"""File storage for the steps of a flow with secrets, which refuses or masks files with secrets."""

from __future__ import annotations

import io
from os import PathLike
from typing import TYPE_CHECKING

from flowengine.sdk.scratch import scratch_folder

if TYPE_CHECKING:
    from flowengine.sdk import Artifacts, File
    from flowengine.secrets import Secrets


class ScreenedFiles:
    """Checks each file for secrets before storing it. Implements `Artifacts`.

    Args:
        files: Stores the files.
        secrets: Secrets of the flow.
    """

    __slots__ = ("_files", "_secrets")

    def __init__(self, files: Artifacts, secrets: Secrets) -> None:
        self._files = files
        self._secrets = secrets

    def put(self, source: bytes | PathLike[str], name: str) -> File:
        """Keep bytes or a copy of a file, its secrets masked if the flow declares that.

        Args:
            source: The bytes, or the path of the file.
            name: The name of the file.

        Returns:
            The file as data.

        Raises:
            ValidationError: It contains a secret that is not declared with `in_files: mask`.
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
        """Return the path of a kept file."""
        return self._files.path(sha256)
