"""AG-UI (`ag-ui-protocol` 1.0) at `/ag-ui/{flow}`, with the bearer tokens of the API."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

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
from starlette.routing import Route as PathRoute

from flowengine.engines.agent_events import StreamPart
from flowengine.errors import FlowEngineError, InputError, NotFound
from flowengine.sdk.user_code import on_thread
from flowengine.server.application import address_of, body_as
from flowengine.server.problems import RequestRefused, problem_response
from flowengine.server.streams import HEARTBEAT_SECONDS
from flowengine.server.talks import ArrivingPart, Talk

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from flowengine.server.application import Application
    from flowengine.server.rights import Principal
    from flowengine.server.talks import AgentParts


# The work of agents as events of AG-UI (`ag-ui-protocol` 1.0).

_SHOWN = ("kind", "tool", "subject", "body", "preview", "difference", "found", "note", "about")


class ReplyEvents:
    """The events for what agents do. Replies are sent as they arrive."""

    def __init__(self) -> None:
        self._open: dict[str, _Sent] = {}
        """Address of a step → what was sent of its reply."""
        self._broken = 0

    def arriving(self, part: Mapping[str, Any]) -> Iterator[BaseEvent]:
        """Yield the events for a part of a reply that a model is writing."""
        kind, address = part["part"], part["address"]
        if kind == "restart":
            yield from self._break_off(address)
        elif kind in ("text", "reasoning") and part["text"]:
            if address not in self._open:
                self._open[address] = self._new(address, part.get("agent", ""))
            yield from self._open[address].add(kind, part["text"])

    def of(self, part: StreamPart) -> Iterator[BaseEvent]:
        """Yield the events for a part of the journal."""
        if part.kind == "reply":
            yield from self._reply(part)
        elif part.kind == "tool_result" and part.call:
            yield ToolCallResultEvent(
                message_id=part.step, tool_call_id=part.call, content=part.shown, role="tool"
            )
        elif part.kind == "handoff":
            yield CustomEvent(name="handoff", value={"from": part.agent, "to": part.to})

    def end(self) -> Iterator[BaseEvent]:
        """Yield the ends of all messages that are open."""
        for address in list(self._open):
            yield from self._break_off(address)

    def _break_off(self, address: str) -> Iterator[BaseEvent]:
        """End a message that will not be completed. The next one of the step has another id."""
        if (sent := self._open.pop(address, None)) is not None:
            self._broken += 1
            yield from sent.close()

    def _reply(self, part: StreamPart) -> Iterator[BaseEvent]:
        """Yield what is left of a reply, and its calls."""
        reply = part.reply
        whole = {"reasoning": reply.reasoning, "text": reply.text}
        sent = self._open.get(part.step)
        if sent is not None and not sent.begins(whole):
            yield from self._break_off(part.step)  # it is another one than what has arrived
        sent = self._open.pop(part.step, None) or self._new(part.step, part.agent)
        for kind, text in whole.items():
            if rest := text[len(sent.texts[kind]) :]:
                yield from sent.add(kind, rest)
        yield from sent.close()
        for call in reply.calls:
            yield ToolCallStartEvent(
                tool_call_id=call.id, tool_call_name=call.tool, parent_message_id=sent.id
            )
            if call.sent:
                yield ToolCallArgsEvent(tool_call_id=call.id, delta=call.sent)
            yield ToolCallEndEvent(tool_call_id=call.id)

    def _new(self, address: str, agent: str) -> _Sent:
        id = f"{address}/{self._broken}" if self._broken else address
        return _Sent(id, agent or None)


class _Sent:
    """What was sent of one reply.

    Args:
        id: Of its message.
        agent: Name of the agent.
    """

    def __init__(self, id: str, agent: str | None) -> None:
        self.id = id
        self.texts = {"reasoning": "", "text": ""}
        self._agent = agent
        self._open = ""

    def begins(self, whole: Mapping[str, str]) -> bool:
        """Return whether it is the beginning of a reply."""
        return all(whole[kind].startswith(text) for kind, text in self.texts.items())

    def add(self, kind: str, text: str) -> Iterator[BaseEvent]:
        """Yield the events for the next piece of its text or its reasoning."""
        if self._open != kind:
            yield from self.close()
            self._open = kind
            if kind == "reasoning":
                yield ReasoningStartEvent(message_id=self._thought)
                yield ReasoningMessageStartEvent(message_id=self._thought)
            else:
                yield TextMessageStartEvent(message_id=self.id, role="assistant", name=self._agent)
        self.texts[kind] += text
        if kind == "reasoning":
            yield ReasoningMessageContentEvent(message_id=self._thought, delta=text)
        else:
            yield TextMessageContentEvent(message_id=self.id, delta=text)

    def close(self) -> Iterator[BaseEvent]:
        """Yield the end of what is open."""
        if self._open == "reasoning":
            yield ReasoningMessageEndEvent(message_id=self._thought)
            yield ReasoningEndEvent(message_id=self._thought)
        elif self._open:
            yield TextMessageEndEvent(message_id=self.id)
        self._open = ""

    @property
    def _thought(self) -> str:
        return f"{self.id}/reasoning"


def interrupt_of(part: StreamPart) -> Interrupt:
    """Return an open wait as an interrupt. Its answer is the body of a decision.

    Args:
        part: Of kind `question`.
    """
    wait: Mapping[str, Any] = part.wait or {}
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

PATH = "/ag-ui/{flow}"


def ag_ui_routes(application: Application) -> list[PathRoute]:
    """Return the routes of AG-UI."""
    return [PathRoute(PATH, _Door(application))]


class _Door:
    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from sse_starlette import EventSourceResponse
        from sse_starlette.sse import AppStatus

        # The server ends its streams itself when it stops.
        AppStatus.enable_automatic_graceful_drain = False
        request = Request(scope, receive)
        response: Any
        try:
            pieces = _pieces(await self._run(request))
            response = EventSourceResponse(pieces, ping=HEARTBEAT_SECONDS, sep="\n")
        except FlowEngineError as error:
            if isinstance(error, RequestRefused):
                await self._application.note(request, None, error.status, error.message)
            response = problem_response(error)
        await response(scope, receive, send)

    async def _run(self, request: Request) -> AgUiRun:
        """Return the run that a request asks for.

        Raises:
            RequestRefused: The credential, the method or the body is not valid, or the package is
                missing.
            InputError: The body is not that of a run.
        """
        principal = await self._application.admit(request)
        if request.method != "POST":
            raise RequestRefused(405, "a run is a POST", headers={"allow": "POST"})
        try:
            input_type, run_type = await on_thread(_load)
        except ModuleNotFoundError as error:
            raise RequestRefused(
                501,
                f"AG-UI needs the package {error.name} on the server",
                hint="pip install 'flowengine[ag-ui]'",
            ) from None
        given = body_as(input_type, request, await request.body())
        flow = request.path_params["flow"]
        run: AgUiRun = run_type(self._application, principal, address_of(request), flow, given)
        return run


def _load() -> tuple[Any, Any]:
    """Import the package of the protocol, which takes some time."""
    return RunAgentInput, AgUiRun


async def _pieces(run: AgUiRun) -> AsyncIterator[bytes]:
    async for event in run.events():
        yield f"data: {event.model_dump_json(by_alias=True)}\n\n".encode("utf-8", "replace")


# One run of AG-UI: a message or the answers to interrupts, and the events up to the next stop.
#
# A thread is an execution, see `talks`.

VIA = "ag-ui"
"""The channel of starts and decisions, for the audit trail."""
LONGEST_SECONDS = 600.0
"""Seconds after which a run ends with an error. The next one continues to follow."""
_DECISION_FIELDS = ("choice", "comment", "form", "edit")


class AgUiRun:
    """One run.

    Args:
        application: The server.
        principal: The user.
        address: Of the client, for the audit record.
        flow: Id of the flow.
        given: The request.
    """

    def __init__(
        self,
        application: Application,
        principal: Principal,
        address: str,
        flow: str,
        given: RunAgentInput,
    ) -> None:
        self._given = given
        self._talk = Talk(application, principal, address, flow, given.thread_id, VIA)

    async def events(self) -> AsyncIterator[BaseEvent]:
        """Yield the events of the run."""
        given = self._given
        yield RunStartedEvent(thread_id=given.thread_id, run_id=given.run_id)
        try:
            shown, message = await self._begin()
            async for event in self._follow(shown, message):
                yield event
        except FlowEngineError as error:
            yield RunErrorEvent(message=error.with_hint, code=type(error).__name__)

    async def _begin(self) -> tuple[int, str | None]:
        """Start the execution or answer interrupts.

        Returns:
            The number of parts that earlier runs have shown, and the message that is to be sent.
        """
        message = _newest_message(self._given)
        try:
            before = await self._talk.read()
        except NotFound:
            inputs = _inputs(self._given)
            await self._talk.start(inputs or {})
            return 0, None if inputs else message
        for entry in self._given.resume or ():
            if entry.status == "resolved":
                await self._talk.decide(before, entry.interrupt_id, _decision(entry.payload))
        return len(before.parts), None if self._given.resume else message

    async def _follow(self, shown: int, message: str | None) -> AsyncIterator[BaseEvent]:
        """Yield events until the execution ends, or needs its user."""
        talk, replies = self._talk, ReplyEvents()
        async for part in talk.follow(shown, message, time.monotonic() + LONGEST_SECONDS):
            if isinstance(part, ArrivingPart):
                for event in replies.arriving(part.part):
                    yield event
            else:
                for event in replies.of(part):
                    yield event
        for event in replies.end():
            yield event
        if talk.asked is None or talk.found is None:
            yield RunErrorEvent(
                message="the execution still runs: run again to follow it", code="Late"
            )
        else:
            yield self._end(talk.found, talk.asked)

    def _end(self, parts: AgentParts, asked: list[Any]) -> BaseEvent:
        """Return the last event of the run."""
        result, given = parts.result, self._given
        if result.status in ("failed", "cancelled"):
            error: Mapping[str, Any] = result.error or {}
            return RunErrorEvent(
                message=str(error.get("message", f"the execution is {result.status}")),
                code=str(error.get("type", result.status)),
            )
        interrupts = [interrupt_of(item) for item in asked if not (item.wait or {}).get("chat")]
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
