"""The public engine: the operations of the command line as a Python API, sync and async.

    with Engine() as engine:
        result = engine.run(engine.load("hello.yaml"), {"name": "Ada"})

Methods that may drive an execution exist in two variants: `run` for plain code and `run_async` for
code on an event loop. Methods that only read or write the store (`show`, `executions`, `waits`,
`events`, ...) are short and exist once. Call them from both.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

from flowengine.engines.flows import as_loaded
from flowengine.engines.host import Host, RandomIds, SystemClock, open_store
from flowengine.engines.operating import Operator
from flowengine.engines.policy_files import PolicyFiles
from flowengine.engines.results import (
    ExecutionResult,
    ScheduledStart,
    Sent,
)
from flowengine.errors import UsageError
from flowengine.sdk.argument_checks import (
    check_kinds,
    check_methods,
    check_one_of,
    in_words,
    milliseconds,
    offered,
)
from flowengine.settings import current_user, load_settings
from flowengine.store_folder import project_folder, remote_store
from flowengine.util.blocking import blocking, on_loop
from flowengine.util.files import MACHINE_FOLDER, check_path, user_folder

if TYPE_CHECKING:
    from datetime import datetime

    from flowengine.engines.flows import LoadedFlow
    from flowengine.engines.host import Clock, Ids, ToolAuthority
    from flowengine.engines.infos import DeployedInfo, StartInfo
    from flowengine.engines.starting.beginning import Starting
    from flowengine.engines.temporal.payloads import PayloadPage
    from flowengine.engines.temporal.store import TemporalStore
    from flowengine.execution_environment import EnvironmentManager
    from flowengine.flow.building import Flow
    from flowengine.journal.store import Durability, JournalStore


class Engine(Operator):
    """Runs flows durably in this process, without any other process.

    A sync and async context manager: `with Engine() as engine`, `async with Engine() as engine`.
    Leaving it stops all running steps: their processes and tasks are ended, and their executions
    are saved and can be resumed. Then the store is closed.

    Args:
        store: Directory of the store (created if missing), an open `JournalStore`, or None for a
            store in memory. Default: `$FLOWENGINE_STORE`, otherwise the nearest `.flowengine` in
            the current directory or one above it. If there is none, it is created in the current
            directory. `temporal://HOST:PORT/NAMESPACE`: a Temporal namespace, where workers drive
            the executions.
        durability: The failure that a commit survives: `power` (a power cut), `process` (a killed
            process), `none`. Default: the host's settings, otherwise `power`.
        workdir: Working directory of the file tools for executions started by this engine, also
            when another process resumes them. Default: the current directory.
        user: The acting user, as `user:NAME`. Default: the system user of this process. A service
            passes the user whose credentials it has checked.
        via: The channel, for the audit trail of decisions: `python`, `cli`, ...
        tool_authority: Consulted about each call that requires approval. It approves, edits,
            rejects, responds or defers to human approvers, on behalf of `user`.
            `CallbackAuthority(function)` of `flowengine.tool_environment` calls a function.
            Default: only human approvers decide.
        linger: Seconds, or a duration such as `5m`, for which `run` and similar calls wait for a
            timer. They always wait for the pauses of `retry` and `loop.every`.
        ttl: Seconds, or a duration, without a heartbeat after which another process may take over
            an execution.
        runtime_resources: Objects for the steps of all executions, by name, in addition to the
            environments that a flow declares. `run` accepts objects for a single execution. They
            belong to the caller: the engine does not check or close them. An object with the name
            of an environment raises a `UsageError` before anything starts.
        offers: Labels of what this process offers to steps that [need](language.md) it, such as
            `gpu`. A step that needs something else waits for a worker. With a store in Temporal,
            its workers offer it.
        clock: Returns the time. Not for a store in Temporal, where the times are its server's.
        ids: Creates ids.

    Raises:
        UsageError: An argument is of another kind.
    """

    def __init__(
        self,
        store: str | PathLike[str] | JournalStore | None = "",
        *,
        durability: Durability | None = None,
        workdir: str | PathLike[str] | None = None,
        user: str | None = None,
        via: str = "python",
        linger: float | str = 60.0,
        ttl: float | str = 15.0,
        runtime_resources: Mapping[str, Any] | None = None,
        offers: Iterable[str] = (),
        tool_authority: ToolAuthority | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        check_kinds(str, user=user, via=via)
        check_kinds(PathLike, workdir=workdir)
        check_kinds(dict, runtime_resources=runtime_resources)
        check_methods("tool_authority", tool_authority, "approve_tool")
        check_methods("clock", clock, "now")
        check_methods("ids", ids, "execution", "message")
        check_one_of("durability", durability, ("power", "process", "none"))
        if workdir is not None and not os.path.isdir(workdir):
            raise UsageError(f"workdir: there is no directory {os.fspath(workdir)}")
        check_path("the directory", os.path.abspath(workdir or "."))
        settings = load_settings(project_folder())
        opened, remote = _opened(store, durability or settings.durability or "power")
        if remote is not None:
            _check_remote(remote, tool_authority, clock, runtime_resources, offers)
        host = Host(
            opened,
            clock=clock or SystemClock(),
            ids=ids or RandomIds(),
            settings=settings,
            workdir=os.path.abspath(workdir or "."),
            linger=milliseconds("linger", linger),
            ttl=milliseconds("ttl", ttl),
            resources=runtime_resources,
            offers=offered(offers),
            policies=PolicyFiles([MACHINE_FOLDER, user_folder()], opened, project_folder()),
        )
        super().__init__(host, user or current_user(), via)
        if remote is not None:
            from flowengine.engines.temporal.driving import RemoteDriving

            self._driving = RemoteDriving(host, remote)
        self._tool_authority = tool_authority
        if tool_authority is not None:
            host.consultant = self._consultant
        self._end_traces = self._begin_traces()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        from flowengine.sdk.user_code import on_thread

        await self._driving.close()
        await on_thread(self._host.close_environments)  # blocks until everything is closed
        self.close()

    def acting_as(self, user: str, *, via: str) -> Self:
        """Return this engine for another acting user, with the same store and executions.

        For services: the caller has checked the user's credentials. Settings about acting on behalf
        of other users do not apply, because the user acts in person. Close only the first engine.

        Args:
            user: The acting user, as `user:NAME`.
            via: The channel, for the audit trail of decisions.

        Returns:
            An engine that is cheap to create, so that each request can have its own.
        """
        from copy import copy

        other = copy(self)
        other.user, other._via = user, via
        other.__dict__.pop("_consultant", None)
        return other

    @property
    def environments(self) -> EnvironmentManager:
        """The manager of the environments that its executions use.

        With a store in Temporal, they belong to its workers, and this raises a `UsageError`.
        """
        if remote_store(str(self._host.store.location)) is not None:
            from flowengine.engines.temporal.support import refuse

            refuse("access to the environments of its workers")
        return self._host.environments.manager

    def decode_payloads(
        self, payloads: Sequence[Mapping[str, Any]], namespace: str | None = None
    ) -> list[dict[str, Any]]:
        """Return payloads of a store in Temporal as JSON, for Temporal's own page.

        Args:
            payloads: In their JSON form: `metadata` (name → base64), `data` (base64).
            namespace: Their namespace. None: that of the store.

        Returns:
            The same number. Text replaces those that cannot be decoded, or are larger than 1 MiB,
            or 8 MiB together.

        Raises:
            InputError: They are not in this form.
            UsageError: The store is not in Temporal, or has another namespace.
        """
        return self._payload_page(namespace).decoded(payloads)

    def encode_payloads(
        self, payloads: Sequence[Mapping[str, Any]], namespace: str | None = None
    ) -> list[dict[str, Any]]:
        """Return payloads as workers send them to Temporal: encrypted, or kept by reference.

        Args:
            payloads: As for `decode_payloads`.
            namespace: Their namespace. None: that of the store.

        Raises:
            InputError: They are not in this form.
            UsageError: The store is not in Temporal, or has another namespace.
            StoreError: The object store does not work.
        """
        return self._payload_page(namespace).encoded(payloads)

    def _payload_page(self, namespace: str | None) -> PayloadPage:
        location = str(self.store.location)
        if remote_store(location) is None:
            raise UsageError("only a store in Temporal has payloads")
        own = location.rpartition("/")[2]
        if namespace not in (None, own):
            raise UsageError(f"the namespace of this store is {own!r}, not {namespace!r}")
        store: Any = self.store
        page: PayloadPage = store.payloads
        return page

    def migrate(self, execution: str, *, to: str | PathLike[str]) -> str:
        """Move an open execution that waits to another store, with all that is known of it.

        A move that was interrupted is finished by repeating it.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            to: The other store: a directory, or `temporal://HOST:PORT/NAMESPACE`.

        Returns:
            Its full id.

        Raises:
            NotFound: It does not exist.
            Conflict: It has ended or is running, or the other store has one with its id.
            UsageError: It cannot be moved, or not to that store.
        """
        from flowengine.engines.interventions.moving import move

        with closing(self._other(to)) as target:
            return move(self._host.store, target, execution)

    def interrupted_moves(self, *, to: str | PathLike[str]) -> list[str]:
        """Return the ids of executions whose move to another store is left to be finished.

        They are in neither store's hands until `migrate` is repeated with the id.

        Args:
            to: The other store.
        """
        from flowengine.engines.interventions.moving import interrupted

        with closing(self._other(to)) as target:
            return interrupted(self._host.store, target)

    def _other(self, to: str | PathLike[str]) -> JournalStore:
        """Open another store, to which executions are moved."""
        durability = self._host.store.durability
        return _opened(to, "power" if durability == "none" else durability)[0]

    def close(self) -> None:
        """Release all leases and close the store. A second call has no effect."""
        self._end_histories()
        self._host.close()
        self._end_traces()

    def leave(self) -> None:
        """Release all leases and leave the store open, for a process that exits immediately.

        Closing would checkpoint the write-ahead log of the store, which costs two syncs. The
        process that fills the log does that instead.
        """
        self._host.close(store=False)
        self._end_traces()

    def _begin_traces(self) -> Callable[[], None]:
        """Export traces and metrics if environment variables say so, and return what ends it."""
        names = ("OTEL_EXPORTER_OTLP_", "OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER")
        if any(name.startswith(names) for name in os.environ):
            from flowengine.telemetry.export import export_if_wanted
            from flowengine.telemetry.metrics import export_metrics_if_wanted

            end_traces, end_metrics = export_if_wanted(self), export_metrics_if_wanted(self)

            def end() -> None:
                end_traces()
                end_metrics()

            return end
        return lambda: None

    # Flows

    def load(self, flow: Flow | str | PathLike[str]) -> LoadedFlow:
        """Read, check and compile a flow. An unchanged flow is loaded from the user's cache.

        A flow with errors raises a `FlowFileError` that contains all of them.

        Args:
            flow: The path of its file, or a flow built in Python.

        Returns:
            The flow.
        """
        return as_loaded(flow)

    # Driving

    @blocking
    async def run(
        self,
        flow: Flow | LoadedFlow | str | PathLike[str],
        inputs: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        labels: Mapping[str, str] | None = None,
        execution_environments: Sequence[Mapping[str, Any]] = (),
        runtime_resources: Mapping[str, Any] | None = None,
    ) -> ExecutionResult:
        """Start an execution and drive it until it finishes or has to wait.

        Args:
            flow: A flow built in Python or returned by `load`, or the path of a file.
            inputs: Name → value. Inputs with a default are optional.
            id: Its id. The same id with the same flow and inputs continues the existing execution.
                With another flow or other inputs it raises a `Conflict`.
            labels: Labels to filter lists by.
            execution_environments: Specs of environments for this execution, in addition to those
                that its flow declares: `{"kind": "python", "resource_key": "sandbox"}`. Functions
                find them in `runtime_resources`. The specs are stored with the execution, so any
                process can resume it.
            runtime_resources: Objects for its steps, by name, in addition to those of the engine.
                They belong to the caller: the engine does not check, save or close them. This
                engine keeps them until the execution has ended. Another engine must receive them in
                `resume`.

        Returns:
            The state of the execution.
        """
        starting = self._starting(
            flow, inputs, id, labels, execution_environments, runtime_resources
        )
        return await self._driving.drive(self._driving.new(starting))

    run_async = on_loop(run, "Concurrent calls share commits.")

    def start(
        self,
        flow: Flow | LoadedFlow | str | PathLike[str],
        inputs: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        labels: Mapping[str, str] | None = None,
        execution_environments: Sequence[Mapping[str, Any]] = (),
        runtime_resources: Mapping[str, Any] | None = None,
    ) -> str:
        """Record a new execution without driving it. Any process can start it with `resume`.

        Args:
            flow: A flow built in Python or returned by `load`, or the path of a file.
            inputs: Name → value.
            id: Its id. The same id with the same flow and inputs has no effect. With others it
                raises a `Conflict`.
            labels: Labels to filter lists by.
            execution_environments: As for `run`.
            runtime_resources: As for `run`.

        Returns:
            Its id.
        """
        from flowengine.engines.starting.beginning import record

        starting = self._starting(
            flow, inputs, id, labels, execution_environments, runtime_resources
        )
        return record(self._host, starting)

    @blocking
    async def resume(
        self,
        execution: str,
        *,
        on_crash: str | None = None,
        runtime_resources: Mapping[str, Any] | None = None,
    ) -> ExecutionResult:
        """Resume an execution, and drive it until it finishes or has to wait.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            on_crash: `retry` or `fail` answers all open questions about attempts with an unknown
                outcome.
            runtime_resources: As for `run`. Required if another process provided them.

        Returns:
            The state of the execution.

        Raises:
            Conflict: Another process holds it.
        """
        result = await self._driving.drive(self._driving.loaded(execution, runtime_resources))
        while on_crash and self._answer_questions(result, on_crash):
            result = await self._driving.drive(self._driving.loaded(result.execution))
        return result

    resume_async = on_loop(resume, "An execution already driven here is awaited.")

    async def take_async(
        self, execution: str, on_taken: Callable[[], None] = lambda: None
    ) -> ExecutionResult | None:
        """Resume an execution that is due, as one of several workers, on the running event loop.

        Executions to which it sends messages are not driven here: `due` returns them.

        Args:
            execution: Its full id.
            on_taken: Called when no other process can take it, and before anything is done.

        Returns:
            The state of the execution. None: another process drives it, or has done so.
        """
        return await self._driving.take(execution, on_taken)

    def hear(self) -> None:
        """Take messages of other processes to the executions that are driven here.

        Driving does so several times a second. A program that knows that the store has changed
        calls this to be faster. It also delivers messages whose senders died before.
        """
        self._driving.hear()

    def want(self) -> None:
        """Ask other workers for executions with steps that have waited for what this one offers."""
        from flowengine.engines.inspection.unattended import want

        want(self._host)

    async def drain_async(self, patience: float) -> None:
        """Stop driving: running attempts may end, no others begin, and leases are released.

        Any process can continue these executions, as if they had waited. The engine can still be
        used for everything except driving: `run` and `resume` raise a `Conflict`, and decisions and
        signals are recorded for another process.

        Args:
            patience: Seconds that running attempts have to end. Longer ones are interrupted, as if
                the process had died.
        """
        await self._driving.drain(patience)

    @blocking
    async def signal(
        self,
        name: str,
        data: Any = None,
        *,
        execution: str | None = None,
        key: str | None = None,
        id: str | None = None,
        by: str | None = None,
        flow: LoadedFlow | str | PathLike[str] | None = None,
        resume: bool = True,
    ) -> Sent:
        """Send a signal to an execution, or to the open execution that has the key.

        If no open execution has the key, the signal starts an execution of the registered flow that
        lists it in `start`. The signal is stored first. The execution then continues here, unless
        another process holds it.

        Args:
            name: Name of a signal that the flow declares.
            data: Its data. Must match the declared schema.
            execution: Id of the execution, or an unambiguous prefix of it.
            key: The key, instead of `execution`.
            id: Id of the message, which makes sending idempotent. The same signal with the same id
                and data is not stored again. With other data it raises a `Conflict`.
            by: The sender, as `user:NAME`. Default: the engine's user.
            flow: A flow, or the path of its file, that starts an execution if no open one has the
                key. It is registered first. Default: the registered flow that starts on the signal.
            resume: Resume the execution.

        Returns:
            The signal as stored, with its execution.
        """
        from flowengine.engines.messages import signal

        sent = signal(self._host, name, data, execution, key, id, self._who(by), flow)
        return sent._replace(result=await self._driving.go_on(sent.execution, resume=resume))

    signal_async = on_loop(signal)

    def deploy(self, flow: LoadedFlow | str | PathLike[str]) -> DeployedInfo:
        """Keep a version of a flow in the store, to be started by name, signals and schedules.

        The store keeps everything that the file and its imports contain. Python modules are kept by
        name: steps import them from the directory of the flow file. The version becomes the current
        one: its `start` replaces that of earlier versions, on which open executions stay. A
        schedule that an earlier version has keeps its next time. A worker, or `start_due`, starts
        the executions of schedules.

        Args:
            flow: A flow, or the path of its file.

        Returns:
            The deployed version.

        Raises:
            Conflict: This version was deployed with other contents. Flows without `version` may be
                deployed again.
        """
        from flowengine.engines.starting.deployed_flows import deploy

        return deploy(self._host, as_loaded(flow))

    def undeploy(self, name: str) -> list[str]:
        """Remove a deployed flow, which nothing starts any more. Its executions are unaffected.

        Args:
            name: `ID` for all versions of a flow, or `ID@VERSION` for one of them.

        Returns:
            The removed versions as `ID@VERSION`.

        Raises:
            NotFound: It is not deployed.
            Conflict: The version is the current one, and others are deployed.
            UsageError: The name is a hash.
        """
        from flowengine.engines.starting.deployed_flows import undeploy

        return [f"{deployed.flow}@{deployed.version}" for deployed in undeploy(self._host, name)]

    def start_due(self, *, leave: Collection[tuple[str, str]] = ()) -> list[ScheduledStart]:
        """Record an execution for each schedule of a deployed flow that is due.

        A worker calls it by itself. Of several processes that call it, one starts each execution.

        Args:
            leave: Flow and schedule of those to leave out, as `ScheduledStart` names them.

        Returns:
            The executions that were started here, to be driven like others that are `due`, and
            those that could not be started.
        """
        from flowengine.engines.starting.deployed_flows import start_due

        due = self.store.schedules(self._host.clock.now())
        return start_due(self._host, leave) if due else []

    def pause_schedules(self, flow: str) -> list[StartInfo]:
        """Pause the schedules of a deployed flow. Everything else starts executions as before.

        A paused flow stays paused when it is deployed again.

        Args:
            flow: Its id.

        Returns:
            What starts it, as `starts`.

        Raises:
            NotFound: It is not deployed, or has no schedule.
        """
        from flowengine.engines.starting.deployed_flows import pause

        pause(self._host, flow)
        return self.starts(flow)

    def resume_schedules(self, flow: str) -> list[StartInfo]:
        """Resume the schedules of a deployed flow, from their next times on.

        Times during the pause do not count as missed: `backfill` starts their executions.

        Args:
            flow: Its id.

        Returns:
            What starts it, as `starts`.

        Raises:
            NotFound: It is not deployed, or has no schedule.
        """
        from flowengine.engines.starting.deployed_flows import resume

        resume(self._host, flow)
        return self.starts(flow)

    def trigger(self, flow: str, *, schedule: str | None = None) -> str:
        """Record an execution of a deployed flow out of turn, with the inputs of its schedule.

        Args:
            flow: Its id.
            schedule: The expression of the schedule, if it has several.

        Returns:
            The id of the execution, to be driven with `resume`.

        Raises:
            NotFound: The flow is not deployed, or has no such schedule.
            UsageError: It has several schedules.
            InputError: The inputs are refused.
        """
        from flowengine.engines.starting.deployed_flows import trigger

        return trigger(self._host, flow, schedule, self.user)

    async def backfill_async(
        self,
        flow: str,
        since: datetime,
        until: datetime,
        *,
        schedule: str | None = None,
        at_once: int = 1,
        most: int = 1000,
        tell: Callable[[ScheduledStart], None] = lambda started: None,
    ) -> list[ScheduledStart]:
        """Start and drive the executions of past times of a deployed flow's schedules.

        The executions are those that the schedule would have started. Existing ones are not started
        again, so that an interrupted backfill can be repeated.

        Args:
            flow: Its id.
            since: The first moment of the range, with a time zone.
            until: The last one. Times later than now are left out.
            schedule: The expression of a schedule. Default: all schedules of the flow.
            at_once: How many executions run at once. Executions that wait do not count.
            most: How many times the range may contain.
            tell: Called when an execution has ended or waits, or could not be started.

        Returns:
            The executions, ordered by time.

        Raises:
            NotFound: The flow is not deployed, or has no such schedule.
            InputError: The range contains more times.
        """
        from flowengine.engines.running.backfilling import backfill
        from flowengine.engines.starting.deployed_flows import times_between

        times = times_between(self._host, flow, schedule, since, until, most)
        return await backfill(self._host, self._driving, flow, times, at_once, tell)

    def record_past(
        self,
        flow: str,
        since: datetime,
        until: datetime,
        *,
        schedule: str | None = None,
        most: int = 1000,
    ) -> list[ScheduledStart]:
        """Record the executions of past times, as `backfill_async`, for another process.

        Args:
            flow: Its id.
            since: The first moment of the range, with a time zone.
            until: The last one. Times later than now are left out.
            schedule: The expression of a schedule. Default: all schedules of the flow.
            most: How many times the range may contain.

        Returns:
            The executions, ordered by time.

        Raises:
            NotFound: The flow is not deployed, or has no such schedule.
            InputError: The range contains more times.
        """
        from flowengine.engines.starting.deployed_flows import start_at, times_between

        times = times_between(self._host, flow, schedule, since, until, most)
        return [start_at(self._host, flow, *time) for time in times]

    # Internals

    def _answer_questions(self, result: ExecutionResult, choice: str) -> bool:
        from flowengine.engines.people.answering import answer_questions

        return answer_questions(self._host, result, choice, self._who(None))

    def _starting(
        self,
        flow: Flow | LoadedFlow | str | PathLike[str],
        inputs: Mapping[str, Any] | None,
        id: str | None,
        labels: Mapping[str, str] | None,
        environments: Sequence[Mapping[str, Any]],
        resources: Mapping[str, Any] | None,
    ) -> Starting:
        from flowengine.engines.starting.beginning import Starting

        check_kinds(dict, inputs=inputs, labels=labels, runtime_resources=resources)
        user = self.user
        return Starting(
            flow, inputs or {}, id, labels or {}, user, environments, dict(resources or {})
        )


def _check_remote(
    store: TemporalStore,
    tool_authority: ToolAuthority | None,
    clock: Clock | None,
    resources: Mapping[str, Any] | None,
    offers: Iterable[str],
) -> None:
    """Close a store in Temporal and refuse what its workers could not use."""
    from flowengine.engines.temporal.support import refuse

    for given, what in (
        (tool_authority, "programs that decide about calls (tool_authority)"),
        (clock, "another clock than that of its server (clock)"),
        (resources, "objects of the caller for steps (runtime_resources)"),
    ):
        if given:
            store.close()
            refuse(what)
    if offers:
        store.close()
        raise UsageError(
            "in Temporal, workers run the steps: a caller offers nothing to them",
            hint="start a worker: flowengine worker --offers LABEL",
        )


def _opened(
    store: str | PathLike[str] | JournalStore | None, durability: Durability
) -> tuple[JournalStore, TemporalStore | None]:
    """Return a store, and the same one if it is in Temporal."""
    if store is not None and not isinstance(store, str | PathLike):
        if not hasattr(store, "location"):
            raise UsageError(
                f"{in_words(store)} is not a store",
                hint="give a directory or an address, or None for a store in memory",
            )
        if remote_store(str(store.location)) is None:
            return store, None
        opened: Any = store
        return opened, opened
    address = None if store is None else remote_store(store)
    if address is None:
        return open_store(store, durability), None
    from flowengine.engines.temporal.opening import open_remote

    remote = open_remote(address)
    return remote, remote
