"""A worker: drives the executions of a store in Temporal, and runs their attempts."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)
from temporalio.service import RPCError
from temporalio.worker import (
    Worker,
    WorkerDeploymentConfig,
    WorkflowInstance,
    WorkflowInstanceDetails,
)
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from flowengine.engines.environments.making import make_environments
from flowengine.engines.flows import LANGUAGE
from flowengine.engines.guard import BEATS, Pulse
from flowengine.engines.host import Host, RandomIds, SystemClock
from flowengine.engines.infos import ScheduledStart
from flowengine.engines.rule_files import RuleFiles
from flowengine.engines.temporal.at_work import AtWork
from flowengine.engines.temporal.attempts import Attempts
from flowengine.engines.temporal.connection import Address, connect
from flowengine.engines.temporal.guard import guarded
from flowengine.engines.temporal.heartbeat import patience_with_task
from flowengine.engines.temporal.listing import register
from flowengine.engines.temporal.offering import Offering
from flowengine.engines.temporal.past import has_completed
from flowengine.engines.temporal.places import Place, own_place
from flowengine.engines.temporal.requests import NOT_COMPLETED, PLACES, QUEUE, SHARED
from flowengine.engines.temporal.shared import SharedWorkflow
from flowengine.engines.temporal.sharing import Sharing
from flowengine.engines.temporal.store import TemporalStore
from flowengine.engines.temporal.workflow import FlowExecution, set_heartbeat
from flowengine.settings_files import load_settings
from flowengine.store_folder import project_folder
from flowengine.telemetry.worker_log import Format

_PASSED = (
    "flowengine",
    "flowengine_nodes",
    "msgpack",
    "jsonschema_rs",
    "re2",
    "tzdata",
)
"""Modules that workflows share with the process. Some cannot be imported twice in one."""
_NO_EVENTS = ("query_workflow", "remove_from_cache")
"""Jobs of a workflow task that stand for no event of its history."""
_STICKY = timedelta(seconds=2)
"""How soon another worker takes over a workflow from a worker that does not respond."""
_MOST_WITH_ENVIRONMENTS = 10_000
"""Maximum number of concurrent attempts with environments. They must not wait for each other: one
that has to wait for long counts as sent to a worker that is lost."""
_LONGEST_LOOK = 5.0
"""Seconds in which the server reports whether a workflow task is completed."""
_BEAT = timedelta(seconds=1)
"""Minimum interval of heartbeats. Their responses carry cancellations of attempts."""


async def work(
    address: Address,
    *,
    drain: float,
    heartbeat: float | None,
    strict: bool,
    rules: RuleFiles | None = None,
    deployment: str | None = None,
    offers: Collection[str] = (),
    concurrency: int | None = None,
    log_format: Format,
    stopping: asyncio.Event,
    on_ready: Callable[[], None] = lambda: None,
    on_attempt: Callable[[str, str, str], None] = lambda execution, flow, address: None,
    on_start: Callable[[ScheduledStart], None] = lambda start: None,
) -> None:
    """Run a worker until stopped.

    Args:
        address: The store.
        drain: Seconds that running attempts have to end when it stops. Attempts that take longer
            are interrupted.
        heartbeat: Seconds without a heartbeat after which an attempt is interrupted. None: those
            of the environment.
        strict: Whether a step fails whose script leaves something running.
        rules: The rules of this host, which apply to the calls that it makes.
        deployment: Name and build of its deployment version, `NAME:BUILD`. None: it takes the
            executions of every version.
        offers: Offers of this worker to steps that need them.
        concurrency: How many attempts with needs it runs at once. None: as many as others.
        log_format: The form of the log of this process.
        stopping: Stops the worker when set.
        on_ready: Called when it starts to accept work.
        on_attempt: Called with the execution, its flow and the address of the step when an attempt
            begins.
        on_start: Called with each start of an execution by a schedule.

    Raises:
        StoreError: The server cannot be reached, or refuses.
    """
    store = TemporalStore(address)
    if heartbeat is None:
        heartbeat = store.heartbeat
    store.heartbeat = heartbeat
    set_heartbeat(heartbeat)
    client = await connect(address, store.objects)
    await register(client)
    times = _times(heartbeat, drain)
    with own_place(address) as place, closing(Pulse()) as pulse:
        host = _host(store, place, rules, offers)
        offering = Offering(place, offers, concurrency)
        attempts = Attempts(
            client, host, store, strict=strict, offering=offering, pulse=pulse, tell=on_attempt
        )
        sharing = Sharing(host, store, on_start)
        workers = _workers(client, attempts, sharing, offering, times, deployment)
        # The library's two seconds, for which it has no option, end tasks that would succeed.
        driving: Any = workers.shared._workflow_worker
        driving._deadlock_timeout_seconds = patience_with_task(heartbeat)
        with guarded(pulse, address, heartbeat, log_format, client.identity) as end:
            living = asyncio.create_task(attempts.keep_alive(heartbeat, end))
            try:
                async with workers.running():
                    on_ready()
                    await stopping.wait()
                    await _shut_down(workers, attempts.at_work, drain, heartbeat)
            finally:
                living.cancel()
                if attempts.leaving is not None:
                    attempts.leaving.cancel()
                await attempts.at_work.close()
                await asyncio.to_thread(host.close)


def _times(heartbeat: float, drain: float) -> dict[str, timedelta]:
    """Return the times of a worker of the library."""
    beat = min(_BEAT, timedelta(seconds=heartbeat / BEATS))
    return {
        "max_heartbeat_throttle_interval": beat,
        "default_heartbeat_throttle_interval": beat,
        "graceful_shutdown_timeout": timedelta(seconds=drain),
    }


def forward_logs() -> None:
    """Have Temporal's library log with Python's `logging`, and not to standard error by itself."""
    forwarding = LogForwardingConfig(logging.getLogger("temporalio"))
    level = TelemetryFilter(core_level="WARN", other_level="ERROR")
    telemetry = TelemetryConfig(logging=LoggingConfig(level, forwarding=forwarding))
    Runtime.set_default(Runtime(telemetry=telemetry), error_if_already_set=False)


class _Workers(NamedTuple):
    """The task queues that this process works for."""

    shared: Worker
    """For all executions."""
    own: Worker
    """For the environments of this process."""
    watching: Worker
    """For the attempts of this process that have left their activity."""
    offering: Sequence[Worker]
    """For steps that need what this process offers."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run all of them during the block."""
        async with AsyncExitStack() as stack:
            for worker in (self.shared, self.own, self.watching, *self.offering):
                await stack.enter_async_context(worker)
            yield


async def _shut_down(workers: _Workers, at_work: AtWork, drain: float, heartbeat: float) -> None:
    """Let running attempts end.

    What has left its activity gets another one from its workflow, which this process may be the
    only one to drive, and again from each further run of the workflow. Without one, it would be cut
    off, or its result lost.
    """
    await _at_most(min(drain, heartbeat), at_work.drain())
    await asyncio.gather(*(worker.shutdown() for worker in workers.offering))
    await asyncio.gather(
        workers.shared.shutdown(), workers.own.shutdown(), _at_most(drain, at_work.all_over())
    )
    await workers.watching.shutdown()


async def _at_most(seconds: float, waiting: Coroutine[Any, Any, None]) -> None:
    """Wait, but not longer than some time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await waiting


def _workers(
    client: Client,
    attempts: Attempts,
    sharing: Sharing,
    offering: Offering,
    times: Mapping[str, Any],
    deployment: str | None,
) -> _Workers:
    """Return the workers of this process."""
    place = offering.place
    shared: list[Any] = [
        attempts.attempt,
        attempts.describe,
        attempts.place,
        attempts.reduce,
        attempts.who,
        sharing.begin,
        sharing.share,
        sharing.use,
        sharing.wanted,
        sharing.start_due,
    ]
    worker = Worker(
        client,
        task_queue=QUEUE,
        workflows=[FlowExecution, SharedWorkflow],
        activities=shared,
        max_concurrent_activities=PLACES,
        workflow_runner=runner_of_workflows(client, versioned=deployment is not None),
        sticky_queue_schedule_to_start_timeout=_STICKY,
        build_id=version("flowengine") if deployment is None else None,
        deployment_config=None if deployment is None else _deployment(deployment),
        **times,
    )
    own = Worker(
        client,
        task_queue=place.queue,
        activities=[
            attempts.attempt,
            attempts.describe,
            attempts.pack,
            attempts.release,
            attempts.unpack,
        ],
        max_concurrent_activities=_MOST_WITH_ENVIRONMENTS,
        build_id=version("flowengine"),
        **times,
    )
    watching = Worker(
        client,
        task_queue=place.watch_queue,
        activities=[attempts.watch],
        max_concurrent_activities=PLACES + _MOST_WITH_ENVIRONMENTS,
        build_id=version("flowengine"),
        **{**times, "graceful_shutdown_timeout": timedelta()},
    )
    return _Workers(worker, own, watching, _offering(client, offering, times))


def _offering(client: Client, offering: Offering, times: Mapping[str, Any]) -> list[Worker]:
    """Return the workers that take requests for places, one at a time each."""
    return [
        Worker(
            client,
            task_queue=queue,
            activities=[offering.offer],
            max_concurrent_activities=1,
            max_concurrent_activity_task_polls=1,
            build_id=version("flowengine"),
            **{**times, "graceful_shutdown_timeout": timedelta()},
        )
        for queue in offering.queues
    ]


def _deployment(text: str) -> WorkerDeploymentConfig:
    """Return the deployment version of a worker. Executions stay on the one on which they began."""
    name, _, build = text.partition(":")
    return WorkerDeploymentConfig(
        version=WorkerDeploymentVersion(name, build),
        use_worker_versioning=True,
        default_versioning_behavior=VersioningBehavior.PINNED,
    )


def _host(
    store: TemporalStore, place: Place, rules: RuleFiles | None, offers: Collection[str]
) -> Host:
    """Return the context in which this worker runs attempts and delivers messages."""
    folder = None if store.objects is None else store.objects.folder
    guarded = [] if folder is None else [str(folder)]
    return Host(
        store,
        language=LANGUAGE,
        rules=rules or RuleFiles([]),
        environments=partial(make_environments, given=place.folder, guarded=guarded),
        clock=SystemClock(),
        ids=RandomIds(),
        settings=load_settings(project_folder()),
        workdir=os.getcwd(),
        linger=0,
        ttl=0,
        offers=offers,
    )


@dataclass(frozen=True)
class _Runner(SandboxedWorkflowRunner):
    """Answers no query from events that may belong to another workflow task in the end.

    A query comes with the history up to now. Temporal's library applies all of its events, even
    those of a task that another worker has, at the time of that task or of the one before. If that
    worker has died, its task times out. The next one has these events and later ones together, at
    another time, and so does each replay: other commands follow.
    """

    is_completed: Callable[[str, str, int], bool] | None = None
    """Whether the workflow task of a run that began with an event is completed. None: all are."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Return a workflow that fails such a query. It is then replayed for the next task."""
        instance = super().create_instance(det)
        activate, is_completed = instance.activate, self.is_completed
        if is_completed is None:
            return instance
        newest: int | None = None

        def activated(act: WorkflowActivation) -> WorkflowActivationCompletion:
            nonlocal newest
            jobs = [job for job in act.jobs if job.WhichOneof("variant") not in _NO_EVENTS]
            if jobs:
                newest = None if act.is_replaying else act.history_length
            elif newest is not None and _is_query_by_itself(act):
                is_known = newest != act.history_length
                if not is_known and not is_completed(det.info.workflow_id, act.run_id, newest):
                    completion = WorkflowActivationCompletion(run_id=act.run_id)
                    completion.failed.failure.message = NOT_COMPLETED
                    return completion
                newest = None
            return activate(act)

        instance.activate = activated  # type: ignore[method-assign]
        return instance


def _is_query_by_itself(act: WorkflowActivation) -> bool:
    """Return whether an activation is a query that belongs to no workflow task."""
    return any(job.query_workflow.query_id == "legacy_query" for job in act.jobs)


class _VersionedRunner(_Runner):
    """Keeps executions on their version, and moves shared objects to the newest one."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Return a workflow that names its behavior, if it is not the default."""
        instance = super().create_instance(det)
        if det.defn.name != SHARED:
            return instance
        activate = instance.activate

        def activated(act: WorkflowActivation) -> WorkflowActivationCompletion:
            completion = activate(act)
            if completion.HasField("successful"):
                upgrades: Any = VersioningBehavior.AUTO_UPGRADE.value
                completion.successful.versioning_behavior = upgrades
            return completion

        instance.activate = activated  # type: ignore[method-assign]
        return instance


def runner_of_workflows(
    client: Client | None = None, *, versioned: bool = False
) -> SandboxedWorkflowRunner:
    """Return a sandboxed runner of workflows, without access to clocks, files and randomness.

    Args:
        client: Reads histories, on the running loop. None: no workflow is queried while it runs.
        versioned: Whether the worker belongs to a deployment version.
    """
    restrictions = SandboxRestrictions.default.with_passthrough_modules(*_PASSED)
    runner = _VersionedRunner if versioned else _Runner
    return runner(
        restrictions=restrictions, is_completed=None if client is None else _completed(client)
    )


def _completed(client: Client) -> Callable[[str, str, int], bool]:
    """Return a function for threads that asks the server whether a workflow task is completed."""
    loop = asyncio.get_running_loop()

    def is_completed(execution: str, run: str, started: int) -> bool:
        asking = asyncio.run_coroutine_threadsafe(
            has_completed(client, execution, run, started), loop
        )
        try:
            return asking.result(_LONGEST_LOOK)
        except (RPCError, TimeoutError):  # then it is asked again
            asking.cancel()
            return False

    return is_completed
