"""Ids of calls are found once in a conversation, not again in each turn."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.agents.models import call_ids
from flowengine.agents.models.call_ids import CallIds, ids_in


class Counted(dict[str, Any]):
    """A message that counts how often somebody looks for its calls."""

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
    ids, messages = CallIds(), [said("a"), told()]
    assert ids.of("c", messages) == {"a"}

    messages = [*messages, said("b"), told()]

    assert ids.of("c", messages) == {"a", "b"}
    assert ids.of("c", messages) == {"a", "b"}
    assert [one.looks for one in messages] == [1, 1, 1, 1]  # type: ignore[attr-defined]


def test_conversations_are_kept_apart() -> None:
    ids = CallIds()
    ids.of("one", [said("a")])

    assert ids.of("other", [said("b")]) == {"b"}


@pytest.mark.parametrize("now", [[], [said("x")], [said("x"), told()], [said("x"), told(), told()]])
def test_a_conversation_that_went_back_is_read_anew(now: list[dict[str, Any]]) -> None:
    ids = CallIds()
    ids.of("c", [said("a"), told()])

    assert ids.of("c", now) == ids_in(now)


def test_a_conversation_that_was_forgotten_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_ids, "CONVERSATIONS", 2)
    ids, messages = CallIds(), [said("a")]
    for name in ("first", "second", "third"):
        ids.of(name, messages)

    assert ids.of("first", messages) == {"a"}
    assert messages[0].looks == 4  # type: ignore[attr-defined]
