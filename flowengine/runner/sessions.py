"""Sessions: conversations that several runs continue, each within a single execution."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import count, dropwhile
from threading import Lock
from typing import Any, ClassVar, Self
from weakref import WeakKeyDictionary

from flowengine.agents.loggers import LoggerManager
from flowengine.engines.agent_events import conversations
from flowengine.engines.engine import Engine
from flowengine.engines.executions.outer_attempts import outer_attempt
from flowengine.engines.host import Host
from flowengine.engines.infos import LISTED
from flowengine.engines.people.approval_ownership import standing
from flowengine.engines.people.approvals import decide
from flowengine.engines.results import DecisionGiven, ExecutionResult, Update
from flowengine.errors import Conflict, UsageError
from flowengine.runner.responses import AgentsFlow
from flowengine.runner.session_places import (
    SESSION,
    STEP,
    Place,
    messages_sent,
    session_id,
    session_of,
)
from flowengine.runner.work import RunOptions, Work
from flowengine.sdk.python.argument_checks import in_words

_PAUSE = 0.05
"""Seconds between two looks at an answer that another process drives."""
_STARTS = 100
"""How often to start a session that another process seems to start."""


class SessionWork(Work):
    """A run in a session."""

    is_session: ClassVar[bool] = True
    _place: Place | None = None
    """Where the session waited for the message of this run. None: the message began it."""
    _begins = False
    """Whether the session began to answer before its waits told so."""

    @classmethod
    def starting(
        cls,
        logger: LoggerManager,
        described: AgentsFlow,
        messages: str | list[dict[str, Any]],
        context_variables: Mapping[str, Any] | None,
        options: RunOptions,
    ) -> Self:
        """Return a run that starts or continues a session."""
        name: Any = options["session"]
        if not isinstance(name, str) or not name.strip():
            raise UsageError(f"session is {in_words(name)}", hint="give it a name: session='ana'")
        labels = {**(options.get("labels") or {}), SESSION: name}
        named: RunOptions = {**options, "id": session_id(name), "labels": labels}
        work = super().starting(logger, described, messages, context_variables, named)
        _check_inputs(name, work.inputs["messages"], options.get("id"))
        return work

    def gate(self) -> Callable[[Update], bool]:
        """Return a filter for the updates about the message of this run."""
        is_sent = is_answered = False

        def concerns(update: Update) -> bool:
            nonlocal is_sent, is_answered
            if update.kind == "wait" and update.data.get("kind") == SESSION:
                if "how" not in update.data:
                    is_answered = is_sent or self._begins
                elif self._place is not None and update.data["id"] == self._place.wait:
                    is_sent, is_answered = True, False
            return (is_sent or self._begins) and not is_answered

        return concerns

    async def _started(self, engine: Engine) -> ExecutionResult:
        """Start the session, or send the next message to it and return its state afterwards.

        A session answers one message at a time: the message is sent after the answers to those that
        came before. An interrupted run is resumed first. If the agents have changed, the execution
        is moved to their new flow.

        Raises:
            UsageError: The session waits for a decision, has ended, or cannot be continued by these
                agents.
        """
        host, name = engine._host, self.labels[SESSION]
        outer = outer_attempt()
        if outer is not None and outer.is_within(session_of(host, name)[0]):
            raise UsageError(
                f"a tool of the session {name!r} sends it a message, and would wait for itself",
                hint="return the message as the result, or use another session",
            )
        async with _in_line(host, name):
            for attempt in count(1):
                self.id, exists = session_of(host, name)
                if exists:
                    break
                try:
                    self._begins = True
                    result = await super()._started(engine)
                    if self._first(engine) == self._message:
                        return result
                except Conflict:  # another process is starting it, and there is nothing to see yet
                    if attempt == _STARTS:
                        raise
                await asyncio.sleep(_PAUSE)
            return await self._continued(engine)

    @property
    def _message(self) -> str:
        message: str = self.inputs["messages"][0]["content"]
        return message

    def _first(self, engine: Engine) -> Any:
        messages = engine.executions.show(self.id)["inputs"]["messages"]
        return messages[0]["content"] if messages else None

    async def _continued(self, engine: Engine) -> ExecutionResult:
        """Send the message as soon as the session waits for it, and return the state afterwards."""
        self._begins, idle = False, 0
        while True:
            result = engine.executions.result(self.id)
            place = Place.of(result.waits)
            sent = None if place is None else engine.approvals.show(place.wait).get("decision")
            if place is not None and sent is None and await self._sent(engine, place):
                return await self._answered(engine)
            if place is None:
                self._check_open(result)
            # Another run has sent a message. If nothing drives it at two looks, its process died.
            is_idle = result.status != "running" and (place is None or sent is not None)
            idle = idle + 1 if is_idle else 0
            if idle > 1:
                if self._unanswered(engine, sent) == self._message:
                    places = [Place("", address) for _, address in self._sent_places(engine)]
                    self._begins, self._place = True, place or (places[-1] if places else None)
                    return await self._answered(engine)
                with _patience(engine):
                    await engine.resume_async(self.id, runtime_resources=self.resources)
            await asyncio.sleep(_PAUSE)

    def _unanswered(self, engine: Engine, sent: Mapping[str, Any] | None) -> Any:
        """Return the message that a run has sent, and that has no answer yet."""
        if sent is not None:
            return (sent.get("form") or {}).get("answer")
        conversation = conversations(engine, self.id).get(STEP)
        if conversation is None:
            return self._first(engine)
        if conversation.end["outcome"] or not 0 <= conversation.asked < len(conversation.messages):
            return None  # it has an answer, or a check sees it
        return conversation.messages[conversation.asked]["content"]

    async def _sent(self, engine: Engine, place: Place) -> bool:
        """Send the message to the session, and return whether no other run was faster."""
        talk = conversations(engine, self.id)[STEP]
        first = engine.executions.show(self.id)["inputs"]["context"]
        for name, value in self.inputs["context"].items():
            if value not in (talk.context.get(name), first.get(name)):
                raise UsageError(
                    f"the session {self.labels[SESSION]!r} has another value of {name!r}",
                    hint="its variables are those of the first run, as its tools have changed them",
                )
        if talk.active not in self.described.agents:
            raise UsageError(
                f"the agent {talk.active!r} answers in the session {self.labels[SESSION]!r}, and "
                "is not among the agents of this run",
                hint="pass it, or an agent that hands off to it: run(response.agent, …), or in "
                "agents=[…]",
            )
        if engine.store.execution(self.id).hash != self.flow.form:
            [moved] = await engine.executions.upgrade_async(self.flow, self.id)
            if moved["verdict"] == "held":
                return False
            self._check_moved(moved)
        given: DecisionGiven = {"choice": "answer", "form": {"answer": self._message}}
        host, who, self._place = engine._host, engine._who(None), place
        with suppress(Conflict):
            # Not by the engine, which would note in the journal that others were faster.
            if decide(host, standing(host.store, place.wait), given, who).first:
                return True
        self._place = None
        return False

    async def _answered(self, engine: Engine) -> ExecutionResult:
        """Return the state after the answer, which another process may be driving."""
        while True:
            with _patience(engine):
                return await engine.resume_async(self.id, runtime_resources=self.resources)
            await asyncio.sleep(_PAUSE)

    def _sent_places(self, engine: Engine) -> Iterator[tuple[int, str]]:
        """Yield the events with the messages after the first, and the addresses of their places."""
        return messages_sent(engine.executions.events(self.id))

    def _until(self, engine: Engine) -> int | None:
        """Return the number of the event with the message after the own one, if it has arrived."""
        sent = self._sent_places(engine)
        if (place := self._place) is not None:
            sent = dropwhile(lambda message: message[1] != place.address, sent)
            next(sent, None)
        return next((seq for seq, _ in sent), None)

    def _check_open(self, result: ExecutionResult) -> None:
        """Refuse a session that has ended, or waits for something else than a message."""
        if result.ended:
            name = self.labels[SESSION]
            spent = (result.outputs or {}).get("outcome") == "budget"
            raise UsageError(
                f"the session {name!r} has ended: "
                f"{'its budget is used up' if spent else result.status}",
                hint=f"continue it as another one: Sessions(engine).branch({name!r}, NAME)",
            )
        for wait in result.waits:
            if wait["kind"] in LISTED:
                title = wait.get("title") or wait["kind"]
                raise UsageError(
                    f"the session {self.labels[SESSION]!r} waits: {title}",
                    hint=f"decide, call resume({self.id!r}, agent), and then send more messages",
                )

    def _check_moved(self, moved: Mapping[str, Any]) -> None:
        if not moved["moved"]:
            obstacles = "; ".join(str(obstacle["why"]) for obstacle in moved["obstacles"])
            raise UsageError(
                f"the agents of the session {self.labels[SESSION]!r} have changed, and it cannot "
                f"continue with them: {obstacles or moved['verdict']}",
                hint="take another name, or the agents as they were",
            )


_lines: WeakKeyDictionary[Host, dict[str, deque[Future[None]]]] = WeakKeyDictionary()
"""Engine → session → the runs that wait to send it a message, and the one that has."""
_line_lock = Lock()


@asynccontextmanager
async def _in_line(host: Host, name: str) -> AsyncIterator[None]:
    """Let the runs of an engine send messages to a session in the order in which they begin."""
    own: Future[None] = Future()
    with _line_lock:
        line = _lines.setdefault(host, {}).setdefault(name, deque())
        line.append(own)
        if line[0] is own:
            own.set_result(None)
    try:
        await asyncio.wrap_future(own)
        yield
    finally:
        with _line_lock:
            line.remove(own)
            if not line:
                del _lines[host][name]
            elif not line[0].done():
                line[0].set_result(None)


@contextmanager
def _patience(engine: Engine) -> Iterator[None]:
    """Ignore that another process drives the session, unless this engine is draining."""
    try:
        yield
    except Conflict:
        if engine._host.draining:
            raise


def _check_inputs(name: str, messages: Sequence[Mapping[str, Any]], id: str | None) -> None:
    """Check the inputs of a run in a session.

    Raises:
        UsageError: They are not a single text message of a user, or the run has its own id.
    """
    if id is not None:
        raise UsageError(
            f"the run has an id and the session {name!r}, which is an execution by itself",
            hint="leave out 'id'",
        )
    request = [
        message
        for message in messages
        if message.get("role") == "user"
        and isinstance(content := message.get("content"), str)
        and content.strip()
    ]
    if len(messages) != 1 or not request:
        raise UsageError(
            f"a run of the session {name!r} begins with one message of the user, as text",
            hint="earlier messages are in the session. A new one begins with an earlier "
            "conversation by Sessions(engine).seed(name, agent, messages)",
        )
