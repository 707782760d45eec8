"""A feed of numbered messages about calls.

Followers read at their own pace, and publishers do not wait for them. The number of stored messages
is limited. A follower that falls behind receives the number of messages that it missed.
"""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from pydantic import BaseModel

from flowengine.sdk.coroutines import lasting
from flowengine.sdk.text_ends import cut_text

Message = dict[str, Any]
MOST = 2_000
"""Maximum stored messages."""
LARGEST = 8 * 1024 * 1024
"""Maximum characters of all stored messages."""
LONGEST_TEXT = 64 * 1024
"""Maximum characters of one text in a message. The middle of a longer text is left out."""


class _Kept(NamedTuple):
    number: int
    text: str


class Feed:
    """The messages of one environment.

    Args:
        mask: Replaces secrets.
    """

    def __init__(self, mask: Callable[[Any], Any]) -> None:
        self._mask = mask
        self._lock = threading.Lock()
        self._kept: deque[_Kept] = deque()
        self._size = 0
        self._closed = False
        self._changed: Future[None] | None = None
        """Done when there is a message, or no further one. None: no follower waits for that."""
        self._listeners: list[Callable[[Message], object]] = []
        self.number = 0
        """Number of the last message."""

    def publish(self, kind: str, **fields: Any) -> None:
        """Publish a message, on any thread.

        Args:
            kind: Type of the message: `call_registered`, `progress`, `finished`, …
            **fields: Plain data and models.
        """
        plain = {name: _plain(value) for name, value in fields.items()}
        with self._lock:
            if self._closed:
                return
            self.number += 1
            message: Message = {"number": self.number, "type": kind, **self._mask(plain)}
            text = text_of(message)
            self._kept.append(_Kept(self.number, text))
            self._size += len(text)
            while len(self._kept) > MOST or (self._size > LARGEST and len(self._kept) > 1):
                self._size -= len(self._kept.popleft().text)
            self._wake()
            listeners = list(self._listeners)
        for listener in listeners:
            _tell(listener, text)

    def listen(self, listener: Callable[[Message], object]) -> Callable[[], None]:
        """Call a function with each future message, on the thread that publishes it.

        Args:
            listener: Must be fast. Its exceptions are logged and otherwise ignored.

        Returns:
            A function that removes the listener.
        """
        self._listeners.append(listener)

        def end() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return end

    async def follow(self, after: float = 0) -> AsyncIterator[str]:
        """Yield messages as JSON as they arrive, until the feed is closed.

        Discarded messages are replaced by one of type `dropped`, with their `count`.

        Args:
            after: Number of the last known message.
        """
        while True:
            with self._lock:
                waiting = [kept for kept in self._kept if kept.number > after]
                if not waiting:
                    if self._closed:
                        return
                    self._changed = self._changed or lasting()
                    changed = asyncio.wrap_future(self._changed)
            if not waiting:
                await changed
                continue
            missed = waiting[0].number - after - 1
            if missed > 0:
                yield json.dumps(
                    {"number": waiting[0].number - 1, "type": "dropped", "count": missed}
                )
            for kept in waiting:
                if kept.number < self._oldest():  # discarded while the reader was busy
                    break
                yield kept.text
                after = kept.number

    def _oldest(self) -> int:
        with self._lock:
            return self._kept[0].number if self._kept else 0

    def close(self) -> None:
        """Close the feed. Followers receive the stored messages before the end."""
        with self._lock:
            self._closed = True
            self._wake()
            self._listeners.clear()

    def _wake(self) -> None:
        """Wake the followers that wait, within the lock."""
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None


def text_of(message: Message) -> str:
    """Return a message as JSON, with the middle of long texts left out."""
    text = _JSON.encode(message)
    return text if len(text) <= LONGEST_TEXT else _JSON.encode(_cut(message))


def _tell(listener: Callable[[Message], object], text: str) -> None:
    try:
        listener(json.loads(text))
    except Exception:
        import logging

        logging.getLogger("flowengine.tools").exception("a listener failed")


def _plain(value: Any) -> Any:
    return value.model_dump() if isinstance(value, BaseModel) else value


def _encoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value[: LONGEST_TEXT * 3 // 4]).decode()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)[:LONGEST_TEXT]


_JSON = json.JSONEncoder(default=_encoded)


def _cut(value: Any) -> Any:
    """Return plain data with the middle of long texts left out."""
    if isinstance(value, str):
        return cut_text(value, LONGEST_TEXT)
    if isinstance(value, dict):
        return {str(key): _cut(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cut(item) for item in value]
    return value
