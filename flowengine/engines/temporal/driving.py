"""Driving executions in Temporal: workers drive them, and callers wait until they rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from time import monotonic
from typing import Any

from flowengine.engines.executions.execution import Execution, Told
from flowengine.engines.executions.views import result_of
from flowengine.engines.host import Host
from flowengine.engines.results import ExecutionResult, Update
from flowengine.engines.running.carrying import report, report_notice
from flowengine.engines.running.driving import Driving
from flowengine.engines.running.recovery import tries_for_environments
from flowengine.engines.starting.beginning import Starting, record
from flowengine.engines.temporal.store import TemporalStore
from flowengine.engines.temporal.support import unsupported
from flowengine.errors import NoWorker, StoreError
from flowengine.journal.encoding import pack, unpack
from flowengine.journal.records import JournalEntry, Loaded
from flowengine.journal.shapes import unpack_event
from flowengine.kernel.commands import Notify
from flowengine.sdk import EnvironmentLost
from flowengine.util.blocking import (
    Either,
    is_awaited,
    off_loop,
    on_this_loop,
    pause,
    refuse_on_loop,
)


class ExecutionFollower:
    """Reports what happens to an execution, from its journal, as its driver would.

    Args:
        host: Has the subscribers.
        execution: As it was before the first event to report. It is changed.
        retries: Number of the next retries that begin with the state that the execution has. One
            with a changed flow consists of two.
    """

    def __init__(self, host: Host, execution: Execution, *, retries: int) -> None:
        self._host = host
        self._execution = execution
        execution.is_bounded = False  # its events are stored already
        self._retries = retries

    def read(self) -> list[JournalEntry]:
        """Return the events that are not reported yet, if there is a subscriber.

        Without a worker there are none for now. That is for the caller to notice.
        """
        if not self._host.subscribers:
            return []
        try:
            return self._host.store.events(self._execution.id, self._execution.seq)
        except StoreError:
            return []

    def report(self, entries: list[JournalEntry]) -> None:
        """Report events that were read."""
        if not entries:
            return
        execution = self._execution
        for entry in entries:
            event = unpack_event(entry.payload, f"entry {entry.seq} of execution {execution.id}")
            if event["type"] == "retry":
                if not self._retries:  # another engine retries it
                    self._execution = self._host.stored(execution.id, 0)
                    return
                self._retries -= 1
            execution.told = Told([], [], [])
            execution.apply(event)
            report(self._host.notify, execution, execution.told)
            for command in execution.commands:
                if isinstance(command, Notify):
                    report_notice(self._host.notify, execution, command)
            execution.commands.clear()
        execution.take(release=False)  # all of it is stored


SHORTEST, LONGEST = 0.05, 1.0
"""Seconds between two polls of an execution, which may wait. The server reports its end."""
GRANT_SECONDS = 1.0
"""Seconds in which a lock that is free is granted, by workflows at the worker."""
WORKER_SECONDS = 5.0
"""Seconds between two checks for a worker."""


class RemoteDriving(Driving):
    """Replaces driving in an engine whose executions are driven by workers.

    Args:
        host: Shared context of the executions.
        store: Its store.
    """

    def __init__(self, host: Host, store: TemporalStore) -> None:
        super().__init__(host)
        self._store = store

    def new(self, starting: Starting) -> Execution:
        """Start an execution, and return its initial state. No worker is needed."""
        id = record(self._host, starting)
        return self._host.execution(id, self._host.flows.of(starting.flow, starting.hash), 0)

    def loaded(self, execution: str, resources: Mapping[str, Any] | None = None) -> Execution:
        """Return an execution in its current state."""
        if resources:
            raise unsupported("objects of the caller for steps")
        stored = self._host.stored(self._host.store.find_execution(execution), 0)
        self._try_for_environments(stored)
        return self._before_messages(stored.id) if self._has_sent(stored.id) else stored

    def _try_for_environments(self, execution: Execution) -> None:
        """Have attempts tried again that wait for an environment, as in a directory.

        What was open at a worker that is lost would be opened without its content, which is for an
        operator to decide.
        """
        host = self._host
        now = host.clock.now()
        for event in tries_for_environments(execution, now):
            error = execution.waits[event["wait"]]["error"]
            if error["type"] != EnvironmentLost.type:
                host.store.send(execution.id, pack(event), now, host.ids.message())

    async def drive(self, execution: Execution) -> ExecutionResult:
        """Wait until an execution has ended or waits."""
        if not await is_awaited():
            refuse_on_loop()
        following = self._following(execution)
        await off_loop(self._begin_again, execution)
        looks = self._looks(execution.id)
        try:
            while (delay := await off_loop(next, looks, None)) is not None:
                following.report(await off_loop(following.read))
                ended = self._store.end_within(execution.id, delay)
                if await Either(ended.result, partial(asyncio.wrap_future, ended)):
                    await pause(SHORTEST)  # if it was retried, it has not ended
            following.report(await off_loop(following.read))
            return await off_loop(self._rested, execution)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"execution {execution.id} continues in Temporal") from None
        finally:
            self._store.forget_end(execution.id)

    def leave(self, execution: Execution) -> ExecutionResult:
        """Record the queued messages of an execution. A worker drives it."""
        self._begin_again(execution)
        return result_of(self._host.stored(execution.id, 0))

    async def take(
        self, execution: str, on_taken: Callable[[], None] = lambda: None
    ) -> ExecutionResult | None:
        """Wait until an execution has ended or waits."""
        on_taken()
        return await on_this_loop(self.drive(await asyncio.to_thread(self.loaded, execution)))

    async def go_on(self, execution: str, *, resume: bool = True) -> ExecutionResult | None:
        """Wait until an execution that received a message has ended or waits again.

        Without a worker, the message is recorded, and the next worker takes it.
        """
        if not resume:
            return None
        try:
            return await self.drive(await off_loop(self._before_messages, execution))
        except NoWorker:
            return await off_loop(self._recorded, execution)

    def _recorded(self, execution: str) -> ExecutionResult:
        """Return the known state of an execution, without asking a worker."""
        record = self._store.execution(execution)
        status: Any = record.status
        return ExecutionResult(record.id, record.flow, status, None, [], None, record.due)

    def take_hands(self, execution: str) -> None:
        """Do nothing, because the workflow has journaled them."""

    def _following(self, execution: Execution) -> ExecutionFollower:
        """Return what reports the progress of an execution to subscribers, if there are any."""
        retries = sum(event["type"] == "retry" for event in execution.queue)
        return ExecutionFollower(self._host, execution, retries=retries)

    def _has_sent(self, execution: str) -> bool:
        """Return whether subscribers are to learn what messages of this engine have caused."""
        return execution in self._store.sent_at and bool(self._host.subscribers)

    def _before_messages(self, execution: str) -> Execution:
        """Return an execution as it was before messages of this engine, if there are subscribers.

        A worker takes a message immediately. Its work since then is reported like
        all later work.
        """
        store, loaded = self._store, self._store.load(execution)
        if self._has_sent(execution):
            events = store.events(execution)
            sent = [unpack(entry.payload).get("sent") for entry in events]
            if store.sent_at[execution] in sent:
                tail = events[: sent.index(store.sent_at[execution])]
                loaded = Loaded(loaded.record, None, tail)
        store.sent_at.pop(execution, None)
        return self._host.restored(loaded, 0)

    def _begin_again(self, execution: Execution) -> None:
        """Start the workflow of an execution that a retry or a fork has prepared.

        An open one is upgraded by its workflow, if nothing has happened since.
        """
        if not execution.queue:
            return
        if execution.queue[0]["type"] == "upgraded":
            try:
                self._store.upgrade(execution.id, execution.queue[0], execution.seq)
            finally:
                self._host.keeper.released(execution.id)
            return
        queue = [pack(event) for event in execution.queue]
        try:
            self._store.begin_again(execution.id, execution.take(release=False), queue)
        finally:
            self._host.keeper.released(execution.id)

    def _rested(self, execution: Execution) -> ExecutionResult:
        """Return the state of an execution, and report that it rests to subscribers."""
        id, outputs = execution.id, self._store.outputs(execution.id)
        if outputs is None:
            result = result_of(self._host.stored(id, 0))
        else:
            result = ExecutionResult(id, execution.context.flow, "succeeded", outputs, [], None)
        self._host.notify(Update(id, "end", result))
        return result

    def _looks(self, execution: str) -> Iterator[float]:
        """Yield the delays before the next poll, until the execution rests."""
        delay, looked = SHORTEST, monotonic()
        until = looked + max(self._host.linger / 1000, GRANT_SECONDS)
        while not self._rests(execution, until):
            if monotonic() - looked > WORKER_SECONDS:
                looked = monotonic()
                self._store.check_worker(execution)
            yield delay
            delay = min(delay * 2, LONGEST)

    def _rests(self, execution: str, until: float) -> bool:
        """Return whether an execution has ended, or waits for more than a timer due soon.

        Args:
            execution: Its id.
            until: How long to stay for a lock of another execution, on the monotonic clock.
        """
        if self._store.outputs(execution) is not None:
            return True
        if not self._store.may_rest(execution):
            return False
        stored, host = self._host.stored(execution, 0), self._host
        if stored.state["status"] == "running":
            return False
        if "claims" in stored.state and monotonic() < until:
            return False
        late = host.clock.now() - WORKER_SECONDS * 1000
        if any(w["kind"] == "worker" and w["since"] > late for w in stored.waits.values()):
            return False  # one may take it at once
        return stored.ended or not host.stays(stored.timers)
