"""A worker: drives the executions of a store in Temporal, and runs their attempts."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesRequest,
)
from temporalio.service import RPCError
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from flowengine.engines.temporal.attempts import BEATS, Attempts
from flowengine.engines.temporal.requests import QUEUE, STATUS, WAITS
from flowengine.engines.temporal.store import connect
from flowengine.engines.temporal.workflow import FlowExecution, set_heartbeat
from flowengine.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from temporalio.client import Client

    from flowengine.engines.temporal.address import Address

_PASSED = (
    "flowengine",
    "flowengine_nodes",
    "msgpack",
    "cel_expr_python",
    "jsonschema_rs",
    "tzdata",
)
"""Modules that workflows share with the process. CEL cannot be imported twice in one process."""
_SEARCHED = {
    WAITS: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
    STATUS: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
}
_STICKY = timedelta(seconds=2)
"""How soon another worker takes over a workflow from a worker that does not respond."""
_BEAT = timedelta(seconds=1)
"""Minimum interval of heartbeats. Their responses carry cancellations of attempts."""


async def work(
    address: Address,
    *,
    drain: float,
    heartbeat: float,
    strict: bool,
    stopping: asyncio.Event,
    on_ready: Callable[[], None] = lambda: None,
    on_attempt: Callable[[str, str, str], None] = lambda execution, flow, address: None,
) -> None:
    """Run a worker until stopped.

    Args:
        address: The store.
        drain: Seconds that running attempts have to end when it stops. Attempts that take longer
            are interrupted.
        heartbeat: Seconds without a heartbeat after which an attempt is interrupted.
        strict: Whether a step fails that leaves something running.
        stopping: Stops the worker when set.
        on_ready: Called when it starts to accept work.
        on_attempt: Called with the execution, its flow and the address of the step when an attempt
            begins.

    Raises:
        StoreError: The server cannot be reached, or refuses.
    """
    set_heartbeat(heartbeat)
    client = await connect(address)
    await _register(client, address)
    from flowengine.flow.expressions import cel  # noqa: F401 - its library, before a workflow does

    beat = min(_BEAT, timedelta(seconds=heartbeat / BEATS))
    worker = Worker(
        client,
        task_queue=QUEUE,
        workflows=[FlowExecution],
        activities=[Attempts(client, strict=strict, tell=on_attempt).attempt],
        workflow_runner=runner_of_workflows(),
        sticky_queue_schedule_to_start_timeout=_STICKY,
        max_heartbeat_throttle_interval=beat,
        default_heartbeat_throttle_interval=beat,
        graceful_shutdown_timeout=timedelta(seconds=drain),
    )
    async with worker:
        on_ready()
        await stopping.wait()


def runner_of_workflows() -> SandboxedWorkflowRunner:
    """Return a sandboxed runner of workflows, without access to clocks, files and randomness."""
    restrictions = SandboxRestrictions.default.with_passthrough_modules(*_PASSED)
    return SandboxedWorkflowRunner(restrictions=restrictions)


async def _register(client: Client, address: Address) -> None:
    """Register the search attributes by which executions and waits are found."""
    operator = client.operator_service
    try:
        there = await operator.list_search_attributes(
            ListSearchAttributesRequest(namespace=address.namespace)
        )
        new = {
            name: kind for name, kind in _SEARCHED.items() if name not in there.custom_attributes
        }
        if new:
            request = AddSearchAttributesRequest(namespace=address.namespace, search_attributes=new)
            await operator.add_search_attributes(request)
    except RPCError as error:
        raise StoreError(
            f"the search attributes {WAITS} and {STATUS} cannot be added to namespace "
            f"{address.namespace}: {error.message}",
            hint=f"have its operator add them: temporal operator search-attribute create "
            f"--namespace {address.namespace} --name {WAITS} --type KeywordList "
            f"--name {STATUS} --type Keyword",
        ) from error
