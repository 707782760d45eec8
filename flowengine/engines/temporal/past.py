"""Executions that have ended, read without a worker, and the pasts of open ones.

A long execution leaves what readers need with the end of its workflow, and each of its runs begins
with the events of the run before. The histories of others are replayed in this process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, ParamSpec, TypeVar

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client, WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.exceptions import FailureError
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from flowengine.engines.temporal.payloads import unpacked
from flowengine.engines.temporal.workflow import READERS, FlowExecution, WorkflowDriver
from flowengine.errors import StoreError
from flowengine.journal.records import JournalEntry

P = ParamSpec("P")
T = TypeVar("T")
MOST_KEPT = 8
"""Number of executions to keep in memory."""
_REPLAYING = threading.Lock()
"""Held while a history is replayed: stores of other threads may read the same execution."""


class Histories:
    """Executions and their runs, as far as their histories do not change any more."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], WorkflowDriver] = {}
        self._before: dict[tuple[str, str], tuple[str, int]] = {}
        """Execution and run → the run before, and the number of its first event."""
        self._turn = asyncio.Lock()

    async def ended(self, client: Client, execution: str, run: str) -> WorkflowDriver:
        """Return an execution, or a part of it, as a run that is closed has left it.

        Args:
            client: Reads the history.
            execution: Its id.
            run: Id of the run that closed.

        Raises:
            StoreError: This version of the program does not understand the history.
        """
        key = execution, run
        async with self._turn:
            if key not in self._kept:
                while len(self._kept) >= MOST_KEPT:
                    del self._kept[next(iter(self._kept))]
                left = await _left(client, execution, run)
                self._kept[key] = left or await replayed(client, execution, run)
            return self._kept[key]

    async def events(
        self, client: Client, execution: str, run: str, since: int, until: int
    ) -> list[JournalEntry]:
        """Return events of an execution from before a run.

        Args:
            client: Reads the starts of this run and of earlier ones.
            execution: Its id.
            run: Id of the run.
            since: Number of the first event to return.
            until: Number of the first one after these.
        """
        parts: list[list[JournalEntry]] = []
        while until > since:
            before, first = self._before.get((execution, run), ("", 0))
            if not before or first < until:
                past = (await first_input(client, execution, run))["past"]
                before, events = past["before"], past.get("events")
                if events is None:  # they were too many for the start
                    events = (await self.ended(client, execution, before)).store.events(execution)
                parts.append([entry for entry in events if since <= entry.seq < until])
                first = events[0].seq if events else until
                self._before[execution, run] = before, first
            until, run = min(until, first), before
        return [entry for part in reversed(parts) for entry in part]


async def _left(client: Client, execution: str, run: str) -> WorkflowDriver | None:
    """Return an execution from what its workflow has left. None: it has left nothing."""
    last = await anext(newest_events(client, execution, run, at_once=1))
    failure = last.workflow_execution_failed_event_attributes.failure
    payloads = (
        failure.application_failure_info.details.payloads
        or last.workflow_execution_completed_event_attributes.result.payloads
    )
    [left] = await client.data_converter.decode(payloads) or [None]
    packed = left.get("left") if isinstance(left, dict) else left
    if not isinstance(packed, bytes):
        return None
    flow = (await first_input(client, execution, run))["flow"]
    return await asyncio.to_thread(lambda: WorkflowDriver({**unpacked(packed), "flow": flow}))


async def replayed(client: Client, execution: str, run: str) -> WorkflowDriver:
    """Return an execution as its workflow left it after the last finished workflow task.

    Raises:
        StoreError: This version of the program does not understand the history.
    """
    history = await client.get_workflow_handle(execution, run_id=run).fetch_history()
    try:
        return await asyncio.to_thread(_replayed, history, client.data_converter)
    except Exception as error:
        raise StoreError(
            f"the history of execution {execution} cannot be read: {error}",
            hint="it may have been written by another version of flowengine",
        ) from error


def _replayed(history: WorkflowHistory, data_converter: DataConverter) -> WorkflowDriver:
    """Replay a history on this thread."""
    with _REPLAYING, TasksWithoutLimit(max_workers=1) as executor:
        replayer = Replayer(
            workflows=[FlowExecution],
            workflow_runner=UnsandboxedWorkflowRunner(),
            workflow_task_executor=executor,
            data_converter=data_converter,
        )
        drivers = READERS.setdefault(history.run_id, [])
        try:
            asyncio.run(replayer.replay_workflow(history))
        finally:
            del READERS[history.run_id]
    return drivers[-1]


class TasksWithoutLimit(ThreadPoolExecutor):
    """Runs workflow tasks, and returns only futures that are done.

    Temporal's library gives up a workflow task that its thread has not finished in two seconds.
    That is too short for thousands of steps at once, or on a busy machine.
    """

    def submit(self, work: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> Future[T]:
        """Run a function on another thread, and wait for it."""
        future = super().submit(work, *arguments, **named)
        wait([future])
        return future


async def newest_events(
    client: Client, execution: str, run: str, *, at_once: int = 0
) -> AsyncIterator[HistoryEvent]:
    """Yield the events of a run, the newest first.

    Args:
        client: Reads the history, from its end.
        execution: Id of the execution.
        run: Id of the run.
        at_once: How many events to request at once. 0: as many as the server gives.
    """
    request = GetWorkflowExecutionHistoryReverseRequest(
        namespace=client.namespace,
        execution=WorkflowExecution(workflow_id=execution, run_id=run),
        maximum_page_size=at_once,
    )
    while True:
        page = await client.workflow_service.get_workflow_execution_history_reverse(request)
        for event in page.history.events:
            yield event
        if not page.next_page_token:
            return
        request.next_page_token = page.next_page_token


async def newest_task_failure(client: Client, execution: str, run: str) -> str | None:
    """Return why a workflow task failed since the last completed one. None: it has timed out."""
    async for event in newest_events(client, execution, run):
        if event.HasField("workflow_task_completed_event_attributes"):
            return None
        if event.HasField("workflow_task_failed_event_attributes"):
            failure = event.workflow_task_failed_event_attributes.failure
            error = await client.data_converter.decode_failure(failure)
            return f"{error.cause or error}" if isinstance(error, FailureError) else str(error)
    return None


async def begun_by(
    client: Client, execution: str, run: str, number: int
) -> tuple[str, float] | None:
    """Return which client has received an activity of a run, and when. None: it is not known.

    Args:
        client: Reads the history, from its end.
        execution: Id of the execution.
        run: Id of the run.
        number: The number of the event that reports it.
    """
    async for event in newest_events(client, execution, run):
        if event.event_id == number:
            who = event.activity_task_started_event_attributes.identity
            return who, event.event_time.ToNanoseconds() / 1e9
    return None


async def has_completed(client: Client, execution: str, run: str, started: int) -> bool:
    """Return whether the workflow task of a run that began with an event is completed."""
    async for event in newest_events(client, execution, run):
        if event.workflow_task_completed_event_attributes.started_event_id == started:
            return True
        if event.event_id <= started:
            return False
    return False


async def first_input(client: Client, execution: str, run: str | None = None) -> Mapping[str, Any]:
    """Return the data that a workflow was started with, from the first event of its history."""
    handle = client.get_workflow_handle(execution, run_id=run)
    async for event in handle.fetch_history_events(page_size=1):
        payloads = event.workflow_execution_started_event_attributes.input.payloads
        start, flow = await client.data_converter.decode(payloads)
        return {**start, "flow": flow}
    raise StoreError(f"the history of execution {execution} is empty")
