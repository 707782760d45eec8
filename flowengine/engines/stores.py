"""The table of stores: none is memory, `temporal://` is Temporal, a path is SQLite."""

from __future__ import annotations

import os
from os import PathLike
from typing import Any, Literal

from flowengine.engines import temporal as remote_stores
from flowengine.errors import Hint, StoreError, UsageError
from flowengine.journal.store import Durability, JournalStore
from flowengine.sdk.python.argument_checks import in_words
from flowengine.sdk.python.extras import missing_package
from flowengine.store_folder import DATABASE, claim, find_store, remote_store, state_folder


def open_store(
    store: str | PathLike[str] | JournalStore | None, durability: Durability
) -> JournalStore:
    """Return the store at an address, or the given one.

    Raises:
        UsageError: The value is not a store, or its address is not valid.
        StoreError: The directory belongs to another user, or ownership cannot be recorded.
    """
    if store is None:
        from flowengine.engines.memory.store import MemoryStore

        return MemoryStore()
    if isinstance(store, str | PathLike):
        if (address := remote_store(store)) is not None:
            opened: JournalStore = temporal().open_remote(address)
            return opened
        from flowengine.journal.sqlite.store import SqliteStore

        return SqliteStore(os.path.join(_own_folder(store), DATABASE), durability)
    if not hasattr(store, "location"):
        raise UsageError(
            f"{in_words(store)} is not a store",
            hint="give a directory or an address, or None for a store in memory",
        )
    return store


def temporal(door: Literal["opening", "working"] = "opening") -> Any:
    """Return a door of `flowengine.engines.temporal`, which is loaded when it is first used.

    Nothing else imports the package of stores in Temporal.

    Raises:
        UsageError: Temporal's package is not installed.
    """
    try:
        return getattr(remote_stores, door)
    except ModuleNotFoundError as error:
        raise missing_package(error) or error from None


def _own_folder(given: str | PathLike[str]) -> str:
    """Return the directory of a store, which must belong to the user.

    Raises:
        StoreError: The directory belongs to another user, or ownership cannot be recorded.
    """
    folder, by_name = find_store(given)
    try:
        claim(folder, by_name=by_name)
    except OSError as error:
        if not by_name:
            raise StoreError(
                f"the store {folder} cannot be recorded as yours in {state_folder()}: "
                f"{error.strerror or error}",
                hint=Hint(
                    "set XDG_STATE_HOME to a directory that may be written, or name the store: "
                    f"Engine({folder!r})",
                    "set XDG_STATE_HOME to a directory that may be written, or name the store: "
                    f"--store {folder}",
                ),
            ) from None
    return folder
