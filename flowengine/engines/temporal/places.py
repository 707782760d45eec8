"""The place of a worker: a directory of this host, and the task queue of the environments in it.

    STATE/temporal/STORE/N/lock            locked by the worker that has the place
    STATE/temporal/STORE/N/id              a random id, part of the queue's name
    STATE/temporal/STORE/N/environments/   open environments and workspaces

Whichever worker of this user starts on this host next takes the first free place of its store, and
thus the queue and the workspaces that the last one has left. STATE is as in `store_folder`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import count
from typing import NamedTuple

from flowengine.engines.temporal.connection import Address
from flowengine.engines.temporal.requests import QUEUE
from flowengine.sdk.files.confined_files import take_lock
from flowengine.store_folder import make_private, state_folder
from flowengine.util.files import write_whole


class Place(NamedTuple):
    """A place that this process has."""

    queue: str
    """Name of the task queue that only its worker polls."""
    folder: str | None
    """Directory of its environments. None: the state directory is not writable, so that nothing of
    this place remains for another worker."""

    @property
    def watch_queue(self) -> str:
        """Name of the task queue for the activities that watch attempts of its worker.

        While a worker drains, only this one stays open.
        """
        return f"{self.queue}-watch"


@contextmanager
def own_place(address: Address) -> Iterator[Place]:
    """Have a place of this host during the block.

    Args:
        address: The store.
    """
    name = sha256("/".join(address).encode()).hexdigest()[:16]
    try:
        folder, lock = _free_place(os.path.join(state_folder(), "temporal", name))
    except OSError:
        yield Place(f"{QUEUE}-{_new_id()}", None)
        return
    try:
        yield Place(f"{QUEUE}-{_id(folder)}", os.path.join(folder, "environments"))
    finally:
        os.close(lock)


def _free_place(above: str) -> tuple[str, int]:
    """Return the first directory that no process has locked, and its lock."""
    for number in count(1):
        folder = os.path.join(above, str(number))
        make_private(folder)
        lock = take_lock(os.path.join(folder, "lock"))
        if lock is not None:
            return folder, lock
    raise AssertionError("numbers do not end")


def _id(folder: str) -> str:
    """Return the id of a place that this process has."""
    path = os.path.join(folder, "id")
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except FileNotFoundError:
        write_whole(path, _new_id().encode())
        return _id(folder)


def _new_id() -> str:
    return os.urandom(8).hex()
