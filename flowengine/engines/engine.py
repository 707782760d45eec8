"""The public engine: the operations of the command line as a Python API, sync and async.

    with Engine() as engine:
        result = engine.run(engine.load("hello.yaml"), {"name": "Ada"})

Methods that may drive an execution exist in two variants: `run` for plain code and `run_async` for
code on an event loop. Methods that only read or write the store (`show`, `executions`, `waits`,
`events`, ...) are short and exist once. Call them from both.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from os import PathLike
from typing import Any, Self

from flowengine import execution_environment
from flowengine.engines import asking
from flowengine.engines.actors import Actor
from flowengine.engines.arriving_replies import ReplyFiles, ReplyReader
from flowengine.engines.deciding import Approvals, answer_questions
from flowengine.engines.deploying import DeployedFlows
from flowengine.engines.environments.making import environments_of, make_environments
from flowengine.engines.flows import LANGUAGE, LoadedFlow, as_loaded, check_flow
from flowengine.engines.host import Clock, Host, Ids, RandomIds, SystemClock
from flowengine.engines.infos import ScreenInfo
from flowengine.engines.inspection.open_environments import (
    failures,
    open_environments,
    screen_info,
    with_execution,
)
from flowengine.engines.inspection.unattended import due, quarantined, want
from flowengine.engines.inspection.updates import Subscription, updates
from flowengine.engines.messages import send_signal
from flowengine.engines.operating import Executions
from flowengine.engines.results import (
    ExecutionResult,
    Sent,
    Update,
)
from flowengine.engines.rule_files import RuleFiles
from flowengine.engines.running.driving import Driving
from flowengine.engines.shared_budgets import Budgets
from flowengine.engines.starting.beginning import Starting, record
from flowengine.engines.stores import open_store, temporal
from flowengine.errors import NotAllowed, UsageError
from flowengine.flow import building
from flowengine.journal.records import OPEN, Due
from flowengine.journal.store import Durability, JournalStore, Store, every_item
from flowengine.kernel.notation.traces import trace_of
from flowengine.sdk.python.argument_checks import (
    check_function,
    check_kinds,
    check_methods,
    check_one_of,
    milliseconds,
    offered,
)
from flowengine.settings import Settings, current_user
from flowengine.settings_files import load_settings
from flowengine.store_folder import project_folder, remote_store
from flowengine.util.blocking import blocking, on_loop
from flowengine.util.files import MACHINE_FOLDER, check_path, user_folder


class Engine:
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
            timer. They always wait for pauses of `retry` and `loop.every` of up to 10 s. Default:
            1m, and pauses of any length.
        ttl: Seconds, or a duration, without a heartbeat after which another process may take over
            an execution.
        runtime_resources: Objects for the steps of all executions, by name, in addition to the
            environments that a flow declares. `run` accepts objects for a single execution. They
            belong to the caller: the engine does not check or close them. An object with the name
            of an environment raises a `UsageError` before anything starts.
        offers: Labels of what this process offers to steps that need it, such as
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
        linger: float | str | None = None,
        ttl: float | str = 15.0,
        runtime_resources: Mapping[str, Any] | None = None,
        offers: Iterable[str] = (),
        tool_authority: asking.tool_authority.ToolAuthority | None = None,
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
            raise UsageError(f"workdir: {os.fspath(workdir)} is not a directory")
        check_path("the directory", os.path.abspath(workdir or "."))
        settings = load_settings(project_folder())
        opened = open_store(store, durability or settings.durability or "power")
        is_remote = remote_store(str(opened.location)) is not None
        if is_remote:
            temporal().check_caller(opened, tool_authority, clock, runtime_resources, offers)
        folder = opened.folder
        self._replies = None if folder is None else ReplyFiles(folder)
        host = Host(
            opened,
            language=LANGUAGE,
            rules=RuleFiles([MACHINE_FOLDER, user_folder()], opened, project_folder()),
            environments=make_environments,
            clock=clock or SystemClock(),
            ids=ids or RandomIds(),
            settings=settings,
            workdir=os.path.abspath(workdir or "."),
            linger=None if linger is None else milliseconds("linger", linger),
            ttl=milliseconds("ttl", ttl),
            resources=runtime_resources,
            offers=offered(offers),
            reply_writer=None if self._replies is None else self._replies.writer,
        )
        self._host = host
        self.user = user or current_user()
        self._via = via
        self._driving: Driving = temporal().driving(host) if is_remote else Driving(host)
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
        await self._driving.close()
        from flowengine.sdk.python.user_code import on_thread

        await on_thread(self._host.close_environments)  # blocks until everything is closed
        self.close()

    @property
    def executions(self) -> Executions:
        """The executions of the store."""
        return Executions(self)

    @property
    def approvals(self) -> Approvals:
        """The approvals and questions of executions, and all else that they wait for."""
        return Approvals(self)

    @property
    def budgets(self) -> Budgets:
        """The budgets that executions share."""
        return Budgets(self)

    @property
    def flows(self) -> DeployedFlows:
        """The deployed flows."""
        return DeployedFlows(self)

    @property
    def store(self) -> Store:
        """The store, for operations that the engine does not offer."""
        return self._host.store

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
    def environments(self) -> execution_environment.EnvironmentManager:
        """The manager of the environments that its executions use.

        With a store in Temporal, they belong to its workers, and this raises a `UsageError`.
        """
        if remote_store(str(self._host.store.location)) is not None:
            raise temporal().unsupported("access to the environments of its workers")
        return self._manager

    @property
    def _manager(self) -> execution_environment.EnvironmentManager:
        return environments_of(self._host).manager

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
        done: list[dict[str, Any]] = self._payload_page(namespace).decoded(payloads)
        return done

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
        done: list[dict[str, Any]] = self._payload_page(namespace).encoded(payloads)
        return done

    def _payload_page(self, namespace: str | None) -> Any:
        location = str(self.store.location)
        if remote_store(location) is None:
            raise UsageError("only a store in Temporal has payloads")
        own = location.rpartition("/")[2]
        if namespace not in (None, own):
            raise UsageError(f"the namespace of this store is {own!r}, not {namespace!r}")
        store: Any = self.store
        return store.payloads

    def _other(self, to: str | PathLike[str]) -> JournalStore:
        """Open another store, to which executions are moved."""
        durability = self._host.store.durability
        return open_store(to, "power" if durability == "none" else durability)

    def close(self) -> None:
        """Release all leases and close the store. A second call has no effect."""
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
        """Export traces and metrics if environment variables enable it. Return its end function."""
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

    def load(self, flow: building.Flow | str | PathLike[str]) -> LoadedFlow:
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
        flow: building.Flow | LoadedFlow | str | PathLike[str],
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
        flow: building.Flow | LoadedFlow | str | PathLike[str],
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
        while on_crash and answer_questions(self._host, result, on_crash, self._who(None)):
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
        want(self._host)

    def guarded(self) -> AbstractContextManager[None]:
        """Return a context in which a function that holds up this process loses no execution.

        Another process renews the leases for this one while it lives. `flowengine worker` has one.
        """
        from flowengine.engines.guard import guarded_leases

        store = self._host.store
        return (
            nullcontext()
            if store.folder is None
            else guarded_leases(self._host.keeper, store.location)
        )

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
        step: str | None = None,
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
            step: Address of the step whose subflow or agent receives it in its state.
            resume: Resume the execution.

        Returns:
            The signal as stored, with its execution.
        """
        host, who = self._host, self._who(by)
        given = None if execution is None else host.store.find_execution(execution)
        starts = None if flow is None else self.flows.deploy(flow)["flow"]
        sent = send_signal(host, name, data, given, key, id, who, starts, step)
        return sent._replace(result=await self._driving.go_on(sent.execution, resume=resume))

    signal_async = on_loop(signal)

    @property
    def settings(self) -> Settings:
        """The settings of the host, as read when the engine was opened."""
        return self._host.settings

    def due(self, execution: str | None = None) -> list[Due]:
        """Return the executions that `resume` can continue now.

        Their timer is due, a message or decision has arrived, or the process that ran them has
        died. Executions held by a running process are left out, and quarantined ones, whose
        processes died several times in a row.

        Args:
            execution: Only this one, by its full id.

        Returns:
            `(execution, flow, since, why, deaths)` of each. Those that have been able to continue
            for longest are first.
        """
        return due(self._host, execution)

    def waited(self) -> list[float]:
        """Return for how many seconds each execution of `due` has been able to continue."""
        now = self._host.clock.now()
        return [max(now - due.since, 0) / 1000 for due in self.due()]

    def quarantined(self) -> int:
        """Return how many executions are quarantined."""
        return len(quarantined(self._host))

    def open_executions(self) -> dict[str, int]:
        """Return how many executions have each open status, as recorded in the store.

        Those that no process drives are counted as the status that was recorded last.
        """
        counts = self.store.counts()
        return {status: counts[status] for status in OPEN}

    def next_due(self) -> float | None:
        """Return the number of seconds until the next timer or schedule is due, or None."""
        now = self._host.clock.now()
        due = self.store.next_due(now)
        return None if due is None else (due - now) / 1000

    def want_replies(self) -> None:
        """Let the processes that drive the store pass on replies as they arrive, for a minute.

        A store in memory or in Temporal has no such processes.
        """
        if self._replies is not None:
            self._replies.want()

    def arriving_replies(self, execution: str) -> ReplyReader | None:
        """Return a reader of the replies that models are writing, in any process.

        Its parts are like those of updates of kind `part`. They are not stored, so a reader can
        miss some. The journal has the complete reply.

        Args:
            execution: Its full id.

        Returns:
            None: the store is in memory or in Temporal.
        """
        return None if self._replies is None else self._replies.reader(execution)

    def subscribe(
        self, callback: Callable[[Update], None], *, output: bool = False, gather: float = 0
    ) -> Subscription:
        """Call a function with every update of the executions driven here.

        It is called after the update is on disk. Its exceptions are logged as warnings of
        `flowengine.engines`.

        Args:
            callback: Called with an `Update`. Without `output` it is called on the thread that
                produces the update, so it must be quick.
            output: Also report program output and model replies as they arrive. The callback then
                runs on a separate thread, and a slow callback does not delay any execution: it
                misses parts of replies and receives their number. Only a printing program blocks if
                the callback falls far behind, as on a full pipe.
            gather: With `output`, seconds during which the pieces of a reply are merged after one
                was delivered, for displays. Default: each piece is delivered separately.

        Returns:
            A function that ends the subscription. With `output` it waits until all updates so far
            are delivered, for at most 5 seconds or the seconds given as `patience`.

        Raises:
            UsageError: The callback is not a function.
        """
        check_function(callback, "it takes an Update")

        return Subscription(self._host, callback, output=output, gather=gather)

    def carry_traces(self, on: bool, /) -> None:
        """Let steps of executions loaded from now on continue their traces in other programs.

        Requests of `http`, calls of MCP tools and commands then carry a `traceparent`. Exporting
        traces switches it on.
        """
        self._host.traced = on

    def trace_of(self, execution: str) -> str | None:
        """Return the id of an execution's trace. None: no traces are exported.

        Args:
            execution: Full id.
        """
        if not self._host.traced:
            return None
        return trace_of(execution, self._host.store.execution(execution).labels)

    def updates(
        self, execution: str | None = None, *, output: bool = False
    ) -> AsyncGenerator[Update, None]:
        """Iterate over updates as they arrive.

        Args:
            execution: Full id of one execution. The iterator then ends when the execution finishes
                or has to wait. Default: all executions driven here, endlessly.
            output: Also yield program output and model replies as they arrive. A slow consumer
                misses some of them and receives their number.

        Returns:
            An iterator over updates.
        """
        return updates(self._host, execution, output=output)

    def open_environments(self, execution: str | None = None) -> list[dict[str, Any]]:
        """Describe the environments that processes have open or have left open, oldest first.

        Those that cannot be opened again, so that an execution is stalled, follow.

        Args:
            execution: Only those of this execution: its id, or an unambiguous prefix of it.

        Returns:
            Plain data, as returned by `EnvironmentManager.written`, with the `execution` that owns
            it or None.
        """
        full = None if execution is None else self.executions.find(execution)
        waits = every_item(
            lambda after: self.approvals.list(kinds=["question"], after=after, limit=500)
        )
        return open_environments(self._manager, waits, full)

    def open_environment(self, name: str) -> dict[str, Any]:
        """Describe one environment that a process has open or has left open.

        Args:
            name: Its name, or an unambiguous prefix of its id.

        Returns:
            As `open_environments`.

        Raises:
            NotFound: No environment matches.
            Conflict: Several environments match.
        """
        return with_execution(self._manager.written_one(name))

    def look_into_environment(self, name: str) -> ScreenInfo:
        """Look into an environment that a process on this machine has open.

        That process answers with a picture of the browser, or with the text of the terminal. The
        step that uses the environment is not disturbed, and nothing of the answer is stored. It
        blocks for at most some seconds.

        Args:
            name: Its name, or an unambiguous prefix of its id.

        Returns:
            The keys of `ScreenInfo`.

        Raises:
            NotFound: No environment matches.
            Conflict: Several environments match, or it cannot be looked into: its process has ended
                or does not answer, or its kind has nothing to look at.
            UsageError: The store is in Temporal, whose workers have the environments.
        """
        if remote_store(str(self._host.store.location)) is not None:
            raise UsageError(
                "a store in Temporal has its environments at its workers, where they cannot be "
                "looked into",
                hint="use a store in a directory for it",
            )

        return screen_info(*self._manager.look(name))

    def release_environment(self, name: str, *, force: bool = False) -> dict[str, Any]:
        """End an environment that a process has left open.

        Args:
            name: Its name, or an unambiguous prefix of its id.
            force: End it even if the process that opened it is alive. Its steps then fail.

        Returns:
            A description of the environment, with `error` if it could not be ended.

        Raises:
            NotFound: No environment matches.
            Conflict: Several environments match, or a running process holds it.
        """
        with failures():
            return with_execution(self._manager.end_written(name, force=force))

    # Internals

    @cached_property
    def _consultant(self) -> asking.tool_authority.Consultant:
        return asking.tool_authority.Consultant(
            self._host, self._tool_authority, Actor(self.user, "callback")
        )

    def _who(self, by: str | None) -> Actor:
        """Return the actor, for the history.

        Raises:
            NotAllowed: The host's settings forbid acting on behalf of another user.
            UsageError: `by` is not a user.
        """
        if by in (None, self.user):
            return Actor(self.user, self._via)
        check_user(by)
        if not self._host.settings.act_for_others:
            raise NotAllowed(
                f"{self.user} may not act for {by}: the settings have 'act_for_others: false'"
            )
        return Actor(by, self._via, self.user)

    def _starting(
        self,
        flow: building.Flow | LoadedFlow | str | PathLike[str],
        inputs: Mapping[str, Any] | None,
        id: str | None,
        labels: Mapping[str, str] | None,
        environments: Sequence[Mapping[str, Any]],
        resources: Mapping[str, Any] | None,
    ) -> Starting:
        check_flow(flow)
        check_kinds(dict, inputs=inputs, labels=labels, runtime_resources=resources)
        loaded, given = as_loaded(flow), dict(resources or {})
        compiled, form = loaded.compiled, loaded.form
        return Starting(
            compiled, form, inputs or {}, id, labels or {}, self.user, environments, given
        )


def check_user(user: str) -> None:
    """Check the form of a user that a caller names.

    Raises:
        UsageError: It is a group, or not `user:NAME`.
    """
    if user.startswith("group:"):
        raise UsageError(
            f"{user} is a group, and only users act and decide", hint="name one of its members"
        )
    if not user.startswith("user:") or len(user) == len("user:"):
        raise UsageError(f"{user!r} is not a user", hint="users are written as user:NAME")
