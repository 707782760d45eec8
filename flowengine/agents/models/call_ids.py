"""The ids of the calls in conversations that go on.

An id has to be the only one of its kind in a conversation. To look through all messages for that,
each turn, would make long conversations slow; so what was found is kept for the next turn.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence, Set
from itertools import chain
from operator import itemgetter, methodcaller

from flowengine.agents.models.port import Message
from flowengine.sdk.read_only import unwrapped

CONVERSATIONS = 1000
"""So many are remembered; of one that is forgotten all messages are read again."""


def ids_in(messages: Iterable[Message]) -> set[str]:
    """Return the ids of the calls in messages."""
    calls = map(methodcaller("get", "tool_calls"), unwrapped(messages))
    return set(map(itemgetter("id"), chain.from_iterable(filter(None, calls))))


class _Known:
    __slots__ = ("count", "ids", "last")

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self.count = 0
        self.last: Message | None = None

    def begins(self, messages: Sequence[Message]) -> bool:
        """Return whether messages begin with those that are known."""
        count = self.count
        return count <= len(messages) and (not count or messages[count - 1] is self.last)

    def add(self, messages: Sequence[Message]) -> None:
        self.ids |= ids_in(messages[self.count :])
        self.count, self.last = len(messages), messages[-1] if messages else None


class CallIds:
    """Remembers the ids of conversations, by the name of each."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._lock = threading.Lock()

    def of(self, conversation: str, messages: list[Message]) -> Set[str]:
        """Return the ids of all calls in a conversation.

        Args:
            conversation: Its name.
            messages: All of them, as the state has them: more are added at the end, and those
                before stay the same objects.
        """
        with self._lock:
            known = self._known.pop(conversation, None)
            if known is None or not known.begins(messages):
                known = _Known()
            known.add(messages)
            self._known[conversation] = known
            if len(self._known) > CONVERSATIONS:
                del self._known[next(iter(self._known))]
            return known.ids
