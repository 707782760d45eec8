"""Sessions: conversations that several runs continue, each within a single execution."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, Self

from flowengine.engines.agent_events import conversations
from flowengine.engines.starting.beginning import exists
from flowengine.errors import Conflict, UsageError
from flowengine.runner.responses import STEP, next_message
from flowengine.runner.work import SESSION, Work
from flowengine.sdk.argument_checks import in_words

if TYPE_CHECKING:
    from flowengine.agents.loggers import LoggerManager
    from flowengine.engines.engine import Engine
    from flowengine.engines.results import ExecutionResult
    from flowengine.runner.responses import AgentsFlow
    from flowengine.runner.work import RunOptions

_LONGEST = 60
_PAUSE = 0.05
"""Seconds between two looks at an answer that another process drives."""


class SessionWork(Work):
    """A run in a session."""

    is_session: ClassVar[bool] = True

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

    async def _started(self, engine: Engine) -> ExecutionResult:
        """Start the session, or send the next message to it and return its state afterwards.

        An interrupted run is resumed first. If the agents have changed, the execution is moved to
        their new flow.

        Raises:
            Conflict: The session answers another message. This one was not sent.
            UsageError: The session waits for a decision, has ended, or cannot be continued by these
                agents.
        """
        message = self.inputs["messages"][0]["content"]
        while exists(engine._host, self.id) and not self._is_own(engine):
            self.id += ".x"  # a client has taken the id, but cannot set the label
        try:
            if not exists(engine._host, self.id):
                result = await super()._started(engine)
                if engine.executions.show(self.id)["inputs"]["messages"][0]["content"] == message:
                    return result  # no other run has started it at the same time
            result = engine.executions.result(self.id)
            if not result.ended and not result.waits:
                result = await engine.resume_async(self.id, runtime_resources=self.resources)
                if _newest(engine, self.id) == message:
                    return result  # the message repeats the one that had no answer yet
            await self._send(engine, result, message)
        except Conflict as error:
            raise Conflict(
                f"the session {self.labels[SESSION]!r} answers another message, so this one was "
                "not sent",
                hint="send it again after that answer",
            ) from error
        return await self._answered(engine)

    def _is_own(self, engine: Engine) -> bool:
        labels = engine.store.execution(self.id).labels
        return labels.get(SESSION) == self.labels[SESSION]

    async def _send(self, engine: Engine, result: ExecutionResult, message: str) -> None:
        """Send the message to the session, which waits for it."""
        self._check_open(result)
        self._check_variables(engine)
        self._check_agent(engine)
        if engine.store.execution(self.id).hash != self.flow.form:
            [moved] = await engine.executions.upgrade_async(self.flow, self.id)
            self._check_moved(moved)
            result = engine.executions.result(self.id)
        wait, form = next_message(result.waits), {"answer": message}
        engine.approvals.decide(str(wait), "answer", form=form, resume=False)

    async def _answered(self, engine: Engine) -> ExecutionResult:
        """Return the state after the answer, which a worker of the store may be driving."""
        while True:
            try:
                return await engine.resume_async(self.id, runtime_resources=self.resources)
            except Conflict:
                await asyncio.sleep(_PAUSE)

    def _check_open(self, result: ExecutionResult) -> None:
        if result.ended:
            raise UsageError(
                f"the session {self.labels[SESSION]!r} has ended: {result.status}",
                hint="take another name",
            )
        if next_message(result.waits) is None:
            wait = result.waits[0] if result.waits else {}
            raise UsageError(
                f"the session {self.labels[SESSION]!r} waits: "
                f"{wait.get('title') or wait.get('kind')}",
                hint=f"decide, then call resume({self.id!r}, agent); after that say more",
            )

    def _check_agent(self, engine: Engine) -> None:
        """Reject agents without the one that answers in the session."""
        active = conversations(engine, self.id)[STEP].active
        if active not in self.described.agents:
            raise UsageError(
                f"the agent {active!r} answers in the session {self.labels[SESSION]!r}, and is not "
                "among the agents of this run",
                hint="pass it, or an agent that hands off to it: run(response.agent, …), or in "
                "agents=[…]",
            )

    def _check_variables(self, engine: Engine) -> None:
        """Reject data that would be ignored, because the session has stored other values."""
        kept = conversations(engine, self.id)[STEP].context
        first = engine.executions.show(self.id)["inputs"]["context"]
        for name, value in self.inputs["context"].items():
            if value not in (kept.get(name), first.get(name)):
                raise UsageError(
                    f"the session {self.labels[SESSION]!r} has another value of {name!r}",
                    hint="its variables are those of the first run, as its tools have changed them",
                )

    def _check_moved(self, moved: Mapping[str, Any]) -> None:
        if not moved["moved"]:
            obstacles = "; ".join(str(obstacle["why"]) for obstacle in moved["obstacles"])
            raise UsageError(
                f"the agents of the session {self.labels[SESSION]!r} have changed, and it cannot "
                f"go on with them: {obstacles or moved['verdict']}",
                hint="take another name, or the agents as they were",
            )


def session_id(name: str) -> str:
    """Return the id of a session's execution.

    Args:
        name: Name of the session.
    """
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:_LONGEST]
    if plain != name:
        plain += f"-{sha256(name.encode()).hexdigest()[:8]}"
    return f"session-{plain}"


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
        if message.get("role") == "user" and _is_text(message.get("content"))
    ]
    if len(messages) != 1 or not request:
        raise UsageError(
            f"a run of the session {name!r} begins with one message of the user, as text",
            hint="what was said before is in the session: run(agent, 'next', session=…)",
        )


def _is_text(content: Any) -> bool:
    return isinstance(content, str) and bool(content.strip())


def _newest(engine: Engine, execution: str) -> Any:
    """Return the last message of the user."""
    conversation = conversations(engine, execution)[STEP]
    if not 0 <= conversation.asked < len(conversation.messages):
        return None  # no message yet, or a check refused it
    return conversation.messages[conversation.asked]["content"]
