"""The conversation of agents: the messages that their state contains, and those that a model sees.

The state has messages as they are, except for answers to calls. Such an entry has `id` and `name`
of the call, the `kind` of its result, and `output` or `error` of the tool's step. Its text is
written when it is needed: for a request, for display, for a session. Therefore no text is stored
twice, and its wording may change.

A later entry `hooked` has the result of a hook about an answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from flowengine.agents.call_answers import (
    ADAPTED,
    OTHERS,
    Answer,
    answer,
    failure,
    first_handoff,
)
from flowengine.agents.hook_results import answer_hooked
from flowengine.agents.models.port import Message
from flowengine.sdk import Plain
from flowengine.sdk.values.read_only import unwrapped

Entry = Mapping[str, Any]


class AnsweredCall(NamedTuple):
    """A call of a reply with its answer."""

    call: Mapping[str, Any]
    """`id`, `name`, and perhaps `kind` and `args`."""
    answer: Answer
    """The messages for the model, and what else follows from the call."""
    entry: Entry
    """The entry in the state."""


def rendered(entries: Sequence[Entry]) -> list[Message]:
    """Return the conversation as a model sees it.

    Args:
        entries: `messages` of the state.
    """
    messages: list[Message] = []
    reply: Entry = {}
    answers: list[Entry] = []
    for entry in unwrapped(entries):
        role = entry.get("role")
        if role == "tool" or is_answer(entry) or "hooked" in entry:
            answers.append(entry)
            continue
        if answers:
            messages += _messages(reply, answers)
            answers = []
        messages.append(entry)
        if role == "assistant":
            reply = entry
    return [*messages, *_messages(reply, answers)] if answers else messages


def _messages(reply: Entry, entries: Sequence[Entry]) -> Iterator[Message]:
    for answered in answers_to(reply, entries):
        yield from answered.answer["messages"]


def answers_to(reply: Entry, entries: Sequence[Entry]) -> list[AnsweredCall]:
    """Return the answers to the calls of a reply, in the order of the calls.

    The answer to a call that ends the work is the last one. Answers that are all written already
    stay in their order. Only the first handoff is taken, the others are refused.

    Args:
        reply: The message of the model.
        entries: The entries after it.
    """
    order = {call["id"]: place for place, call in enumerate(reply.get("tool_calls") or ())}
    made: list[Entry] = []
    hooked: dict[str, list[Entry]] = {}
    for entry in entries:
        if "hooked" in entry:
            hooked.setdefault(entry["hooked"], []).append(entry)
        elif is_answer(entry) or entry.get("role") == "tool":
            made.append(entry)
    if any(map(is_answer, made)):
        last = len(order)
        made.sort(key=lambda one: last if "ends" in one else order.get(id_of(one), last))
    answers: list[AnsweredCall] = []
    handed = ""
    for entry in made:
        call, given = answer_of(entry, handed)
        for hook in hooked.get(str(call["id"]), ()):
            given = answer_hooked(call, given, hook["result"], hook["by"])
        handed = handed or given["handoff"]
        answers.append(AnsweredCall(call, given, entry))
    return answers


def is_answer(entry: Entry) -> bool:
    """Return whether an entry is the answer of a tool, whose text is not written yet."""
    return "role" not in entry and ("output" in entry or "error" in entry)


def id_of(entry: Entry) -> Any:
    """Return the id of the call that an entry answers, or whose answer a hook has changed."""
    if "hooked" in entry:
        return entry["hooked"]
    return entry["id"] if is_answer(entry) else entry.get("tool_call_id")


def answer_of(entry: Entry, handed: str = "") -> tuple[Mapping[str, Any], Answer]:
    """Return the call of an entry, and its answer.

    Args:
        entry: The entry of a call, or the message that answers it.
        handed: The agent that an earlier call of the reply handed off to.
    """
    if not is_answer(entry):
        call = {"id": entry.get("tool_call_id"), "name": entry.get("name")}
        message = {key: value for key, value in entry.items() if key not in _OF_ANSWER}
        context = dict(entry.get("context", {})) if not handed else {}
        value: Plain = entry.get("value")
        return call, first_handoff([message], context, entry.get("handoff", ""), value, handed)
    kind = entry.get("kind", ADAPTED)
    if "error" in entry:
        return entry, failure(entry, entry["error"], kind == OTHERS)
    approval = entry.get("approval")
    return entry, answer(entry, entry["output"], approval, handed, kind)


_OF_ANSWER = frozenset({"context", "handoff", "value", "ends"})
"""Keys of a message with which a reply was answered without a tool. That which `ends` the work is
the last one."""
