"""Cached facts about the messages of ongoing conversations.

A turn needs facts about all messages: the ids of calls, the messages with parts such as images, and
their lengths. Reading every message in every turn would make long conversations slow. The results
are therefore kept, and the next turn reads only new messages.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import itemgetter, methodcaller

from flowengine.agents.models.port import Message
from flowengine.sdk.read_only import Joined, unwrapped

CONVERSATIONS = 1000
"""Maximum number of cached conversations. All messages of an evicted one are read again."""

Measure = Callable[[Message], int]
"""Returns the length of a message, in any unit."""


def ids_in(messages: Iterable[Message]) -> set[str]:
    """Return the ids of the calls in messages."""
    calls = map(methodcaller("get", "tool_calls"), unwrapped(messages))
    return set(map(itemgetter("id"), chain.from_iterable(filter(None, calls))))


def parted(messages: Sequence[Message]) -> list[int]:
    """Return the places of the messages whose content is a list of parts, such as images."""
    if isinstance(messages, RequestMessages):
        return messages.parted()
    # Bypasses the read-only views, which would copy the content.
    contents = [dict.get(message, "content") for message in unwrapped(messages)]
    return [place for place, content in enumerate(contents) if isinstance(content, list)]


def total(messages: Sequence[Message], measure: Measure) -> int:
    """Return the total length of messages.

    Args:
        messages: The messages. Those of a request are measured once per conversation.
        measure: Returns the length of one message. It must be the same function each time.
    """
    if isinstance(messages, RequestMessages):
        return messages.total(measure)
    return sum(map(measure, unwrapped(messages)))


def since_reply(messages: Sequence[Message]) -> list[Message] | None:
    """Return the last reply and the messages after it, or None without a reply."""
    for place in range(len(messages) - 1, -1, -1):
        if messages[place]["role"] == "assistant":
            return [messages[at] for at in range(place, len(messages))]
    return None


class KnownMessages:
    """Facts about the messages of one conversation, without the messages themselves."""

    __slots__ = ("_count", "_last", "_parted", "_totals", "call_ids")

    def __init__(self) -> None:
        self.call_ids: set[str] = set()
        """Ids of all calls in them."""
        self._count = 0
        self._last: Message | None = None
        self._parted: list[int] = []
        self._totals: dict[Measure, list[int]] = {}
        """By measure: total length before each place, computed as far as needed."""

    def begins(self, messages: Sequence[Message]) -> bool:
        """Return whether messages begin with those already read."""
        count = self._count
        return count <= len(messages) and (not count or messages[count - 1] is self._last)

    def extend(self, messages: list[Message]) -> None:
        """Read the new messages.

        Args:
            messages: All messages of the conversation.
        """
        new = messages[self._count :]
        self.call_ids |= ids_in(new)
        self._parted += [self._count + place for place in parted(new)]
        self._count, self._last = len(messages), messages[-1] if messages else None

    def parted(self, since: int) -> list[int]:
        """Return the places, from a given one on, of messages whose content is a list of parts."""
        return self._parted[bisect_left(self._parted, since) :]

    def total(self, measure: Measure, messages: list[Message], since: int) -> int:
        """Return the total length of the messages from a place on.

        Args:
            measure: Returns the length of one message.
            messages: All messages of the conversation.
            since: The place.
        """
        before = self._totals.setdefault(measure, [0])
        for message in messages[len(before) - 1 :]:
            before.append(before[-1] + measure(message))
        return before[len(messages)] - before[since]


class RequestMessages(Joined):
    """The messages of a request: leading messages, the conversation, and trailing messages.

    Args:
        first: Leading messages.
        conversation: All messages of the conversation.
        known: Facts about them.
        mark: The place in the conversation from which on messages are sent.
        added: Trailing messages.
    """

    __slots__ = ("_added", "_conversation", "_known", "_mark")

    def __init__(
        self,
        first: list[Message],
        conversation: list[Message],
        known: KnownMessages,
        mark: int = 0,
        added: Sequence[Message] = (),
    ) -> None:
        # The list itself if possible, because copying a long conversation is expensive.
        rest = conversation[mark:] if mark else conversation
        super().__init__(first, [*rest, *added] if added else rest)
        self._conversation = conversation
        self._known = known
        self._mark = mark
        self._added = added

    def parted(self) -> list[int]:
        """Return the places of the messages whose content is a list of parts."""
        moved, after = len(self.first) - self._mark, len(self) - len(self._added)
        return [
            *parted(self.first),
            *(moved + place for place in self._known.parted(self._mark)),
            *(after + place for place in parted(self._added)),
        ]

    def total(self, measure: Measure) -> int:
        """Return their total length."""
        around = sum(map(measure, (*self.first, *self._added)))
        return around + self._known.total(measure, self._conversation, self._mark)


class KnownConversations:
    """Caches facts about conversations by name."""

    def __init__(self) -> None:
        self._known: dict[str, KnownMessages] = {}
        self._lock = threading.Lock()

    def of(self, conversation: str, messages: list[Message]) -> KnownMessages:
        """Return the facts about all messages of a conversation.

        Args:
            conversation: Its name.
            messages: All messages from the state. New ones are appended, earlier ones stay the same
                objects.
        """
        with self._lock:
            known = self._known.pop(conversation, None)
            if known is None or not known.begins(messages):
                known = KnownMessages()
            known.extend(messages)
            self._known[conversation] = known
            if len(self._known) > CONVERSATIONS:
                del self._known[next(iter(self._known))]
            return known
