"""Asking an execution to end: recorded first, and done by whoever holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.journal.encoding import pack

if TYPE_CHECKING:
    from flowengine.engines.actors import Actor
    from flowengine.engines.host import Host


def ask_to_cancel(host: Host, execution: str, reason: str, who: Actor, *, now: bool) -> str:
    """Record a request to cancel.

    Args:
        execution: Its id, or an unambiguous prefix of it.
        reason: For the history.
        who: Who asks.
        now: Skip `finally` and compensation.

    Returns:
        The full id of the execution.
    """
    id, at = host.store.find_execution(execution), host.clock.now()
    event = {"type": "cancel", "at": at, "reason": reason, **who.fields(), "now": now}
    host.store.send(id, pack(event), at, host.ids.message())
    return id
