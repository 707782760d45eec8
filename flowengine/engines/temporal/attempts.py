"""Attempts as activities: a worker runs one, and returns the resulting event."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any, NoReturn

from temporalio import activity

from flowengine.engines.attempts.outcome import AttemptFailed, failed, succeeded
from flowengine.engines.attempts.printed import PRINTING
from flowengine.engines.executions.linked_flows import LinkedFlow
from flowengine.engines.executions.outer_attempts import OUTER
from flowengine.engines.temporal.requests import ATTEMPT, MOST_BYTES
from flowengine.engines.temporal.support import unsupported
from flowengine.journal.encoding import pack
from flowengine.kernel.commands import Run
from flowengine.sdk import ExecutionContext

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from temporalio.client import Client

    from flowengine.sdk import File

BEATS = 3
"""Heartbeats in the time after which an attempt counts as interrupted."""


class Attempts:
    """Runs attempts in this process.

    Args:
        client: Reads flows that this process has not cached.
        strict: Whether a step fails that leaves something running.
        tell: Called with the execution, its flow and the address of the step when an attempt
            begins.
    """

    def __init__(
        self, client: Client, *, strict: bool, tell: Callable[[str, str, str], None]
    ) -> None:
        self._client = client
        self._tell = tell
        self._strict = strict
        self._flows: dict[str, LinkedFlow] = {}

    @activity.defn(name=ATTEMPT)
    async def attempt(self, hash: str, workdir: str, given: list[Any]) -> dict[str, Any]:
        """Run an attempt to its end.

        Args:
            hash: Hash of the flow.
            workdir: Working directory of the execution.
            given: The kernel's command, as a list.

        Returns:
            The event.
        """
        beating = asyncio.create_task(_beat())
        run = Run(*given)._replace(regions=tuple(given[Run._fields.index("regions")]))
        try:
            flow = await self._flow(hash)
            self._tell(activity.info().workflow_id or "", flow.compiled["id"], run.address)
            return await self._outcome(flow, workdir, run)
        except asyncio.CancelledError:
            details = activity.cancellation_details()
            if details is not None and details.worker_shutdown:
                return {"type": "cut"}
            raise
        finally:
            beating.cancel()

    async def _outcome(self, flow: LinkedFlow, workdir: str, run: Run) -> dict[str, Any]:
        if not os.path.isdir(workdir):  # noqa: ASYNC240 - it takes no time
            return _refused("StoreError", f"this worker has no folder {workdir}, where it was run")
        context = ExecutionContext(
            activity.info().workflow_id or "",
            flow.compiled["id"],
            flow.compiled.get("version", ""),
            workdir,
            _NoFiles(),
            lambda address, text: print(text, flush=True),  # noqa: T201 - what steps print
            strict=self._strict,
        )
        printed = flow.runner.printed(run.step, None)
        PRINTING.set(printed)
        OUTER.set(_NoFlows())  # type: ignore[arg-type] # refuses every request
        now = time.time_ns() // 1_000_000
        try:
            kept = await flow.runner.attempt(context, run, printed=printed)
            event: Any = succeeded(run, kept.value, now)
        except AttemptFailed as failure:
            event = failed(run, failure, now)
        size = len(pack(event))
        if size > MOST_BYTES:
            message = f"the result has {size} bytes; Temporal takes {MOST_BYTES} at most"
            return _refused("LimitExceeded", message)
        return dict(event)

    async def _flow(self, hash: str) -> LinkedFlow:
        """Return a flow.

        If not cached, it is read from the first event of the workflow's history.
        """
        if hash not in self._flows:
            info = activity.info()
            handle = self._client.get_workflow_handle(
                info.workflow_id or "", run_id=info.workflow_run_id
            )
            async for event in handle.fetch_history_events(page_size=1):
                payloads = event.workflow_execution_started_event_attributes.input.payloads
                [start] = await self._client.data_converter.decode(payloads)
                self._flows[hash] = LinkedFlow(start["flow"], hash)
                break
        return self._flows[hash]


async def _beat() -> None:
    """Send heartbeats. The first one is delayed, because each is a call to the server."""
    timeout = activity.info().heartbeat_timeout
    while timeout is not None:
        await asyncio.sleep(timeout.total_seconds() / BEATS)
        activity.heartbeat()


def _refused(kind: str, message: str) -> dict[str, Any]:
    return {"type": "failed", "error": {"type": kind, "message": message}}


class _NoFiles:
    """Placeholder for the files that steps keep."""

    def put(self, source: bytes | PathLike[str], name: str) -> File:
        raise unsupported("files and large outputs that steps keep")

    def path(self, sha256: str) -> str:
        raise unsupported("files that steps keep")


class _NoFlows:
    """Placeholder for the enclosing attempt, for engines and agents that its function uses."""

    def __getattr__(self, name: str) -> NoReturn:
        raise unsupported("functions that run flows or agents")
