"""Clients: interfaces that follow calls and answer questions."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from typing import Any, Protocol

from pydantic import BaseModel

from flowengine.sdk.user_code import lasting
from flowengine.tool_environment.errors import DecisionError

Message = dict[str, Any]
MOST = 2_000
"""Maximum stored messages. A follower that falls further behind misses some."""


class Feed:
    """The numbered messages of one environment.

    Args:
        mask: Replaces secrets.
    """

    def __init__(self, mask: Callable[[Any], Any]) -> None:
        self._mask = mask
        self._lock = threading.Lock()
        self._kept: deque[Message] = deque(maxlen=MOST)
        self._closed = False
        self._changed: Future[Any] = lasting()
        """Done when there is another message, or no further one."""
        self._listeners: list[Callable[[Message], object]] = []
        self.number = 0
        """Number of the last message."""

    def publish(self, kind: str, **fields: Any) -> None:
        """Publish a message, on any thread.

        Args:
            kind: Type of the message: `call_registered`, `progress`, `finished`, …
            **fields: Plain data and models.
        """
        plain = self._mask({
            name: value.model_dump() if isinstance(value, BaseModel) else value
            for name, value in fields.items()
        })  # fmt: skip
        with self._lock:
            if self._closed:
                return
            self.number += 1
            message: Message = {"number": self.number, "type": kind, **plain}
            self._kept.append(message)
            self._wake()
            listeners = list(self._listeners)
        for listener in listeners:
            try:
                listener(message)
            except Exception:
                logging.getLogger("flowengine.tools").exception("a listener failed")

    def listen(self, listener: Callable[[Message], object]) -> Callable[[], None]:
        """Call a function with each future message, on the thread that publishes it.

        Args:
            listener: Must be fast. Its exceptions are logged and otherwise ignored.

        Returns:
            A function that removes the listener.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    async def follow(self, after: int = 0) -> AsyncIterator[Message]:
        """Yield messages as they arrive, until the feed is closed.

        Args:
            after: Number of the last known message.
        """
        while True:
            with self._lock:
                new = [message for message in self._kept if message["number"] > after]
                if not new and self._closed:
                    return
                changed = asyncio.wrap_future(self._changed)
            for message in new:
                yield message
                after = message["number"]
            if not new:
                await changed

    def close(self) -> None:
        """Close the feed. Followers receive the stored messages before the end."""
        with self._lock:
            self._closed = True
            self._wake()
            self._listeners.clear()

    def _wake(self) -> None:
        changed, self._changed = self._changed, lasting()
        changed.set_result(None)


class Followed(Protocol):
    """The interface of an environment for its client."""

    feed: Feed

    def decide(self, call_id: str, decision: Any, *, by: str) -> None:
        """Answer an open question."""


class Link:
    """The connection of a client to its environment."""

    def __init__(self, environment: Followed) -> None:
        self._environment = environment

    def messages(self, after: int = 0) -> AsyncIterator[Message]:
        """Yield messages as they arrive.

        Args:
            after: Number of the last known message.
        """
        return self._environment.feed.follow(after)

    def receive(self, message: Any, by: str = "client") -> dict[str, Any]:
        """Process a message from the client, and return the answer to it.

        `{"type": "decide", "tool_call_id": …, "decision": {…}}` answers a question.

        Args:
            message: The message.
            by: The sender.
        """
        match message:
            case {"type": "decide", "tool_call_id": call_id, "decision": decision, **rest} if (
                not rest
            ):
                try:
                    self._environment.decide(str(call_id), decision, by=by)
                except DecisionError as error:
                    told = {"code": error.code, "message": error.message, "field": error.field}
                    return {"type": "refused", **told}
                return {"type": "accepted", "tool_call_id": call_id}
        why = "a message decides: type, tool_call_id, decision"
        return {"type": "refused", "code": "invalid_message", "message": why}


class MemoryClient:
    """Collects all messages in a list, for tests and for interfaces in the same process.

    Args:
        decides: Whether questions are left to it.
    """

    def __init__(self, *, decides: bool = True) -> None:
        self.decides = decides
        self.messages: list[Message] = []
        self.link: Link | None = None

    async def follow(self, link: Link) -> None:
        """Collect arriving messages."""
        self.link = link
        async for message in link.messages():
            self.messages.append(message)
            self.received(message)

    def received(self, message: Message) -> None:
        """Process a message. Subclasses override this."""
