"""One run of agents: its inputs for an engine, and the interpretation of its result."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, Self

from flowengine.agents.kept_images import with_kept
from flowengine.agents.live_functions import LIVE
from flowengine.agents.loggers import LogEvent
from flowengine.engines.seam import RandomIds
from flowengine.errors import UsageError
from flowengine.metachain import flows
from flowengine.metachain.agent_events import AgentEvents
from flowengine.metachain.options import RunOptions, check_inputs
from flowengine.metachain.reporting import Reporter, termination
from flowengine.metachain.responses import conversations, response
from flowengine.sdk.python_functions.schema_forms import is_plain

if TYPE_CHECKING:
    from flowengine.agents.agent import Agent, Response
    from flowengine.agents.loggers import LoggerManager
    from flowengine.engines.engine import Engine
    from flowengine.engines.results import ExecutionResult
    from flowengine.engines.starting.beginning import Starting


SESSION = "session"
"""The label that contains the name of a session."""


class _Images:
    """The images of messages, stored once the execution exists."""

    def __init__(self) -> None:
        self.files: list[tuple[bytes, str]] = []

    def put(self, source: bytes, name: str) -> Mapping[str, Any]:
        """Record a file, and return its reference."""
        self.files.append((source, name))
        return {"sha256": sha256(source).hexdigest()}


@dataclass
class Work:
    """One run.

    Raises:
        UsageError: An object for functions is given twice.
    """

    logger: LoggerManager
    described: flows.AgentsFlow
    """The flow of its agents."""
    id: str
    """Id of the execution."""
    inputs: Mapping[str, Any]
    """`messages` and `context`."""
    live: Mapping[str, Any]
    """Objects among the context variables."""
    resources: Mapping[str, Any]
    """Further objects for functions."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the execution."""
    begun: bool = False
    """Whether the store of the engine contains it already."""
    is_session: ClassVar[bool] = False
    """Whether later runs continue its execution."""

    def __post_init__(self) -> None:
        self.flow = self.described.flow
        twice = self.live.keys() & self.resources.keys()
        if twice:
            raise UsageError(
                f"{min(twice)!r} is given in context_variables and in runtime_resources",
                hint="give it once",
            )
        functions = {LIVE: self.described.live} if self.described.live else {}
        self.resources = {**self.live, **self.resources, **functions}

    @classmethod
    def starting(
        cls,
        logger: LoggerManager,
        described: flows.AgentsFlow,
        messages: str | list[dict[str, Any]],
        context_variables: Mapping[str, Any] | None,
        options: RunOptions,
    ) -> Self:
        """Return a new run."""
        variables = {} if context_variables is None else context_variables
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        check_inputs(messages, variables)
        id = options.get("id") or RandomIds().execution(time.time_ns() // 1_000_000)
        live = {key: variable for key, variable in variables.items() if not is_plain(variable)}
        plain = {key: variable for key, variable in variables.items() if key not in live}
        inputs = copy.deepcopy({"messages": messages, "context": plain})
        resources = options.get("runtime_resources") or {}
        return cls(logger, described, id, inputs, live, resources, options.get("labels") or {})

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
        described = flows.described(agents, chat=SESSION in shown["labels"])
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
        """Start the run."""
        return await engine._driving.drive_async(engine._driving.new(self._starting(engine)))

    async def _resumed(self, engine: Engine) -> ExecutionResult:
        """Continue the run, unless it has succeeded."""
        result = engine.result(self.id)
        if result.ended and result.status != "failed":
            return result
        go_on = engine.retry_async if result.ended else engine.resume_async
        return await go_on(self.id, runtime_resources=self.resources)

    def _starting(self, engine: Engine) -> Starting:
        """Return the request to start the run, with images of messages as artifacts."""
        images = _Images()
        kept = [with_kept(message, images) for message in self.inputs["messages"]]
        inputs = {**self.inputs, "messages": kept}
        starting = engine._starting(self.flow, inputs, self.id, self.labels, (), self.resources)
        return starting._replace(files=images.files)

    def events(self, engine: Engine) -> AgentEvents:
        """Return the source of this run's agent events. The run may have started already."""
        flow = engine.flow_of(self.id) if self.begun else self.flow
        return AgentEvents(flow.compiled, self.id, conversations(engine, self.id))

    def _response(self, engine: Engine, result: ExecutionResult) -> Response:
        """Return the response of a run, or raise if the run failed."""
        reply = response(engine, result, self.described.agents, len(self.inputs["messages"]))
        reply.context_variables |= self.live
        if reply.termination:
            name = reply.agent.name if reply.agent else ""
            text, data = termination(reply.termination, reply.reason)
            self.logger.log(LogEvent("termination", text, name, result.execution, flows.STEP, data))
        return reply
