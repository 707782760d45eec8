"""A run of agents as it happens: the parts of each reply, then the response.

Leaving the iteration stops the run; it is saved, if its engine keeps it, and can be resumed.
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
    """`start` and `end` of a reply; between them pieces of its `text`, its `reasoning` and the
    arguments of its `call`s. `restart`: forget what came of the reply, it will `start`
    again: it broke off, or what came as text was reasoning. `missed`: you took pieces too slowly to
    get them all. `tool_call`: a tool is called, once more for each further attempt; `tool_result`:
    what the model is told of a call, also of one that was not made. `handoff`: another agent takes
    over. `question`: the run needs a decision; it comes again when more is known of it.
    `response`: the last one. Of these five none is ever missed."""
    agent: str = ""
    """Name of the agent that speaks, calls, or hands over."""
    text: str = ""
    """The next piece."""
    call: str = ""
    """Id of the call; empty where no call of a model leads to a question."""
    tool: str = ""
    """Its tool."""
    arguments: Mapping[str, Any] | None = None
    """Of a `tool_call`: what the tool is given."""
    result: str = ""
    """Of a `tool_result`: what the model is told, within the limits of the tool."""
    error: str = ""
    """Of a `tool_result`: type and message of what the call failed with; empty: it did not."""
    to: str = ""
    """Of a `handoff`: name of the agent that takes over."""
    wait: Mapping[str, Any] | None = None
    """Of a `question`: as in `Response.waits`."""
    missed: int = 0
    """How many parts were missed here."""
    response: Response | None = None
    """What the run gives back, in the last part."""
    execution: str = ""
    """Id of the execution."""


class _Parts:
    """The parts of one run that have arrived.

    Args:
        engine: Runs it.
        work: The run.
        on_arrival: Called, on any thread, when there is another.
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
        """Return the next one; None: there is none, or if it waits, none will come."""
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
        """Add no more, once all that was told so far has arrived."""
        self._end(None)
        self._backlog.close()

    def _put(self, update: Update) -> None:
        if update.execution == self._execution and update.kind in _READ:
            self._backlog.put(update)


def stream(engine: Engine, work: Work, operations: Operations) -> Generator[StreamPart, None, None]:
    """Run agents on a thread and yield what comes; see `Runner.stream`.

    Args:
        engine: Runs them.
        work: The run.
        operations: Begin the run, or continue it.
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
    """Run agents on the running event loop and yield what comes; see `Runner.stream_async`.

    Args:
        engine: Runs them.
        work: The run.
        operations: Begin the run, or continue it.
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
    """A run on an event loop of its own, in a thread.

    Args:
        work: The run.
        on_end: Called when it has ended, however.
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
        """End it, if it has not ended; return when everything of it has."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()

    def result(self) -> Response:
        """Return what it gave, or raise what it raised."""
        return self._task.result()

    def _drive(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._wait())
        finally:
            self._on_end()

    async def _wait(self) -> None:
        await asyncio.wait([self._task])
