"""Streaming of a run: the parts of each reply as they arrive, then the response.

Leaving the iteration stops the run. If its engine stores it, it can be resumed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from flowengine.engines.inspection.backlog import UpdateBacklog
from flowengine.metachain.agent_events import StreamPart
from flowengine.secrets import mask_known

if TYPE_CHECKING:
    from flowengine.engines.engine import Engine
    from flowengine.engines.results import Update
    from flowengine.metachain.agent_events import AgentEvents
    from flowengine.metachain.work import Work

_Result = TypeVar("_Result")

_READ = frozenset({"part", "missed", "step", "wait"})
_LOGGED_ONLY = frozenset({"reply", "retry", "failure", "tool_end", "ended"})


async def stream_async(engine: Engine, work: Work) -> AsyncGenerator[StreamPart, None]:
    """Run agents, and yield the parts for `Runner.stream_async`.

    Args:
        engine: The engine that runs them.
        work: The run.
    """
    loop, arrived = asyncio.get_running_loop(), asyncio.Event()
    backlog = UpdateBacklog(lambda: loop.call_soon_threadsafe(arrived.set))
    events = work.events(engine)

    def put(update: Update) -> None:
        if update.execution == work.id and update.kind in _READ:
            backlog.put(update)

    end = engine.subscribe(put, output=True)
    run = asyncio.ensure_future(work.run(engine))
    run.add_done_callback(lambda _: arrived.set())
    try:
        while not run.done():
            await arrived.wait()
            arrived.clear()
            for part in _arrived(backlog, events):
                yield part
        end(None)
        for part in _arrived(backlog, events):
            yield part
    finally:
        run.cancel()
        await asyncio.wait([run])
        end(None)
        backlog.close()
    response = run.result()
    agent = response.agent.name if response.agent else ""
    yield StreamPart("response", agent, response=response, execution=response.execution)


def _arrived(backlog: UpdateBacklog, events: AgentEvents) -> Iterator[StreamPart]:
    """Yield the parts that have arrived, without secrets."""
    while (update := backlog.take()) is not None:
        for part in events.of(update):
            if part.kind in _LOGGED_ONLY or (part.kind == "tool_call" and not part.call):
                continue
            fields = ("arguments", "result", "value", "error", "to", "wait")
            shown = {name: getattr(part, name) for name in fields if getattr(part, name)}
            yield replace(part, **mask_known(shown)) if shown else part


def iterated_on_thread(
    parts: AsyncGenerator[StreamPart, None],
) -> Generator[StreamPart, None, None]:
    """Yield the parts of a run whose event loop is on a thread, and which continues between them.

    Args:
        parts: The parts.
    """
    loop, taking = asyncio.new_event_loop(), asyncio.Lock()

    def drive() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.get_loop().run_forever()

    async def take() -> StreamPart | None:
        async with taking:
            return await anext(parts, None)

    async def close() -> None:
        async with taking:
            await parts.aclose()

    def wait(work: Coroutine[Any, Any, _Result]) -> _Result:
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        finally:
            future.cancel()

    thread = threading.Thread(target=drive, name="flowengine-stream", daemon=True)
    thread.start()
    try:
        while (part := wait(take())) is not None:
            yield part
    finally:
        wait(close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
