"""Updates of executions for who wants to be told: by a callback, or as they are iterated over."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from flowengine.engines.host import Host
    from flowengine.engines.results import Update


def subscribe(
    host: Host, callback: Callable[[Update], None], *, output: bool = False
) -> Callable[[], None]:
    """Call a function with every update; see `Engine.subscribe`."""
    lists = [host.subscribers, host.followers] if output else [host.subscribers]
    for each in lists:
        each.append(callback)

    def end() -> None:
        for each in lists:
            if callback in each:
                each.remove(callback)

    return end


async def updates(host: Host, execution: str | None) -> AsyncGenerator[Update, None]:
    """Yield updates as they come; see `Engine.updates`."""
    import asyncio

    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Update] = asyncio.Queue()

    def tell(update: Update) -> None:
        loop.call_soon_threadsafe(queue.put_nowait, update)

    end = subscribe(host, tell)
    try:
        while True:
            update = await queue.get()
            if execution in (None, update.execution):
                yield update
                if execution is not None and update.kind == "end":
                    return
    finally:
        end()
