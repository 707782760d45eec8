"""`LocalEnvironment`, which approves and runs calls of tools as executions of an engine.

Each call runs a flow with one step, whose approval is a wait and whose attempt runs the tool. Live
objects of a call are runtime resources of its execution.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import cache, partial
from typing import Any, Literal, TypeVar

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from flowengine.engines.asking.tool_authority import decision_of
from flowengine.engines.attempts.serialization import copy
from flowengine.engines.engine import Engine
from flowengine.engines.infos import ExecutionInfo
from flowengine.engines.results import ExecutionResult
from flowengine.errors import Conflict, FlowEngineError, InputError, NotFound, UsageError
from flowengine.journal.records import ENDED
from flowengine.sdk import StepContext, StepError
from flowengine.sdk.python.user_code import bounded
from flowengine.sdk.python.user_code import call as call_plugin
from flowengine.sdk.steps.context import LIVE
from flowengine.sdk.steps.previews import Shown
from flowengine.sdk.texts.exception_text import describe
from flowengine.sdk.tools.tool_calls import (
    ApprovalResponse,
    EnvironmentResponse,
    Observer,
    ObserverResult,
    ToolCall,
    ToolResult,
)
from flowengine.sdk.values.plain_values import to_plain
from flowengine.secrets import Secrets
from flowengine.tool_environment.approval import CallbackAuthority, Turns
from flowengine.tool_environment.calls import Call, flow_of, read, refusal, response_of, validated
from flowengine.tool_environment.tools import ToolContext, define, execute_command, overrides

_LOG = logging.getLogger("flowengine.tools")
BOUND = 5.0
"""Maximum seconds for observers, callbacks, views and `dispose` of tools."""
_PRUNED = 1_000
"""Number of calls after which an engine in memory discards those that ended an hour ago."""

Given = ToolCall | Mapping[str, Any]
Listener = Callable[[dict[str, Any]], object]
_Model = TypeVar("_Model", bound=BaseModel)


class LocalEnvironment:
    """Approves and runs tool calls in this process. Nothing is started before it is needed.

    Any task, thread or loop can use it. A coroutine tool runs on the loop of the caller, a plain
    function on a thread.

    Args:
        environments: Managed environments for tools: name → spec. They are kept until `dispose`.
        secrets: Secrets to mask: name → reference, `{"env": VARIABLE}` or `{"file": PATH}`.
        execution_id: Id of the execution. Default: a new one.
        auto_approve: Calls to approve automatically if no approver is available: `asking` (every
            tool except those with `approval: required`), `nothing` or `everything`.
        engine: Runs each call as an execution, so its store keeps results and questions, also for
            other processes. The caller closes it. Default: an engine in memory.

    Attributes:
        authority: Any object with `approve_tool`, which decides about calls. None: there is none.
        observers: The observers by name.
        keeps_calls: Whether the engine's store records call outcomes for later processes of the
            execution.
    """

    def __init__(
        self,
        *,
        environments: Mapping[str, Mapping[str, Any]] | None = None,
        secrets: Mapping[str, Any] | None = None,
        execution_id: str | None = None,
        auto_approve: Literal["nothing", "asking", "everything"] = "asking",
        engine: Engine | None = None,
    ) -> None:
        self.execution_id = execution_id or os.urandom(8).hex()
        self.keeps_calls = bool(execution_id) and engine is not None
        self.engine = Engine(None) if engine is None else engine
        self.environments = dict(environments or {})
        self.authority: Any = None
        self.observers: dict[str, Observer] = {}
        self._is_own = engine is None
        self._auto, self._secrets = auto_approve, Secrets(secrets or {})
        self._flow = cache(partial(flow_of, self._secrets.references))
        self._tools: dict[str, tuple[Any, Any, dict[str, Any]]] = {}
        """Name → definition, instance, and the attributes that its `init` has set."""
        self._calls: dict[str, Call] = {}
        """The calls that have not ended."""
        self._states: dict[str, dict[str, Any]] = {}
        self._listeners: list[Listener] = []
        self._callbacks: dict[str, Any] = {}
        self._closed = self._has_opened = False
        self._numbers = itertools.count(1)
        self._all_turns = Turns()
        self._turns: ContextVar[Turns] = ContextVar("turns")
        """Within a tool, the turns of the calls that it makes itself."""

    # Configuration

    async def register_tool(self, tool: Any) -> str:
        """Add a tool, and initialize it.

        Args:
            tool: A function, or a class derived from `Tool`.

        Returns:
            Its name.

        Raises:
            UsageError: It is not a tool, the name is taken, or `init` failed. Nothing has changed.
        """
        self._check_open()
        definition = define(tool)
        name = definition.name
        if name in self._tools:
            raise UsageError(f"there is already a tool '{name}'", hint="give it another name")
        instance = definition.make()
        before = dict(vars(instance))
        instance.environment = self
        if overrides(instance, "init"):
            outcome = await bounded(None, call_plugin(instance.init, self))
            if outcome.error is not None:
                why = describe(outcome.error)
                raise UsageError(f"tool '{name}' was not registered: init: {why}")
        after = vars(instance).items()
        prepared = {key: value for key, value in after if before.get(key, before) is not value}
        self._tools[name] = (definition, instance, prepared)
        return name

    def register_tool_approval_callback(
        self, callback: Callable[[ToolCall], Any], *, timeout: float | None = None
    ) -> None:
        """Request decisions about all calls from a callback.

        Args:
            callback: Takes the `ToolCall` and returns an `ApprovalResponse`, a mapping with its
                fields, or a boolean. It can be a coroutine function.
            timeout: Maximum seconds for the callback. A late decision counts as a rejection.
        """
        self.authority = CallbackAuthority(callback, timeout=timeout)

    def clear_tool_approval_callback(self) -> None:
        """Remove the approval callback. It still decides open questions."""
        self.authority = None

    def register_execute_callback(self, start: Any = None, end: Any = None) -> None:
        """Set functions to call before and after every call that runs.

        Args:
            start: Takes the call.
            end: Takes the call and its result.
        """
        self._callbacks = {"start": start, "end": end}

    def clear_execute_callback(self) -> None:
        """Remove the functions called before and after calls."""
        self._callbacks = {}

    def register_observer(self, observer: Observer) -> None:
        """Add an observer under its own name.

        Args:
            observer: Has `name`, `description` and `execute(call, result)`.
        """
        self.observers[observer.name] = observer

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call a function with each message about calls, on the thread where it arises.

        Args:
            listener: Must be fast. Its exceptions are logged and otherwise ignored.

        Returns:
            A function that removes the listener.
        """
        self._listeners.append(listener)
        return partial(self._listeners.remove, listener)

    # Arguments that arrive in parts

    async def register_request_tool_call(self, call: Given) -> ToolCall:
        """Register a call whose arguments are still arriving.

        Args:
            call: The call.

        Returns:
            The call in its current state, which is loading.

        Raises:
            InputError: It is invalid.
            NotFound: Its tool is unknown.
            Conflict: Its id is taken.
        """
        requested = validated(call)
        if requested.tool_call_id in self._calls:
            raise Conflict(f"there is already a call '{requested.tool_call_id}'")
        return (await self._admit(requested)).view()

    async def update_request_tool_params(self, call: Given, is_final: bool = False) -> ToolCall:
        """Update the arguments of a call with newly arrived ones.

        Args:
            call: The call with its arguments so far.
            is_final: Whether the arguments are complete. The call can only run after that.

        Returns:
            The call in its current state.

        Raises:
            InputError: It is invalid.
            NotFound: It is not open.
            Conflict: Its arguments are final already.
        """
        given = validated(call)
        known = await self._admit(given.tool_call_id)
        if not known.is_loading:
            raise Conflict(f"call {known.id}: its arguments are final and cannot be changed")
        known.args = given.args
        await self._show(known)
        known.is_loading = not is_final
        return known.view()

    # Approval and execution

    async def approve_tool(self, call: Given) -> EnvironmentResponse:
        """Request a decision about a call, without running it. It is limited to this call.

        The authority is asked. Only the execution of the call opens a question that others answer.

        Args:
            call: The call.

        Returns:
            The `ApprovalResponse`, or an error.

        Raises:
            UsageError: The environment was disposed of.
        """
        try:
            admitted = await self._admit(call)
            admitted.is_loading = False
            self._check_args(admitted)
        except (InputError, NotFound, Conflict) as error:
            return refusal(call, error)
        decision = self._automatic(admitted) or await self._consult(admitted, admitted.view())
        admitted.prior = None if decision.decision == "defer" else decision
        return EnvironmentResponse(result=decision)

    async def execute_tool(self, call: Given | str) -> EnvironmentResponse:
        """Run a call, after its approval unless it was approved before.

        Cancelling the awaiting task aborts the call.

        Args:
            call: The call, or the id of a call whose arguments have arrived in parts.

        Returns:
            The `ToolResult`, or an error. A repeated call receives the same result.

        Raises:
            UsageError: The environment was disposed of.
            CancelledError: The awaiting task was cancelled.
        """
        try:
            admitted = await self._admit(call)
        except (InputError, NotFound, Conflict) as error:
            return refusal(call, error)
        if not admitted.made.acquire(blocking=False):
            return await asyncio.shield(asyncio.wrap_future(admitted.response))
        running = asyncio.ensure_future(self._run(admitted))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            admitted.signal.abort()
            await asyncio.wait([running])
            raise

    async def execute_tools(self, calls: Sequence[Given | str]) -> list[EnvironmentResponse]:
        """Approve and run the calls of one reply, with a separate decision about each.

        Args:
            calls: The calls.

        Returns:
            Their responses, in the order of the calls.
        """
        return list(await asyncio.gather(*map(self.execute_tool, calls)))

    # Stopping

    def abort_step(self) -> None:
        """Abort all calls in progress, on any thread. Later calls are not affected."""
        for call in [*self._calls.values()]:
            if call.made.locked() or call.is_loading:
                call.signal.abort()

    def abort_call(self, call_id: str) -> bool:
        """Abort one call, on any thread. Return False if it is not in progress.

        Args:
            call_id: Its id.
        """
        call = self._calls.get(call_id)
        return call is not None and call.signal.abort()

    async def dispose(self) -> None:
        """Abort all calls, and release all resources. Further calls have no effect."""
        if self._closed:
            return
        self._closed = True
        calls = [*self._calls.values()]
        for call in calls:
            call.signal.abort()
        for call in calls:
            if call.made.locked():
                await asyncio.shield(asyncio.wrap_future(call.response))
            else:
                await self._dispose(call.tool, call.instance)
        for definition, instance, _ in reversed(self._tools.values()):
            await self._dispose(definition.name, instance)
        if self._has_opened:
            await self.engine.environments.async_release_scope("session", self.execution_id)
        if self._is_own:
            await self.engine.__aexit__()

    async def __aenter__(self) -> LocalEnvironment:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.dispose()

    # Calls

    async def _admit(self, given: Given | str) -> Call:
        """Return an open call, by its data or its id, or a new one with an instance of its tool.

        Raises:
            InputError: It is invalid.
            NotFound: Its tool is unknown, or no call with this id is open.
            Conflict: An open call has its id.
        """
        self._check_open()
        if isinstance(given, str):
            if (known := self._calls.get(given)) is None:
                raise NotFound(f"there is no open call '{given}'")
            return known
        requested = validated(given)
        id, name, args = requested.tool_call_id, requested.tool_name, requested.args
        if (call := self._calls.get(id)) is None:
            if name == "execute_command" and name not in self._tools:
                await self.register_tool(execute_command)
            if name not in self._tools:
                names = ", ".join(sorted({*self._tools, "execute_command"}))
                raise NotFound(f"there is no tool '{name}'. Known tools: {names}.")
            definition, _, prepared = self._tools[name]
            instance = definition.make()
            vars(instance).update(prepared)
            new = Call(self.execution_id, id, name, args, definition, instance)
            call = self._calls.setdefault(id, new)  # another thread may be as far
            if call is new:
                self._publish("call_registered", call)
        elif call.tool == name and call.is_loading and not call.made.locked():
            call.args = args or call.args
        elif (call.tool, call.args) != (name, args):
            raise Conflict(f"another call has the id '{id}' already")
        return call

    async def _show(self, call: Call) -> None:
        """Publish the arguments so far, and the tool's own view of them, if they have changed."""
        if call.args == call.published:
            return
        call.published = copy(call.args)
        self._publish("parameters_updated", call)
        if overrides(call.instance, "load_ui"):
            shows = call.instance.load_ui
            view, _ = await _data_of(shows, copy(call.args), about=f"load_ui of '{call.tool}'")
            if view is not None:
                self._publish("view", call, view=view)

    async def _run(self, call: Call) -> EnvironmentResponse:
        """Run a call, and return a response in every case."""
        response = response_of(call.result("aborted"))  # if the loop ends meanwhile
        try:
            if call.is_loading:
                await self._show(call)
                call.is_loading = False
            response = response_of(await self._result(call))
        except (InputError, Conflict) as error:
            response = response_of(call.result("invalid", error.message))
        except Exception as error:
            _LOG.exception("call %s failed", call.id)
            response = response_of(call.result("error", f"the call failed: {describe(error)}"))
        finally:
            call.signal.abort()
            self._publish("result", call, result=response.tool_result)
            await self._dispose(call.tool, call.instance)
            self._calls.pop(call.id, None)
            call.response.set_result(response)
        return response

    async def _result(self, call: Call) -> ToolResult:
        """Run the execution of a call, and return its result.

        Raises:
            InputError: Its arguments do not fit.
            Conflict: Its id is that of another call, or its tool has changed.
        """
        self._check_args(call)
        engine, definition = self.engine, call.definition
        call.earlier = self._earlier(call)
        if call.earlier is not None and call.earlier["status"] in ENDED:
            return self._copy(read(call, engine.executions.result(call.execution)))
        if call.signal.aborted:
            return call.result("aborted", content="".join(call.produced) or None)
        asks = bool(call.prior or call.earlier) or self._automatic(call) is None
        started = engine.run_async(
            self._flow(definition, asks),
            {"call": call.id, "args": call.args, "version": definition.version},
            id=call.execution,
            labels=call.labels,
            execution_environments=self._specs(call),
            runtime_resources=self._live(call),
        )
        if self._is_own and next(self._numbers) % _PRUNED == 0:
            engine.executions.prune(older_than="1h")
        refused: list[FlowEngineError] = []
        ask = partial(self._ask, call, iter([call.prior]))
        with engine.approvals.consulting(call.execution, ask, refused.append):
            running = asyncio.ensure_future(started)
            aborted = asyncio.ensure_future(call.signal.async_wait())
            await asyncio.wait([running, aborted], return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                await self._withdraw(call)
            try:
                made = await running
            except Conflict as error:  # another process makes it
                return call.result("error", error.message, ran="maybe")
        if any(wait["kind"] == "approval" for wait in made.waits):  # the decision does not count
            made = await self._withdraw(call)
            why = refused[-1].message if refused else "the decision does not fit the call"
            if made.status == "cancelled":
                return call.result("rejected", self._secrets.mask(why))
        result = self._copy(read(call, made))
        if call.began:
            await self._notify("end", call.view(), result)
            result.observer_results = await self._observe(call.view(), result)
        return result

    async def _withdraw(self, call: Call) -> ExecutionResult:
        """Cancel the execution of a call, and return its state."""
        with suppress(Conflict):  # it has ended
            await self.engine.executions.cancel_async(call.execution)
        return self.engine.executions.result(call.execution)

    def _earlier(self, call: Call) -> ExecutionInfo | None:
        """Return the execution of the same call in the store, if any.

        Raises:
            Conflict: It is another call, or its tool has changed before it has ended.
        """
        try:
            shown = self.engine.executions.show(call.execution)
        except NotFound:
            return None
        args, version = shown["inputs"].get("args"), shown["inputs"].get("version")
        # No client of a server can set these labels.
        same = call.labels.items() <= shown["labels"].items() and args == call.args
        if not same or (version != call.definition.version and shown["status"] not in ENDED):
            what = f"tool '{call.tool}' has changed since" if same else "it is another call"
            raise Conflict(f"there is a call '{call.id}' already, and {what}")
        return shown

    def _check_args(self, call: Call) -> None:
        """Check the arguments of a call.

        Raises:
            InputError: They do not fit the tool, or contain a secret.
        """
        if self._secrets.mask(call.args) != call.args:
            raise InputError("the arguments contain a secret: let the tool read it")
        call.definition.convert(call.args)

    def _specs(self, call: Call) -> list[dict[str, Any]]:
        """Return the specs of the managed environments of a tool.

        Raises:
            InputError: One has no spec.
        """
        kept = {"scope": "session", "owner_id": self.execution_id}
        specs = []
        for name, given in (call.definition.options.resources or {}).items():
            if (spec := given or self.environments.get(name)) is None:
                raise InputError(f"there is no spec: pass environments={{'{name}': {{'kind': …}}}}")
            specs.append({**kept, **spec, "resource_key": name})
            self._has_opened = True
        return specs

    def _live(self, call: Call) -> dict[str, Any]:
        """Return the objects of a call for its execution."""
        turns = self._turns.get(self._all_turns)

        async def run(*, step_of_call: StepContext, **given: Any) -> Any:
            attempt: Any = asyncio.current_task()
            parallel = call.definition.options.supports_parallel_execution
            with turns.queue(exclusive=not parallel) as granted:
                try:
                    await asyncio.wrap_future(granted)
                    return await self._work(call, step_of_call, given)
                finally:
                    if attempt.cancelling():
                        call.signal.abort()
                    elif call.signal.aborted:
                        await asyncio.Event().wait()  # the engine is about to cancel it

        return {LIVE: {call.tool: run, f"{call.tool}/preview": call.instance.preview}}

    # Approval

    def _automatic(self, call: Call) -> ApprovalResponse | None:
        """Return the automatic decision about a call, or None if a decision must be requested."""
        needed, auto = call.definition.options.approval, self._auto
        if needed == "none":
            return ApprovalResponse(approved=True, by="tool")
        if self.authority or not (auto == "everything" or (auto, needed) == ("asking", "ask")):
            return None
        _LOG.info("call '%s' is approved automatically: there is no approver", call.id)
        return ApprovalResponse(approved=True, by="auto")

    async def _ask(
        self, call: Call, prior: Iterator[Any], asked: ToolCall, preview: Awaitable[Shown]
    ) -> EnvironmentResponse:
        """Return the decision about a call for the engine, which cancels this if others decide."""
        decision = next(prior, None)  # only the first question has been decided before
        if decision is None:
            asked.preview, asked.preview_note = await preview
            shown = {"tool_call_id": call.id, "is_approval_pending": True}
            asked = asked.model_copy(update=shown, deep=True)
            self._publish("approval", call, preview=asked.preview)
            decision = await self._consult(call, asked)
        if decision.decision == "defer":
            await asyncio.Event().wait()
        call.decision = decision
        return EnvironmentResponse(result=decision)

    async def _consult(self, call: Call, asked: ToolCall) -> ApprovalResponse:
        """Return the decision of the authority, which may be deferred."""
        if (authority := self.authority) is None:
            return ApprovalResponse(approved=False, decision="defer")
        decision = await decision_of(authority.approve_tool(asked))
        decision.by = decision.by or type(authority).__name__
        return decision

    async def _work(self, call: Call, step: StepContext, args: dict[str, Any]) -> dict[str, Any]:
        """Call the tool, and return its return value as fields of the result."""
        definition, options = call.definition, call.definition.options
        call.changed, call.approval = None if args == call.args else args, step.approval
        context = ToolContext(
            tool_call_id=call.id,
            execution_id=self.execution_id,
            signal=call.signal,
            parallel=options.supports_parallel_execution,
            state=self._states.setdefault(call.tool, {}),
            resources={name: step.resources[name] for name in options.resources or ()},
            report=lambda what: self._publish("progress", call, report=what),
            processes=step.processes,
            _produced=call.produced,
        )
        named = definition.convert(args) | dict.fromkeys(definition.context, context)
        call.began = True
        self._publish("execution", call)
        self._turns.set(Turns())
        await self._notify("start", call.view())
        return {"result": definition.fields(await call_plugin(call.instance.execute, **named))}

    # Observers

    def _publish(self, kind: str, about: Call, **fields: Any) -> None:
        """Send a message to the listeners, on any thread."""
        if not self._listeners:
            return
        known = {"type": kind, "tool_call_id": about.id, "call": about.view(), **fields}
        message = self._secrets.mask(to_jsonable_python(known, fallback=str))
        for listener in [*self._listeners]:
            try:
                listener(message)
            except Exception:
                _LOG.exception("a listener failed")

    def _copy(self, model: _Model) -> _Model:
        """Return a copy of a call or a result with secrets masked."""
        return type(model).model_validate(self._secrets.mask(model.model_dump()))

    async def _notify(self, which: str, *models: BaseModel) -> None:
        """Call the callback `start` or `end` with copies of its arguments."""
        if (callback := self._callbacks.get(which)) is not None:
            await _data_of(callback, *map(self._copy, models), about=f"the callback '{which}'")

    async def _observe(self, made: ToolCall, result: ToolResult) -> dict[str, ObserverResult]:
        """Run the current observers on a call that ran, concurrently, on copies."""

        async def observe(name: str, observer: Observer) -> ObserverResult:
            answered = await _data_of(observer.execute, self._copy(made), self._copy(result))
            answer, error = map(self._secrets.mask, answered)
            return ObserverResult(observer_name=name, observer_result=answer, error=error)

        given = [*self.observers.items()]
        results = await asyncio.gather(*(observe(*each) for each in given))
        return {each.observer_name: each for each in results}

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the tool environment was disposed of: make a new one")

    async def _dispose(self, name: str, instance: Any) -> None:
        if overrides(instance, "dispose"):
            await _data_of(instance.dispose, about=f"dispose of tool '{name}'")


async def _data_of(function: Any, *args: Any, about: str = "") -> tuple[Any, str | None]:
    """Call external code, and return its result as data, and why there is none.

    Args:
        function: The code.
        *args: Its arguments.
        about: What the log calls it. Empty: its failure is not logged.
    """
    outcome = await bounded(BOUND, call_plugin(function, *args))
    if (why := outcome.fault(BOUND)) is None:
        try:
            return to_plain(outcome.value), None
        except StepError as error:
            why = f"it returned something that is not data: {error.message}"
    if about:
        _LOG.warning("%s: %s", about, why)
    return None, why
