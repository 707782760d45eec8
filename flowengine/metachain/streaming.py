"""Streaming of a run: the parts of each reply as they arrive, then the response.

Leaving the iteration stops the run. If its engine stores it, it can be resumed.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from flowengine.engines.inspection.backlog import Backlog
from flowengine.secrets import mask_known

if TYPE_CHECKING:
    from flowengine.agents.agent import Response
    from flowengine.engines.engine import Engine
    from flowengine.engines.results import Update
    from flowengine.metachain.agent_events import AgentEvent
    from flowengine.metachain.sessions import Operations
    from flowengine.metachain.work import Work

Kind = Literal[
    "start", "text", "reasoning", "call", "restart", "end", "missed",
    "tool_call", "tool_result", "handoff", "question", "response",
]  # fmt: skip
_READ = frozenset({"part", "missed", "step", "wait"})
_OF_EVENTS = frozenset({"tool_call", "tool_result", "handoff", "question"})


@dataclass(frozen=True, slots=True)
class StreamPart:
    """A part of a run."""

    kind: Kind
    """`start`, `end`: a reply begins or ends. In between come pieces of its `text`, its `reasoning`
    and the arguments of each `call`. `restart`: discard the reply so far. Either it broke off, or
    text turned out to be reasoning, and it will `start` again. `missed`: the loop was too slow to
    receive all pieces. `tool_call`: a tool is called, once per attempt. `tool_result`: the result
    of a call as sent to the model, even if the call was not made. `handoff`: another agent takes
    over. `question`: the run needs a decision. It is repeated when its data changes. `response`:
    the last part. The last five kinds are never missed."""
    agent: str = ""
    """Name of the agent that replies, calls, or hands off."""
    text: str = ""
    """The next piece."""
    call: str = ""
    """Id of the call. Empty for a question that does not belong to a model's call."""
    tool: str = ""
    """The called tool."""
    arguments: Mapping[str, Any] | None = None
    """For `tool_call`: the arguments of the tool."""
    result: str = ""
    """For `tool_result`: the result as sent to the model, within the limits of the tool."""
    error: str = ""
    """For `tool_result`: type and message of the error. Empty: the call succeeded."""
    to: str = ""
    """For `handoff`: name of the agent that takes over."""
    wait: Mapping[str, Any] | None = None
    """For `question`: the wait, as in `Response.waits`."""
    missed: int = 0
    """Number of parts missed here."""
    response: Response | None = None
    """The response of the run, in the last part."""
    execution: str = ""
    """Id of the execution."""


class _Parts:
    """The parts of one run that have arrived.

    Args:
        engine: The engine that runs it.
        work: The run.
        on_arrival: Called on any thread when another part arrives.
    """

    def __init__(
        self, engine: Engine, work: Work, on_arrival: Callable[[], object] | None = None
    ) -> None:
        self._execution = work.id
        self._events = work.events(engine)
        self._next: deque[StreamPart] = deque()
        self._backlog = Backlog(on_arrival)
        self._end = engine.subscribe(self._put, output=True)

    def take(self, *, wait: bool = False) -> StreamPart | None:
        """Return the next part, or None if there is none. With `wait`, None means the end."""
        while not self._next:
            update = self._backlog.take(wait=wait)
            if update is None:
                return None
            self._next.extend(self._of(update))
        return self._next.popleft()

    def _of(self, update: Update) -> Iterator[StreamPart]:
        if update.kind == "missed":
            yield StreamPart("missed", missed=update.data["count"], execution=self._execution)
        elif update.kind == "part":
            yield self._piece(update)
        else:
            for event in self._events.of(update):
                if event.kind in _OF_EVENTS and (event.call or event.kind != "tool_call"):
                    yield self._part(event)

    def _piece(self, update: Update) -> StreamPart:
        told = {name: update.data.get(name, "") for name in ("agent", "text", "call", "tool")}
        return StreamPart(cast(Kind, update.data["part"]), **told, execution=self._execution)

    def _part(self, event: AgentEvent) -> StreamPart:
        fields = ("call", "tool", "arguments", "result", "error", "to", "wait")
        said = mask_known({name: getattr(event, name) for name in fields})
        return StreamPart(cast(Kind, event.kind), event.agent, **said, execution=self._execution)

    def close(self) -> None:
        """Stop adding parts after those already published."""
        self._end(None)
        self._backlog.close()

    def _put(self, update: Update) -> None:
        if update.execution == self._execution and update.kind in _READ:
            self._backlog.put(update)


def stream(engine: Engine, work: Work, operations: Operations) -> Generator[StreamPart, None, None]:
    """Run agents on a thread, and yield the parts for `Runner.stream`.

    Args:
        engine: The engine that runs them.
        work: The run.
        operations: Methods that start or continue the run.
    """
    parts = _Parts(engine, work)
    run = _Run(work.run_async(engine, operations), parts.close)
    try:
        while (part := parts.take(wait=True)) is not None:
            yield part
    finally:
        run.stop()
        parts.close()
    yield _last(run.result())


async def stream_async(
    engine: Engine, work: Work, operations: Operations
) -> AsyncGenerator[StreamPart, None]:
    """Run agents on the running event loop, and yield the parts for `Runner.stream_async`.

    Args:
        engine: The engine that runs them.
        work: The run.
        operations: Methods that start or continue the run.
    """
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    parts = _Parts(engine, work, lambda: loop.call_soon_threadsafe(arrived.set))
    run = asyncio.ensure_future(work.run_async(engine, operations))
    run.add_done_callback(lambda _: arrived.set())
    try:
        while not run.done():
            await arrived.wait()
            arrived.clear()
            while (part := parts.take()) is not None:
                yield part
        parts.close()
        while (part := parts.take()) is not None:
            yield part
    finally:
        run.cancel()
        await asyncio.wait([run])
        parts.close()
    yield _last(run.result())


def _last(response: Response) -> StreamPart:
    agent = response.agent.name if response.agent else ""
    return StreamPart("response", agent, response=response, execution=response.execution)


class _Run:
    """A run on a separate event loop, in a thread.

    Args:
        work: The run.
        on_end: Called when it has ended in any way.
    """

    def __init__(self, work: Coroutine[Any, Any, Response], on_end: Callable[[], object]) -> None:
        self._work = work
        self._on_end = on_end
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(work)
        self._thread = threading.Thread(
            target=contextvars.copy_context().run,
            args=(self._drive,),
            name="flowengine-stream",
            daemon=True,
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop the run unless it has ended, and return when it has ended completely."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()

    def result(self) -> Response:
        """Return the result of the run, or raise its error."""
        return self._task.result()

    def _drive(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._wait())
        finally:
            self._on_end()

    async def _wait(self) -> None:
        await asyncio.wait([self._task])
