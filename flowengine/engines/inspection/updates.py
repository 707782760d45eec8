"""Subscriptions to updates of executions, with a callback or an iterator."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from flowengine.engines.host import Host
    from flowengine.engines.results import Update

PATIENCE = 5.0
"""Seconds that a subscriber has for the last updates when its subscription ends."""


class Subscription:
    """Calls a function with every update until the subscription itself is called.

    Args:
        host: The source of the updates.
        callback: Receives the updates.
        output: Whether it also receives output and replies as they arrive. It is then called on a
            separate thread, because these updates are frequent.
        gather: As for `Post`.
    """

    def __init__(
        self, host: Host, callback: Callable[[Update], None], *, output: bool, gather: float = 0
    ) -> None:
        self._post = None
        if output:
            from flowengine.engines.inspection.backlog import Post

            self._post = Post(callback, gather)
        self._end = listen(host, callback if self._post is None else self._post.put, output=output)

    def __call__(self, patience: float | None = PATIENCE) -> None:
        """End it, once the updates so far have been delivered.

        Args:
            patience: Maximum number of seconds to wait for that. None: unlimited.
        """
        self._end()
        if self._post is not None:
            self._post.close(patience)


def listen(host: Host, tell: Callable[[Update], None], *, output: bool) -> Callable[[], None]:
    """Call a function with every update, on the thread that produces it. It must be quick.

    Returns:
        A function that ends it.
    """
    lists = [host.subscribers, host.followers] if output else [host.subscribers]
    for each in lists:
        each.append(tell)

    def end() -> None:
        while lists:
            lists.pop().remove(tell)

    return end


async def updates(
    host: Host, execution: str | None, *, output: bool = False
) -> AsyncGenerator[Update, None]:
    """Yield updates as they arrive. See `Engine.updates`."""
    import asyncio

    from flowengine.engines.inspection.backlog import UpdateBacklog

    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    backlog = UpdateBacklog(lambda: loop.call_soon_threadsafe(arrived.set))

    def put(update: Update) -> None:
        if execution in (None, update.execution):
            backlog.put(update)

    end = listen(host, put, output=output)
    try:
        while True:
            await arrived.wait()
            arrived.clear()
            while (update := backlog.take()) is not None:
                yield update
                if execution is not None and update.kind == "end":
                    return
    finally:
        end()
