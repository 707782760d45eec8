"""The work of agents as conversations: messages, reasoning, tool calls, handoffs and usage."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.engines.results import Update
from flowengine.kernel.notation.times import format_time
from flowengine.metachain.agent_events import TURN, AgentEvents, StreamPart
from flowengine.server.agent_parts import current_observations

if TYPE_CHECKING:
    from flowengine.engines.engine import Engine
    from flowengine.kernel.commands import Observation

PAGE = 50
"""Entries of a conversation in one view."""
_OFFER = "agent_offer"
_REDUCTION = "agent_reduction"
_COUNTED = ("input_tokens", "output_tokens", "cost_usd")


class ToolCallEntry:
    """A call that a model made, and what became of it.

    Args:
        id: As the model assigned it.
        tool: Name of the tool.
        arguments: Its arguments as the model wrote them, or the text that it wrote instead.
    """

    def __init__(self, id: str, tool: str, arguments: Any) -> None:
        self.id = id
        self.tool = tool
        self.arguments = arguments
        self.called_with: Any = None
        """The arguments of the tool, if they are others: an approver has edited them, or the flow
        fixes some."""
        self.result: str | None = None
        """What the model received. None: the call has not ended."""
        self.error = ""
        self.address = ""
        """Address of the step that ran it. Empty: none has begun."""


class ConversationEntry(NamedTuple):
    """A message of a conversation, or something that happened in it."""

    kind: str
    """`user`, `reply`, or `note`."""
    agent: str
    at: str
    text: str
    reasoning: str = ""
    calls: list[ToolCallEntry] = []  # noqa: RUF012 - a default that nothing changes
    model: str = ""
    usage: Mapping[str, float] = {}
    address: str = ""
    """Address of the turn."""
    bad: bool = False
    """Whether it reports an error."""


class ConversationView:
    """The conversation of the agents that run in one step."""

    def __init__(self) -> None:
        self.entries: list[ConversationEntry] = []
        self.usage: dict[str, float] = dict.fromkeys(_COUNTED, 0)
        """Of all turns."""
        self.turns = 0
        self.calls: dict[str, ToolCallEntry] = {}
        """Id → the last call with this id."""


def has_agents(flow: Any) -> bool:
    """Return whether agents run in a flow."""
    return any(step.get("kind") == TURN for step in flow.compiled["steps"])


def conversations(engine: Engine, execution: str) -> dict[str, ConversationView]:
    """Return the conversations of an execution, by the addresses of their steps.

    Args:
        engine: Contains the execution.
        execution: Its full id.
    """
    events = AgentEvents(engine.flow_of(execution).compiled, execution)
    views: dict[str, ConversationView] = {}
    for seen, spec in current_observations(engine, execution):
        _add_messages(views, seen, spec)
        for part in events.of(Update(execution, "step", {}, seen)):
            _add(views, part, format_time(seen.at))
    return {address: value for address, value in views.items() if value.entries}


def _add_messages(views: dict[str, ConversationView], seen: Observation, spec: Any) -> None:
    """Add the messages of users, and reductions of the conversation."""
    if seen.status != "succeeded":
        return
    at, one = format_time(seen.at), _at(views, _around(seen.address))
    if spec.get("kind") == _OFFER and isinstance(seen.output, Mapping):
        for message in seen.output.get("messages", ()):
            if message.get("role") == "user":
                one.entries.append(ConversationEntry("user", "", at, _text(message.get("content"))))
    elif spec.get("chat") and isinstance(seen.output, str) and seen.output:
        one.entries.append(ConversationEntry("user", "", at, seen.output))
    elif spec.get("kind") == _REDUCTION:
        note = "Earlier messages are left out, so that the conversation fits the model."
        one.entries.append(ConversationEntry("note", "", at, note))


def _add(views: dict[str, ConversationView], part: StreamPart, at: str) -> None:
    """Add what an agent did."""
    if part.kind == "reply":
        _add_reply(_at(views, _around(part.step)), part, at)
    elif part.kind == "handoff":
        note = ConversationEntry("note", part.agent, at, f"{part.agent} hands off to {part.to}.")
        _at(views, _around(part.step)).entries.append(note)
    elif part.kind in ("retry", "failure"):
        what = "The model is asked again" if part.kind == "retry" else "The model did not answer"
        note = ConversationEntry(
            "note", part.agent, at, f"{what}: {part.error}", address=part.step, bad=True
        )
        _at(views, _around(part.step)).entries.append(note)
    elif part.kind in ("tool_call", "tool_result"):
        above = _around(part.step) if part.kind == "tool_result" else _around(_around(part.step))
        call = _at(views, above).calls.get(part.call)
        if call is None:
            return
        if part.kind == "tool_call":
            call.address = part.step
            call.called_with = None if part.arguments == call.arguments else part.arguments
        else:
            call.result, call.error = part.result, part.error


def _add_reply(conversation: ConversationView, part: StreamPart, at: str) -> None:
    output: Any = part.output
    message = output["message"]
    calls = [
        ToolCallEntry(str(call.get("id")), made["name"], _arguments(made.get("arguments")))
        for call in message.get("tool_calls") or ()
        if isinstance(made := call.get("function"), Mapping)
    ]
    conversation.calls |= {call.id: call for call in calls}
    conversation.turns += 1
    usage = {name: output["usage"].get(name, 0) for name in _COUNTED}
    for name, amount in usage.items():
        conversation.usage[name] += amount
    conversation.entries.append(
        ConversationEntry(
            "reply",
            part.agent,
            at,
            _text(message.get("content")),
            _text(message.get("reasoning")),
            calls,
            str(output.get("model", "")),
            usage,
            part.step,
        )
    )


def _at(views: dict[str, ConversationView], address: str) -> ConversationView:
    return views.setdefault(address, ConversationView())


def _arguments(text: Any) -> Any:
    """Return the arguments of a call as data, or the text if it is not JSON."""
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return text


def _text(content: Any) -> str:
    """Return the text of a message. Its other parts are named."""
    if content is None or isinstance(content, str):
        return content or ""
    parts: Iterable[Any] = content if isinstance(content, list) else [content]
    return "\n".join(
        str(part["text"]) if "text" in part else f"({part.get('type', 'data')})"
        for part in parts
        if isinstance(part, Mapping)
    )


def _around(address: str) -> str:
    return address.rpartition("/")[0]
