"""Facts about messages are computed once, not in each turn."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.agents.models import conversations as known_messages
from flowengine.agents.models.conversations import (
    KnownConversations,
    RequestMessages,
    ids_in,
    parted,
    total,
)
from tests.rows import each_row


class Counted(dict[str, Any]):
    """A message that counts how often its calls are looked up."""

    looks = 0

    def get(self, key: str, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)


def said(*ids: str) -> dict[str, Any]:
    return Counted(role="assistant", tool_calls=[{"id": id} for id in ids])


def told(text: str = "") -> dict[str, Any]:
    return Counted(role="tool", content=text)


def test_all_calls_of_all_messages_are_found() -> None:
    assert ids_in([{"role": "user"}, said("a", "b"), told(), said(), said("c")]) == {"a", "b", "c"}


def test_each_message_is_looked_at_once() -> None:
    ids, messages = KnownConversations(), [said("a"), told()]
    assert ids.of("c", messages).call_ids == {"a"}

    messages = [*messages, said("b"), told()]

    assert ids.of("c", messages).call_ids == {"a", "b"}
    assert ids.of("c", messages).call_ids == {"a", "b"}
    assert [one.looks for one in messages] == [1, 1, 1, 1]  # type: ignore[attr-defined]


def test_conversations_are_kept_apart() -> None:
    ids = KnownConversations()
    ids.of("one", [said("a")])

    assert ids.of("other", [said("b")]).call_ids == {"b"}


@each_row("now", [[], [said("x")], [said("x"), told()], [said("x"), told(), told()]])
def test_a_conversation_that_went_back_is_read_anew(now: list[dict[str, Any]]) -> None:
    ids = KnownConversations()
    ids.of("c", [said("a"), told()])

    assert ids.of("c", now).call_ids == ids_in(now)


def test_a_conversation_that_was_forgotten_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_messages, "CONVERSATIONS", 2)
    ids, messages = KnownConversations(), [said("a")]
    for name in ("first", "second", "third"):
        ids.of(name, messages)

    assert ids.of("first", messages).call_ids == {"a"}
    assert messages[0].looks == 4  # type: ignore[attr-defined]


def image() -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}


@each_row("mark", range(5))
def test_a_request_knows_the_same_of_its_messages_as_a_look_at_each(mark: int) -> None:
    conversations = KnownConversations()
    conversation = [told("one"), image(), told("three")]
    conversations.of("c", conversation)
    conversation = [*conversation, image(), told("four"), image()]
    first, added = [told("system"), image()], [told("last"), image()]

    known = conversations.of("c", conversation)
    request = RequestMessages(first, conversation, known, mark, added)

    assert [*request] == [*first, *conversation[mark:], *added]
    assert parted(request) == parted([*request])
    assert total(request, len) == total([*request], len)


def test_each_message_is_measured_once() -> None:
    measured = []

    def measure(message: Any) -> int:
        measured.append(message["content"])
        return 1

    conversations = KnownConversations()
    conversation = [told("0"), told("1")]
    for count in (2, 3, 3):
        conversation = [*conversation, told("2")][:count]
        known = conversations.of("c", conversation)
        assert total(RequestMessages([], conversation, known), measure) == count

    assert measured == ["0", "1", "2"]


def test_an_earlier_request_is_measured_without_what_came_later() -> None:
    conversations = KnownConversations()
    before = [told("one")]
    known = conversations.of("c", before)
    request = RequestMessages([], before, known)
    after = [*before, told("two")]
    conversations.of("c", after)

    assert total(RequestMessages([], after, known), len) == 4
    assert total(request, len) == 2
