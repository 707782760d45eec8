"""Execution of a call as the attempt of its step, with its turn and resources, until it is stopped.

A tool that must stop first receives the signal. After the grace period, a coroutine is cancelled,
and the processes that a thread has started are killed. The thread itself cannot be stopped, so the
call ends without it, and `ran` is `maybe`.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
import sys
import tempfile
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowengine.sdk import Processes, StepContext, ToolError
from flowengine.sdk.models import largest_result
from flowengine.sdk.processes import Family
from flowengine.sdk.tool_calls import Ran, ToolResult
from flowengine.sdk.user_code import (
    CodeOutcome,
    bounded,
    contained,
    is_coroutine_function,
    on_thread,
    uncut,
    within,
)
from flowengine.sdk.user_code import call as call_plugin
from flowengine.tool_environment.call import AdmittedCall, current
from flowengine.tool_environment.context import (
    Aborted,
    AbortSignal,
    ProgressReports,
    ToolContext,
    Turns,
)
from flowengine.tool_environment.results import content_of, error_text, result_of

if TYPE_CHECKING:
    from flowengine.tool_environment.registry import EnvironmentParts


async def execute(
    parts: EnvironmentParts, call: AdmittedCall, args: dict[str, Any], step: StepContext
) -> ToolResult:
    """Run a call to its end, when it is its turn.

    Args:
        parts: The environment's parts.
        call: The call.
        args: Its arguments, as approved.
        step: The attempt of its step.

    Returns:
        The result.
    """
    attempt, options = _Attempt(parts, call, args, step), call.options
    is_alone = not options.supports_parallel_execution
    with _turns(parts).queue(call.tool, exclusive=is_alone, limit=options.max_running) as granted:
        if not granted.done():
            await attempt.unless_stopped(asyncio.wrap_future(granted))
        return not_begun(call) if call.stop else await attempt.with_resources()


def _turns(parts: EnvironmentParts) -> Turns:
    """Return the queue for a call. A tool that makes calls has its own, which avoids a deadlock."""
    outer = current.get()
    if outer is None or outer.stage != "execution" or parts.calls.get(outer.id) is not outer:
        return parts.turns
    return outer.turns_within(parts.bounds.running)


def not_begun(call: AdmittedCall) -> ToolResult:
    """Return the result of a call that was stopped before it started."""
    return result_of(call, call.stop or "aborted", "aborted before it began; nothing was done")


class _Attempt:
    """One run of a tool."""

    def __init__(
        self, parts: EnvironmentParts, call: AdmittedCall, args: dict[str, Any], step: StepContext
    ) -> None:
        self._parts = parts
        self._call = call
        self._args = args
        self._step = step
        self._context: ToolContext
        self._thread: int | None = None
        """The thread that it runs on, which cannot be stopped."""
        self._before: frozenset[int] = frozenset()
        """The child processes of that thread before the tool ran on it."""

    async def unless_stopped(self, work: asyncio.Future[Any]) -> bool:
        """Wait as `AdmittedCall.unless_stopped`. The call stops if its execution is cancelled."""
        try:
            return await self._call.unless_stopped(work)
        except asyncio.CancelledError:  # the execution is cancelled, or the loop ends
            self._call.halt("aborted")
            return work.done()

    async def with_resources(self) -> ToolResult:
        """Open the resources of the tool, run it, and release them."""
        parts, call = self._parts, self._call
        declared = call.options.resources
        if not declared:
            return await self._run({})
        ensured = parts.resources.ensure(declared, call.tool, holder=call.id)
        opening = asyncio.ensure_future(contained(ensured))
        if not await self.unless_stopped(opening):
            opening.cancel()
        outcome = await opening
        if outcome.error is not None:
            return not_begun(call) if call.stop else self._failed(outcome.error, ran="no")
        resources, after = outcome.value
        try:
            return not_begun(call) if call.stop else await self._run(resources)
        finally:
            await uncut(contained(parts.resources.release(after)))

    async def _run(self, resources: dict[str, Any]) -> ToolResult:
        parts, call = self._parts, self._call
        call.move("execution", call=call.view())
        progress = ProgressReports(
            lambda report, dropped: call.tell("progress", report=report, dropped=dropped)
        )
        self._context = ToolContext(
            tool_call_id=call.id,
            execution_id=parts.execution_id,
            signal=AbortSignal(call.stopped),
            produced=call.produced,
            parallel=call.options.supports_parallel_execution,
            state=parts.state_of(call.tool),
            resources=resources,
            step=self._step,
            progress=progress,
        )
        await self._notify("start", call.view())
        try:
            result = await self._result()
        finally:
            progress.close()
        await self._notify("end", call.view(), result)
        return result

    async def _notify(self, which: str, *args: Any) -> None:
        """Call an execution callback, which cannot affect the call."""
        parts = self._parts
        callback = parts.callbacks.get(which)
        if callback is None:
            return
        args = tuple(type(each).model_validate(parts.mask(each.model_dump())) for each in args)
        outcome = await bounded(parts.bounds.observer, call_plugin(callback, *args))
        why = outcome.fault(parts.bounds.observer)
        if why is not None:
            parts.warn("callback", f"the callback '{which}': {why}")

    async def _result(self) -> ToolResult:
        call = self._call
        work = asyncio.ensure_future(contained(self._invoke()))
        timer = None
        if call.options.timeout is not None:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(call.options.timeout, call.halt, "timed_out")
        try:
            await self.unless_stopped(work)
            if work.done() and call.end():
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

    async def _invoke(self) -> dict[str, Any]:
        """Call the tool, and return its return value as fields of the result."""
        current.set(self._call)
        parts, call = self._parts, self._call
        most = largest_result(call.options.limits)
        artifacts = self._step.execution.artifacts
        return content_of(await self._returned(), call.tool, artifacts, parts.mask, most)

    async def _returned(self) -> Any:
        definition = self._call.definition
        assert definition is not None
        named = definition.signature.convert(self._args)
        if definition.options.isolated:
            return await run_isolated(definition.function, named, self._step.processes)
        if definition.signature.context is not None:
            named[definition.signature.context] = self._context
        execute = self._call.instance.execute  # type: ignore[union-attr]
        if is_coroutine_function(execute):
            return await execute(**named)
        if inspect.isasyncgenfunction(execute):
            return _joined([self._item(item) async for item in execute(**named)])
        try:
            return await call_plugin(self._read, execute, named)
        finally:
            self._thread = None

    def _read(self, execute: Any, named: dict[str, Any]) -> Any:
        """Call a function on this thread, and read the generator that it may return."""
        thread = threading.get_native_id()
        self._before, self._thread = _children(thread), thread
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
            if self._thread is not None:
                await on_thread(self._kill_processes)
            else:
                work.cancel()
            if not await within(parts.bounds.grace, work) or self._thread is not None:
                work.cancel()
                call = self._call
                call.warn("still_running", f"tool '{call.tool}' did not stop, and still runs")
                return None
        outcome = work.result()
        return None if isinstance(outcome.error, asyncio.CancelledError | Aborted) else outcome

    def _kill_processes(self) -> None:
        """Kill the processes that the tool has started on its thread, with their descendants.

        The operating system lists child processes by the thread that started them.
        """
        if (thread := self._thread) is not None:
            for pid in _children(thread) - self._before:
                Family(None, pid).kill()

    def _ended(self, outcome: CodeOutcome) -> ToolResult:
        if outcome.error is not None:
            return self._failed(outcome.error, ran="yes")
        return result_of(self._call, "ok", ran="yes", **outcome.value)

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
        produced = self._call.produced
        return self._parts.mask("".join(produced)) if produced else None


def _joined(items: list[Any]) -> Any:
    """Return the items of a generator as one text if all of them are text, otherwise as a list."""
    if items and all(isinstance(item, str) for item in items):
        return "".join(items)
    return items


def _children(thread: int) -> frozenset[int]:
    try:
        with open(f"/proc/self/task/{thread}/children", "rb") as file:
            return frozenset(map(int, file.read().split()))
    except OSError:  # the thread has ended
        return frozenset()


# Execution of a function in a separate process, which protects this one from its crashes.
#
# Run as a program, this module is that process. It reads the call from standard input, and writes
# the outcome to the file named by its argument.

LAST_WORDS = 500
"""Maximum characters of the process's last output in an error."""


async def run_isolated(
    function: Callable[..., Any], args: dict[str, Any], processes: Processes
) -> Any:
    """Call a module's function in a separate process.

    Args:
        function: A function that can be imported.
        args: Its arguments by name.
        processes: Starts the process, and ends it with the call.

    Returns:
        The return value of the function.

    Raises:
        ToolError: The process ended before the function returned.
        BaseException: The exception that the function raised.
    """
    asked = pickle.dumps((function.__module__, function.__qualname__, args, sys.path))
    with tempfile.TemporaryDirectory(prefix="flowengine-tool-") as folder:
        answer = Path(folder) / "answer"
        done = await processes.run(
            [sys.executable, "-m", __name__, os.fspath(answer)],
            env=dict(os.environ),
            cwd=os.getcwd(),
            stdin=asked,
        )
        if not answer.exists():
            output = (done.stderr or done.stdout).strip()[-LAST_WORDS:]
            raise ToolError(
                f"the process of the tool ended with exit code {done.exit_code}"
                + (f": {output}" if output else "")
            )
        value, error = pickle.loads(answer.read_bytes())
    if error is not None:
        raise error
    return value


def main(answer: str) -> None:
    """Call the function requested on standard input, and write the outcome."""
    module, name, args, path = pickle.load(sys.stdin.buffer)
    sys.path[:] = path
    outcome: tuple[Any, BaseException | None]
    try:
        value = getattr(import_module(module), name)(**args)
        if inspect.iscoroutine(value):
            value = asyncio.run(value)
        outcome = value, None
    except BaseException as error:
        outcome = None, error.with_traceback(None)  # it refers to frames
    data = _pickled(outcome)
    unfinished = Path(f"{answer}.new")
    unfinished.write_bytes(data)
    unfinished.rename(answer)


def _pickled(outcome: tuple[Any, BaseException | None]) -> bytes:
    try:
        data = pickle.dumps(outcome)
        pickle.loads(data)
    except Exception:
        what = f"{type(outcome[0] if outcome[1] is None else outcome[1]).__qualname__}"
        return pickle.dumps((None, ToolError(f"{what} cannot be passed to another process")))
    return data


if __name__ == "__main__":
    main(sys.argv[1])
