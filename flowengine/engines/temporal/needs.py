"""Workers that offer what steps of an execution need: the workflow asks them for places.

See `offering.py` for their side. An attempt with needs begins as a wait for a worker. Its request
is an activity on the task queue of its labels. The worker that has a place answers with its own
queue, to which the attempt goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError

from flowengine.engines.executions.execution import Execution
from flowengine.engines.temporal.placing import result_of
from flowengine.engines.temporal.requests import OFFER, queue_of_needs
from flowengine.kernel.commands import Run
from flowengine.kernel.graph.specs import CompiledFlow

_LONGEST = timedelta(days=365)


class Needs:
    """The requests of an execution to workers, and their answers.

    Args:
        execution: The execution.
        start: The input of its run, as for `WorkflowDriver`.
        heartbeat: Returns the time without a heartbeat after which an activity is interrupted (s).
        on_answer: Called after a request, with the number of its wait if a worker has a place.
        begin: Begins a task.
    """

    def __init__(
        self,
        execution: Execution,
        start: Mapping[str, Any],
        heartbeat: Callable[[], float],
        on_answer: Callable[[int | None], None],
        begin: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._execution = execution
        self._heartbeat = heartbeat
        self._on_answer = on_answer
        self._begin_task = begin
        self._are_there = False
        """Whether a step of the flow, or of an earlier form of it, has needs."""
        self._asked: dict[int, tuple[asyncio.Task[None], list[str]]] = {}
        """Wait → its request, and the requested offers."""
        self._withdrawn: set[int] = set()
        """Waits whose requests are being withdrawn."""
        self._places: dict[int, tuple[str, list[str]]] = {}
        """Unit → the queue of the worker with a place for its attempt, and the requested offers."""
        self.note(start["flow"], *start.get("flows", {}).values())

    def note(self, *flows: CompiledFlow) -> None:
        """Note forms of the flow."""
        steps = (step for flow in flows for step in flow["steps"])
        self._are_there = self._are_there or any("needs" in step for step in steps)

    def kept(self) -> list[Any]:
        """Return what `restore` takes in another run, which repeats the requests."""
        return [[unit, *place] for unit, place in self._places.items()]

    def restore(self, places: Sequence[Any]) -> None:
        """Continue after an earlier run."""
        self._places = {unit: (queue, needs) for unit, queue, needs in places}

    def lacks(self, run: Run) -> bool:
        """Return whether an attempt has to wait for a worker first."""
        if not self._are_there:
            return False
        needs = self._execution.linked.graph.node(run.step).needs
        if run.unit in self._places and self._places[run.unit][1] != needs:
            del self._places[run.unit]  # the flow was replaced since
        return bool(needs) and run.unit not in self._places

    def take(self, run: Run) -> str | None:
        """Return the queue of the worker that has a place for an attempt. None: it has no needs."""
        place = self._places.pop(run.unit, None)
        return None if place is None else place[0]

    @property
    def busy(self) -> bool:
        """Whether there are requests, which another run could not take over."""
        return bool(self._asked)

    def ask(self, *, again: bool) -> None:
        """Ask the workers that offer what steps wait for, and withdraw the other requests.

        Args:
            again: Whether another run is to ask, so that all are withdrawn here.
        """
        waits = self._execution.waits if self._are_there and not again else {}
        for number, (task, needs) in self._asked.items():
            is_asked = number in waits and waits[number]["needs"] == needs
            if not is_asked and number not in self._withdrawn:
                self._withdrawn.add(number)
                task.cancel()
        for number, record in waits.items():
            if record["kind"] == "worker" and number not in self._asked:
                task = self._begin_task(self._ask(number, record))
                self._asked[number] = task, record["needs"]

    async def _ask(self, number: int, record: Mapping[str, Any]) -> None:
        wait = self._execution.state["waits"][number]
        unit = wait["cut"] if wait["owner"] == "cut" else wait["unit"]
        asked: workflow.ActivityHandle[Any] = workflow.start_activity(
            OFFER,
            unit,
            task_queue=queue_of_needs(record["needs"]),
            start_to_close_timeout=_LONGEST,
            heartbeat_timeout=timedelta(seconds=self._heartbeat()),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=f"worker for {record['address']}",
        )
        try:
            queue = await asked
        except (ActivityError, asyncio.CancelledError):
            queue = result_of(asked)  # None: it was withdrawn
        del self._asked[number]
        self._withdrawn.discard(number)
        if queue is not None and number in self._execution.waits:
            self._places[unit] = queue, record["needs"]
        self._on_answer(number if unit in self._places else None)
