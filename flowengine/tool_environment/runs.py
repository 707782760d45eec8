"""Runs of tools: their turns, resources, context and time, and their end if they must stop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any

from flowengine.execution_environment import EnvironmentManager, Handle
from flowengine.execution_environment import manager as of_process
from flowengine.sdk import StepContext, StepError
from flowengine.sdk.python.user_code import (
    CodeOutcome,
    contained,
    is_coroutine_function,
    uncut,
    within,
)
from flowengine.sdk.python.user_code import call as call_plugin
from flowengine.sdk.texts.exception_text import describe
from flowengine.sdk.tools.tool_calls import Ran, ToolResult
from flowengine.tool_environment.calls import Call, resolve
from flowengine.tool_environment.context import Aborted, ToolContext, Turns
from flowengine.tool_environment.observers import Watchers
from flowengine.tool_environment.results import content_of, error_text, result_of, stopped

_FOR_A_CALL = "action_call"
"""Scope of managed environments that are released after a call."""


class ToolRuns:
    """Runs the tools of an environment.

    Args:
        execution_id: Owns the managed environments.
        specs: Specs of managed environments, by name.
        manager: Opens them. None: the manager of the process.
        grace: Seconds that a tool has to stop.
        watchers: Receive reports about the calls.
    """

    def __init__(
        self,
        execution_id: str,
        specs: Mapping[str, Mapping[str, Any]],
        manager: EnvironmentManager | None,
        grace: float,
        watchers: Watchers,
    ) -> None:
        self._id, self._specs, self._manager = execution_id, dict(specs), manager
        self._grace, self._watchers = grace, watchers
        self._states: dict[str, dict[str, Any]] = {}
        self._held: dict[str, Handle] = {}
        """Managed environments that outlive a single call."""
        self._all_turns = Turns()
        self._turns: ContextVar[Turns] = ContextVar("turns")
        """Within a tool, the turns of the calls that it makes itself."""

    async def run(self, call: Call, step: StepContext, args: dict[str, Any]) -> ToolResult:
        """Run the tool when it is its turn, until it ends or must stop.

        One that must stop first receives the signal. After the grace period, a coroutine is
        cancelled. A thread cannot be stopped, so the call ends without it, and `ran` is `maybe`.
        """
        watchers, options = self._watchers, call.options
        own: list[Handle] = []

        async def working() -> CodeOutcome:
            return await contained(self._work(call, step, args, granted, own))

        turns = call.context.get(self._turns, self._all_turns)
        with turns.queue(exclusive=not options.supports_parallel_execution) as granted:
            work = asyncio.get_running_loop().create_task(working(), context=call.context)
            try:
                await call.signal.async_wait(work)
            except asyncio.CancelledError:  # the execution is cancelled, or the loop ends
                call.halt("aborted")
            has_ended = work.done() and resolve(call.stopped, None)
            outcome = work.result() if has_ended else await self._stop(call, work)
            if own:
                await uncut(contained(self._release(own)))
        partial = watchers.mask("".join(call.produced)) or None
        if not has_ended or outcome is None:
            result = stopped(call, outcome, partial, began=call.began)
        elif outcome.error is not None:
            ran: Ran = "yes" if call.began else "no"
            why = watchers.mask(error_text(outcome.error))
            result = result_of(call, "error", why, ran=ran, content=partial)
        else:
            result = result_of(call, "ok", ran="yes", **outcome.value)
        if call.began:
            await watchers.notify("end", call.view(), result)
        return result

    async def _work(
        self,
        call: Call,
        step: StepContext,
        args: dict[str, Any],
        granted: Future[Any],
        own: list[Handle],
    ) -> dict[str, Any]:
        """Call the tool, and return its return value as fields of the result."""
        if not granted.done():
            await asyncio.wrap_future(granted)
        resources = await self._opened(call, own)
        if call.signal.aborted:
            raise asyncio.CancelledError
        call.began = True
        watchers, options = self._watchers, call.options
        watchers.send("execution", call, call=call.view())
        context = ToolContext(
            tool_call_id=call.id,
            execution_id=self._id,
            signal=call.signal,
            parallel=options.supports_parallel_execution,
            state=self._states.setdefault(call.tool, {}),
            resources=resources,
            report=lambda what: watchers.send("progress", call, report=what),
            _step=step,
            _produced=call.produced,
        )
        self._turns.set(Turns())
        await watchers.notify("start", call.view())
        named = call.definition.convert(args) | dict.fromkeys(call.definition.context, context)
        timer = None
        if (limit := options.timeout) is not None:
            timer = asyncio.get_running_loop().call_later(limit, call.halt, "timed_out")
        try:
            value = await call_plugin(call.instance.execute, **named)
            return content_of(value, call, step.execution.artifacts, watchers.mask)
        finally:
            if timer is not None:
                timer.cancel()

    async def _stop(self, call: Call, work: asyncio.Task[CodeOutcome]) -> CodeOutcome | None:
        """Stop the tool, and return its outcome, or None if the outcome is unknown."""
        began = call.began
        if not (began and await within(self._grace, work)):
            work.cancel()
            is_thread = began and not is_coroutine_function(call.instance.execute)
            if is_thread or not await within(self._grace, work):
                why = f"tool '{call.tool}' did not stop, and still runs"
                self._watchers.warn("still_running", why, call)
                return None
        error = work.result().error
        return None if isinstance(error, asyncio.CancelledError | Aborted) else work.result()

    # Managed environments

    async def _opened(self, call: Call, own: list[Handle]) -> dict[str, Any]:
        """Return the resources of a tool by name.

        Args:
            call: The call.
            own: Receives the handles to release after the call.

        Raises:
            StepError: One has no spec, or cannot be opened.
        """
        specs: list[dict[str, Any]] = []
        declared = call.options.resources or {}
        for name, given in declared.items():
            if (spec := given or self._specs.get(name)) is None:
                raise StepError(
                    f"tool '{call.tool}' needs the environment '{name}', and there is no spec for "
                    f"it: pass environments={{'{name}': {{'kind': …}}}}",
                    type="MissingEnvironment",
                )
            specs.append({"owner_id": self._id, "scope": "execution", **spec})
        if not specs:
            return {}
        self._manager = self._manager or of_process()
        handles = await self._manager.async_ensure_all(specs, holder=call.id)
        for spec, handle in zip(specs, handles, strict=True):
            if spec["scope"] == _FOR_A_CALL or handle.spec_id in self._held:
                own.append(handle)
            else:
                self._held[handle.spec_id] = handle
        return {name: each.resource for name, each in zip(declared, handles, strict=True)}

    async def _release(self, handles: list[Handle]) -> None:
        """Release handles, the last one first."""
        for handle in reversed(handles):
            assert self._manager is not None
            await self._manager.async_release(handle)

    async def close(self) -> None:
        """Release the managed environments."""
        released = await contained(self._release([*self._held.values()]))
        if released.error is not None:
            self._watchers.warn("resources", describe(released.error))
