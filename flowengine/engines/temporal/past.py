"""Histories of workflows, replayed in this process to read an execution without a worker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.exceptions import FailureError
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from flowengine.engines.temporal.requests import process_of
from flowengine.engines.temporal.workflow import READERS, FlowExecution
from flowengine.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from temporalio.api.history.v1 import HistoryEvent
    from temporalio.client import Client, WorkflowHistory
    from temporalio.converter import DataConverter

    from flowengine.engines.temporal.workflow import WorkflowDriver
    from flowengine.kernel.events import ProcessData

P = ParamSpec("P")
T = TypeVar("T")
MOST_KEPT = 8
"""Number of replayed executions to keep in memory."""
_REPLAYING = threading.Lock()
"""Held while a history is replayed: stores of other threads may read the same execution."""


class EndedExecutions:
    """Executions that have ended, from their histories."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], WorkflowDriver] = {}
        self._turn = asyncio.Lock()

    async def of(self, client: Client, execution: str, run: str) -> WorkflowDriver:
        """Return an execution whose workflow is closed.

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
                self._kept[key] = await replayed(client, execution, run)
            return self._kept[key]


async def replayed(client: Client, execution: str, run: str) -> WorkflowDriver:
    """Return an execution as its workflow left it after the last finished workflow task.

    Raises:
        StoreError: As for `EndedExecutions.of`.
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


async def newest_events(client: Client, execution: str, run: str) -> AsyncIterator[HistoryEvent]:
    """Yield the events of a run, the newest first."""
    request = GetWorkflowExecutionHistoryReverseRequest(
        namespace=client.namespace,
        execution=WorkflowExecution(workflow_id=execution, run_id=run),
    )
    while True:
        page = await client.workflow_service.get_workflow_execution_history_reverse(request)
        for event in page.history.events:
            yield event
        if not page.next_page_token:
            return
        request.next_page_token = page.next_page_token


async def newest_task_failure(client: Client, execution: str, run: str) -> str | None:
    """Return why a workflow task of a run failed, the newest that its history has. None: none."""
    async for event in newest_events(client, execution, run):
        if event.HasField("workflow_task_failed_event_attributes"):
            failure = event.workflow_task_failed_event_attributes.failure
            error = await client.data_converter.decode_failure(failure)
            return f"{error.cause or error}" if isinstance(error, FailureError) else str(error)
    return None


async def begun_by(client: Client, execution: str, run: str, number: int) -> ProcessData | None:
    """Return which process has begun an activity of a run. None: it is not known.

    Args:
        client: Reads the history, from its end.
        execution: Id of the execution.
        run: Id of the run.
        number: The number of the event that says so.
    """
    async for event in newest_events(client, execution, run):
        if event.event_id == number:
            return process_of(event.activity_task_started_event_attributes.identity)
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
