"""Spans of executions, made from the observations of their steps (OpenTelemetry)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from flowengine.agents.actions import AHEAD, TURN, Reply
from flowengine.agents.calls_of_rounds import RoundCalls
from flowengine.journal.records import ExecutionRecord
from flowengine.kernel.commands import Observation
from flowengine.kernel.graph.specs import StepSpec
from flowengine.kernel.notation.addresses import is_round
from flowengine.kernel.notation.times import parse_time
from flowengine.kernel.notation.traces import LABEL, TRACEPARENT, own_ids, span_of

# Names of span attributes.
#
# Those that begin with `gen_ai` are of the semantic conventions for generative AI (OpenTelemetry,
# repository semantic-conventions-genai, November 2026). They are written down here because the
# constants in the Python package are deprecated. The conventions have no names for costs, waits,
# approvals and environments: these begin with `flowengine`.

OPERATION = "gen_ai.operation.name"
WORKFLOW = "gen_ai.workflow.name"
AGENT = "gen_ai.agent.name"
CONVERSATION = "gen_ai.conversation.id"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
TOOL = "gen_ai.tool.name"
TOKENS = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
"""Key of the usage of a model call → attribute."""

COST = "flowengine.cost_usd"
EXECUTION = "flowengine.execution.id"
VERSION = "flowengine.flow.version"
STATUS = "flowengine.status"
ADDRESS = "flowengine.step.address"
KIND = "flowengine.step.kind"
OUTCOME = "flowengine.step.outcome"
ATTEMPT = "flowengine.attempt"
ENVIRONMENT = "flowengine.environment.name"
INPUT = "flowengine.input"
OUTPUT = "flowengine.output"

ERROR = "error.type"

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
CAPTURE_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""Environment variable that includes messages, arguments and results in spans."""


# Spans of an execution, made from the observations of its steps.

OVER = frozenset({"succeeded", "skipped", "failed", "cancelled"})
WAITING = frozenset({"waiting", "uncertain"})

Value = str | int | float | bool


class Span(NamedTuple):
    """A finished span."""

    trace: str
    """32 hexadecimal digits."""
    id: str
    """16 hexadecimal digits."""
    parent: str | None
    name: str
    kind: Literal["internal", "client"]
    start: int
    """Milliseconds since 1970-01-01T00:00Z."""
    end: int
    attributes: dict[str, Value]
    error: str | None = None
    """Type of the error that it ended with."""
    links: tuple[tuple[str, str], ...] = ()
    """Trace and span that caused it without being its parent."""


class _Open:
    """An activation that has not ended."""

    def __init__(self, start: int, spec: StepSpec, span: str, parent: str) -> None:
        self.start = start
        self.spec = spec
        self.span = span
        self.parent = parent
        self.attempt: tuple[int, int, Any] | None = None
        """Number, start and input of the attempt that runs."""
        self.wait: int | None = None
        """Start of the wait."""
        self.agent = ""
        """Name of the agent that took the first turn inside."""


class ExecutionTracer:
    """Makes the spans of one execution, each when it ends.

    Args:
        record: The execution.
        content: Whether spans include messages, arguments, results and error messages.
    """

    def __init__(self, record: ExecutionRecord, *, content: bool = False) -> None:
        self.record = record
        self._content = content
        self._open: dict[str, _Open] = {}
        self._calls = RoundCalls()
        self.trace, self.root = own_ids(record.id)
        self._parent: str | None = None
        if given := TRACEPARENT.fullmatch(record.labels.get(LABEL, "")):
            self.trace, self._parent = given.groups()

    def observe(self, update: Happened, steps: Sequence[StepSpec]) -> Iterator[Span]:
        """Note an update, and yield the spans that end with it.

        Args:
            update: Of the kind `event` or `step`.
            steps: Those of the flow that the execution ran at that time.

        Yields:
            Environments, attempts and waits before the step that contains them.
        """
        if update.step is not None:
            yield from self._observed(update.step, steps[update.step.step])
        elif "opened" in update.data:
            for opening in update.data["opened"]:
                yield self._environment(update.data.get("address", ""), opening)

    def _observed(self, seen: Observation, spec: StepSpec) -> Iterator[Span]:
        """Note what happened to an activation, and yield the spans that end with it."""
        if "exchange" in spec and not is_round(seen.address):
            return  # the rounds of an agent have spans
        whole = seen.address.rpartition("/")[2]
        for sign in re.finditer(r"[\[@]", whole if "exchange" not in spec else ""):
            # a map has begun with its first item
            at = len(seen.address) - len(whole) + sign.start()
            self._begin(seen.address[:at], seen.at, spec)
        step = self._begin(seen.address, seen.at, spec)
        if seen.status not in WAITING and step.wait is not None:
            yield self._wait(seen, step)
        if seen.status == "running":
            if step.attempt is None and spec["action"] == "task":
                step.attempt = seen.attempt, seen.at, seen.input
            if spec.get("kind") == TURN:
                around = self._around(seen.address)
                agent = next((item for item in around if item.spec.get("kind") == "agent"), None)
                if agent is not None:
                    agent.agent = agent.agent or spec["id"]
        elif seen.status in WAITING and step.wait is None:
            step.wait = seen.at
        self._calls.note(seen)
        if (seen.status in OVER or seen.status == "retrying") and step.attempt is not None:
            yield self._attempt(seen, step)
        if seen.status in OVER:
            del self._open[seen.address]
            yield self._step(seen, step)

    def end(self, record: ExecutionRecord) -> Span:
        """Return the span of the whole execution, once it has ended."""
        origin = (record.forked_from or "").partition(" ")[0]  # ID at STEP
        links = (own_ids(other) for other in (record.parent, origin) if other)
        attributes: dict[str, Value] = {
            OPERATION: "invoke_workflow",
            WORKFLOW: record.flow,
            EXECUTION: record.id,
            STATUS: record.status,
        }
        if record.version not in (None, "", "0"):
            attributes[VERSION] = str(record.version)
        return Span(
            self.trace,
            self.root,
            self._parent,
            f"invoke_workflow {record.flow}",
            "internal",
            record.created_at,
            record.changed_at if record.ended_at is None else record.ended_at,
            attributes,
            record.status if record.status == "failed" else None,
            tuple(links),
        )

    def _begin(self, address: str, at: int, spec: StepSpec) -> _Open:
        step = self._open.get(address)
        if step is None:
            span = self._id("step", address, at)
            parent = next((around.span for around in self._around(address)), self.root)
            step = self._open[address] = _Open(at, spec, span, parent)
        return step

    def _around(self, address: str) -> Iterator[_Open]:
        """Yield the open activations that contain an address, the innermost first."""
        for sign in reversed([*re.finditer(r"[/\[@]", address)]):
            if around := self._open.get(address[: sign.start()]):
                yield around

    def _step(self, seen: Observation, step: _Open) -> Span:
        spec = step.spec
        attributes: dict[str, Value] = {
            ADDRESS: seen.address,
            KIND: spec.get("kind", spec["action"]),
            STATUS: seen.status,
        }
        if seen.outcome not in (None, "ok"):
            attributes[OUTCOME] = str(seen.outcome)
        name = seen.address.rpartition("/")[2]
        if spec.get("kind") == "agent":
            name = f"invoke_agent {step.agent}".rstrip()
            attributes |= {OPERATION: "invoke_agent", CONVERSATION: self.record.id}
            if step.agent:
                attributes[AGENT] = step.agent
        failed = seen.status in ("failed", "cancelled")
        return self._span(step.span, step.parent, name, step.start, seen, attributes, failed=failed)

    def _attempt(self, seen: Observation, step: _Open) -> Span:
        assert step.attempt is not None
        number, start, given = step.attempt
        step.attempt = None
        attributes: dict[str, Value] = {ADDRESS: seen.address, ATTEMPT: number}
        name, client = "attempt", False
        kind = step.spec.get("kind")
        # A round need not ask a model, or takes the reply of a request.
        asks = kind == AHEAD or (
            kind == TURN and (seen.error is not None or bool(Reply.of(seen.output).usage))
        )
        if asks:
            name, client = self._model_call(seen, step.spec, attributes), True
        elif "caller" in step.spec:
            attributes |= {
                OPERATION: "execute_tool",
                TOOL: step.spec["id"],
                AGENT: step.spec["caller"],
            }
            if entry := self._calls.of(seen.address).get("entry"):
                attributes["gen_ai.tool.call.id"] = str(entry["id"])
            if self._content:
                attributes["gen_ai.tool.call.arguments"] = _text(given)
                attributes["gen_ai.tool.call.result"] = _text(seen.output)
            name = f"execute_tool {step.spec['id']}"
        elif self._content:
            attributes[INPUT] = _text(given)
            attributes[OUTPUT] = _text(seen.output)
        id = self._id("attempt", seen.address, start)
        span = self._span(id, step.span, name, start, seen, attributes, failed=True)
        return span._replace(kind="client") if client else span

    def _model_call(self, seen: Observation, spec: StepSpec, attributes: dict[str, Value]) -> str:
        reply = Reply.of(seen.output)
        provider, _, model = reply.model.partition("/")
        agent = spec["task"]["agent"]["name"]
        attributes |= {OPERATION: "chat", AGENT: agent, CONVERSATION: self.record.id}
        if reply.model:
            attributes |= {PROVIDER: provider, REQUEST_MODEL: model or provider}
        attributes |= _usage(reply.usage)
        if self._content and reply.message:
            attributes["gen_ai.output.messages"] = _text([reply.message])
        return f"chat {reply.model}".rstrip()

    def _environment(self, address: str, opening: Mapping[str, str]) -> Span:
        """Return the span of an opening: below the attempt, unless that had not begun.

        Args:
            address: Address of the attempt.
            opening: As in the entry of the journal.
        """
        start, parent = parse_time(opening["asked"]), self.root
        step = self._open.get(address)
        if step is not None and step.attempt is not None and step.attempt[1] <= start:
            parent = self._id("attempt", address, step.attempt[1])
        attributes: dict[str, Value] = {
            ENVIRONMENT: opening["name"],
            "flowengine.environment.kind": opening["kind"],
            "flowengine.environment.scope": opening["scope"],
            "flowengine.environment.provider": opening["provider"],
        }
        if address:
            attributes[ADDRESS] = address
        id = self._id(f"environment {opening['name']}", address, start)
        name = f"environment {opening['name']}"
        return Span(
            self.trace,
            id,
            parent,
            name,
            "internal",
            start,
            parse_time(opening["ready"]),
            attributes,
        )

    def _wait(self, seen: Observation, step: _Open) -> Span:
        assert step.wait is not None
        start, step.wait = step.wait, None
        id = self._id("wait", seen.address, start)
        attributes: dict[str, Value] = {ADDRESS: seen.address}
        return self._span(id, step.span, "wait", start, seen, attributes, failed=False)

    def _span(
        self,
        id: str,
        parent: str,
        name: str,
        start: int,
        seen: Observation,
        attributes: dict[str, Value],
        *,
        failed: bool,
    ) -> Span:
        error = None
        if failed and seen.error is not None:
            error = attributes[ERROR] = str(seen.error.get("type", "Error"))
            if self._content:
                attributes["exception.message"] = str(seen.error.get("message", ""))
        return Span(self.trace, id, parent, name, "internal", start, seen.at, attributes, error)

    def _id(self, what: str, address: str, at: int) -> str:
        return span_of(what, self.record.id, address, at)


def _usage(usage: Mapping[str, Any]) -> dict[str, Value]:
    attributes: dict[str, Value] = {
        attribute: int(usage[key]) for key, attribute in TOKENS.items() if key in usage
    }
    if usage.get("cost_usd") is not None:
        attributes[COST] = float(usage["cost_usd"])
    return attributes


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)


# The spans of an execution, read from its journal.


def recorded_spans(
    engine: TracedEngine, execution: str, *, content: bool = False
) -> Iterator[Span]:
    """Yield the spans of an execution that have ended, the innermost first.

    Args:
        engine: An engine over the store.
        execution: Id of the execution, or an unambiguous prefix of it.
        content: Whether spans include messages, arguments, results and error messages.

    Yields:
        The spans. That of the execution comes last, if it has ended.

    Raises:
        NotFound: The store has no such execution.
    """
    record = engine.store.execution(engine.executions.find(execution))
    tracer = ExecutionTracer(record, content=content)
    for update, flow in engine.executions.past_updates(record.id):
        yield from tracer.observe(update, flow["steps"])
    if record.ended_at is not None:
        yield tracer.end(record)


# The source of traces: the part of an engine's public interface that this package uses.


class Happened(Protocol):
    """An update of an execution."""

    @property
    def kind(self) -> str:
        """`event` or `step`, or another kind, which has no spans."""

    @property
    def data(self) -> Any:
        """Of an event: the entry of the journal."""

    @property
    def step(self) -> Observation | None:
        """A change of an activation."""


class TracedEngine(Protocol):
    """An engine over a store. `flowengine.Engine` is one."""

    @property
    def store(self) -> Any:
        """Its `execution(id)` returns the record of an execution."""

    @property
    def executions(self) -> Any:
        """What is known of executions: see `Engine.executions`."""

    @property
    def approvals(self) -> Any:
        """The waits of the executions: see `Engine.approvals`."""

    def subscribe(self, callback: Callable[[Any], None]) -> Callable[[], object]:
        """Call a function with every update. See `Engine.subscribe`."""

    def carry_traces(self, on: bool, /) -> None:
        """Let tools continue the traces of executions, or not."""

    def waited(self) -> list[float]:
        """Return for how many seconds each execution has been able to continue."""

    def open_executions(self) -> dict[str, int]:
        """Return how many executions have each open status."""

    def quarantined(self) -> int:
        """Return how many executions no worker takes."""
