"""A conversation with the agents of one execution, for a protocol of front ends.

Its id is derived from user, flow and a name, so that nothing about it is kept in this process, and
a request continues it after a restart of the server.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from flowengine.engines.agent_events import AgentEvents
from flowengine.engines.engine import Engine
from flowengine.engines.results import ExecutionResult, Update
from flowengine.engines.stream_parts import AgentPart, ModelReplied, QuestionPart
from flowengine.errors import Conflict, InputError, NotFound
from flowengine.kernel.commands import Observation
from flowengine.kernel.graph.specs import StepSpec
from flowengine.kernel.notation.addresses import separate_id
from flowengine.server.application import Application
from flowengine.server.calls import ApiCall
from flowengine.server.rights import Principal
from flowengine.server.routes import find_route
from flowengine.server.streams import LISTEN_SECONDS


class AgentParts(NamedTuple):
    """The work of agents so far."""

    result: ExecutionResult
    """The execution, not later than its parts."""
    parts: list[AgentPart]
    questions: list[QuestionPart]
    """The open waits that a person decides, each with the call of a tool that it is about."""


def current_observations(engine: Engine, execution: str) -> Iterator[tuple[Observation, Any]]:
    """Yield the observations of an execution that are about the current version of its flow.

    Those from before an upgrade are left out: their numbers mean other steps.

    Args:
        engine: Contains the execution.
        execution: Its full id.
    """
    steps = engine.executions.flow_of(execution).compiled["steps"]
    for update, flow in engine.executions.past_updates(execution):
        seen = update.step
        if seen is None or seen.step >= len(steps):
            continue
        if (spec := flow["steps"][seen.step]) == steps[seen.step]:
            yield seen, spec


def agent_parts(engine: Engine, execution: str) -> AgentParts:
    """Return the work of the agents of an execution.

    Args:
        engine: Contains the execution.
        execution: Its full id.
    """
    result = engine.executions.result(execution)
    events = AgentEvents(engine.executions.flow_of(execution).compiled, execution)
    shown = _CheckedReplies()
    for seen, spec in current_observations(engine, execution):
        shown.note(seen, spec)
        for part in events.of(Update(execution, "step", {}, seen)):
            shown.add(part, spec)
    questions = [
        part
        for wait in result.waits
        for part in events.of(Update(execution, "wait", wait))
        if isinstance(part, QuestionPart)
    ]
    return AgentParts(result, shown.until_now(ended=result.ended), questions)


class _CheckedReplies:
    """The parts of agents as followers see them.

    A check of arriving text decides about the answer in a step after the turn. What the model wrote
    is left out until then, and if the check refuses it. What it wrote beside calls is judged only
    while it arrives.
    """

    def __init__(self) -> None:
        self._parts: list[AgentPart] = []
        self._open: dict[str, tuple[int, ModelReplied, set[str]]] = {}
        """Address of a step that runs agents → place of the answer, and ids of open checks."""

    def add(self, part: AgentPart, spec: StepSpec) -> None:
        """Add the next part, of a step."""
        self._parts.append(part)
        if part.kind != "reply" or "arriving" not in spec["task"]["agent"]:
            return
        if not [*part.reply.calls]:
            ids = {check["step"] for check in spec["task"]["agent"]["after"]}
            self._open[part.step.rpartition("/")[0]] = len(self._parts) - 1, part, ids
        unwritten = {**part.reply.message, "content": "", "reasoning": ""}
        self._parts[-1] = replace(part, output={**(part.output or {}), "message": unwritten})

    def note(self, seen: Observation, spec: StepSpec) -> None:
        """Note the outcome of a check."""
        above = seen.address.rpartition("/")[0].rpartition("/")[0]
        place, part, ids = self._open.get(above, (0, None, set[str]()))
        if part is None or spec["id"] not in ids or seen.status not in ("succeeded", "failed"):
            return
        ids.discard(spec["id"])
        if seen.status == "failed" or seen.error is not None:
            del self._open[above]
        elif not ids:
            self._parts[place] = part
            del self._open[above]

    def until_now(self, *, ended: bool) -> list[AgentPart]:
        """Return the parts before the first answer that is not checked yet."""
        open_answers = () if ended else [place for place, _, _ in self._open.values()]
        return self._parts[: min(open_answers, default=None)]


_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.5
"""Seconds between two looks at an execution, while others change the store all the time."""
_log = logging.getLogger("flowengine.server")


class ArrivingPart(NamedTuple):
    """A part of a reply that a model is writing."""

    part: Mapping[str, Any]
    """`{address, part, text?, …}`."""


class Talk:
    """A conversation.

    Args:
        application: The server.
        principal: The user.
        address: Of the client, for the audit record.
        flow: Id of the flow.
        name: Distinguishes the user's conversations with this flow.
        via: The channel of starts and decisions, for the audit trail.
    """

    def __init__(
        self,
        application: Application,
        principal: Principal,
        address: str,
        flow: str,
        name: str,
        via: str,
    ) -> None:
        self._application = application
        self._principal = principal
        self._address = address
        self._flow = flow
        self._via = via
        self._name = name
        self.execution = ""
        """Its id. Empty: it is not known yet."""
        self._decided: set[str] = set()
        """Waits that were closed here, which the worker has yet to notice."""
        self.found: AgentParts | None = None
        """The newest reading."""
        self.asked: list[QuestionPart] | None = None
        """After `follow`: the open questions. None: the time was over first."""

    async def read(self) -> AgentParts:
        """Return the actions of the agents. Needs the right to content."""

        def read(call: ApiCall) -> AgentParts:
            return agent_parts(call.engine, call.path["execution"])

        await self._find()
        ids = {"execution": self.execution}
        route = find_route("list_events")
        view = await self._application.view(route, self._principal, ids, read)
        self.found = view
        return view

    async def _find(self) -> None:
        """Find the execution, or the id that it gets."""
        flow, user = self._flow, self._principal.user

        def find(call: ApiCall) -> str:
            id = separate_id("talk", user, flow, self._name)
            with suppress(NotFound):
                record = call.engine.store.execution(id)
                if (record.flow, record.started_by) != (flow, user):
                    _log.warning(
                        "the id %s of a conversation of %s with '%s' is taken by %s with '%s'",
                        *(id, user, flow, record.started_by, record.flow),
                    )
                    raise Conflict("the id of this conversation is taken", hint="rename it")
            return id

        if not self.execution:
            route = find_route("list_executions")
            application, principal = self._application, self._principal
            self.execution = await application.view(route, principal, {}, find)

    async def start(self, inputs: Mapping[str, Any]) -> None:
        await self._find()
        body = {"flow": self._flow, "inputs": inputs}
        await self._change("start_execution", {}, body, self.execution)

    async def decide(self, parts: AgentParts, wait: str, body: Mapping[str, Any]) -> None:
        """Decide on a wait of this execution.

        Raises:
            InputError: It is not an open wait of this conversation.
        """
        if wait not in {id_of(question) for question in parts.questions}:
            raise InputError(f"{wait!r} is not an open interrupt of this thread")
        await self._change("decide", {"approval": wait}, body)
        self._decided.add(wait)

    async def follow(
        self, shown: int, message: str | None, until: float
    ) -> AsyncIterator[AgentPart | ArrivingPart]:
        """Yield the actions of the agents until the execution ends or needs its user.

        Args:
            shown: The number of parts that were shown before.
            message: The next message of the user, for the agent that waits for one.
            until: The time, by the monotonic clock.
        """
        changes, pause = self._application.changes, _FIRST_PAUSE
        await self.read()  # checks the right to content
        replies = self._application.arriving_replies(self.execution)

        def arrived() -> Iterator[ArrivingPart]:
            return map(ArrivingPart, () if replies is None else replies.read())

        try:
            while time.monotonic() < until and not self._application.is_closing:
                number = changes.number
                parts = await self.read()
                for part in arrived():
                    yield part
                for done in parts.parts[shown:]:
                    yield done
                shown = len(parts.parts)
                asked = [
                    question for question in parts.questions if id_of(question) not in self._decided
                ]
                chat = next((item for item in asked if item.wait.get("chat")), None)
                if chat is not None and message is not None:
                    answer = {"choice": "answer", "form": {"answer": message}}
                    await self.decide(parts, id_of(chat), answer)
                    message = None
                elif asked or parts.result.ended:
                    self.asked = asked
                    return
                change = asyncio.ensure_future(self._after(number, until, pause))
                try:
                    while not change.done():
                        await asyncio.wait({change}, timeout=LISTEN_SECONDS)
                        for part in arrived():
                            yield part
                finally:
                    change.cancel()
                pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            if replies is not None:
                replies.close()

    async def _after(self, number: int, until: float, pause: float) -> None:
        await self._application.changes.after(number, until)
        await asyncio.sleep(pause)

    async def _change(
        self, name: str, ids: Mapping[str, str], body: Mapping[str, Any], seed: str | None = None
    ) -> None:
        await self._application.change(
            self._principal, self._address, name, ids=ids, body=body, seed=seed, via=self._via
        )


def id_of(question: QuestionPart) -> str:
    """Return the id of a wait."""
    return str(question.wait.get("id"))
