"""Moving an execution to another store. See `flowengine.journal.ports.moving` for the protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from flowengine.errors import Conflict, NotFound, UsageError
from flowengine.journal.encoding import unpack
from flowengine.journal.records import ENDED

if TYPE_CHECKING:
    from flowengine.journal.ports.moving import ExecutionCopy, MovingPort
    from flowengine.journal.store import Store

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
    if source.location == target.location:
        raise UsageError(f"both stores are {source.location}")
    try:
        id = source.find_execution(execution)
    except NotFound:
        if new.drive_copy(execution):  # the process that moved it died after the last step but one
            return execution
        raise
    for _ in range(_TRIES):
        copy = _copy(old, new, id)
        _check(id, copy)
        new.hold_copy(copy)
        for digest in copy.files:
            target.put_artifact(id, source.fetch_artifact(digest, id), digest)
        if old.give_up(id, copy.mark):
            new.drive_copy(id)
            return id
    raise Conflict(f"execution {id} changes while it is moved", hint="try it again")


def _copy(old: MovingPort, new: MovingPort, id: str) -> ExecutionCopy:
    """Return an execution. Of one that has ended, no earlier copy remains."""
    try:
        return old.copy_execution(id)
    except Conflict as conflict:
        if getattr(conflict.standing, "status", None) in ENDED:
            new.drop_copy(id)
        raise


def _movable(store: Store) -> MovingPort:
    if not hasattr(store, "copy_execution"):
        raise UsageError(f"executions cannot be moved from or to the store {store.location}")
    return cast("MovingPort", store)


def _check(id: str, copy: ExecutionCopy) -> None:
    """Refuse an execution whose environments have files, which would stay behind."""
    flow: Any = unpack(copy.flows[copy.data["journal"]["record"][3]])
    if _WITH_FILES & {*flow.get("environments", ())} and copy.data["journal"]["entries"]:
        raise UsageError(
            f"execution {id} has environments, whose files cannot be moved",
            hint="let it end in its store",
        )
