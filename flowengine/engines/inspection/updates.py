"""Subscriptions to updates of executions, with a callback or an iterator."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable

from flowengine.engines.host import Host
from flowengine.engines.results import Update, deliver

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


# Queue of updates for a subscriber, so that a slow subscriber delays no execution.
#
# Updates that are on disk are always queued. Parts of replies are limited: while many are queued,
# pieces of the same text are merged, and while much text is queued, further parts are dropped and
# the subscriber receives only their number.

TEXT = 1024 * 1024
"""Characters of replies to queue for a subscriber. The beginning and the end of a reply are always
queued."""
PARTS = 1000
"""Pieces of text to queue separately. Further pieces are merged."""
_PIECE = 4096
"""Maximum length of a merged piece in characters."""
OUTPUT = 4 * 1024 * 1024
"""Characters of program output to queue for a subscriber."""


class UpdateBacklog:
    """The updates for one subscriber, in order.

    Args:
        on_put: Called, on any thread, when an update is available.
        waits: Whether a program blocks if it prints faster than the subscriber reads, as on a pipe.
            Otherwise lines are dropped like parts. Must be False if blocking could stop an event
            loop that the subscriber needs.
    """

    def __init__(self, on_put: Callable[[], object] | None = None, *, waits: bool = False) -> None:
        self._on_put = on_put
        self._waits = waits
        self._changed = threading.Condition()
        self._queue: deque[Update] = deque()
        self._parts = 0
        self._text = 0
        self._output = 0
        self._gaps: dict[str, Update] = {}
        """Execution → its queued `missed` update, which counts dropped parts of replies."""
        self._closed = False

    def put(self, update: Update) -> None:
        """Add an update. Only program output may block, see above."""
        with self._changed:
            if self._closed or not self._has_room(update):
                return
            if not self._join(update):
                self._queue.append(update)
                self._count(update, 1)
            self._changed.notify_all()
        if self._on_put is not None:
            self._on_put()

    def take(self, *, wait: bool = False, together: bool = False) -> Update | None:
        """Return the next update. None: the queue is empty, or closed if waiting.

        Args:
            wait: Block until an update is available or the queue is closed.
            together: Merge all queued pieces of the same text into one update.
        """
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._queue or self._closed)
            if not self._queue:
                return None
            update = self._queue.popleft()
            self._count(update, -1)
            if together and _is_piece(update):
                update = self._with_those_after(update)
            if self._gaps.get(update.execution) is update:
                del self._gaps[update.execution]
            self._changed.notify_all()
            return update

    def close(self) -> None:
        """Accept no more updates. Queued updates can still be taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _has_room(self, update: Update) -> bool:
        """Return whether an update may be queued. Otherwise count it as missed."""
        if _is_piece(update):
            # After a drop, further parts are dropped until the count is delivered: few gaps, not
            # many small ones.
            room = self._text < TEXT and update.execution not in self._gaps
        elif update.kind == "output":
            if self._waits:
                self._changed.wait_for(lambda: self._closed or self._output < OUTPUT)
            room = self._output < OUTPUT
        elif update.kind == "missed":  # reported by an earlier backlog
            room = update.execution not in self._gaps
        else:
            return True
        if not room:
            gap = self._gaps.get(update.execution)
            if gap is None:
                gap = self._gaps[update.execution] = Update(
                    update.execution, "missed", {"count": 0}
                )
                self._queue.append(gap)
            gap.data["count"] += update.data["count"] if update.kind == "missed" else 1
        return room

    def _join(self, update: Update) -> bool:
        """Merge a piece of text into the preceding one, if they belong together.

        Returns:
            Whether they were merged.
        """
        if not _is_piece(update) or self._parts < PARTS:
            return False
        last = self._queue[-1]
        if not _are_of_one_text(last, update):
            return False
        before, text = last.data["text"], update.data["text"]
        if len(before) + len(text) > _PIECE:
            return False
        self._queue[-1] = last._replace(data={**update.data, "text": before + text})
        self._text += len(text)
        return True

    def _with_those_after(self, update: Update) -> Update:
        """Remove the following pieces of the same text, and return all as one update."""
        pieces = [update.data["text"]]
        while self._queue and _are_of_one_text(update, self._queue[0]):
            following = self._queue.popleft()
            self._count(following, -1)
            pieces.append(following.data["text"])
        return update._replace(data={**update.data, "text": "".join(pieces)})

    def _count(self, update: Update, sign: int) -> None:
        if _is_piece(update):
            self._parts += sign
            self._text += sign * len(update.data["text"])
        elif update.kind == "output":
            self._output += sign * len(update.data["text"])


def _is_piece(update: Update) -> bool:
    """Return whether it is a piece of text, and not the beginning or the end of a reply."""
    return update.kind == "part" and "text" in update.data


def _are_of_one_text(first: Update, other: Update) -> bool:
    return (
        _is_piece(first)
        and _is_piece(other)
        and first.execution == other.execution
        and first.data == {**other.data, "text": first.data["text"]}
    )


class Post:
    """Delivers updates to a function on a separate thread.

    Args:
        callback: Receives the updates. Its exceptions are logged.
        gather: Seconds for which pieces of a text are collected after one was delivered.
            0: each is delivered separately.
    """

    def __init__(self, callback: Callable[[Update], None], gather: float = 0) -> None:
        self._callback = callback
        self._gather = gather
        self._backlog = UpdateBacklog(waits=True)
        self._thread = threading.Thread(
            target=self._deliver, name="flowengine-updates", daemon=True
        )
        self._thread.start()

    def put(self, update: Update) -> None:
        """Queue an update for delivery, in order."""
        self._backlog.put(update)

    def close(self, patience: float | None) -> None:
        """Accept no more updates, and wait until the queued ones are delivered.

        Args:
            patience: Maximum number of seconds. None: unlimited.
        """
        self._backlog.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(patience)

    def _deliver(self) -> None:
        while (update := self._backlog.take(wait=True, together=self._gather > 0)) is not None:
            deliver(self._callback, update)
            if self._gather and _is_piece(update):
                time.sleep(self._gather)
