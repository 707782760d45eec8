"""`LocalEnvironment`, which approves and runs calls of tools as executions of an engine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flowengine.engines.attempts.serialization import copy
from flowengine.engines.engine import Engine
from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk.steps.previews import Shown
from flowengine.sdk.tools.tool_calls import EnvironmentResponse, ToolCall
from flowengine.secrets import Secrets
from flowengine.tool_environment.approval import AutoApprove, CallbackAuthority
from flowengine.tool_environment.calls import CallExecutions
from flowengine.tool_environment.errors import CallError
from flowengine.tool_environment.execution import Executing
from flowengine.tool_environment.observers import Listener, Watchers, check_callback
from flowengine.tool_environment.registration import CallBounds, refusal, validated
from flowengine.tool_environment.results import stopped
from flowengine.tool_environment.runs import ToolRuns


class LocalEnvironment(Executing):
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
        bounds: CallBounds | None = None,
        manager: EnvironmentManager | None = None,
    ) -> None:
        self.execution_id = id = execution_id or os.urandom(8).hex()
        self.keeps_calls = bool(execution_id) and engine is not None
        bounds = bounds or CallBounds()
        masked = Secrets(secrets or {})
        watchers = Watchers(masked.mask, bounds.observer)
        executions = CallExecutions(id, engine, bounds.question, masked.references)
        super().__init__(watchers, executions, bounds)
        self.authority: Any = CallbackAuthority()
        self.observers, self._auto = watchers.observers, auto_approve
        self._runs = ToolRuns(id, environments or {}, manager, bounds.grace, watchers)

    # Configuration

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
        self._watchers.callbacks = {"start": start, "end": end}

    def clear_execute_callback(self) -> None:
        """Remove the functions called before and after calls."""
        self._watchers.callbacks = {}

    def register_observer(self, observer: Any) -> None:
        """Add an observer under its own name.

        Args:
            observer: Has `name`, `description` and `execute(call, result)`.

        Raises:
            RegistrationError: It is not an observer, or the name is taken.
        """
        self.observers[getattr(observer, "name", "")] = observer

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call a function with each message about calls, on the thread where it arises.

        Args:
            listener: Must be fast. Its exceptions are logged and otherwise ignored.

        Returns:
            A function that removes the listener.
        """
        listeners = self._watchers.listeners
        listeners.append(listener)
        return lambda: listeners.remove(listener) if listener in listeners else None

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

    # Approval and execution

    async def approve_tool(self, call: ToolCall | Mapping[str, Any]) -> EnvironmentResponse:
        """Request a decision about a call, without running it. It is limited to this call.

        The authority is asked. Only the execution of the call opens a question that others answer.

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
        admitted.is_loading, admitted.masked = False, self._watchers.mask(copy(admitted.args))
        if (invalid := self._invalid(admitted)) is not None:
            return await self._end(admitted, invalid)
        decision = admitted.decision or self._automatic(admitted)
        decision = decision or await self._authority_says(admitted, Shown())
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
                await self._end(call, stopped(call))
        for name, live in reversed(self._tools.items()):
            await self._dispose(name, live.instance)
        await self._runs.close()
        await self._executions.close()
        for kept in (self._tools, self.observers, self._watchers.listeners):
            kept.clear()
        self.clear_tool_approval_callback()
        self.clear_execute_callback()

    async def __aenter__(self) -> LocalEnvironment:
        self._check_open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.dispose()
