"""Files of the workspace that are uploaded to pages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from flowengine.sdk import StepError
from flowengine.sdk.confined_files import Below
from flowengine.sdk.sizes import size_text
from flowengine_envs.browser.reasons import ActionFailed

LARGEST = 50 * 1024 * 1024
"""Maximum bytes of all files of an upload."""


class FileUpload(NamedTuple):
    """A file that was read."""

    path: str
    data: bytes

    @property
    def name(self) -> str:
        """The name sent to the page."""
        return PurePosixPath(self.path).name

    @property
    def described(self) -> dict[str, str | int]:
        """The description for approvers."""
        from hashlib import sha256

        digest = sha256(self.data).hexdigest()
        return {"path": self.path, "size": len(self.data), "sha256": digest}


async def read_uploads(workspace: Path, paths: Iterable[object]) -> list[FileUpload]:
    """Read files of the workspace.

    Args:
        workspace: The directory.
        paths: Paths relative to it.

    Raises:
        ActionFailed: A file is missing or outside the workspace, or the files are too large.
    """
    below, files, total = (
        Below(workspace, "uploads come from the workspace", name="the workspace"),
        [],
        0,
    )
    for path in map(str, paths):
        try:
            data = await asyncio.to_thread(below.read, path, LARGEST)
        except StepError as error:
            raise ActionFailed(error.message) from None
        total += len(data)
        if total > LARGEST:
            raise ActionFailed(f"the files have more than {size_text(LARGEST)}")
        files.append(FileUpload(path, data))
    return files
