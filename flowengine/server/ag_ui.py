"""AG-UI (`ag-ui-protocol` 1.0) at `/ag-ui/{flow}`, with the bearer tokens of the API."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from ag_ui.core import (
    BaseEvent,
    CustomEvent,
    Interrupt,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from starlette.requests import Request

from flowengine.engines.stream_parts import AgentPart, ModelReplied, QuestionPart
from flowengine.errors import FlowEngineError, InputError, NotFound
from flowengine.server.application import Application, address_of, body_as
from flowengine.server.rights import Principal
from flowengine.server.streams import event_source
from flowengine.server.talks import ArrivingPart, Talk

# The work of agents as events of AG-UI (`ag-ui-protocol` 1.0).

_SHOWN = (
    *("kind", "tool", "subject", "body", "preview", "difference", "found", "request", "note"),
    "about",
)


_KINDS = ("reasoning", "text")


class ReplyEvents:
    """The events for what agents do. Of a reply, the journal has what did not arrive before."""

    def __init__(self) -> None:
        self._open: dict[str, _Sent] = {}
        """Address of a step → the message of its reply."""
        self._broken = 0

    def of(self, part: AgentPart | ArrivingPart) -> Iterator[BaseEvent]:
        """Yield the events for a part of the journal, or of a reply that a model is writing."""
        if isinstance(part, ArrivingPart):
            given = part.part
            if given["part"] == "restart":
                yield from self._void(given["address"])
            elif given["part"] in _KINDS and given["text"]:
                sent = self._message(given["address"], given.get("agent", ""))
                yield from sent.add(given["part"], given["text"])
        elif part.kind == "reply":
            yield from self._reply(part)
        elif part.kind == "tool_result" and part.call:
            yield ToolCallResultEvent(
                message_id=part.step, tool_call_id=part.call, content=part.text, role="tool"
            )
        elif part.kind == "handoff":
            yield CustomEvent(name="handoff", value={"from": part.agent, "to": part.to})

    def end(self) -> Iterator[BaseEvent]:
        """Yield the ends of all messages that are open."""
        for sent in self._open.values():
            yield from sent.close()

    def _void(self, address: str) -> Iterator[BaseEvent]:
        """Yield the end of a void message. The next one of the step has another id."""
        if (sent := self._open.pop(address, None)) is not None:
            self._broken += 1
            yield from sent.close()

    def _reply(self, part: ModelReplied) -> Iterator[BaseEvent]:
        """Yield what was not sent of a reply, its end, and its calls."""
        whole = {kind: getattr(part.reply, kind) for kind in _KINDS}
        sent = self._message(part.step, part.agent)
        if any(text and not text.startswith(sent.texts[kind]) for kind, text in whole.items()):
            yield from self._void(part.step)
            sent = self._message(part.step, part.agent)
        for kind, text in whole.items():
            if rest := text[len(sent.texts[kind]) :]:
                yield from sent.add(kind, rest)
        del self._open[part.step]
        yield from sent.close()
        for call in part.reply.calls:
            yield ToolCallStartEvent(
                tool_call_id=call.id, tool_call_name=call.tool, parent_message_id=sent.id
            )
            if call.sent:
                yield ToolCallArgsEvent(tool_call_id=call.id, delta=call.sent)
            yield ToolCallEndEvent(tool_call_id=call.id)

    def _message(self, address: str, agent: str) -> _Sent:
        """Return the open message of a step, or a new one."""
        if address not in self._open:
            id = f"{address}/{self._broken}" if self._broken else address
            self._open[address] = _Sent(id, agent or None)
        return self._open[address]


class _Sent:
    """The sent part of one reply.

    Args:
        id: Of its message.
        agent: Name of the agent.
    """

    def __init__(self, id: str, agent: str | None) -> None:
        self.id = id
        self.texts = dict.fromkeys(_KINDS, "")
        self._agent = agent
        self._open = ""

    def add(self, kind: str, text: str) -> Iterator[BaseEvent]:
        """Yield the events for the next piece of its text or its reasoning."""
        self.texts[kind] += text
        if self._open != kind:
            yield from self.close()
            self._open = kind
            if kind == "reasoning":
                yield ReasoningStartEvent(message_id=self._thought)
                yield ReasoningMessageStartEvent(message_id=self._thought)
            else:
                yield TextMessageStartEvent(message_id=self.id, role="assistant", name=self._agent)
        if kind == "reasoning":
            yield ReasoningMessageContentEvent(message_id=self._thought, delta=text)
        else:
            yield TextMessageContentEvent(message_id=self.id, delta=text)

    def close(self) -> Iterator[BaseEvent]:
        """Yield the end of the open part."""
        if self._open == "reasoning":
            yield ReasoningMessageEndEvent(message_id=self._thought)
            yield ReasoningEndEvent(message_id=self._thought)
        elif self._open:
            yield TextMessageEndEvent(message_id=self.id)
        self._open = ""

    @property
    def _thought(self) -> str:
        return f"{self.id}/reasoning"


def interrupt_of(part: QuestionPart) -> Interrupt:
    """Return an open wait as an interrupt. Its answer is the body of a decision.

    Args:
        part: The question.
    """
    wait: Mapping[str, Any] = part.wait
    choices = [choice["id"] for choice in wait.get("choices") or ()]
    properties: dict[str, Any] = {"choice": {"enum": choices}, "comment": {"type": "string"}}
    if wait.get("form"):
        properties["form"] = wait["form"]
    if wait.get("edit"):
        properties["edit"] = wait.get("edit_schema") or {"type": "object"}
    return Interrupt(
        id=wait["id"],
        reason=wait["kind"],
        message=wait.get("title"),
        tool_call_id=part.call or None,
        response_schema={"type": "object", "properties": properties, "required": ["choice"]},
        expires_at=wait.get("due"),
        metadata={"flowengine": {key: wait[key] for key in _SHOWN if key in wait}},
    )


# AG-UI at `/ag-ui/{flow}` of the server, with the bearer tokens of the API.


async def run(application: Application, principal: Principal, request: Request) -> Any:
    """Return the events of the run that a request asks for.

    Raises:
        InputError: The body is not that of a run.
    """
    given = body_as(RunAgentInput, request, await request.body())
    flow = request.path_params["flow"]
    talk = Talk(application, principal, address_of(request), flow, given.thread_id, VIA)
    return event_source(_pieces(talk, given))


async def _pieces(talk: Talk, given: RunAgentInput) -> AsyncIterator[bytes]:
    async for event in _events(talk, given):
        yield f"data: {event.model_dump_json(by_alias=True)}\n\n".encode("utf-8", "replace")


# One run of AG-UI: a message or the answers to interrupts, and the events up to the next stop.
#
# A thread is an execution, see `talks`.

VIA = "ag-ui"
"""The channel of starts and decisions, for the audit trail."""
LONGEST_SECONDS = 600.0
"""Seconds after which a run ends with an error. The next one continues to follow."""
_DECISION_FIELDS = ("choice", "comment", "form", "edit")


async def _events(talk: Talk, given: RunAgentInput) -> AsyncIterator[BaseEvent]:
    """Yield the events of one run."""
    yield RunStartedEvent(thread_id=given.thread_id, run_id=given.run_id)
    try:
        shown, message = await _begin(talk, given)
        replies = ReplyEvents()
        async for part in talk.follow(shown, message, time.monotonic() + LONGEST_SECONDS):
            for event in replies.of(part):
                yield event
        for event in replies.end():
            yield event
        yield _end(talk, given)
    except FlowEngineError as error:
        yield RunErrorEvent(message=error.with_hint, code=type(error).__name__)


async def _begin(talk: Talk, given: RunAgentInput) -> tuple[int, str | None]:
    """Start the execution or answer interrupts.

    Returns:
        The number of parts that earlier runs have shown, and the message that is to be sent.
    """
    message = _newest_message(given)
    try:
        before = await talk.read()
    except NotFound:
        inputs = _inputs(given)
        await talk.start(inputs or {})
        return 0, None if inputs else message
    for entry in given.resume or ():
        if entry.status == "resolved":
            await talk.decide(before, entry.interrupt_id, _decision(entry.payload))
    return len(before.parts), None if given.resume else message


def _end(talk: Talk, given: RunAgentInput) -> BaseEvent:
    """Return the last event of a run."""
    if talk.asked is None or talk.found is None:
        return RunErrorEvent(
            message="the execution still runs: run again to follow it", code="Late"
        )
    result = talk.found.result
    if result.status in ("failed", "cancelled"):
        error: Mapping[str, Any] = result.error or {}
        return RunErrorEvent(
            message=str(error.get("message", f"the execution is {result.status}")),
            code=str(error.get("type", result.status)),
        )
    interrupts = [interrupt_of(item) for item in talk.asked if not item.wait.get("chat")]
    outcome: Any = RunFinishedSuccessOutcome()
    if interrupts:
        outcome = RunFinishedInterruptOutcome(interrupts=interrupts)
    return RunFinishedEvent(
        thread_id=given.thread_id, run_id=given.run_id, result=result.outputs, outcome=outcome
    )


def _newest_message(given: RunAgentInput) -> str | None:
    """Return the text of the user's message, if the conversation ends with one."""
    if not given.messages or given.messages[-1].role != "user":
        return None
    content: Any = given.messages[-1].content
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content if part.type == "text")


def _inputs(given: RunAgentInput) -> dict[str, Any] | None:
    """Return the inputs of a new execution: `inputs` of the forwarded properties.

    Raises:
        InputError: They are not an object.
    """
    forwarded = given.forwarded_props
    inputs = forwarded.get("inputs") if isinstance(forwarded, Mapping) else None
    if not isinstance(inputs, Mapping | None):
        raise InputError("forwardedProps.inputs is not an object", field="inputs")
    return None if inputs is None else dict(inputs)


def _decision(payload: Any) -> dict[str, Any]:
    """Return the body of a decision from the answer to an interrupt.

    Raises:
        InputError: It is not one.
    """
    if not isinstance(payload, Mapping) or payload.keys() - {*_DECISION_FIELDS}:
        raise InputError(f"the payload is an object with: {', '.join(_DECISION_FIELDS)}")
    return {"choice": "", **payload}
