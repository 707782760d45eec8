"""`LocalEnvironment`, which approves and runs calls of tools as executions of an engine."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import nullcontext
from contextvars import Context, ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from flowengine.engines.attempts.serialization import copy
from flowengine.engines.engine import Engine
from flowengine.engines.people.tool_authority import decision_of
from flowengine.engines.results import ExecutionResult
from flowengine.errors import FlowEngineError, InputError
from flowengine.execution_environment import EnvironmentManager, Handle, manager
from flowengine.sdk import StepContext, StepError
from flowengine.sdk.exception_text import describe
from flowengine.sdk.models import largest_result
from flowengine.sdk.near_words import did_you_mean
from flowengine.sdk.previews import Shown
from flowengine.sdk.tool_calls import (
    ApprovalResponse,
    EnvironmentResponse,
    Ran,
    ToolCall,
    ToolResult,
)
from flowengine.sdk.user_code import (
    CodeOutcome,
    bounded,
    call_preview,
    computed,
    contained,
    is_coroutine_function,
    lasting,
    uncut,
    within,
)
from flowengine.sdk.user_code import call as call_plugin
from flowengine.sdk.validation_messages import faults
from flowengine.secrets import Secrets
from flowengine.tool_environment.calls import Call, CallExecutions, digest_of, is_asked, unmasked
from flowengine.tool_environment.context import Aborted, AbortSignal, ToolContext, Turns
from flowengine.tool_environment.errors import (
    CallError,
    DecisionError,
    RegistrationError,
    ToolEnvironmentClosed,
)
from flowengine.tool_environment.observers import (
    AUTO,
    Callback,
    CallbackAuthority,
    Observers,
    check_callback,
    data_of,
    no,
    observe,
)
from flowengine.tool_environment.results import (
    content_of,
    error_text,
    expired,
    internal,
    not_begun,
    response_of,
    result_of,
    stopped,
    with_feedback,
)
from flowengine.tool_environment.tools import (
    ArgumentFault,
    Tool,
    ToolDefinition,
    define,
    overrides,
    tool,
)

_Result = TypeVar("_Result")
AutoApprove = Literal["nothing", "asking", "everything"]
BY_TOOL = "tool"
"""Recorded approver of calls to tools that require no approval."""
VIEW_TIME = 2.0
"""Maximum seconds for `load_ui`."""
REMEMBERED = 10_000
"""Maximum ended calls whose results are kept in memory."""
FOR_A_CALL = "action_call"
"""Scope of managed environments that are released after a call."""
_DEFERRED = ApprovalResponse(approved=False, decision="defer")
_LOG = logging.getLogger("flowengine.tools")


@dataclass(frozen=True)
class CallBounds:
    """Time limits in seconds."""

    grace: float = 2.0
    """Time that a tool has to stop by itself, and again after it is cancelled."""
    observer: float = 5.0
    dispose: float = 1.0
    question: float | None = None
    """Time that a question stays open. None: unlimited."""


class RegisteredTool(NamedTuple):
    """A tool registered in an environment."""

    definition: ToolDefinition
    instance: Tool
    prepared: dict[str, Any]
    """The attributes that its `init` has set."""


class LocalEnvironment:
    """Approves and runs tool calls in this process. Nothing is started before it is needed.

    Any task, thread or loop can use it. A coroutine tool runs on the loop of the caller, a plain
    function on a thread.

    Args:
        environments: Managed environments for tools: name → spec.
        secrets: Secrets to mask: name → reference, `{"env": VARIABLE}` or `{"file": PATH}`.
        execution_id: Id of the execution. Default: a new one.
        auto_approve: Calls to approve automatically if no approver is available: `asking` (every
            tool except those with `approval: required`), `nothing` or `everything`.
        engine: Runs each call as an execution, so its store keeps results and questions, also for
            other processes. The caller closes it. Default: an engine in
            memory.
        bounds: Time limits.
        manager: Opens managed environments. Default: the manager of the process.

    Attributes:
        observers: The observers by name.
        authority: Decides about calls. Any object with `approve_tool` can replace it.
        execution_id: Id of the execution.
        keeps_calls: Whether the engine's store records call outcomes for later processes of the
            execution.
    """

    def __init__(
        self,
        *,
        environments: Mapping[str, Mapping[str, Any]] | None = None,
        secrets: Mapping[str, Any] | None = None,
        execution_id: str | None = None,
        auto_approve: AutoApprove = "asking",
        engine: Engine | None = None,
        bounds: CallBounds = CallBounds(),
        manager: EnvironmentManager | None = None,
    ) -> None:
        self.execution_id = execution_id or os.urandom(8).hex()
        self.keeps_calls = bool(execution_id) and engine is not None
        self.authority: Any = CallbackAuthority()
        self.observers = Observers()
        self._auto, self._bounds, self._specs = auto_approve, bounds, dict(environments or {})
        self._secrets, self._manager = Secrets(secrets or {}), manager
        self._executions = CallExecutions(
            self.execution_id, engine, bounds.question, self._secrets.references
        )
        self._held: dict[str, Handle] = {}
        """Managed environments that outlive a single call."""
        self._tools: dict[str, RegisteredTool] = {}
        self._states: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        self._calls: dict[str, Call] = {}
        self._turns: ContextVar[Turns] = ContextVar("turns", default=Turns())  # noqa: B039
        """The turns of calls. Within a tool, those of the calls that it makes itself."""
        self._listeners: list[Callable[[dict[str, Any]], object]] = []
        self._callbacks: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._closed = self._warned = False

    # Configuration

    async def register_tool(self, tool: Any, *, replace: bool = False) -> str:
        """Add a tool, and initialize it.

        Args:
            tool: A function, a class with `execute`, or an instance of one.
            replace: Whether to replace a tool of the same name. This is not possible while it has
                an open call.

        Returns:
            Its name.

        Raises:
            RegistrationError: It is not a tool, the name is taken, or `init` failed. Nothing has
                changed.
        """
        self._check_open()
        definition = define(tool)
        name, there = definition.name, self._tools.get(definition.name)
        if there is not None and there.definition.source is definition.source and not replace:
            return name
        if there is not None and not replace:
            raise RegistrationError(
                f"there is already a tool '{name}'",
                hint="give it another name, or pass replace=True",
            )
        if any(call.tool == name for call in self._open_calls()):
            raise RegistrationError(f"a call of tool '{name}' is open: it cannot be replaced now")
        instance = definition.make()
        before = dict(vars(instance))
        instance.environment = self
        if overrides(instance, "init"):
            outcome = await bounded(None, call_plugin(instance.init, self))
            if outcome.error is not None:
                why = describe(outcome.error)
                raise RegistrationError(f"tool '{name}' was not registered: init: {why}")
        after = vars(instance).items()
        prepared = {key: value for key, value in after if before.get(key, before) is not value}
        self._tools.pop(name, None)
        self._tools[name] = RegisteredTool(definition, instance, prepared)
        if there is not None:
            await self._dispose(name, there.instance)
        return name

    def register_tool_approval_callback(
        self, callback: Callback, *, timeout: float | None = None
    ) -> None:
        """Request decisions about all calls from a callback.

        Args:
            callback: Takes the `ToolCall` and returns an `ApprovalResponse`, a mapping with its
                fields, or a boolean. It can be a coroutine function.
            timeout: Maximum seconds for the callback. A late decision counts as a rejection.

        Raises:
            RegistrationError: It cannot be called with a call.
        """
        self.authority = CallbackAuthority(callback, timeout=timeout)

    def clear_tool_approval_callback(self) -> None:
        """Remove the approval callback. It still decides open questions."""
        self.authority = CallbackAuthority()

    def register_execute_callback(self, start: Any = None, end: Any = None) -> None:
        """Set functions to call before and after every call that runs.

        Args:
            start: Takes the call.
            end: Takes the call and its result.

        Raises:
            RegistrationError: One cannot be called with these arguments. Nothing has changed.
        """
        if start is not None:
            check_callback(start, 1, "the start callback")
        if end is not None:
            check_callback(end, 2, "the end callback")
        self._callbacks = {"start": start, "end": end}

    def clear_execute_callback(self) -> None:
        """Remove the functions called before and after calls."""
        self._callbacks = {}

    def register_observer(self, observer: Any) -> None:
        """Add an observer under its own name.

        Args:
            observer: Has `name`, `description` and `execute(call, result)`.

        Raises:
            RegistrationError: It is not an observer, or the name is taken.
        """
        self.observers[getattr(observer, "name", "")] = observer

    def listen(self, listener: Callable[[dict[str, Any]], object]) -> Callable[[], None]:
        """Call a function with each message about calls, on the thread where it arises.

        Args:
            listener: Must be fast. Its exceptions are logged and otherwise ignored.

        Returns:
            A function that removes the listener.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    # Arguments that arrive in parts

    async def register_request_tool_call(self, call: ToolCall | Mapping[str, Any]) -> ToolCall:
        """Register a call whose arguments are still arriving.

        Args:
            call: The call.

        Returns:
            The call in its current state, which is loading.

        Raises:
            CallError: It is invalid, its tool is unknown, or its id is taken.
        """
        self._check_open()
        requested = validated(call)
        if requested.tool_call_id in self._calls:
            raise CallError("duplicate_call", f"there is already a call '{requested.tool_call_id}'")
        return (await self._register(requested)).view()

    async def update_request_tool_params(
        self, call: ToolCall | Mapping[str, Any], is_final: bool = False
    ) -> ToolCall:
        """Update the arguments of a call with newly arrived ones.

        Args:
            call: The call with its arguments so far.
            is_final: Whether the arguments are complete. The call can only run after that.

        Returns:
            The call in its current state.

        Raises:
            CallError: It is unknown, or its arguments are final already.
        """
        self._check_open()
        given = validated(call)
        known = self._known(given.tool_call_id)
        if not known.is_loading:
            why = f"call {known.id}: its arguments are final and cannot be changed"
            raise CallError("late_update", why)
        known.args = copy(given.args)
        await self._show(known)
        known.is_loading = not is_final
        return known.view()

    async def _show(self, call: Call) -> None:
        """Publish the arguments so far, and the tool's own view of them, if they have changed."""
        if call.args == call.published:
            return
        call.published = copy(call.args)
        self._tell("parameters_updated", call, call=call.view())
        instance = call.instance
        if overrides(instance, "load_ui"):
            shown = call_plugin(instance.load_ui, copy(call.args))
            data, why = data_of(await bounded(VIEW_TIME, shown), VIEW_TIME)
            if why is not None:
                self._warn("load_ui", f"load_ui of '{call.tool}': {why}")
            elif data is not None:
                self._tell("view", call, view=data)

    # Approval and execution

    async def approve_tool(self, call: ToolCall | Mapping[str, Any]) -> EnvironmentResponse:
        """Request a decision about a call, without running it. It is limited to this call.

        Args:
            call: The call.

        Returns:
            The `ApprovalResponse`, or an error.

        Raises:
            ToolEnvironmentClosed: The environment was disposed of.
        """
        admitted = await self._admit(call)
        if isinstance(admitted, EnvironmentResponse):
            return admitted
        if admitted.is_made:
            error = CallError("duplicate_call", f"call '{admitted.id}' has begun already")
            return refusal(admitted.view(), error)
        admitted.is_loading, admitted.is_submitted = False, True
        if (fault := _fault(admitted)) is not None:
            return await self._end(admitted, result_of(admitted, "invalid", self._mask(fault)))
        decision = admitted.decision or self._automatic(admitted)
        if decision is None:
            admitted.masked = self._mask(copy(admitted.args))
            preview = asyncio.ensure_future(self._preview(admitted))
            try:
                async with asyncio.timeout(self._bounds.question):
                    decision = await self._requested(admitted, preview)
            except TimeoutError:
                return await self._end(admitted, expired(admitted))
        if decision is None:
            return await self._end(admitted, not_begun(admitted))
        if decision.decision != "defer":
            admitted.decision = decision
        return EnvironmentResponse(result=decision)

    async def execute_tool(self, call: ToolCall | Mapping[str, Any] | str) -> EnvironmentResponse:
        """Run a call, after its approval unless it was approved before.

        Cancelling the awaiting task aborts the call.

        Args:
            call: The call, or the id of a call whose arguments have arrived in parts.

        Returns:
            The `ToolResult`, or an error. A repeated call receives the same response.

        Raises:
            ToolEnvironmentClosed: The environment was disposed of.
            CancelledError: The awaiting task was cancelled.
        """
        admitted = await self._admit(call)
        if isinstance(admitted, EnvironmentResponse):
            return admitted
        if not admitted.make():
            return await asyncio.shield(asyncio.wrap_future(admitted.response))
        running = asyncio.ensure_future(self._run(admitted))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            admitted.halt("aborted")
            await asyncio.wait([running])
            raise

    async def execute_tools(
        self, calls: Sequence[ToolCall | Mapping[str, Any] | str]
    ) -> list[EnvironmentResponse]:
        """Approve and run the calls of one reply, with a separate decision about each.

        Args:
            calls: The calls.

        Returns:
            Their responses, in the order of the calls.
        """
        return list(await asyncio.gather(*map(self.execute_tool, calls)))

    def decide(
        self, call_id: str, decision: ApprovalResponse | Mapping[str, Any], *, by: str = "person"
    ) -> None:
        """Answer an open question. The first decision counts.

        Args:
            call_id: Id of the call.
            decision: The decision.
            by: The approver.

        Raises:
            DecisionError: The question does not exist, or the decision is invalid. The question
                remains unchanged.
        """
        call = self._known(call_id, DecisionError)
        if call.question is None or call.question.done():
            how = f", it is {call.stop}" if call.stop else ""
            raise DecisionError("not_open", f"call '{call_id}' has no open question{how}")
        try:
            checked = _checked(call, decision)
        except InputError as error:
            raise DecisionError("invalid_decision", error.message, field=error.field) from None
        if checked.decision != "defer":
            call.answer(checked.model_copy(update={"by": by}))

    def questions(self) -> list[ToolCall]:
        """Return the calls with an open question, with secrets masked, in order of registration."""
        calls = [call for call in self._open_calls() if call.question is not None]
        return list(map(self._shown, calls))

    # Stopping

    def abort_step(self) -> None:
        """Abort all calls in progress, on any thread. Later calls are not affected."""
        for call in self._open_calls():
            if call.is_made or call.is_loading or call.question is not None:
                call.halt("aborted")

    def abort_call(self, call_id: str) -> bool:
        """Abort one call, on any thread. Return False if it is not in progress.

        Args:
            call_id: Its id.
        """
        call = self._calls.get(call_id)
        return call is not None and call.halt("aborted")

    async def dispose(self) -> None:
        """Abort all calls, and release all resources. Further calls have no effect."""
        if self._closed:
            return
        self._closed = True
        calls = self._open_calls()
        for call in calls:
            call.halt("aborted")
        for call in calls:
            if call.is_made:
                await asyncio.shield(asyncio.wrap_future(call.response))
            else:
                await self._end(call, not_begun(call))
        for name, live in reversed(self._tools.items()):
            await self._dispose(name, live.instance)
        released = await contained(self._release([*self._held.values()]))
        if released.error is not None:
            self._warn("resources", describe(released.error))
        await self._executions.close()
        for kept in (self._tools, self._held, self._listeners, self.observers):
            kept.clear()
        self.clear_tool_approval_callback()
        self.clear_execute_callback()

    async def __aenter__(self) -> LocalEnvironment:
        self._check_open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.dispose()

    # The calls

    async def _admit(self, given: Any) -> Call | EnvironmentResponse:
        """Return a new or known call, by its data or its id, or why it cannot be made."""
        self._check_open()
        try:
            if isinstance(given, str):
                return self._known(given)
            requested = validated(given)
            return self._same(requested) or await self._register(requested)
        except CallError as error:
            return refusal(given, error)

    def _known(self, id: str, error: type[CallError] = CallError) -> Call:
        if (call := self._calls.get(id)) is None:
            raise error("unknown_call", f"there is no call '{id}'")
        return call

    def _same(self, requested: ToolCall) -> Call | None:
        """Return the known call with this id, or None.

        Raises:
            CallError: It is a different one.
        """
        call, digest = self._calls.get(requested.tool_call_id), digest_of(requested.args)
        if call is None:
            kept = self._executions.find(requested.tool_call_id)[1]  # of an earlier process
            if kept is None or (kept["tool"], kept["digest"]) == (requested.tool_name, digest):
                return None
        elif call.tool == requested.tool_name:
            if digest_of(call.args) == digest:
                return call
            can_change = call.is_loading or (call.is_submitted and call.question is None)
            if can_change and not call.is_made and not call.response.done():
                call.args, call.decision = copy(requested.args) or call.args, None
                return call
        why = f"another call has the id '{requested.tool_call_id}' already"
        raise CallError("duplicate_call", why)

    async def _register(self, requested: ToolCall) -> Call:
        """Register a call, with a new instance of its tool.

        Raises:
            CallError: The tool is unknown.
        """
        name = requested.tool_name
        if name not in self._tools and name in BUILT_IN:
            await self.register_tool(BUILT_IN[name])
        if (live := self._tools.get(name)) is None:
            names = sorted({*self._tools, *BUILT_IN})
            near = did_you_mean(name, names)
            why = f"there is no tool '{name}'{'' if near is None else f'; {near}'}"
            raise CallError("unknown_tool", f"{why} Known tools: {', '.join(names)}.")
        instance = live.definition.make()
        instance.environment = self
        vars(instance).update(live.prepared)
        call = Call(requested, live.definition, instance)
        with self._lock:
            there = self._calls.setdefault(call.id, call)
            if len(self._calls) > REMEMBERED:
                oldest = next(iter(self._calls.values()))
                if oldest.response.done():
                    del self._calls[oldest.id]
        if there is not call:  # another thread has registered the same call
            return self._same(requested) or there
        self._tell("call_registered", call, call=call.view())
        return call

    async def _run(self, call: Call) -> EnvironmentResponse:
        """Run a call, and return a response in every case."""
        try:
            if call.is_loading:
                await self._show(call)
                call.is_loading = False
            result = await self._result(call)
        except asyncio.CancelledError:  # the loop ends, not only the waiting task
            call.halt("aborted")
            await self._end(call, stopped(call, began=call.began))
            raise
        except Exception as error:
            _LOG.exception("call %s failed", call.id)
            result = internal(call, f"the environment failed: {describe(error)}")
        return await self._end(call, result)

    async def _result(self, call: Call) -> ToolResult:
        executions = self._executions
        call.masked = self._mask(copy(call.args))
        call.execution, kept = executions.find(call.id)
        is_other = kept is not None and kept["version"] != call.definition.version
        if is_other and is_asked(executions.engine.executions.result(call.execution)):
            await executions.withdraw(call)  # the question is about another version
            call.execution, kept = executions.find(call.id)
        is_approved = False
        if kept is None:
            if (fault := _fault(call)) is not None:
                return result_of(call, "invalid", self._mask(fault))
            is_approved = call.decision is None and self._automatic(call) is not None

        async def run(*, step_of_call: StepContext, **given: Any) -> dict[str, Any]:
            return await self._attempt(call, step_of_call, given)

        ask, refused = partial(self._ask, call), partial(_refused, call)
        with executions.engine.approvals.consulting(call.execution, ask, refused):
            made = await executions.run(call, kept, run, asks=not is_approved)
        if made is None:
            why = "aborted while another process has it: it may have acted"
            return result_of(call, call.stop or "aborted", why, ran="maybe")
        if is_asked(made):  # no decision was made
            made = await executions.withdraw(call)
            if call.refusal is not None:
                return result_of(call, "rejected", self._mask(call.refusal))
            if made.status == "cancelled":
                return not_begun(call)
        result = self._read(call, made)
        if call.began:
            seen = observe(
                self.observers, self._shown(call), result, self._bounds.observer, self._mask
            )
            result.observer_results = await _in_context(call, seen)
        return result

    def _read(self, call: Call, made: ExecutionResult) -> ToolResult:
        """Return the result of a call from its execution."""
        error, decided = made.error, self._executions.decided
        if made.outputs is not None:
            answer = made.outputs["made"]
            if isinstance(answer, dict) and "result" in answer:
                result = ToolResult(**answer["result"])
            else:  # a human supplied the result
                result = result_of(call, "ok", content=answer)
                result = with_feedback(result, call.decision or decided(call))
        elif made.status == "cancelled":
            began = self._executions.has_begun(call)
            result = call.ended or stopped(call, began=began)
        elif error is None:
            why = "the process ended during the call: it is unknown whether it acted"
            result = result_of(call, "uncertain", why, ran="maybe")
        elif error["type"] == "Rejected":
            decision = call.decision or decided(call)
            assert decision is not None
            reason = f": {decision.feedback}" if decision.feedback else ""
            why = self._mask(f"rejected by {decision.by}{reason}")
            result = with_feedback(result_of(call, "rejected", why), decision)
        elif error["type"] == "Expired":
            result = expired(call)
        elif error["type"] == "Refused":
            result = result_of(call, "rejected", error["message"])
        else:
            result = internal(call, error["message"])
        return result.model_copy(update={"replayed": call.replayed and not call.began})

    async def _end(self, call: Call, result: ToolResult) -> EnvironmentResponse:
        """End a call with its result, and dispose of its instance."""
        if call.response.done():
            return call.response.result()
        self._tell("result", call, result=result, call=call.view())
        call.end()
        await self._dispose(call.tool, call.instance)
        call.is_loading, call.produced, call.context, call.instance = False, [], Context(), None
        call.response.set_result(response_of(result))
        return call.response.result()

    # Decisions

    def _automatic(self, call: Call) -> ApprovalResponse | None:
        """Return the automatic decision about a call, or None if a decision must be requested."""
        if call.options.approval == "none":
            by = BY_TOOL
        elif _callback_of(self.authority) is None and (
            self._auto == "everything"
            or (self._auto == "asking" and call.options.approval != "required")
        ):
            by = AUTO
            if not self._warned:
                self._warned = True
                why = "calls are approved without a question: no approval callback is registered"
                self._warn("auto_approval", why)
        else:
            return None
        return self._told(call, ApprovalResponse(approved=True, by=by))

    async def _ask(
        self, call: Call, asked: ToolCall, preview: Awaitable[Shown]
    ) -> EnvironmentResponse:
        """Request a decision about a call for the engine, unless there is one already."""
        call.decision = call.decision or await self._requested(call, preview)
        if call.decision is None:
            return EnvironmentResponse(result=_DEFERRED)
        fields = {name: getattr(call.decision, name) for name in ("feedback", "content", "args")}
        return EnvironmentResponse(result=call.decision.model_copy(update=self._mask(fields)))

    async def _requested(self, call: Call, preview: Awaitable[Shown]) -> ApprovalResponse | None:
        """Return the first decision about a call. None: the call must stop."""
        question, asking = call.question, None
        if question is None:
            question = call.question = lasting()
            self._tell("approval", call, call=self._shown(call))
            asking = asyncio.ensure_future(self._ask_authority(call, preview))
        waiting = asyncio.wrap_future(question)
        try:
            if not await call.unless_stopped(waiting):
                return None
            decision: ApprovalResponse = waiting.result()
            return decision if asking is None else self._told(call, decision)
        finally:
            waiting.cancel()
            if asking is not None:
                call.answer(_DEFERRED)
                call.question = None
                asking.cancel()

    async def _ask_authority(self, call: Call, preview: Awaitable[Shown]) -> None:
        """Answer the question with the decision of the authority.

        If it defers, the question of a call that is made remains open. Otherwise, a decision is
        requested again when the call is made.
        """
        authority, shown, view = self.authority, await preview, self._shown(call)
        view.preview, view.preview_note = shown
        if any(shown):
            self._tell("preview", call, **shown._asdict())
        if _callback_of(authority) is None:
            return
        decision = await decision_of(authority.approve_tool(view))
        try:
            decision = _checked(call, decision)
        except InputError as error:
            decision = no(f"the authority's answer was refused: {error.message}")
        if decision.decision == "defer":
            self._tell("deferred", call)
            if call.is_made:
                return
        call.answer(decision.model_copy(update={"by": decision.by or type(authority).__name__}))

    async def _preview(self, call: Call) -> Shown:
        """Return the preview of a call that no execution has begun."""
        instance = call.instance
        if not overrides(instance, "preview"):
            return Shown()
        return await computed(
            lambda _: call_preview(instance.preview, call.masked), nullcontext(), self._mask
        )

    def _told(self, call: Call, decision: ApprovalResponse) -> ApprovalResponse:
        auto = self._auto if decision.by == AUTO else None
        shown = {name: getattr(decision, name) for name in ("decision", "by", "feedback", "args")}
        self._tell("decided", call, **shown, auto_approve=auto)
        return decision

    # The attempt of a call

    async def _attempt(
        self, call: Call, step: StepContext, given: dict[str, Any]
    ) -> dict[str, Any]:
        """Run the tool, as the step of its execution, with only plain data as output."""
        decision = call.decision
        edited = None if decision is None else decision.args
        args = unmasked(given if edited is None else edited, call.masked, call.args)
        call.changed = None if args == call.args else args
        if decision is None and step.approval is not None:
            decision = self._executions.decided(call)
        work = asyncio.ensure_future(_in_context(call, self._in_turn(call, args, step)))
        try:
            result = await asyncio.shield(work)
        except asyncio.CancelledError:  # the execution is cancelled, or the loop ends
            call.halt("aborted")
            result = await work
        result = with_feedback(result, decision)
        if result.ran != "no":
            result = result.model_copy(update={"written_by": call.options.written_by})
        call.ended = result
        return {"result": result.model_dump(exclude_defaults=True)}

    async def _in_turn(self, call: Call, args: dict[str, Any], step: StepContext) -> ToolResult:
        """Run the tool to its end, when it is its turn, with its resources."""
        is_alone = not call.options.supports_parallel_execution
        with self._turns.get().queue(exclusive=is_alone) as granted:
            if not granted.done():
                await call.unless_stopped(asyncio.wrap_future(granted))
            if call.stop:
                return not_begun(call)
            if not call.options.resources:
                return await self._called(call, args, step, {})
            opening = asyncio.ensure_future(contained(self._ensure(call, call.options.resources)))
            if not await call.unless_stopped(opening):
                opening.cancel()
            outcome = await opening
            if outcome.error is not None:
                failed = self._failed(call, outcome.error, ran="no")
                return not_begun(call) if call.stopped.done() else failed
            resources, after = outcome.value
            try:
                if call.stopped.done():
                    return not_begun(call)
                return await self._called(call, args, step, resources)
            finally:
                await uncut(contained(self._release(after)))

    async def _called(
        self, call: Call, args: dict[str, Any], step: StepContext, resources: dict[str, Any]
    ) -> ToolResult:
        """Run the tool until it ends, or must stop.

        One that must stop first receives the signal. After the grace period, a coroutine is
        cancelled. A thread cannot be stopped, so the call ends without it, and `ran` is `maybe`.
        """
        call.began = True
        self._tell("execution", call, call=call.view())
        context = ToolContext(
            tool_call_id=call.id,
            execution_id=self.execution_id,
            signal=AbortSignal(call.stopped),
            parallel=call.options.supports_parallel_execution,
            state=self._states[call.tool],
            resources=resources,
            report=lambda what: self._tell("progress", call, report=what),
            _step=step,
            _produced=call.produced,
        )
        await self._notify("start", call.view())
        work = asyncio.ensure_future(contained(self._returned(call, args, context)))
        timer, limit = None, call.options.timeout
        if limit is not None:
            timer = asyncio.get_running_loop().call_later(limit, call.halt, "timed_out")
        try:
            await call.unless_stopped(work)
            if work.done() and call.end():
                outcome = work.result()
                if outcome.error is not None:
                    result = self._failed(call, outcome.error, ran="yes")
                else:
                    result = result_of(call, "ok", ran="yes", **outcome.value)
            else:
                result = stopped(call, await self._stop(call, work), self._partial(call))
        except asyncio.CancelledError:  # the loop ends
            work.cancel()
            raise
        finally:
            if timer is not None:
                timer.cancel()
        await self._notify("end", call.view(), result)
        return result

    async def _returned(
        self, call: Call, args: dict[str, Any], context: ToolContext
    ) -> dict[str, Any]:
        """Call the tool, and return its return value as fields of the result."""
        self._turns.set(Turns())
        signature, execute = call.definition.signature, call.instance.execute
        named = signature.convert(args)
        if signature.context is not None:
            named[signature.context] = context
        value = await call_plugin(execute, **named)
        artifacts = context._step.execution.artifacts
        return content_of(
            value, call.tool, artifacts, self._mask, largest_result(call.options.limits)
        )

    async def _stop(self, call: Call, work: asyncio.Future[CodeOutcome]) -> CodeOutcome | None:
        """Stop the tool, and return its outcome, or None if the outcome is unknown."""
        grace, execute = self._bounds.grace, call.instance.execute
        if not await within(grace, work):
            work.cancel()
            if not is_coroutine_function(execute) or not await within(grace, work):
                self._warn(
                    "still_running", f"tool '{call.tool}' did not stop, and still runs", call
                )
                return None
        outcome = work.result()
        return None if isinstance(outcome.error, asyncio.CancelledError | Aborted) else outcome

    def _failed(self, call: Call, error: BaseException, *, ran: Ran) -> ToolResult:
        message = self._mask(error_text(error))
        return result_of(call, "error", message, ran=ran, content=self._partial(call))

    def _partial(self, call: Call) -> str | None:
        """Return the output so far, if any."""
        return self._mask("".join(call.produced)) or None

    async def _notify(self, which: str, *args: BaseModel) -> None:
        """Call an execution callback, which cannot affect the call."""
        if (callback := self._callbacks.get(which)) is None:
            return
        copies = [type(each).model_validate(self._mask(each.model_dump())) for each in args]
        bound = self._bounds.observer
        if (why := (await bounded(bound, call_plugin(callback, *copies))).fault(bound)) is not None:
            self._warn("callback", f"the callback '{which}': {why}")

    # Managed environments

    async def _ensure(
        self, call: Call, declared: Mapping[str, Mapping[str, Any] | None]
    ) -> tuple[dict[str, Any], list[Handle]]:
        """Return the resources of a tool by name, and the handles to release after the call.

        Raises:
            StepError: One has no spec, or cannot be opened.
        """
        if self._manager is None:
            self._manager = manager()
        specs: list[dict[str, Any]] = []
        for name, own in declared.items():
            spec = own or self._specs.get(name)
            if spec is None:
                raise StepError(
                    f"tool '{call.tool}' needs the environment '{name}', and there is no spec for "
                    f"it: pass environments={{'{name}': {{'kind': …}}}}",
                    type="MissingEnvironment",
                )
            specs.append({"owner_id": self.execution_id, "scope": "execution", **spec})
        handles = await self._manager.async_ensure_all(specs, holder=call.id)
        after: list[Handle] = []
        for spec, handle in zip(specs, handles, strict=True):
            if spec["scope"] == FOR_A_CALL or handle.spec_id in self._held:
                after.append(handle)
            else:  # it stays until the environment is disposed of
                self._held[handle.spec_id] = handle
        resources = (handle.resource for handle in handles)
        return dict(zip(declared, resources, strict=True)), after

    async def _release(self, handles: list[Handle]) -> None:
        """Release handles, the last one first."""
        for handle in reversed(handles):
            assert self._manager is not None
            await self._manager.async_release(handle)

    # Internals

    def _open_calls(self) -> list[Call]:
        return [call for call in [*self._calls.values()] if not call.response.done()]

    def _check_open(self) -> None:
        if self._closed:
            raise ToolEnvironmentClosed("the tool environment was disposed of: make a new one")

    async def _dispose(self, name: str, instance: Any) -> None:
        if overrides(instance, "dispose"):
            bound = self._bounds.dispose
            why = (await bounded(bound, call_plugin(instance.dispose))).fault(bound)
            if why is not None:
                self._warn("dispose", f"dispose of tool '{name}': {why}")

    def _mask(self, value: Any) -> Any:
        return self._secrets.mask(value)

    def _shown(self, call: Call) -> ToolCall:
        """Return a call in its current state, with secrets masked."""
        view = call.view()
        return view.model_copy(update={"args": self._mask(view.args)})

    def _warn(self, code: str, message: str, call: Call | None = None) -> None:
        self._tell("warning", call, code=code, message=message)

    def _tell(self, kind: str, about: Call | None, **fields: Any) -> None:
        """Publish a message, on any thread."""
        if not self._listeners:
            return
        if about is not None:
            fields |= {"tool_call_id": about.id, "tool_name": about.tool}
        plain = {
            name: value.model_dump() if isinstance(value, BaseModel) else value
            for name, value in fields.items()
        }
        message = {"type": kind, **self._mask(plain)}
        for listener in [*self._listeners]:
            try:
                listener(message)
            except Exception:
                _LOG.exception("a listener failed")


def validated(call: Any) -> ToolCall:
    """Return a validated copy of a call.

    Raises:
        CallError: The message lists everything that is wrong.
    """
    if isinstance(call, ToolCall):
        call = call.model_dump()
    if not isinstance(call, Mapping):
        raise CallError("invalid", f"a call is a map, not {type(call).__name__}")
    try:
        return ToolCall.model_validate(dict(call))
    except ValidationError as error:
        raise CallError("invalid", faults(error)) from None


def refusal(given: Any, error: CallError) -> EnvironmentResponse:
    """Return the response to a call that cannot be made.

    Args:
        given: The call or its id.
        error: The reason.
    """
    fields = dict(given) if isinstance(given, Mapping | ToolCall) else {"tool_call_id": given}
    call, tool = (str(fields.get(name) or "") for name in ("tool_call_id", "tool_name"))
    return response_of(
        ToolResult(
            tool_call_id=call, tool_name=tool, success=False, status="invalid", ran="no",
            message=error.message,
        ),
        error.code,
    )  # fmt: skip


def _callback_of(authority: Any) -> Any:
    """Return what decides, or None if nothing does."""
    return authority.callback if isinstance(authority, CallbackAuthority) else authority


def _refused(call: Call, error: FlowEngineError) -> None:
    """Drop the decision about a call, because it is invalid or another one was made before."""
    decision, call.decision = call.decision, None
    if decision is not None:
        call.refusal = f"the decision of {decision.by} is not valid: {error.message}"


def _fault(call: Call) -> str | None:
    """Return the fault of the final arguments, if any."""
    try:
        call.definition.signature.convert(call.args)
    except ArgumentFault as error:
        return str(error)
    return None


def _checked(call: Call, given: Any) -> ApprovalResponse:
    """Return a decision about a call.

    Raises:
        InputError: It is not valid, or its arguments do not fit the schema of the tool.
    """
    decision = ApprovalResponse.of(given)
    if decision.args is not None:
        if missing := call.args.keys() - decision.args.keys():
            raise InputError(f"args: '{min(missing)}' cannot be taken away", field="args")
        try:
            call.definition.signature.convert(unmasked(decision.args, call.masked, call.args))
        except ArgumentFault as error:
            raise InputError(f"args: {error}", field="args") from None
    return decision


async def _in_context(call: Call, work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a part of a call in the context of its caller instead of the engine's."""
    return await asyncio.get_running_loop().create_task(work, context=call.context)


# `execute_command`, the built-in tool that runs a command in a managed shell environment.

SHELL = "shell"
"""Name of its environment, which is of the kind `shell` or `bash`."""


@tool(resources={SHELL: None})
async def execute_command(command: str, ctx: ToolContext) -> dict[str, Any]:
    """Run a command in the shell and return its exit code and output.

    When the call must stop, the command ends with all its child processes.

    Args:
        command: The shell command.
        ctx: The context of the call.

    Returns:
        `exit_code`, `stdout` and `stderr`. A terminal has both streams in `stdout`.

    Raises:
        StepError: The environment cannot run commands.
    """
    shell = ctx.resources[SHELL]
    run = getattr(shell, "async_run_in_turn", None) or getattr(shell, "async_run", None)
    if run is None:
        raise StepError(f"the environment '{SHELL}' runs no commands: take the kind shell or bash")

    def wrote(_: str, text: str) -> None:
        ctx.write(text)
        ctx.report(text)

    running = asyncio.ensure_future(run(command, on_output=wrote))
    aborted = asyncio.ensure_future(ctx.signal.async_wait())
    try:
        await asyncio.wait([running, aborted], return_when=asyncio.FIRST_COMPLETED)
    finally:
        aborted.cancel()
        if not running.done():  # cancellation ends the command with its child processes
            running.cancel()
            await asyncio.wait([running])
    result = running.result()
    if hasattr(result, "stdout"):
        return {
            "exit_code": result.exit_code,
            "stdout": result.stdout,
            "stderr": result.stderr,
        }
    return {"exit_code": result.exit_code, "stdout": result.output, "stderr": ""}


BUILT_IN = {"execute_command": execute_command}
"""Tools that can be called without being registered."""
