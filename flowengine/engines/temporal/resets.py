"""Attempts in runs of an execution that *Reset* of Temporal has replaced.

Temporal copies the history up to the chosen event into a new run. The attempts that came later are
not part of it, although they have taken place.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import TimeoutType, WorkflowTaskFailedCause
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from flowengine.engines.temporal.requests import ATTEMPT, NOT_BEGUN, OUTCOMES
from flowengine.errors import StoreError

_MOST_KEPT = 8
"""Number of executions whose replaced attempts are kept in memory."""


class _Replaced(NamedTuple):
    """An activity in a run that was replaced, or after it."""

    run: str
    result: Sequence[Payload] | None
    """None: it did not end, or not with a result."""


class ReplacedAttempts:
    """Finds attempts that have begun in replaced runs.

    Args:
        client: Reads histories.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._found: dict[tuple[str, ...], asyncio.Task[_Activities]] = {}

    async def outcome(self, execution: str, runs: Sequence[str], summary: str) -> str | None:
        """Return the outcome of an attempt in a replaced run, as text. None: it has not begun.

        Args:
            execution: Id of the execution.
            runs: The runs that have replaced others.
            summary: That of the activity of the attempt.
        """
        key = execution, *runs
        if key not in self._found:
            while len(self._found) >= _MOST_KEPT:
                del self._found[next(iter(self._found))]
            reading = _Activities(self._client, execution).read(runs)
            self._found[key] = asyncio.create_task(reading)
        try:
            activities = await asyncio.shield(self._found[key])
        except RPCError:
            self._found.pop(key, None)
            raise
        if (found := activities.ended.get(summary)) is not None:
            kind = await self._kind(found)
            how = f"has {kind}" if kind in OUTCOMES else "may have taken effect"
            return f"{how} in run {found.run}"
        if activities.missing:
            return f"may have taken effect: run {activities.missing[0]} was deleted"
        return None

    async def _kind(self, replaced: _Replaced) -> str:
        """Return the type of the event of an attempt."""
        if replaced.result is None:
            return "cut"
        try:
            [event] = await self._client.data_converter.decode(replaced.result)
        except StoreError:  # its key or its object is gone
            return "cut"
        return str(event["type"])


class _Activities:
    """The attempts in the replaced part of an execution's past."""

    def __init__(self, client: Client, execution: str) -> None:
        self._client = client
        self._execution = execution
        self.ended: dict[str, _Replaced] = {}
        """Summary → an activity with it that a worker may have begun, if possible with a result."""
        self.missing: list[str] = []
        """Runs without a history."""
        self._parts: deque[tuple[str, int]] = deque()
        """(run, number of the first event that was replaced), to be read."""
        self._known: set[tuple[str, int]] = set()

    async def read(self, runs: Sequence[str]) -> _Activities:
        """Read the histories of some runs, and of those that they have replaced."""
        for run in runs:
            async for event in self._events(run):
                self._follow(event)
        while self._parts:
            await self._read_part(*self._parts.popleft())
        return self

    async def _read_part(self, run: str, first: int) -> None:
        scheduled: dict[int, str] = {}
        results: dict[int, Any] = {}
        try:
            async for event in self._events(run):
                if event.event_id < first:
                    continue
                self._follow(event)
                given = event.activity_task_scheduled_event_attributes
                if given.activity_type.name == ATTEMPT:
                    summary = [event.user_metadata.summary]
                    [text] = await self._client.data_converter.decode(summary)
                    scheduled[event.event_id] = str(text)
                completed = event.activity_task_completed_event_attributes
                results[completed.scheduled_event_id] = completed.result.payloads
                failed = event.activity_task_failed_event_attributes
                if failed.failure.application_failure_info.type == NOT_BEGUN:
                    scheduled.pop(failed.scheduled_event_id, None)
                timed_out = event.activity_task_timed_out_event_attributes
                why = timed_out.failure.timeout_failure_info.timeout_type
                if why == TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_START:
                    scheduled.pop(timed_out.scheduled_event_id, None)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            self.missing.append(run)
        for number, text in scheduled.items():
            if number in results or text not in self.ended:
                self.ended[text] = _Replaced(run, results.get(number))

    def _follow(self, event: Any) -> None:
        """Note which run was replaced by the one with an event, or continues it."""
        failed = event.workflow_task_failed_event_attributes
        if failed.cause == WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW:
            self._add(failed.base_run_id, event.event_id)
        self._add(
            event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id, 0
        )

    def _add(self, run: str, first: int) -> None:
        if run and (run, first) not in self._known:
            self._known.add((run, first))
            self._parts.append((run, first))

    def _events(self, run: str) -> Any:
        return self._client.get_workflow_handle(self._execution, run_id=run).fetch_history_events()
