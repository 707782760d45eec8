"""Execution of a call as the attempt of its step, with its turn and resources, until it is stopped.

A tool that must stop first receives the signal. After the grace period, a coroutine is cancelled. A
thread cannot be stopped, so the call ends without it, and `ran` is `maybe`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from flowengine.sdk import StepContext
from flowengine.sdk.models import largest_result
from flowengine.sdk.tool_calls import Ran, ToolResult
from flowengine.sdk.user_code import (
    CodeOutcome,
    bounded,
    contained,
    is_coroutine_function,
    uncut,
    within,
)
from flowengine.sdk.user_code import call as call_plugin
from flowengine.tool_environment.call import AdmittedCall
from flowengine.tool_environment.context import Aborted, AbortSignal, ToolContext, Turns
from flowengine.tool_environment.registry import EnvironmentParts
from flowengine.tool_environment.results import content_of, error_text, result_of


def not_begun(call: AdmittedCall) -> ToolResult:
    """Return the result of a call that was stopped before it started."""
    return result_of(call, call.stop or "aborted", "aborted before it began. Nothing was done")


class Attempt:
    """One run of a tool.

    Args:
        parts: The environment's parts.
        call: The call.
        args: Its arguments, as approved.
        step: The attempt of its step.
    """

    def __init__(
        self, parts: EnvironmentParts, call: AdmittedCall, args: dict[str, Any], step: StepContext
    ) -> None:
        self._parts = parts
        self._call = call
        self._args = args
        self._step = step
        self._context: ToolContext

    async def run(self) -> ToolResult:
        """Run the tool to its end, when it is its turn, with its resources."""
        parts, call = self._parts, self._call
        is_alone = not call.options.supports_parallel_execution
        with parts.turns.get().queue(exclusive=is_alone) as granted:
            if not granted.done():
                await self._unless_stopped(asyncio.wrap_future(granted))
            if call.stop:
                return not_begun(call)
            if not call.options.resources:
                return await self._run({})
            ensured = parts.resources.ensure(call.options.resources, call.tool, holder=call.id)
            opening = asyncio.ensure_future(contained(ensured))
            if not await self._unless_stopped(opening):
                opening.cancel()
            outcome = await opening
            if outcome.error is not None:
                failed = self._failed(outcome.error, ran="no")
                return not_begun(call) if call.stopped.done() else failed
            resources, after = outcome.value
            try:
                return not_begun(call) if call.stopped.done() else await self._run(resources)
            finally:
                await uncut(contained(parts.resources.release(after)))

    async def _unless_stopped(self, work: asyncio.Future[Any]) -> bool:
        """Wait as `AdmittedCall.unless_stopped`. The call stops if its execution is cancelled."""
        try:
            return await self._call.unless_stopped(work)
        except asyncio.CancelledError:  # the execution is cancelled, or the loop ends
            self._call.halt("aborted")
            return work.done()

    async def _run(self, resources: dict[str, Any]) -> ToolResult:
        parts, call = self._parts, self._call
        call.move("execution", call=call.view())
        self._context = ToolContext(
            tool_call_id=call.id,
            execution_id=parts.execution_id,
            signal=AbortSignal(call.stopped),
            parallel=call.options.supports_parallel_execution,
            state=parts.states[call.tool],
            resources=resources,
            report=lambda what: call.tell("progress", report=what),
            _step=self._step,
            _produced=call.produced,
        )
        await self._notify("start", call.view())
        result = await self._result()
        await self._notify("end", call.view(), result)
        return result

    async def _notify(self, which: str, *args: Any) -> None:
        """Call an execution callback, which cannot affect the call."""
        parts = self._parts
        if (callback := parts.callbacks.get(which)) is None:
            return
        args = tuple(type(each).model_validate(parts.mask(each.model_dump())) for each in args)
        outcome = await bounded(parts.bounds.observer, call_plugin(callback, *args))
        if (why := outcome.fault(parts.bounds.observer)) is not None:
            parts.warn("callback", f"the callback '{which}': {why}")

    async def _result(self) -> ToolResult:
        call = self._call
        work = asyncio.ensure_future(contained(self._returned()))
        timer = None
        if call.options.timeout is not None:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(call.options.timeout, call.halt, "timed_out")
        try:
            await self._unless_stopped(work)
            if work.done() and call.end():
                outcome = work.result()
                if outcome.error is not None:
                    return self._failed(outcome.error, ran="yes")
                return result_of(call, "ok", ran="yes", **outcome.value)
            return self._stopped(await self._stop(work))
        except asyncio.CancelledError:  # the loop ends
            work.cancel()
            raise
        finally:
            if timer is not None:
                timer.cancel()

    async def _returned(self) -> dict[str, Any]:
        """Call the tool, and return its return value as fields of the result."""
        parts, call = self._parts, self._call
        parts.turns.set(Turns())
        named = call.definition.signature.convert(self._args)
        if call.definition.signature.context is not None:
            named[call.definition.signature.context] = self._context
        execute: Any = call.instance.execute  # type: ignore[union-attr]
        value = await call_plugin(execute, **named)
        most, artifacts = largest_result(call.options.limits), self._step.execution.artifacts
        return content_of(value, call.tool, artifacts, parts.mask, most)

    # Ends

    async def _stop(self, work: asyncio.Future[CodeOutcome]) -> CodeOutcome | None:
        """Stop the tool, and return its outcome, or None if the outcome is unknown."""
        call, grace = self._call, self._parts.bounds.grace
        if not await within(grace, work):
            work.cancel()
            execute: Any = call.instance.execute  # type: ignore[union-attr]
            if not is_coroutine_function(execute) or not await within(grace, work):
                message = f"tool '{call.tool}' did not stop, and still runs"
                call.tell("warning", code="still_running", message=message)
                return None
        outcome = work.result()
        return None if isinstance(outcome.error, asyncio.CancelledError | Aborted) else outcome

    def _stopped(self, outcome: CodeOutcome | None) -> ToolResult:
        call = self._call
        fields = {} if outcome is None or outcome.error is not None else outcome.value
        if fields.get("content") is None:
            fields = {**fields, "content": self._partial()}
        status = call.stop or "aborted"
        why = "aborted" if status == "aborted" else f"timed out after {call.options.timeout:g} s"
        what = "it had ended" if outcome is not None else "it may have acted in part"
        ran: Ran = "maybe" if outcome is None else "yes"
        return result_of(call, status, f"{why} while it ran: {what}", ran=ran, **fields)

    def _failed(self, error: BaseException, *, ran: Ran) -> ToolResult:
        message = self._parts.mask(error_text(error))
        return result_of(self._call, "error", message, ran=ran, content=self._partial())

    def _partial(self) -> str | None:
        """Return the output so far, if any."""
        return self._parts.mask("".join(self._call.produced)) or None
