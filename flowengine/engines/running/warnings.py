"""Problems that do not affect the outcome of an execution, written into its journal.

An environment that cannot be closed is noticed when a step, a region or the execution is over: the
execution may run here, may be let go already, or may have ended.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from flowengine.errors import Conflict
from flowengine.journal.encoding import pack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flowengine.engines.executions.execution import Execution
    from flowengine.engines.host import Host
    from flowengine.execution_environment import NotReleased
    from flowengine.kernel.events import Event


def not_released(failed: Sequence[NotReleased], now: int) -> list[Event]:
    """Return the warnings about environments that could not be closed; nothing from inside.

    Args:
        failed: What the manager says.
        now: The time (ms).
    """
    return [
        {
            "type": "warning",
            "at": now,
            "about": "environment",
            "message": f"environment '{one.resource_key}' could not be closed ({one.error}); it is "
            "tried again, and what is left then is ended by: flowengine envs reap",
        }
        for one in failed
    ]


def warn(
    host: Host, execution: str, warnings: Sequence[Event], commit: Callable[[Execution], None]
) -> None:
    """Write warnings into the journal of an execution that nobody drives here.

    Args:
        execution: Full id.
        warnings: The events.
        commit: Commits what is in the queue of an execution.
    """
    try:
        epoch = host.keeper.acquire(execution)
    except Conflict:
        with suppress(Conflict):  # it has ended elsewhere meanwhile
            for event in warnings:
                host.store.send(execution, pack(event), event["at"], host.ids.message())
        return
    try:
        found = host.stored(execution, epoch)
        found.queue.extend(warnings)
        commit(found)
    finally:
        host.keeper.release([(execution, epoch)])
