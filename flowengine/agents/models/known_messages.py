"""What is known of the messages of conversations that go on.

A turn needs to know things of all messages: which ids of calls are taken, which of them have parts,
perhaps images, and how long they are. To look at each of them in each turn would make long
conversations slow. So what was found is kept for the next turn, which looks at what is new.
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
"""So many are remembered; of one that is forgotten all messages are read again."""

Measure = Callable[[Message], int]
"""Says how long a message is, in whichever unit."""


def ids_in(messages: Iterable[Message]) -> set[str]:
    """Return the ids of the calls in messages."""
    calls = map(methodcaller("get", "tool_calls"), unwrapped(messages))
    return set(map(itemgetter("id"), chain.from_iterable(filter(None, calls))))


def parted(messages: Sequence[Message]) -> list[int]:
    """Return the places of the messages whose content is a list of parts, such as images."""
    if isinstance(messages, RequestMessages):
        return messages.parted()
    # Past the read-only view of each: it would copy the content.
    contents = [dict.get(one, "content") for one in unwrapped(messages)]
    return [place for place, one in enumerate(contents) if isinstance(one, list)]


def total(messages: Sequence[Message], measure: Measure) -> int:
    """Return how long messages are together.

    Args:
        messages: Those of a request are measured once in their conversation.
        measure: Says how long one of them is; the same function each time.
    """
    if isinstance(messages, RequestMessages):
        return messages.total(measure)
    return sum(map(measure, unwrapped(messages)))


def since_reply(messages: Sequence[Message]) -> list[Message] | None:
    """Return the last reply and what came after it; None: there is no reply."""
    for place in range(len(messages) - 1, -1, -1):
        if messages[place]["role"] == "assistant":
            return [messages[at] for at in range(place, len(messages))]
    return None


class KnownMessages:
    """What is known of the messages of one conversation; it does not hold them."""

    __slots__ = ("_count", "_last", "_parted", "_totals", "call_ids")

    def __init__(self) -> None:
        self.call_ids: set[str] = set()
        """Ids of all calls in them."""
        self._count = 0
        self._last: Message | None = None
        self._parted: list[int] = []
        self._totals: dict[Measure, list[int]] = {}
        """By measure the length of the messages before each place, as far as somebody asked."""

    def begins(self, messages: Sequence[Message]) -> bool:
        """Return whether messages begin with those that are known."""
        count = self._count
        return count <= len(messages) and (not count or messages[count - 1] is self._last)

    def extend(self, messages: list[Message]) -> None:
        """Look at the messages that are new.

        Args:
            messages: All of the conversation.
        """
        new = messages[self._count :]
        self.call_ids |= ids_in(new)
        self._parted += [self._count + place for place in parted(new)]
        self._count, self._last = len(messages), messages[-1] if messages else None

    def parted(self, since: int) -> list[int]:
        """Return the places, from one on, of the messages whose content is a list of parts."""
        return self._parted[bisect_left(self._parted, since) :]

    def total(self, measure: Measure, messages: list[Message], since: int) -> int:
        """Return how long the messages from a place on are.

        Args:
            measure: Says how long one is.
            messages: All of the conversation.
            since: The place.
        """
        before = self._totals.setdefault(measure, [0])
        for message in messages[len(before) - 1 :]:
            before.append(before[-1] + measure(message))
        return before[len(messages)] - before[since]


class RequestMessages(Joined):
    """The messages of a request: what stands before a conversation, the conversation, what follows.

    Args:
        first: Before the conversation.
        conversation: All of its messages.
        known: What is known of them.
        mark: The place from which on they are sent.
        added: After them.
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
        # The list itself where that is enough: a copy costs more, the longer the conversation is.
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
        """Return how long they are together."""
        around = sum(map(measure, (*self.first, *self._added)))
        return around + self._known.total(measure, self._conversation, self._mark)


class KnownConversations:
    """Remembers what is known of conversations, by the name of each."""

    def __init__(self) -> None:
        self._known: dict[str, KnownMessages] = {}
        self._lock = threading.Lock()

    def of(self, conversation: str, messages: list[Message]) -> KnownMessages:
        """Return what is known of all messages of a conversation.

        Args:
            conversation: Its name.
            messages: All of them, as the state has them: more are added at the end, and those
                before stay the same objects.
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
