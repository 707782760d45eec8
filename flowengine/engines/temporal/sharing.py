"""Activities with which workflows reach others: their clients must not be used in a workflow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from temporalio import activity

from flowengine.engines.deployed_flows import start_due
from flowengine.engines.executions.parts import RECEIVER
from flowengine.engines.host import Host
from flowengine.engines.infos import ScheduledStart
from flowengine.engines.messages import delivered
from flowengine.engines.temporal.requests import BEGIN, SHARE, START_DUE, USE, WANTED
from flowengine.engines.temporal.store import TemporalStore
from flowengine.errors import Conflict, InputError, NotFound
from flowengine.journal.records import Beginning, Outgoing


class Sharing:
    """Carries out requests of workflows to others.

    Args:
        host: Of this worker.
        store: Its store.
        tell: Called with each start of an execution by a schedule.
    """

    def __init__(
        self, host: Host, store: TemporalStore, tell: Callable[[ScheduledStart], None]
    ) -> None:
        self._host = host
        self._store = store
        self._tell = tell

    @activity.defn(name=BEGIN)
    async def begin(
        self, beginning: Beginning, locks: list[str] | None = None, flow: bytes = b""
    ) -> dict[str, Any]:
        """Start an execution unless its id exists, or return the `error` that prevents it.

        Args:
            beginning: The execution.
            locks: The locks on which it has claims already. None: it makes those of `beginning`.
            flow: With locks, its compiled flow, packed.
        """
        try:
            if locks is None:
                await asyncio.to_thread(self._store.begin, beginning)
            else:
                self._store.put_flow(beginning.new.hash, flow)
                await asyncio.to_thread(self._store.begin_with, beginning, locks)
        except Conflict as error:
            return {"error": error}
        return {}

    @activity.defn(name=SHARE)
    async def share(self, requests: list[Any]) -> list[Any]:
        """Carry out requests of an execution in order.

        Returns:
            Number of each message, and why it cannot be delivered or None.
        """
        refused: list[Any] = []
        for request in requests:
            if request["do"] == "deliver":
                message = request["message"]
                refused.append([message.number, await asyncio.to_thread(self._delivered, message)])
            elif request["do"] == "refer":
                await asyncio.to_thread(self._store.refer, request["execution"], request["files"])
            else:
                await asyncio.to_thread(self._store.change_shared, request)
        return refused

    @activity.defn(name=USE)
    async def use(self, grant: str, wait: str, at: int) -> bool:
        """Use a grant for the answer to a wait, and return whether it was usable."""
        return await asyncio.to_thread(self._store.use_grant, grant, wait, at)

    @activity.defn(name=WANTED)
    async def wanted(self, locks: list[str]) -> bool:
        """Return whether another execution waits for one of some locks."""
        id = activity.info().workflow_id
        claims = [await asyncio.to_thread(self._store.claims, lock) for lock in locks]
        return not all(claim.held or claim.execution == id for queue in claims for claim in queue)

    @activity.defn(name=START_DUE)
    async def start_due(self) -> None:
        """Start the executions of schedules that are due."""
        for start in await asyncio.to_thread(start_due, self._host):
            self._tell(start)

    def _delivered(self, message: Outgoing) -> str | None:
        try:
            if message.to == RECEIVER:
                self._store.execution(message.sender)  # finds its flow, which `delivered` needs
            delivered(self._host, message)
        except (NotFound, Conflict, InputError) as error:
            return error.message
        return None
