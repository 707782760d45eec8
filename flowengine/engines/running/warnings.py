"""What went wrong beside an execution, written into its journal: its outcome stays as it is.

An environment that cannot be closed is noticed when a step, a region or the execution is over: the
execution may run here, may be let go already, or may have ended.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from flowengine.errors import Conflict
from flowengine.journal.format import pack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flowengine.engines.running.driver import Driver
    from flowengine.execution_environment import NotReleased


def not_released(failed: Sequence[NotReleased]) -> list[str]:
    """Return what is to be told of environments that could not be closed; nothing from inside.

    Args:
        failed: What the manager says.
    """
    return [
        f"environment '{one.resource_key}' could not be closed ({one.error}); it is tried again, "
        "and what is left then is ended by: flowengine envs reap"
        for one in failed
    ]


def warn(driver: Driver, execution: str, messages: Sequence[str]) -> None:
    """Write warnings about environments into the journal of an execution.

    Args:
        driver: Drives it, or did.
        execution: Full id.
        messages: One event each.
    """
    host = driver.host
    events: list[Any] = [
        {"type": "warning", "at": host.clock.now(), "about": "environment", "message": message}
        for message in messages
    ]
    here = driver.executions.get(execution)
    if here is not None:
        for event in events:
            driver.post(here, event)
        return
    try:
        epoch = host.keeper.acquire(execution)
    except Conflict:
        with suppress(Conflict):  # it has ended elsewhere meanwhile
            for event in events:
                host.store.send(execution, pack(event), event["at"], host.ids.message())
        return
    try:
        found = host.stored(execution, epoch)
        found.queue.extend(events)
        driver.commit(found)
    finally:
        host.keeper.release([(execution, epoch)])
