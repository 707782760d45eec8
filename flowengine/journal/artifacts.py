"""Content-addressed files, in a directory next to the database.

A file is named after the SHA-256 of its bytes, `artifacts/ab/cdef…`, and never changes. The
database records which executions refer to it. The order of the following steps makes it safe
against a crash and a concurrent `prune`:

1. The bytes are written to `artifacts/new/` and synced.
2. The reference is committed.
3. The file is moved to its name, replacing an identical file if there is one.

`prune` removes files without a reference while holding the write lock of the database. It sees all
references committed before. A process that commits a reference afterwards also moves its file
afterwards. A crash between 2 and 3 leaves a reference that no event mentions.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from os import PathLike
from pathlib import Path

from flowengine.errors import InputError, NotFound, StoreError
from flowengine.journal.records import Artifact
from flowengine.sdk.files.file_names import clean_name
from flowengine.util.files import make_folder, sync_folder

_CHUNK = 1 << 20
_ABANDONED_AFTER = 24 * 3600
"""Seconds after which a file in `new/` counts as abandoned by a crash."""


class ArtifactFolder:
    """The directory of artifacts.

    Args:
        folder: Created with the first file.
        synced: Whether a kept file must survive a power cut.
    """

    def __init__(self, folder: str, *, synced: bool) -> None:
        self._folder = Path(folder)
        self._synced = synced

    @contextmanager
    def incoming(
        self, content: bytes | PathLike[str], name: str
    ) -> Iterator[tuple[Artifact, Callable[[], None]]]:
        """Write a file under a temporary name, removed at the end unless the file was kept.

        Args:
            content: The bytes, or the path of a file to copy.
            name: Its display name.

        Yields:
            The artifact, and a function that keeps it. Call the function after the reference is
            committed.

        Raises:
            StoreError: The directory is not writable.
        """
        new = self._folder / "new"
        temporary = new / os.urandom(8).hex()
        try:
            try:
                make_folder(os.fspath(new), synced=self._synced)
                size, digest = self._write(temporary, content)
            except OSError as error:
                raise StoreError(
                    f"cannot write an artifact to {self._folder}: {error.strerror}",
                    hint="free some space or allow writing there. Nothing refers to it yet",
                ) from error
            yield (
                Artifact(clean_name(name), size, digest),
                lambda: self._keep(temporary, digest),
            )
        finally:
            with suppress(OSError):  # moved to its name, or never created
                temporary.unlink()

    def find(self, digest: str) -> Path:
        """Return the path of an artifact.

        Args:
            digest: SHA-256 as 64 lowercase hexadecimal digits.

        Returns:
            The path of an existing file.

        Raises:
            NotFound: The file does not exist.
        """
        if len(digest) == 64 and not digest.strip("0123456789abcdef"):
            path = self._path(digest)
            if path.is_file():
                return path
        raise NotFound(f"there is no artifact {digest!r} in {self._folder}")

    def shelves(self) -> list[Path]:
        """Return the subdirectories with artifacts, each to be swept separately."""
        return sorted(self._folder.glob("[0-9a-f][0-9a-f]"))

    def sweep(self, shelf: Path, is_referred: Callable[[str], bool]) -> list[int]:
        """Remove unreferenced files from a subdirectory.

        Args:
            shelf: One of `shelves`.
            is_referred: Returns whether an execution refers to a digest. No reference may be
                committed during the call.

        Returns:
            The size of each removed file.

        Raises:
            StoreError: The directory is not writable.
        """
        try:
            loose = [path for path in shelf.iterdir() if not is_referred(shelf.name + path.name)]
            sizes = [path.stat().st_size for path in loose]
            for path in loose:
                path.unlink()
        except OSError as error:
            raise StoreError(
                f"artifacts could not be removed from {shelf}: {error.strerror}",
                hint="allow writing there, then prune again. Nothing refers to them",
            ) from error
        return sizes

    def remove_abandoned(self) -> None:
        """Remove the unfinished files of processes that died."""
        oldest = time.time() - _ABANDONED_AFTER
        for path in self._folder.glob("new/*"):
            with suppress(FileNotFoundError):  # other processes put and prune concurrently
                if path.stat().st_mtime < oldest:
                    path.unlink()

    def _write(self, path: Path, content: bytes | PathLike[str]) -> tuple[int, str]:
        """Write the content to a new file and return its size and digest."""
        hasher = sha256()
        with open(path, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            for chunk in _chunks(content):
                hasher.update(chunk)
                file.write(chunk)
            size = file.tell()
            if self._synced:
                file.flush()
                os.fsync(file.fileno())
        path.chmod(0o400)
        return size, hasher.hexdigest()

    def _keep(self, temporary: Path, digest: str) -> None:
        """Move a file to its name."""
        path = self._path(digest)
        try:
            make_folder(os.fspath(path.parent), synced=self._synced)
            temporary.replace(path)
            if self._synced:
                sync_folder(os.fspath(path.parent))
        except OSError as error:
            raise StoreError(
                f"an artifact could not be moved to {path}: {error.strerror}",
                hint="free some space or allow writing there, then try again",
            ) from error

    def _path(self, digest: str) -> Path:
        return self._folder / digest[:2] / digest[2:]


def not_referred(sha256: str, execution: str) -> NotFound:
    """Return the error for an execution that does not refer to an artifact."""
    return NotFound(f"execution {execution} has no artifact {sha256!r}")


def _chunks(content: bytes | PathLike[str]) -> Iterator[bytes]:
    """Yield the content. A file is read in parts."""
    if isinstance(content, bytes):
        yield content
        return
    try:
        file = open(content, "rb")  # noqa: SIM115 - errors of opening are the caller's, others not
    except OSError as error:
        raise InputError(f"cannot read {os.fspath(content)}: {error.strerror}") from error
    with file:
        while chunk := file.read(_CHUNK):
            yield chunk
