"""Large values and files of executions in Temporal, in an object store that all processes share.

Objects are named after their content and never change. `value/DIGEST` is an encoded payload to
which a history refers, `file/DIGEST` a file, and `has/EXECUTION/DIGEST` states that an execution
refers to that file. `workspace/DIGEST` is an archive of the files of an environment, while its
execution moves.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore, from_url

from flowengine.engines.environments.requests import check
from flowengine.errors import InputError, NotFound, StoreError, UsageError
from flowengine.journal.artifacts import not_referred
from flowengine.journal.records import Artifact
from flowengine.journal.store import MovedWorkspace
from flowengine.sdk.files.file_names import clean_name
from flowengine.sdk.processes import make_scratch, remove_scratch


class LocalCopies:
    """A temporary directory with copies, made for the first one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folder: TemporaryDirectory[str] | None = None

    def path(self, digest: str) -> Path:
        """Return the path of a copy. The copy does not have to exist.

        Args:
            digest: The digest of its content.
        """
        with self._lock:
            if self._folder is None:
                self._folder = TemporaryDirectory(prefix="flowengine-")
            return Path(self._folder.name, digest)

    def write(self, path: Path, content: Iterable[bytes]) -> None:
        """Write a copy, whole or not at all, because other threads may read it.

        Args:
            path: As returned by `path`.
            content: Its parts.
        """
        part = path.with_suffix(f".{os.urandom(4).hex()}")
        with part.open("wb") as file:
            file.writelines(content)
        part.replace(path)

    def close(self) -> None:
        """Remove all copies. A later one is written to another directory."""
        with self._lock:
            folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()


VARIABLE = "FLOWENGINE_OBJECTS"
"""The environment variable with the location: a directory, or `s3://BUCKET/PREFIX`, `gs://…`,
`az://…`. Credentials are read from the variables of these services."""

_DETAILS = "\n\nDebug source:"
"""Begins a dump of structures in error messages of obstore."""


def objects() -> Objects | None:
    """Return the object store of this process. None: none is configured.

    Raises:
        UsageError: Its location is not valid.
    """
    location = os.environ.get(VARIABLE)
    return Objects(location) if location else None


class Objects:
    """An object store.

    Args:
        location: See `VARIABLE`.

    Raises:
        UsageError: The location is not valid.
    """

    def __init__(self, location: str) -> None:
        self.location = location
        self.folder: Path | None = None
        self._copies = LocalCopies()
        try:
            if "://" in location:
                self._store: ObjectStore = from_url(location)
            else:
                self.folder = Path(location).absolute()
                self._store = LocalStore(self.folder, mkdir=True)
        except Exception as error:
            raise UsageError(
                f"{VARIABLE} is {location!r}: {error}",
                hint="it is a directory, or s3://BUCKET/PREFIX",
            ) from error

    # -- values

    async def put_value(self, value: bytes) -> str:
        """Keep a value, and return its digest."""
        digest = sha256(value).hexdigest()
        with _explained(self.location):
            await obstore.put_async(self._store, f"value/{digest}", value)
        return digest

    async def value(self, digest: str) -> bytes:
        """Return a value.

        Raises:
            NotFound: It does not exist.
            StoreError: It is damaged.
        """
        _check(digest)
        with _explained(self.location):
            stored = await obstore.get_async(self._store, f"value/{digest}")
            value = bytes(await stored.bytes_async())
        if sha256(value).hexdigest() != digest:
            raise StoreError(f"the value {digest} in {self.location} is damaged")
        return value

    async def size(self, digest: str) -> int:
        """Return the number of bytes of a value.

        Raises:
            NotFound: It does not exist.
        """
        _check(digest)
        with _explained(self.location):
            return (await obstore.head_async(self._store, f"value/{digest}"))["size"]

    # -- files

    def put(self, execution: str, content: bytes | PathLike[str], name: str) -> Artifact:
        """Keep a file for an execution."""
        size, digest = _measured(content)
        with _explained(self.location):
            source: Any = content if isinstance(content, bytes) else Path(content)
            obstore.put(self._store, f"file/{digest}", source)
        self.refer(execution, [digest])
        return Artifact(clean_name(name), size, digest)

    def refer(self, execution: str, digests: Iterable[str]) -> None:
        """Note that an execution refers to files."""
        with _explained(self.location):
            for digest in digests:
                obstore.put(self._store, f"has/{execution}/{digest}", b"-")

    def has(self, execution: str | None, digest: str) -> bool:
        """Return whether an execution refers to a file. None: any execution."""
        if not _is_digest(digest):
            return False
        name = f"file/{digest}" if execution is None else f"has/{execution}/{digest}"
        try:
            with _explained(self.location):
                obstore.head(self._store, name)
        except NotFound:
            return False
        return True

    def digests_of(self, execution: str) -> list[str]:
        """Return the digests of the files that an execution refers to."""
        with _explained(self.location):
            pages = obstore.list(self._store, f"has/{execution}/")
            return [one["path"].rpartition("/")[2] for page in pages for one in page]

    def fetch(self, digest: str, execution: str | None) -> Path:
        """Return the path of a file on this machine.

        Raises:
            NotFound: It does not exist, or the execution does not refer to it.
        """
        if not self.has(execution, digest):
            if execution is None:
                raise NotFound(f"there is no artifact {digest!r} in {self.location}")
            raise not_referred(digest, execution)
        if self.folder is not None:
            return self.folder / "file" / digest
        path = self._copies.path(digest)
        if not path.exists():
            with _explained(self.location):
                self._copies.write(path, obstore.get(self._store, f"file/{digest}"))
        return path

    # -- workspaces

    def put_workspace(self, archive: Path, digest: str) -> None:
        """Keep an archive.

        Args:
            archive: The file.
            digest: Its digest.
        """
        with _explained(self.location):
            obstore.put(self._store, f"workspace/{digest}", archive)

    def fetch_workspace(self, digest: str, size: int, into: Path) -> None:
        """Copy an archive to a new file.

        Args:
            digest: Its digest.
            size: Its size (bytes), which is compared before it is read.
            into: The file.

        Raises:
            NotFound: It does not exist.
            StoreError: It is damaged.
        """
        _check(digest)
        name, hasher, left = f"workspace/{digest}", sha256(), size
        with _explained(self.location), into.open("xb") as file:
            stored = obstore.get(self._store, name)
            if stored.meta["size"] == size:
                for chunk in stored:
                    hasher.update(chunk)
                    file.write(chunk)
                    left -= len(chunk)
        if left or hasher.hexdigest() != digest:
            raise StoreError(f"the archive {digest} in {self.location} is damaged")

    def close(self) -> None:
        """Remove local copies of files."""
        self._copies.close()


def _is_digest(text: str) -> bool:
    """Return whether a text is a digest, and not the path of another object."""
    return len(text) == 64 and not text.strip("0123456789abcdef")


def _check(digest: str) -> None:
    """Check the form of a digest from a payload.

    Raises:
        NotFound: It is none.
    """
    if not _is_digest(digest):
        raise NotFound("the name of a value is not a digest")


@contextmanager
def _explained(location: str) -> Iterator[None]:
    """Raise errors of an object store in this project's types."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound(f"an object is not in {location}: {error}") from error
    except (BaseError, OSError) as error:
        raise StoreError(
            f"the object store {location} does not work: {str(error).partition(_DETAILS)[0]}",
            hint=f"see {VARIABLE}, and its credentials",
        ) from error


def _measured(content: bytes | PathLike[str]) -> tuple[int, str]:
    """Return the size and the digest of bytes or of a file."""
    if isinstance(content, bytes):
        return len(content), sha256(content).hexdigest()
    try:
        hasher, size = sha256(), 0
        with open(content, "rb") as file:
            while chunk := file.read(1 << 20):
                hasher.update(chunk)
                size += len(chunk)
    except OSError as error:
        raise InputError(f"cannot read {os.fspath(content)}: {error.strerror}") from error
    return size, hasher.hexdigest()


# Files of environments in the object store, while their execution moves.
#
# In Temporal, these files are in a directory of the worker at which the environments were open.
# They go through the object store, because the process that moves an execution can be on another
# host.


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
