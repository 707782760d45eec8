"""Moving an execution to another store. See `flowengine.journal.store` for the protocol."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import Any, cast

from flowengine.engines.environments.requests import FolderWorkspaces
from flowengine.errors import Conflict, NotFound, UsageError
from flowengine.journal.encoding import unpack
from flowengine.journal.records import ENDED
from flowengine.journal.store import MovingPort, Store, WorkspacesPort
from flowengine.store_folder import environments_of

_TRIES = 5
_WITH_FILES = frozenset({"execution", "region"})
"""Scopes of environments that keep files while their execution waits."""


def move(source: Store, target: Store, execution: str) -> str:
    """Move an open execution that waits.

    A move that was interrupted is finished by repeating it.

    Args:
        source: Contains it.
        target: Contains it afterwards.
        execution: Its id, or an unambiguous prefix of it.

    Returns:
        Its full id.

    Raises:
        NotFound: It does not exist.
        Conflict: It has ended or is running, or the target has another one with its id.
        UsageError: It cannot be moved, or not to this store.
    """
    old, new = _movable(source), _movable(target)
    of_old, of_new = _workspaces(source), _workspaces(target)
    if source.location == target.location:
        raise UsageError(f"both stores are {source.location}")
    try:
        id = source.find_execution(execution)
    except NotFound:
        if new.drive_copy(execution):  # the process that moved it died after the last step but one
            return execution
        raise
    with closing(of_old), closing(of_new):
        for _ in range(_TRIES):
            try:
                copy = old.copy_execution(id)
            except Conflict as conflict:
                if getattr(conflict.standing, "status", None) in ENDED:
                    new.drop_copy(id)
                    of_new.remove(id)
                raise
            flow: Any = unpack(copy.flows[copy.data["journal"]["record"][3]])
            may_have = _WITH_FILES & {*flow.get("environments", ())}
            has_files = bool(may_have) and copy.data["journal"]["entries"]
            packed = of_old.pack(id, copy.mark) if has_files else ()
            if packed is None:
                continue
            new.hold_copy(copy._replace(workspaces=packed, source=source.location))
            for digest in copy.files:
                target.put_artifact(id, source.fetch_artifact(digest, id), digest)
            of_new.put(id, packed, of_old.fetch)
            if old.give_up(id, copy.mark):
                if has_files:
                    of_old.remove(id)
                new.drive_copy(id)
                return id
    raise Conflict(f"execution {id} changes while it is moved", hint="try it again")


def interrupted(source: Store, target: Store) -> list[str]:
    """Return the ids of executions whose move ended after the first store had given them up."""
    left = []
    for id in _movable(target).held_copies(source.location):
        try:
            source.execution(id)
        except NotFound:
            left.append(id)
    return left


def _movable(store: Store) -> MovingPort:
    if not hasattr(store, "copy_execution"):
        raise UsageError(f"executions cannot be moved from or to the store {store.location}")
    return cast("MovingPort", store)


def _workspaces(store: Store) -> WorkspacesPort:
    """Return the files of the environments of a store's executions."""
    folder = store.folder
    if folder is not None:
        return FolderWorkspaces(partial(environments_of, folder))
    workspaces: WorkspacesPort = cast("Any", store).workspaces
    return workspaces
