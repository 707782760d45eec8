"""Parts of replies that models are writing, passed from the process that drives to its readers.

A server is another process than the one that drives an execution. The driving process writes the
parts of each attempt, with secrets masked, to a file that exists only as long as the attempt. The
journal has the complete reply, so nothing is lost if a part is never read:

    STATE/stores/ID/replies/wanted        touched while there may be readers
    STATE/stores/ID/replies/EXECUTION.STEP   JSON, one part a line, locked by its process

Nothing is written, and no model is asked to stream, unless a reader has touched `wanted`.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from flowengine.store_folder import claim, known, make_private

WANTED_SECONDS = 60.0
"""Seconds for which one touch of `wanted` counts."""
LARGEST_REPLY = 512 * 1024
"""Maximum bytes written for one attempt. The rest is only in the journal."""
_CHECK_SECONDS = 0.5
"""Seconds between two checks whether there are readers."""
_TICK_NS = 100_000_000
"""A directory that was changed within this time may change again with the same time stamp."""
_STALE_SECONDS = 3600.0
"""Age from which files of dead processes are removed."""
_FOLDER, _WANTED = "replies", "wanted"
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW


class ReplyFiles:
    """The files of one store's arriving replies.

    Args:
        store: The directory of the store, which is the user's own.
    """

    def __init__(self, store: str) -> None:
        self._store = store
        self._folder: str | None = None
        self._is_wanted = False
        self._check_at = 0.0

    def want(self) -> None:
        """Let the processes that drive write parts, for a minute. Failures have no effect."""
        with suppress(OSError):
            folder = self._folder = os.path.join(claim(self._store, by_name=True), _FOLDER)
            make_private(folder)
            path = os.path.join(folder, _WANTED)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | _FLAGS, 0o600))
            os.utime(path)
            oldest = time.time() - _STALE_SECONDS  # of processes that have died
            with os.scandir(folder) as entries:
                for entry in entries:
                    age = entry.stat(follow_symlinks=False).st_mtime
                    if entry.name != _WANTED and age < oldest:
                        os.unlink(entry.path)

    def are_wanted(self) -> bool:
        """Return whether there may be readers. Cheap: this is called for each attempt."""
        now = time.monotonic()
        if now >= self._check_at:
            self._check_at = now + _CHECK_SECONDS
            self._is_wanted = False
            with suppress(OSError):
                if (folder := self._known()) is not None:
                    touched = os.stat(os.path.join(folder, _WANTED)).st_mtime
                    self._is_wanted = abs(time.time() - touched) < WANTED_SECONDS
        return self._is_wanted

    def writer(self, execution: str, address: str) -> ReplyWriter | None:
        """Return the writer of one attempt, or None without a reader."""
        if not self.are_wanted() or self._folder is None:
            return None
        return ReplyWriter(os.path.join(self._folder, _name(execution, address)), address)

    def reader(self, execution: str) -> ReplyReader | None:
        """Return a reader of the replies of an execution. None: the store has none."""
        folder = self._known()
        return None if folder is None else ReplyReader(folder, _name(execution))

    def _known(self) -> str | None:
        """Return their directory, whether or not it exists."""
        if self._folder is None and (private := known(self._store)) is not None:
            self._folder = os.path.join(private, _FOLDER)
        return self._folder


class ReplyWriter:
    """Writes the parts of one attempt. Its file is created by the first one.

    Args:
        path: The file.
        address: Address of the step.
    """

    def __init__(self, path: str, address: str) -> None:
        self._path = path
        self._address = address
        self._descriptor: int | None = None
        self._left = LARGEST_REPLY

    def write(self, part: Mapping[str, Any]) -> None:
        """Write a part: `{part, text?, …}`. Failures have no effect on the attempt."""
        import json

        line = json.dumps({"address": self._address, **part}).encode() + b"\n"
        self._left -= len(line)
        if self._left < 0:
            return
        try:
            if self._descriptor is None:
                self._descriptor = self._created()
            os.write(self._descriptor, line)
        except OSError:  # a full disk, for example
            self._left = 0

    def close(self) -> None:
        """Remove the file: the attempt is over."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            self._left = 0
            os.close(descriptor)
            with suppress(OSError):
                os.unlink(self._path)

    def _created(self) -> int:
        with suppress(FileNotFoundError):
            os.unlink(self._path)  # of an attempt whose process has died
        descriptor = os.open(
            self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | _FLAGS, 0o600
        )
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return descriptor


class ReplyReader:
    """Reads the parts of the replies of one execution, from its open attempts.

    Args:
        folder: The directory of the files.
        prefix: Beginning of their names.
    """

    def __init__(self, folder: str, prefix: str) -> None:
        self._folder = folder
        self._prefix = prefix
        self._listed_at = 0
        self._is_closed = False
        self._open: dict[tuple[str, int], _Open] = {}
        """Name and inode of a file → the open file."""

    def read(self) -> list[dict[str, Any]]:
        """Return the parts since the last call: `{address, part, text?, …}`."""
        if self._is_closed:
            return []
        there = self._list()
        replies: list[dict[str, Any]] = []
        for key, each in list(self._open.items()):
            is_abandoned = _is_abandoned(each.descriptor)
            replies += each.read()
            if is_abandoned and (end := each.end()) is not None:
                replies.append(end)
            if is_abandoned or (there is not None and key not in there):
                os.close(self._open.pop(key).descriptor)
        return replies

    def close(self) -> None:
        self._is_closed = True
        while self._open:
            os.close(self._open.popitem()[1].descriptor)

    def _list(self) -> set[tuple[str, int]] | None:
        """Open new files, and return all that exist. None: no file has come or gone."""
        try:
            changed = os.stat(self._folder).st_mtime_ns
            if changed == self._listed_at:
                return None
            with os.scandir(self._folder) as entries:
                names = [entry.name for entry in entries if entry.name.startswith(self._prefix)]
        except FileNotFoundError:
            return set()
        self._listed_at = changed if time.time_ns() - changed > _TICK_NS else 0
        there = set()
        for name in names:
            try:
                descriptor = os.open(os.path.join(self._folder, name), os.O_RDONLY | _FLAGS)
            except FileNotFoundError:
                continue
            key = name, os.fstat(descriptor).st_ino
            there.add(key)
            if key in self._open or _is_abandoned(descriptor):
                os.close(descriptor)
            else:
                self._open[key] = _Open(descriptor)
        return there


class _Open:
    """An open file of parts."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._rest = b""
        self._last: dict[str, Any] = {}

    def read(self) -> list[dict[str, Any]]:
        """Return the parts that have been written since the last call."""
        import json

        data = os.read(self.descriptor, LARGEST_REPLY)
        *lines, self._rest = (self._rest + data).split(b"\n")
        replies: list[dict[str, Any]] = [json.loads(line) for line in lines]
        self._last = replies[-1] if replies else self._last
        return replies

    def end(self) -> dict[str, Any] | None:
        """Return the end of a reply that no process writes any more. None: it has had one."""
        if self._last.get("part", "end") == "end":
            return None
        kept: dict[str, Any] = {
            name: self._last[name] for name in ("address", "agent") if name in self._last
        }
        return {**kept, "part": "end"}


def _is_abandoned(descriptor: int) -> bool:
    """Return whether no process writes a file any more: the reply is complete, or it died."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True


def _name(execution: str, address: str | None = None) -> str:
    """Return the name of the file of an attempt. Without address: how those names begin."""
    import hashlib

    first = hashlib.sha256(execution.encode()).hexdigest()[:32]
    if address is None:
        return f"{first}."
    return f"{first}.{hashlib.sha256(address.encode()).hexdigest()[:32]}"
