"""One run of AG-UI: a message or the answers to interrupts, and the events up to the next stop.

A thread is an execution, see `talks`.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from ag_ui.core import (
    BaseEvent,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
)

from flowengine.errors import FlowEngineError, InputError, NotFound
from flowengine.server.ag_ui.events import ReplyEvents, interrupt_of
from flowengine.server.talks import ArrivingPart, Talk

if TYPE_CHECKING:
    from flowengine.server.agent_parts import AgentParts
    from flowengine.server.application import Application
    from flowengine.server.rights import Principal

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
