"""The views of one execution: time, history, events, and the work of agents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import quote

from flowengine.agents.actions import TURN, reduction, shown
from flowengine.agents.agent_state import STEER
from flowengine.agents.first_messages import asked, opened_with
from flowengine.engines.agent_events import AgentEvents
from flowengine.engines.engine import Engine
from flowengine.engines.infos import EVENT_TYPES
from flowengine.engines.results import ENDED, Update
from flowengine.engines.stream_parts import (
    AgentPart,
    ModelFailed,
    ModelReplied,
    ToolCallPart,
    ToolResultPart,
)
from flowengine.errors import NotFound
from flowengine.kernel.commands import Observation
from flowengine.kernel.notation.addresses import is_round
from flowengine.kernel.notation.times import format_time, parse_time
from flowengine.page.choices import why_not
from flowengine.page.flow_views import address_again, graph, titles_of
from flowengine.page.looks import badge, duration, now, waiting
from flowengine.page.timeline import timeline
from flowengine.page.view import PageView, checked_query, waits_in
from flowengine.server import events, executions
from flowengine.server.calls import ApiCall
from flowengine.server.models import EventsQuery
from flowengine.server.redaction import without_content
from flowengine.server.rights import Right
from flowengine.server.signals import data_schema
from flowengine.server.talks import current_observations

# The work of agents as conversations: messages, reasoning, tool calls, handoffs and usage.

PAGE = 50
"""Entries of a conversation in one view."""
_COUNTED = ("input_tokens", "cached_tokens", "output_tokens", "cost_usd")


class ToolCallEntry:
    """A call that a model made, with its outcome.

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
        """The result that the model received. None: the call has not ended."""
        self.error = ""
        self.address = ""
        """Address of the step that ran it. Empty: none has begun."""
        self.begun = 0
        """When it began to run (ms), after an approval."""
        self.took = ""
        """How long it ran. Empty: it has not ended, or has not run."""


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


class AgentWork:
    """The work of an agent in a conversation: its turns, or its calls to one tool."""

    def __init__(self) -> None:
        self.number = 0
        self.failed = 0
        self.ms = 0
        self.usage: dict[str, float] = dict.fromkeys(_COUNTED, 0)

    def add(self, ms: int, usage: Mapping[str, float], *, failed: bool = False) -> None:
        """Count one more."""
        self.number += 1
        self.failed += failed
        self.ms += ms
        for name, amount in usage.items():
            self.usage[name] += amount


class ConversationView:
    """The conversation of the agents that run in one step."""

    def __init__(self) -> None:
        self.entries: list[ConversationEntry] = []
        self.turns = AgentWork()
        self.work: dict[str, dict[str, AgentWork]] = {}
        """Agent → tool → its calls, and the turns of the agent, whose tool is empty."""
        self.begun: dict[str, int] = {}
        """Address of a turn → when its model was called (ms)."""
        self.said: list[str] = []
        """Messages of users among the entries that the agents have not stored yet."""
        self.calls: dict[str, ToolCallEntry] = {}
        """Id → the last call with this id."""

    def of(self, agent: str, tool: str = "") -> AgentWork:
        """Return the work of an agent."""
        return self.work.setdefault(agent, {}).setdefault(tool, AgentWork())


def has_agents(flow: Any) -> bool:
    """Return whether agents run in a flow."""
    return any(step.get("kind") == TURN for step in flow.compiled["steps"])


def conversations(engine: Engine, execution: str) -> dict[str, ConversationView]:
    """Return the conversations of an execution, by the addresses of their steps.

    Args:
        engine: Contains the execution.
        execution: Its full id.
    """
    events = AgentEvents(engine.executions.flow_of(execution).compiled, execution)
    views: dict[str, ConversationView] = {}
    for seen, spec in current_observations(engine, execution):
        _add_messages(views, seen, spec)
        for part in events.of(Update(execution, "step", {}, seen)):
            _add(views, part, seen.at)
        if spec.get("kind") == TURN and seen.status == "succeeded" and is_round(seen.address):
            # Add the next message of the user, which agents take after an answer.
            conversation = _at(views, _around(seen.address))
            output: Any = seen.output
            told = [message for message in output.get("told", ()) if message.get("role") == "user"]
            if "asked" in output.get("state", {}):
                _add_stored(conversation, told[-1:], format_time(seen.at))
    return {address: value for address, value in views.items() if value.entries}


def _add_messages(views: dict[str, ConversationView], seen: Observation, spec: Any) -> None:
    """Add the messages of users, reductions of the conversation, and when turns begin."""
    at, ended = format_time(seen.at), seen.status == "succeeded"
    if ended and spec.get("chat") and isinstance(seen.output, str) and seen.output:
        _add_said(_at(views, _around(_around(seen.address))), seen.output, at)
    if spec.get("kind") != TURN or not is_round(seen.address):
        return
    one = _at(views, _around(seen.address))
    if seen.status == "running":
        one.begun[seen.address] = seen.at
        if not one.entries and isinstance(seen.input, Mapping) and "args" in seen.input:
            for message in opened_with({}, asked(seen.input)[1])["messages"]:
                if message["role"] == "user":
                    _add_said(one, shown(message.get("content"), "\n"), at)
    if not ended or not isinstance(seen.output, Mapping):
        return
    _add_stored(one, seen.output.get("before", ()), at)
    if "left_out" in seen.output:
        agent = spec["task"]["agent"]["name"]
        text = f"The context of {agent}: {reduction(seen.output)}."
        summary = str(seen.output.get("summary", ""))
        one.entries.append(ConversationEntry("note", "", at, text, summary, address=seen.address))


def _add_stored(conversation: ConversationView, messages: Iterable[Any], at: str) -> None:
    """Add the messages of users that agents have stored, without those that are shown already."""
    for message in messages:
        if message.get("role") == "user":
            text = shown(message.get("content"), "\n")
            if text in conversation.said:
                conversation.said.remove(text)
            else:
                conversation.entries.append(ConversationEntry("user", "", at, text))


def _add_said(conversation: ConversationView, text: str, at: str) -> None:
    """Add a message of a user that the agents have not stored yet."""
    conversation.said.append(text)
    conversation.entries.append(ConversationEntry("user", "", at, text))


def _add(views: dict[str, ConversationView], part: AgentPart, now: int) -> None:
    """Add one piece of an agent's work."""
    at = format_time(now)
    if part.kind == "reply":
        _add_reply(_at(views, _around(part.step)), part, now)
    elif part.kind == "handoff":
        note = ConversationEntry("note", part.agent, at, f"{part.agent} hands off to {part.to}.")
        _at(views, _around(part.step)).entries.append(note)
    elif isinstance(part, ModelFailed):
        what = "The model is asked again" if part.kind == "retry" else "The model did not answer"
        note = ConversationEntry(
            "note", part.agent, at, f"{what}: {part.error}", address=part.step, bad=True
        )
        _at(views, _around(part.step)).entries.append(note)
    elif isinstance(part, ToolCallPart | ToolResultPart):
        turn = part.step if is_round(part.step) else _around(part.step)
        one = _at(views, _around(turn))
        call = one.calls.get(part.call)
        if call is None:
            return
        if part.kind == "tool_call":
            call.address, call.begun = part.step, call.begun or now
            call.called_with = None if part.arguments == call.arguments else part.arguments
        else:
            call.result, call.error = part.result, part.error
            ms = now - call.begun if call.begun else 0
            call.took = duration(ms) if call.begun else ""
            one.of(part.agent, call.tool).add(ms, {}, failed=bool(call.error))


def _add_reply(conversation: ConversationView, part: ModelReplied, now: int) -> None:
    reply = part.reply
    calls = [ToolCallEntry(call.id, call.tool, call.arguments) for call in reply.calls]
    conversation.calls |= {call.id: call for call in calls}
    usage = {name: reply.usage.get(name, 0) for name in _COUNTED}
    ms = now - conversation.begun.pop(part.step, now)
    for turns in (conversation.turns, conversation.of(part.agent)):
        turns.add(ms, usage)
    conversation.entries.append(
        ConversationEntry(
            "reply",
            part.agent,
            format_time(now),
            reply.text,
            reply.reasoning,
            calls,
            reply.model,
            usage,
            part.step,
        )
    )


def _at(views: dict[str, ConversationView], address: str) -> ConversationView:
    return views.setdefault(address, ConversationView())


def _around(address: str) -> str:
    return address.rpartition("/")[0]


# The views of one execution: its time, its history and events.

_MOST_EVENTS = 10**9
"""More than a journal has."""
_EVENTS = 50
"""Events in one view."""
_NUMBER = re.compile("[0-9]{1,15}")
_MOST_MARKS = 200
_MARKED = {"failed": "bad", "lost": "bad", "decided": "ok", "message": "idle", "cancel": "stop",
           "retry": "run", "upgraded": "run", "state": "run"}  # fmt: skip
"""Type of an event → the look of its mark in the history."""


class Mark(NamedTuple):
    """An event on the track of the history."""

    number: int
    look: str
    what: str


def show_timeline(call: ApiCall, given: dict[str, str]) -> PageView:
    """Show the attempts, waits and pauses of an execution's steps over time."""
    part = number_in(given, "start"), number_in(given, "end")
    address, first = given.get("at", ""), number_in(given, "from")
    whole, folds = executions.shown_folds(call)
    end = parse_time(whole["ended_at"]) if "ended_at" in whole else now()
    chart = timeline(folds, whole["started_at"], end, address, first, part)
    info = whole if call.may(Right.CONTENT, whole["flow"]) else without_content(whole)
    return PageView(
        "timeline.html",
        {**frame(call, info, is_live=True), "timeline": chart},
    )


def show_history(call: ApiCall, given: dict[str, str]) -> PageView:
    """Show an execution as it was after one of its events: graph, state, waits and steps."""
    id = call.path["execution"]
    until = number_in(given, "event", _MOST_EVENTS) + 1
    past, folds = call.engine.executions.folds(id, until=until)
    info: Any = past
    if "event" not in info:
        raise NotFound(f"execution {id} has no events yet", hint="no step of it has begun")
    statuses = folds.statuses()
    level = folds.level(given.get("at", ""), number_in(given, "from"))
    entry, last, marks = info["event"], info["entries"] - 1, _marks(call, id)
    before = [mark.number for mark in marks if mark.number < entry["seq"]]
    after = [mark.number for mark in marks if mark.number > entry["seq"]]
    lit = entry.get("address", "")
    return PageView(
        "history.html",
        {
            **frame(call, call.engine.executions.summary(id)),
            "past": info,
            "entry": entry,
            "number": entry["seq"],
            "last": last,
            "marks": marks,
            "mark_before": max(before, default=None),
            "mark_after": min(after, default=None),
            "graph": graph(call.engine.executions.flow_of(id), statuses, lit=lit),
            "level": level,
            "causes": list(causes_of(info.get("error"))),
        },
    )


def _marks(call: ApiCall, id: str) -> list[Mark]:
    """Return failures, waits for humans, decisions and other interventions of an execution."""
    asked = waits_in(call, execution=id, status="all", limit=_MOST_MARKS)["items"]
    since = {(wait["address"], wait["since"]) for wait in asked if "address" in wait}
    return [
        Mark(number, _MARKED[type], f"{address} {type}".strip())
        if type in _MARKED
        else Mark(number, "you", "a wait for a person begins")
        for number, type, address in islice(call.engine.executions.marks(id, since), _MOST_MARKS)
    ]


def show_events(call: ApiCall, given: dict[str, str]) -> PageView:
    """Show a page of the journal."""
    first, type = number_in(given, "from_seq"), given.get("type") or None
    query = checked_query(EventsQuery, {"from_seq": first, "limit": _EVENTS, "type": type})
    page = events.list_events(call._replace(query=query))
    head = call.engine.executions.summary(call.path["execution"])
    context = {"items": page["items"], "first": first, "size": _EVENTS, "type": type}
    return PageView("events.html", {**frame(call, head), **context, "types": EVENT_TYPES})


def show_diff(call: ApiCall, given: dict[str, str]) -> PageView:
    """Compare an execution with another one."""
    id, wanted = call.path["execution"], given.get("with", "").strip()
    head = call.engine.executions.summary(id)
    difference = error = None
    if wanted:
        try:
            difference = executions.diff(call._replace(path={**call.path, "other": wanted}))
        except NotFound:
            error = f"There is no execution '{wanted}'."
    listed = call.engine.executions.list(flow=head["flow"], limit=20).items
    return PageView(
        "diff.html",
        {
            **frame(call, head),
            "found": difference,
            "wanted": wanted,
            "error": error,
            "others": [item for item in listed if item["execution"] != id],
        },
    )


def show_conversation(call: ApiCall, given: dict[str, str]) -> PageView:
    """Show the messages of agents and users, with tool calls and usage, newest entries first."""
    id = call.path["execution"]
    head = call.engine.executions.summary(id)
    views = conversations(call.engine, id)
    address = given.get("at", "")
    if address not in views:
        address = next(iter(views), "")
    one = views.get(address, ConversationView())
    last = max(len(one.entries) - PAGE, 0)
    first = min(number_in(given, "from", last), last)
    waits = waits_in(call, execution=id)["items"]
    is_open, flow = head["status"] not in ENDED, head["flow"]
    compiled = call.engine.executions.flow_of(id).compiled
    is_chat = any(step.get("chat") for step in compiled["steps"])
    is_steered = data_schema(compiled, STEER) is not None
    return PageView(
        "conversation.html",
        {
            **frame(call, head, is_live=True),
            "addresses": list(views),
            "address": address,
            "conversation": one,
            "entries": one.entries[first : first + PAGE],
            "before": max(first - PAGE, 0) if first else None,
            "after": first + PAGE if first < last else None,
            "waits": waits,
            "answerable": {wait["id"] for wait in waits if _is_answerable(call, wait)},
            "is_talk": is_open and is_chat and call.may(Right.DECIDE, flow),
            "is_steered": is_open and is_steered and call.may(Right.OPERATE, flow),
        },
    )


def _is_answerable(call: ApiCall, wait: Any) -> bool:
    """Return whether the user may answer a conversation with a message alone."""
    is_message = wait.get("chat") and "answer" in (wait.get("form") or {}).get("properties", {})
    return bool(is_message) and not why_not(call, wait)


def frame(call: ApiCall, info: Any, *, is_live: bool = False) -> dict[str, Any]:
    """Return the data for the head of each view of an execution.

    Args:
        call: The request.
        info: At least the id, the flow and the status of the execution.
        is_live: Whether the view is kept current until the execution has ended.
    """
    id, waits = info["execution"], info.get("waits", ())
    if info["status"] == "waiting" and not waits:
        waits = call.engine.approvals.list(execution=id).items
    flow = call.engine.executions.flow_of(id)
    if not call.may(Right.CONTENT, info["flow"]):
        info = without_content(info)  # its title has inputs
    return {
        "info": info,
        "titles": titles_of(flow),
        "state": waiting(waits, any(not why_not(call, wait) for wait in waits))
        if info["status"] == "waiting"
        else badge(info["status"]),
        "again": address_again(call, id, info["flow"]),
        "may_decide": call.may(Right.DECIDE, info["flow"]),
        "may_operate": call.may(Right.OPERATE, info["flow"]),
        "base": f"/executions/{quote(id)}",
        "has_agents": has_agents(flow),
        "has_ended": info["status"] in ENDED,
        "is_live": is_live and info["status"] not in ENDED,
        "sees_content": call.may(Right.CONTENT, info["flow"]),
    }


def causes_of(error: Any) -> Iterator[Any]:
    """Yield the causes of an error, the last one being the first that happened."""
    for _ in range(20):
        error = error.get("cause") if error else None
        if not error:
            return
        yield error


def number_in(given: Mapping[str, str], name: str, default: int = 0) -> int:
    text = given.get(name, "")
    return int(text) if _NUMBER.fullmatch(text) else default
