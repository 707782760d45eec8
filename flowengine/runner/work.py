"""One run of agents: its options, its inputs for an engine, its log, and its result."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, ClassVar, Self, TypedDict

from flowengine.agents.actions import Reply
from flowengine.agents.agent import AgentDefinition, Response
from flowengine.agents.call_answers import context_of
from flowengine.agents.loggers import LEVELS, Kind, LogEvent, LoggerManager
from flowengine.agents.tool_answers import with_kept
from flowengine.engines.agent_events import AgentEvents, conversations
from flowengine.engines.engine import Engine
from flowengine.engines.host import RandomIds
from flowengine.engines.results import ExecutionResult, Update
from flowengine.engines.starting.beginning import Starting
from flowengine.engines.stream_parts import AgentPart, ToolCallPart, ToolEnded
from flowengine.errors import UsageError
from flowengine.runner import responses as flows
from flowengine.runner.responses import response
from flowengine.runner.session_places import SESSION, STEP
from flowengine.sdk.python.argument_checks import check_kind, in_words
from flowengine.sdk.python.schema_forms import is_plain
from flowengine.sdk.steps.context import LIVE
from flowengine.util.blocking import on_this_loop

# Arguments of the methods that run agents, and the validation of their inputs.


class _CommonOptions(TypedDict, total=False):
    agents: Sequence[AgentDefinition]
    """Further agents that the agent can hand off to, besides those used by its functions."""
    runtime_resources: Mapping[str, Any] | None
    """Objects for its functions, by parameter names that the agents list in `environments`. They
    are never stored."""


class ResumeOptions(_CommonOptions, total=False):
    """Arguments of every method that resumes a run."""

    deps: Any
    """The object for parameters of the class that agents name as `deps`. It is never stored, so a
    run that another process resumes is given it again."""


class _StartOptions(_CommonOptions, total=False):
    model: str | None
    """Overrides the model of every agent."""
    id: str | None
    """Id of the execution. A second run with the same id continues the first."""
    session: str
    """Name of a conversation that each run with this name continues, in a single execution. A run
    starts with the user's next message. Without an engine, the store of the directory keeps it."""
    budget: Mapping[str, Any]
    """Limits on all calls together, as `budget` of a flow: `{"tokens": 50_000, "cost_usd": 1}`. In
    a session, they apply to all runs together."""
    rules: Sequence[Mapping[str, Any]]
    """Rules about calls, as `rules` of a flow: `[{"deny": "pay", "agent": "Clerk"}]`."""
    labels: Mapping[str, str]
    """Labels of the execution, for searches."""


class RunOptions(ResumeOptions, _StartOptions, total=False):
    """Arguments of every method of `Runner` that starts a run."""


class AgentRunOptions(_StartOptions, total=False):
    """Arguments of every method of `Agent` that starts a run."""

    context_variables: dict[str, Any] | None
    """Data and live objects for functions, invisible to the model."""
    max_turns: int | Mapping[str, Any]
    """Maximum model calls: a number (30), or `{"count": 10, "then": "answer"}`."""
    execute_tools: bool
    """If false, the run ends after the first reply, without running its calls."""
    engine: Engine | None
    """The engine whose store keeps the run. Default: an engine in memory for this run."""


def check_inputs(messages: Any, context_variables: Any) -> None:
    """Check the inputs of a run before any model is called or environment opened.

    Args:
        messages: The conversation so far.
        context_variables: Variables by name.

    Raises:
        UsageError: The message names the invalid input.
    """
    if not isinstance(context_variables, dict) or not all(
        isinstance(key, str) for key in context_variables
    ):
        raise UsageError("context_variables is not a dict with names", hint="give {'name': value}")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise UsageError(
            "messages is not a list of dicts",
            hint="give [{'role': 'user', 'content': '…'}]",
        )
    open_calls: set[str] = set()
    for place, message in enumerate(messages):
        role = message.get("role")
        if role == "system":
            raise UsageError(
                f"messages[{place}] is a system message",
                hint="the instructions of the agent are sent as such: Agent(instructions=…)",
            )
        if role not in {"user", "assistant", "tool"}:
            raise UsageError(
                f"messages[{place}] has the role {role!r}",
                hint="use 'user', 'assistant' or 'tool'",
            )
        open_calls |= {str(item.get("id")) for item in message.get("tool_calls") or ()}
        if role == "tool" and str(message.get("tool_call_id")) not in open_calls:
            raise UsageError(
                f"messages[{place}] answers the call {message.get('tool_call_id')!r}, which no "
                "message before it makes",
                hint="put the assistant's message with the call before it",
            )


# Log events about agents, derived from the updates of an engine.


class Reporter:
    """Reports the actions of one execution's agents to a logger.

    Args:
        logger: Receives the events.
        events: Derives them from the updates of the engine.
        ends: Whether to report the end of each agent's work, too.
        concerns: Returns whether an update is to be reported.
    """

    def __init__(
        self,
        logger: LoggerManager,
        events: AgentEvents,
        *,
        ends: bool = False,
        concerns: Callable[[Update], bool] = lambda _: True,
    ) -> None:
        self._logger = logger
        self._events = events
        self._ends = ends
        self._concerns = concerns
        self._changed: dict[str, dict[str, str]] = {}
        """Address of a round → key of the context → address of the call that set it.
        """

    def __call__(self, update: Update) -> None:
        """Process an update of the engine."""
        concerns = self._concerns(update)
        for event in self._events.of(update):
            for kind, text, data, level in self._logged(event) if concerns else ():
                self._logger.log(
                    LogEvent(
                        kind, text, event.agent, self._events.execution, event.step, data,
                        LEVELS[level],
                    )
                )  # fmt: skip

    def _logged(self, event: AgentPart) -> Iterator[tuple[Kind, str, dict[str, Any], str]]:
        """Yield kind, text, data and level of the log events for an agent event."""
        if event.kind == "handoff":
            yield "agent_handoff", f"hands over to {event.to}", {"to": event.to}, "INFO"
        elif event.kind == "retry":
            data: dict[str, Any] = {"attempt": event.attempt, "error": event.error}
            yield "retry", f"attempt {event.attempt} failed: {event.error}", data, "WARNING"
        elif event.kind == "failure":
            yield "note", event.error, {"error": event.error}, "ERROR"
        elif event.kind == "reply":
            yield "llm_call", *_model_call(event.reply), "INFO"
        elif isinstance(event, ToolCallPart | ToolEnded):
            status = "started" if event.kind == "tool_call" else event.status
            data = {"tool": event.tool, "arguments": {**event.arguments}, "status": status}
            yield "tool_call", f"tool {event.tool} {status}", data, "INFO"
            if event.kind == "tool_end" and status == "succeeded":
                yield from self._clashes(event.step, context_of(event.output))
        elif event.kind == "ended" and self._ends:
            yield "termination", *termination(event.status, event.error), "INFO"

    def _clashes(
        self, step: str, context: Mapping[str, Any]
    ) -> Iterator[tuple[Kind, str, dict[str, Any], str]]:
        """Yield the keys of the context that were set by two calls of one reply."""
        before = self._changed.setdefault(step.rpartition("/")[0], {})
        for key in context:
            if key in before:
                text = f"context variable {key!r} was set by two calls of one reply"
                yield "context_clash", text, {"key": key, "calls": [before[key], step]}, "INFO"
            before[key] = step


def _model_call(reply: Reply) -> tuple[str, dict[str, Any]]:
    """Return the text and the data of a model call."""
    data, who = {"model": reply.model, **reply.usage}, reply.model
    if reply.instead_of:
        data["instead_of"] = reply.instead_of
        who = f"{who} instead of {reply.instead_of}"
    read, written = (reply.usage.get(name, 0) for name in ("input_tokens", "output_tokens"))
    return f"{who}: {read} + {written} tokens", data


def termination(outcome: str, reason: str) -> tuple[str, dict[str, Any]]:
    """Return the text and the data of the end of a run.

    Args:
        outcome: As in `Response.termination`.
        reason: Why it did not end as `resolved`.
    """
    text = f"ended: {outcome}, {reason}" if reason else f"ended: {outcome}"
    return text, {"termination": outcome, "reason": reason}


# One run of agents: its inputs for an engine, and the interpretation of its result.


def _objects(agents: Collection[AgentDefinition], options: ResumeOptions) -> Mapping[str, Any]:
    """Return the objects for functions, with `deps` under the name of each parameter that takes it.

    Raises:
        UsageError: An agent needs `deps`, and there are none, or none of its class.
    """
    given = options.get("runtime_resources") or {}
    deps, taking = options.get("deps"), dict[str, Any]()
    if deps is not None and all(agent.deps is None for agent in agents):
        kind = type(deps).__name__
        raise UsageError(
            "deps are given, and no agent takes them", hint=f"write Agent(deps={kind})"
        )
    for agent in agents:
        if agent.deps is None:
            continue
        if not isinstance(deps, agent.deps):
            wanted = agent.deps.__name__
            what = "none are given" if deps is None else f"{in_words(deps)} is given"
            raise UsageError(
                f"agent {agent.name!r} takes deps of the class {wanted!r}, and {what}",
                hint=f"write deps={wanted}(…)",
            )
        taking |= dict.fromkeys(agent.deps_parameters(), deps)
    check_kind("runtime_resources", given, dict)
    if twice := taking.keys() & given.keys():
        raise UsageError(
            f"runtime_resources has {min(twice)!r}, and a parameter of this name takes deps",
            hint="give it once",
        )
    return {**given, **taking}


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
        resources = _objects(described.agents.values(), options)
        return cls(logger, described, id, inputs, live, resources, options.get("labels") or {})

    @classmethod
    def of(
        cls,
        engine: Engine,
        logger: LoggerManager,
        execution: str,
        agents: Sequence[AgentDefinition],
        context_variables: Mapping[str, Any] | None,
        options: ResumeOptions,
    ) -> Self:
        """Return a run from the store of an engine."""
        shown = engine.executions.show(execution)
        live = {
            key: value for key, value in (context_variables or {}).items() if not is_plain(value)
        }
        described = flows.described(agents, chat=SESSION in shown["labels"])
        id, inputs = shown["execution"], shown["inputs"]
        resources = _objects(described.agents.values(), options)
        return cls(logger, described, id, inputs, live, resources, begun=True)

    async def run(self, engine: Engine) -> Response:
        """Start or continue the run, and return its response."""
        reporter = Reporter(self.logger, self.events(engine), concerns=self.gate())
        end = engine.subscribe(reporter)
        try:
            result = await (self._resumed(engine) if self.begun else self._started(engine))
        finally:
            end()
        return self._response(engine, result)

    def gate(self) -> Callable[[Update], bool]:
        """Return a filter for updates of its execution. It is called with all of them, in order."""
        return lambda _: True

    async def _started(self, engine: Engine) -> ExecutionResult:
        started = engine._driving.new(self.request(engine))
        return await on_this_loop(engine._driving.drive(started))

    async def _resumed(self, engine: Engine) -> ExecutionResult:
        """Continue the run, unless it has succeeded."""
        result = engine.executions.result(self.id)
        if result.ended and result.status != "failed":
            return result
        go_on = engine.executions.retry_async if result.ended else engine.resume_async
        return await go_on(self.id, runtime_resources=self.resources)

    def request(self, engine: Engine) -> Starting:
        """Return the request to start the run, with images of messages as artifacts."""
        images = _Images()
        kept = [with_kept(message, images) for message in self.inputs["messages"]]
        inputs = {**self.inputs, "messages": kept}
        starting = engine._starting(self.flow, inputs, self.id, self.labels, (), self.resources)
        return starting._replace(files=images.files)

    def events(self, engine: Engine) -> AgentEvents:
        """Return the source of this run's agent events. The run may have started already."""
        flow = engine.executions.flow_of(self.id) if self.begun else self.flow
        return AgentEvents(flow.compiled, self.id, conversations(engine, self.id))

    def _until(self, engine: Engine) -> int | None:
        """Return the number of the first event after this run, if its execution has continued."""
        return None

    def _response(self, engine: Engine, result: ExecutionResult) -> Response:
        """Return the response of a run, or raise if the run failed."""
        given, agents = len(self.inputs["messages"]), self.described.agents
        until = self._until(engine)
        while True:
            failed: Exception | None = None
            try:
                reply = response(engine, result, agents, given, until)
            except flows.AgentRunFailed as error:
                failed = error
            if until is not None or (until := self._until(engine)) is None:
                break  # otherwise it has continued while it was read
        if failed is not None:
            raise failed
        reply.context_variables |= self.live
        if reply.termination:
            name = reply.agent.name if reply.agent else ""
            text, data = termination(reply.termination, reply.reason)
            self.logger.log(LogEvent("termination", text, name, result.execution, STEP, data))
        return reply
