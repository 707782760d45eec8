"""Execution of a call as the attempt of its step, with its turn and resources, until it is stopped.

A tool that must stop first receives the signal. After the grace period, a coroutine is cancelled,
and the processes that a thread has started are killed. The thread itself cannot be stopped, so the
call ends without it, and `ran` is `maybe`.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from flowengine.engines.attempts.leak_detection import LeakDetector, process_left
from flowengine.engines.attempts.processes import ProcessRunner
from flowengine.sdk import Artifacts, StepContext
from flowengine.sdk.coroutines import uncut
from flowengine.sdk.process_tree import Family, mark_of
from flowengine.sdk.threads import on_thread
from flowengine.sdk.tool_calls import Ran, ToolResult
from flowengine.sdk.tool_limits import largest_result
from flowengine.sdk.user_code import CodeOutcome, bounded, contained, is_coroutine_function, within
from flowengine.sdk.user_code import call as call_plugin
from flowengine.tool_environment.abort import Aborted, AbortSignal
from flowengine.tool_environment.call import AdmittedCall, current
from flowengine.tool_environment.context import ProgressReports, ToolContext
from flowengine.tool_environment.results import (
    Content,
    NoData,
    content_of,
    error_text,
    result_of,
)
from flowengine.tool_environment.turns import Turns

if TYPE_CHECKING:
    from flowengine.tool_environment.parts import EnvironmentParts


async def execute(
    parts: EnvironmentParts, call: AdmittedCall, args: dict[str, Any], step: StepContext
) -> ToolResult:
    """Run a call to its end.

    Args:
        parts: The environment's parts.
        call: The call.
        args: Its arguments, as approved.
        step: The attempt of its step.

    Returns:
        The result.
    """
    options = call.options
    turns = _turns(parts)
    turn = turns.queue(
        call.tool,
        exclusive=not options.supports_parallel_execution,
        limit=options.max_running,
    )
    try:
        if not turn.granted.done():
            granted = asyncio.wrap_future(turn.granted)
            if not await call.unless_stopped(granted):
                return not_begun(call)
        if call.stop is not None:
            return not_begun(call)
        return await _with_resources(parts, call, args, step)
    finally:
        turns.give_back(turn)


def _turns(parts: EnvironmentParts) -> Turns:
    """Return the queue for a call. A tool that makes calls has its own, which avoids a deadlock."""
    outer = current.get()
    if outer is None or outer.stage != "execution" or parts.calls.get(outer.id) is not outer:
        return parts.turns
    return outer.turns_within(parts.bounds.running)


def not_begun(call: AdmittedCall) -> ToolResult:
    """Return the result of a call that was stopped before it started."""
    return result_of(call, call.stop or "aborted", "aborted before it began; nothing was done")


async def _with_resources(
    parts: EnvironmentParts, call: AdmittedCall, args: dict[str, Any], step: StepContext
) -> ToolResult:
    declared = call.options.resources
    if not declared:
        return await _run(parts, call, args, step, {})
    opening = asyncio.ensure_future(
        contained(parts.resources.ensure(declared, call.tool, holder=call.id))
    )
    opened = await call.unless_stopped(opening)
    if not opened:
        opening.cancel()
    outcome = await opening
    if outcome.error is not None:
        if not opened or call.stop is not None:
            return not_begun(call)
        return _failed(parts, call, outcome.error, ran="no")
    resources, after = outcome.value
    try:
        if not opened:
            return not_begun(call)
        return await _run(parts, call, args, step, resources)
    finally:
        await uncut(contained(parts.resources.release(after)))


async def _run(
    parts: EnvironmentParts,
    call: AdmittedCall,
    args: dict[str, Any],
    step: StepContext,
    resources: dict[str, Any],
) -> ToolResult:
    call.move("execution", call=call.view())
    progress = ProgressReports(
        lambda report, dropped: call.tell("progress", report=report, dropped=dropped)
    )
    artifacts = step.execution.artifacts

    def processes() -> ProcessRunner:
        mark = mark_of(step.execution.id, 0)
        return ProcessRunner(artifacts, mark, parts.mask, grace=parts.bounds.grace)

    context = ToolContext(
        tool_call_id=call.id,
        execution_id=parts.execution_id,
        signal=AbortSignal(call.stopped),
        produced=call.produced,
        parallel=call.options.supports_parallel_execution,
        state=parts.state_of(call.tool),
        resources=resources,
        processes=processes,
        progress=progress,
    )
    await _tell(parts, "start", call.view())
    attempt = _Attempt(parts, call, args, context, artifacts)
    try:
        result = await attempt.run()
    finally:
        progress.close()
    await _tell(parts, "end", call.view(), result)
    return result


async def _tell(parts: EnvironmentParts, which: str, *args: Any) -> None:
    """Call an execution callback, which cannot affect the call."""
    callback = getattr(parts.callbacks, which)
    if callback is None:
        return
    args = tuple(type(each).model_validate(parts.mask(each.model_dump())) for each in args)
    outcome = await bounded(parts.bounds.observer, call_plugin(callback, *args))
    why = outcome.fault(parts.bounds.observer)
    if why is not None:
        parts.warn("callback", f"the callback '{which}': {why}")


class _Attempt:
    """One run of a tool."""

    def __init__(
        self,
        parts: EnvironmentParts,
        call: AdmittedCall,
        args: dict[str, Any],
        context: ToolContext,
        artifacts: Artifacts,
    ) -> None:
        self._parts = parts
        self._call = call
        self._args = args
        self._context = context
        self._artifacts = artifacts
        self._started = LeakDetector()
        self._on_thread = False
        """Whether it runs on a thread, which cannot be stopped."""

    async def run(self) -> ToolResult:
        call = self._call
        work = asyncio.ensure_future(contained(self._invoke()))
        timeout = call.options.timeout
        timer = None
        if timeout is not None:
            timer = asyncio.get_running_loop().call_later(timeout, call.halt, "timed_out")
        try:
            try:
                await call.unless_stopped(work)
            except asyncio.CancelledError:  # the execution is cancelled, or the loop ends
                call.halt("aborted")
            if work.done() and call.end():
                if self._started:
                    await on_thread(self._warn_of_left)
                return self._ended(work.result())
            return self._stopped(await self._stop(work))
        except asyncio.CancelledError:  # the loop ends
            call.halt("aborted")
            work.cancel()
            self._kill_processes()
            raise
        finally:
            if timer is not None:
                timer.cancel()

    async def _invoke(self) -> Any:
        current.set(self._call)
        definition = self._call.definition
        assert definition is not None
        named = definition.signature.convert(self._args)
        if definition.options.isolated:
            from flowengine.tool_environment.isolation import run_isolated

            return await run_isolated(
                definition.function, named, self._context.processes, self._artifacts
            )
        if definition.signature.context is not None:
            named[definition.signature.context] = self._context
        execute = self._call.instance.execute  # type: ignore[union-attr]
        with self._started:
            if is_coroutine_function(execute):
                return await execute(**named)
            if inspect.isasyncgenfunction(execute):
                return _joined([self._item(item) async for item in execute(**named)])
            self._on_thread = True
            try:
                return await call_plugin(self._read, execute, named)
            finally:
                self._on_thread = False

    def _read(self, execute: Any, named: dict[str, Any]) -> Any:
        """Call a function on this thread, and read the generator that it may return."""
        value = execute(**named)
        if inspect.isgenerator(value):
            return _joined([self._item(item) for item in value])
        return value

    def _item(self, item: Any) -> Any:
        """Process an item of a generator, which must end if the call is stopped."""
        if isinstance(item, str):
            self._context.write(item)
        self._context.signal.check()
        return item

    # Ends

    async def _stop(self, work: asyncio.Future[CodeOutcome]) -> CodeOutcome | None:
        """Stop the tool, and return its outcome, or None if the outcome is unknown."""
        parts = self._parts
        if not await within(parts.bounds.grace, work):
            if self._on_thread:
                await on_thread(self._kill_processes)
            else:
                work.cancel()
            if not await within(parts.bounds.grace, work) or self._on_thread:
                work.cancel()
                call = self._call
                call.warn("still_running", f"tool '{call.tool}' did not stop, and still runs")
                return None
        if self._started:
            await on_thread(self._kill_processes)
        outcome = work.result()
        return None if isinstance(outcome.error, asyncio.CancelledError | Aborted) else outcome

    def _kill_processes(self) -> None:
        """Kill the processes that the tool has started directly, with their descendants."""
        if self._started:
            for process in self._started.left()[0]:
                Family(None, process.pid).kill()

    def _warn_of_left(self) -> None:
        """Report processes that an ended tool has left running."""
        leaks, _ = self._started.left()
        if leaks:
            left = ", ".join(str(process_left(process.pid)) for process in leaks)
            self._call.warn("left_running", f"tool '{self._call.tool}' left running: {left}")

    def _content(self, returned: Any) -> Content:
        """Return the tool's return value as data.

        Raises:
            NoData: It cannot be converted to data.
        """
        call, most = self._call, largest_result(self._call.options.limits)
        return content_of(returned, call.tool, self._artifacts, self._parts.mask, most)

    def _ended(self, outcome: CodeOutcome) -> ToolResult:
        parts, call = self._parts, self._call
        if outcome.error is not None:
            return _failed(parts, call, outcome.error, ran="yes")
        try:
            content = self._content(outcome.value)
        except NoData as error:
            return _failed(parts, call, error, ran="yes", text=str(error))
        return result_of(call, "ok", ran="yes", **content.fields())

    def _stopped(self, outcome: CodeOutcome | None) -> ToolResult:
        parts, call = self._parts, self._call
        status = call.stop or "aborted"
        content = Content(None, [], [])
        if outcome is not None and outcome.error is None:
            try:
                content = self._content(outcome.value)
            except NoData:
                outcome = None
        if content.value is None and call.produced:
            content = content._replace(value=parts.mask("".join(call.produced)))
        options = call.options
        why = "aborted" if status == "aborted" else f"timed out after {options.timeout:g} s"
        what = "it had ended" if outcome is not None else "it may have acted in part"
        ran: Ran = "maybe" if outcome is None else "yes"
        return result_of(call, status, f"{why} while it ran: {what}", ran=ran, **content.fields())


def _joined(items: list[Any]) -> Any:
    """Return the items of a generator as one text if all of them are text, otherwise as a list."""
    if items and all(isinstance(item, str) for item in items):
        return "".join(items)
    return items


def _failed(
    parts: EnvironmentParts,
    call: AdmittedCall,
    error: BaseException,
    *,
    ran: Ran,
    text: str | None = None,
) -> ToolResult:
    message = parts.mask(text or error_text(error))
    partial = parts.mask("".join(call.produced)) if call.produced else None
    return result_of(call, "error", message, ran=ran, content=partial)
