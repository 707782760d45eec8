"""One run of agents: its inputs for an engine, and the interpretation of its result."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Self

from flowengine.agents.kept_images import with_kept
from flowengine.agents.live_functions import LIVE
from flowengine.agents.log_events import LogEvent
from flowengine.engines.seam import RandomIds
from flowengine.engines.starting.beginning import exists
from flowengine.errors import FlowEngineError, UsageError
from flowengine.metachain import flows
from flowengine.metachain.agent_events import AgentEvents
from flowengine.metachain.conversations import conversations
from flowengine.metachain.reporting import Reporter, termination
from flowengine.metachain.responses import response
from flowengine.metachain.run_inputs import check_inputs
from flowengine.metachain.sessions import (
    LABEL,
    SessionRequest,
    check_session,
    continued,
    failure,
    session_id,
)
from flowengine.sdk.python_functions.schema_forms import is_plain

if TYPE_CHECKING:
    from flowengine.agents.agent import Agent, Response
    from flowengine.agents.loggers import LoggerManager
    from flowengine.engines.engine import Engine
    from flowengine.engines.results import ExecutionResult
    from flowengine.engines.starting.beginning import Starting
    from flowengine.metachain.options import RunOptions


class AgentRunFailed(FlowEngineError):
    """A run of agents failed, because no model replied or for another reason.

    Args:
        error: Error of the execution: `type`, `message`, `data`, `cause`.
        execution: Id of the execution. `Engine.retry` continues it if its store is kept.
    """

    def __init__(self, error: Mapping[str, Any], execution: str) -> None:
        super().__init__(f"{error['type']}: {error['message']}")
        self.error = dict(error)
        self.execution = execution


class _Images:
    """The images of messages, stored once the execution exists."""

    def __init__(self) -> None:
        self.files: list[tuple[bytes, str]] = []

    def put(self, source: bytes, name: str) -> Mapping[str, Any]:
        """Record a file, and return its reference."""
        self.files.append((source, name))
        return {"sha256": sha256(source).hexdigest()}


class Work:
    """One run.

    Args:
        logger: Receives log events.
        described: The flow of its agents.
        id: Id of the execution.
        inputs: `messages` and `context`.
        live: Objects among the context variables.
        resources: Further objects for functions.
        labels: Labels of the execution.
        session: The session that it continues, if any.
        begun: Whether the store of the engine contains it already.
    """

    def __init__(
        self,
        logger: LoggerManager,
        described: flows.AgentsFlow,
        id: str,
        inputs: Mapping[str, Any],
        live: Mapping[str, Any],
        resources: Mapping[str, Any],
        labels: Mapping[str, str] | None = None,
        session: str | None = None,
        *,
        begun: bool = False,
    ) -> None:
        self.logger = logger
        self.described = described
        self.flow = described.flow
        self.id = id
        self.inputs = inputs
        self.live = dict(live)
        self.labels = dict(labels or {})
        self.session = session
        self.begun = begun
        twice = live.keys() & resources.keys()
        if twice:
            raise UsageError(
                f"{min(twice)!r} is given in context_variables and in runtime_resources",
                hint="give it once",
            )
        functions = {LIVE: described.live} if described.live else {}
        self.resources = {**live, **resources, **functions}

    @classmethod
    def starting(
        cls,
        logger: LoggerManager,
        described: flows.AgentsFlow,
        messages: str | list[dict[str, Any]],
        context_variables: Mapping[str, Any] | None,
        options: RunOptions,
    ) -> Self:
        """Return a new run, or the continuation of an existing session."""
        variables = {} if context_variables is None else context_variables
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        check_inputs(messages, variables)
        labels, session = {**(options.get("labels") or {})}, options.get("session")
        id = options.get("id") or RandomIds().execution(time.time_ns() // 1_000_000)
        if session is not None:
            check_session(session, messages, options.get("id"))
            id, labels = session_id(session), labels | {LABEL: session}
        live = {key: variable for key, variable in variables.items() if not is_plain(variable)}
        plain = {key: variable for key, variable in variables.items() if key not in live}
        inputs = copy.deepcopy({"messages": messages, "context": plain})
        resources = options.get("runtime_resources") or {}
        return cls(logger, described, id, inputs, live, resources, labels, session)

    @classmethod
    def of(
        cls,
        engine: Engine,
        logger: LoggerManager,
        execution: str,
        agents: Sequence[Agent],
        context_variables: Mapping[str, Any] | None,
        resources: Mapping[str, Any] | None,
    ) -> Self:
        """Return a run from the store of an engine."""
        shown = engine.show(execution)
        live = {
            key: value for key, value in (context_variables or {}).items() if not is_plain(value)
        }
        described = flows.described(agents, chat=LABEL in shown["labels"])
        id, inputs = shown["execution"], shown["inputs"]
        return cls(logger, described, id, inputs, live, resources or {}, begun=True)

    async def run(self, engine: Engine) -> Response:
        """Start or continue the run, and return its response."""
        end = engine.subscribe(Reporter(self.logger, self.events(engine)))
        try:
            result = await (self._resumed(engine) if self.begun else self._started(engine))
        finally:
            end()
        return self._response(engine, result)

    async def _started(self, engine: Engine) -> ExecutionResult:
        """Start the run, or send its message to an existing session."""
        request = self._next(engine)
        if request is not None:
            return await continued(engine, request)
        return await engine._driving.drive_async(engine._driving.new(self._starting(engine)))

    async def _resumed(self, engine: Engine) -> ExecutionResult:
        """Continue the run, unless it has succeeded."""
        result = engine.result(self.id)
        if result.ended and result.status != "failed":
            return result
        go_on = engine.retry_async if result.ended else engine.resume_async
        return await go_on(self.id, runtime_resources=self.resources)

    def _next(self, engine: Engine) -> SessionRequest | None:
        """Return the request to an existing session, or None without a session."""
        if self.session is None or not exists(engine._host, self.id):
            return None
        message, context = self.inputs["messages"][0]["content"], self.inputs["context"]
        return SessionRequest(self.session, self.id, self.flow, message, context, self.resources)

    def _starting(self, engine: Engine) -> Starting:
        """Return the request to start the run, with images of messages as artifacts."""
        images = _Images()
        kept = [with_kept(message, images) for message in self.inputs["messages"]]
        inputs = {**self.inputs, "messages": kept}
        starting = engine._starting(self.flow, inputs, self.id, self.labels, (), self.resources)
        return starting._replace(files=images.files)

    def events(self, engine: Engine) -> AgentEvents:
        """Return the source of this run's agent events. The run may have started already."""
        return AgentEvents(self.flow.compiled, self.id, conversations(engine, self.id))

    def _response(self, engine: Engine, result: ExecutionResult) -> Response:
        """Return the response of a run, or raise if the run failed."""
        if result.status in {"failed", "cancelled"}:
            error = result.error or {"type": "Cancelled", "message": "the run was cancelled"}
            raise AgentRunFailed(error, result.execution)
        if (failed := failure(engine, result)) is not None:
            raise AgentRunFailed(failed, result.execution)
        reply = response(engine, result, self.described.agents, len(self.inputs["messages"]))
        reply.context_variables |= self.live
        if reply.termination:
            name = reply.agent.name if reply.agent else ""
            text, data = termination(reply.termination, reply.reason)
            self.logger.log(LogEvent("termination", text, name, result.execution, flows.STEP, data))
        return reply
