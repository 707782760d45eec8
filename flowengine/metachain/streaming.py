"""A run of agents as it happens: the parts of each reply, then the response.

Leaving the iteration stops the run; it is saved, if its engine keeps it, and can be resumed.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from flowengine.engines.inspection.backlog import Backlog

if TYPE_CHECKING:
    from flowengine.agents.agent import Response
    from flowengine.engines.engine import Engine
    from flowengine.engines.results import Update
    from flowengine.metachain.work import Work

Kind = Literal["start", "text", "reasoning", "call", "restart", "end", "missed", "response"]


@dataclass(frozen=True, slots=True)
class StreamPart:
    """A part of a run."""

    kind: Kind
    """`start` and `end` of a reply; between them pieces of its `text`, its `reasoning` and the
    arguments of its `call`s. `restart`: forget what came of the reply, it will `start`
    again: it broke off, or what came as text was reasoning. `missed`: you took parts too slowly to
    get them all. `response`: the last one."""
    agent: str = ""
    """Name of the agent that speaks."""
    text: str = ""
    """The next piece."""
    call: str = ""
    """Id of the call that the piece belongs to."""
    tool: str = ""
    """Its tool."""
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
        execution: Id of the run.
        on_arrival: Called, on any thread, when there is another.
    """

    def __init__(
        self, engine: Engine, execution: str, on_arrival: Callable[[], object] | None = None
    ) -> None:
        self._execution = execution
        self._backlog = Backlog(on_arrival)
        self._end = engine.subscribe(self._put, output=True)

    def take(self, *, wait: bool = False) -> StreamPart | None:
        """Return the next one; None: there is none, or if it waits, none will come."""
        update = self._backlog.take(wait=wait)
        if update is None:
            return None
        if update.kind == "missed":
            return StreamPart("missed", missed=update.data["count"], execution=self._execution)
        told = {name: update.data.get(name, "") for name in ("agent", "text", "call", "tool")}
        return StreamPart(cast(Kind, update.data["part"]), **told, execution=self._execution)

    def close(self) -> None:
        """Add no more, once all that was told so far has arrived."""
        self._end(None)
        self._backlog.close()

    def _put(self, update: Update) -> None:
        if update.execution == self._execution and update.kind in ("part", "missed"):
            self._backlog.put(update)


def stream(
    engine: Engine, work: Work, going: Coroutine[Any, Any, Response]
) -> Generator[StreamPart, None, None]:
    """Run agents on a thread and yield what comes; see `Runner.stream`.

    Args:
        engine: Runs them.
        work: The run.
        going: It begins the run, or goes on with it.
    """
    parts = _Parts(engine, work.id)
    run = _Run(going, parts.close)
    try:
        while (part := parts.take(wait=True)) is not None:
            yield part
    finally:
        run.stop()
        parts.close()
    yield _last(run.result())


async def stream_async(
    engine: Engine, work: Work, going: Coroutine[Any, Any, Response]
) -> AsyncGenerator[StreamPart, None]:
    """Run agents on the running event loop and yield what comes; see `Runner.stream_async`.

    Args:
        engine: Runs them.
        work: The run.
        going: It begins the run, or goes on with it.
    """
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    parts = _Parts(engine, work.id, lambda: loop.call_soon_threadsafe(arrived.set))
    run = asyncio.ensure_future(going)
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
