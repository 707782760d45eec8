"""The actions of agents: their conversations so far, and the parts of a run as they arise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypedDict

from flowengine.agents.actions import TURN, answering_message, display_name
from flowengine.agents.generated_calls import calls_of
from flowengine.engines.arriving_answers import ArrivingAnswers
from flowengine.engines.engine import Engine
from flowengine.engines.executions.linked_flows import read
from flowengine.engines.infos import LISTED
from flowengine.engines.inspection.call_endings import shown_status
from flowengine.engines.results import Update
from flowengine.engines.snapshots import state_at
from flowengine.engines.starting.beginning import exists
from flowengine.engines.stream_parts import (
    AgentEnded,
    AgentPart,
    CallPart,
    EndPart,
    HandoffPart,
    MissedPart,
    ModelFailed,
    ModelReplied,
    QuestionPart,
    ReasoningPart,
    RestartPart,
    StartPart,
    TextPart,
    ToolCallPart,
    ToolEnded,
    ToolResultPart,
)
from flowengine.kernel.commands import Observation
from flowengine.kernel.events import ErrorData
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.graph.linked import Graph
from flowengine.kernel.graph.specs import CompiledFlow, StepSpec
from flowengine.kernel.state.records import State
from flowengine.kernel.view import View
from flowengine.sdk.texts.untrusted import unmarked
from flowengine.sdk.tools.call_answers import ERROR, value_of

_FUNCTION = "agent_function"
_ARRIVING: Mapping[str, type[AgentPart]] = {
    "start": StartPart, "text": TextPart, "reasoning": ReasoningPart, "call": CallPart,
    "restart": RestartPart, "end": EndPart,
}  # fmt: skip
"""The parts of a reply that a model is writing, by kind."""

_KEYS = frozenset({"messages", "context", "active", "calls", "asked", "end", "text"})
"""State keys of the flow that runs agents."""


class Conversation(NamedTuple):
    """A conversation so far."""

    messages: list[dict[str, Any]]
    """Includes the results of completed calls while other calls of the reply are still open."""
    context: dict[str, Any]
    """The context variables after these messages."""
    active: str
    """Id of the agent that was active last."""
    calls: Mapping[str, Mapping[str, Any]]
    """Calls of the newest reply, by their places in it."""
    asked: int
    """Index of the user's newest message, or -1."""
    end: Mapping[str, Any]
    """How the work on that message ended, if it has."""
    text: str
    """The last text of the agents."""
    failed: str
    """Type and message of a model error without a fallback, or empty."""


def conversations(
    engine: Engine, execution: str, *, until: int | None = None
) -> dict[str, Conversation]:
    """Return the conversations of an execution, by the addresses of their steps.

    Args:
        engine: The engine with the execution.
        execution: Its full id. If it does not exist yet, the result is empty.
        until: Number of the first event to leave out. None: includes all events.
    """
    if not exists(engine._host, execution):
        return {}
    if until is None:
        now = engine.executions._read(execution)
        flows = subflows(now.linked.graph, now.state)
    else:
        host = engine._host
        hash, journal = host.store.execution(execution).hash, read(host.store, execution)
        flows = subflows(*state_at(host.flows, hash, journal, until))
    return {item.address: _conversation(item) for item in flows if item.state.keys() >= _KEYS}


def _conversation(subflow: Subflow) -> Conversation:
    state = subflow.state
    messages, context = list(state["messages"]), dict(state["context"])
    for made in subflow.items.get(calls_of(state["active"]), ()):
        messages += made["messages"]
        context |= made["context"]
    calls = {str(call["place"]): call for call in state["calls"]}
    asked, end, text = (state[name] for name in ("asked", "end", "text"))
    failed = state.get("failed", "")
    return Conversation(messages, context, state["active"], calls, asked, end, text, failed)


class _Origin(TypedDict):
    """Where a part comes from."""

    agent: str
    execution: str
    step: str


class AgentEvents:
    """Derives the parts of one execution from the updates of the engine.

    Args:
        flow: The compiled flow.
        execution: Id of the execution.
        before: Its conversations so far, by the addresses of their steps.
    """

    def __init__(
        self,
        flow: CompiledFlow,
        execution: str,
        before: Mapping[str, Conversation] | None = None,
    ) -> None:
        self._steps: list[StepSpec] = flow["steps"]
        self.execution = execution
        self._callers, self._inside = _callers(flow)
        turns = (spec for spec in self._steps if spec.get("kind") == TURN)
        self._answers = ArrivingAnswers(
            {_name(turn) for turn in turns if turn["task"]["agent"].get("returns")}
        )
        known = before or {}
        self._active = {at: self._called(value.active) for at, value in known.items()}
        """Address of a step that runs agents → name of the active agent."""
        self._calls = {at: value.calls for at, value in known.items()}
        """Address of a step that runs agents → calls of the newest reply, by their places in it."""
        self._errors: dict[str, str] = {}
        """Address of a call → error of its tool."""
        self._asked: dict[str, Any] = {}
        """Id of a question → the last reported data about it."""

    def of(self, update: Update) -> Iterator[AgentPart]:
        """Yield the parts of an update, in order."""
        if update.execution != self.execution:
            return
        if update.kind == "missed":
            self._answers.missed()
            yield MissedPart(update.data["count"], execution=self.execution)
        elif update.kind == "part" and update.data["part"] not in _ARRIVING:
            return  # what a tool passes on about its call
        elif update.kind == "part":
            names = ("agent", "text", "call", "tool")
            given = {name: update.data[name] for name in names if name in update.data}
            if (value := self._answers.feed(update.data)) is not None:
                given["value"] = value
            yield _ARRIVING[update.data["part"]](execution=self.execution, **given)
        elif update.kind == "wait":
            yield from self._question(update.data)
        else:
            yield from self._step(update)

    def _of(self, agent: str, step: str) -> _Origin:
        return {"agent": agent, "execution": self.execution, "step": step}

    def _step(self, update: Update) -> Iterator[AgentPart]:
        """Yield the parts of an update about a step."""
        seen = update.step
        if seen is None:
            return
        spec = self._steps[seen.step]
        if spec.get("kind") == TURN:
            yield from self._turn(seen)
        elif seen.step in self._callers:
            yield from self._result(seen)
        elif "teller" in spec or seen.step in self._inside:
            yield from self._call(seen)
        elif seen.address in self._active and seen.status in {"succeeded", "failed", "cancelled"}:
            error = "" if seen.error is None else _words(seen.error)
            agent, how = self._active.pop(seen.address), seen.outcome or seen.status
            yield AgentEnded(how, error, **self._of(agent, seen.address))

    def _called(self, id: str) -> str:
        """Return the name of an agent."""
        for spec in self._steps:
            if spec.get("kind") == TURN and spec["task"]["agent"]["name"] == id:
                return _name(spec)
        return id

    def _turn(self, seen: Observation) -> Iterator[AgentPart]:
        agent, above = _name(self._steps[seen.step]), _around(seen.address)
        active = self._active.get(above, agent)
        if seen.status == "running" and active != agent:
            yield HandoffPart(agent, **self._of(active, seen.address))
        self._active[above] = agent
        if seen.status in {"retrying", "failed"} and seen.error is not None:
            kind: Any = "retry" if seen.status == "retrying" else "failure"
            of = self._of(agent, seen.address)
            yield ModelFailed(kind, _words(seen.error), seen.attempt, **of)
        elif seen.status == "succeeded" and isinstance(seen.output, Mapping):
            self._calls[above] = {str(call["place"]): call for call in seen.output["calls"]}
            yield ModelReplied(seen.output, **self._of(agent, seen.address))

    def _call(self, seen: Observation) -> Iterator[AgentPart]:
        spec, item = self._steps[seen.step], _around(seen.address)
        if seen.step in self._inside and seen.error is not None and seen.status == "succeeded":
            self._errors[item] = _words(seen.error)
        if "teller" not in spec or seen.status not in {"running", "succeeded", "failed"}:
            return
        call = self._call_at(item) if seen.step in self._inside else {}
        name = str(spec["id"])
        given: Any = seen.input if isinstance(seen.input, Mapping) else {}
        arguments = given.get("args", given.get("_args", given))
        if spec.get("kind") == _FUNCTION:
            name = name.rpartition(".")[2]
            arguments = given.get("args", {}) if spec["task"]["function"] else {}
        agent = self._inside.get(seen.step) or self._active.get(_around(item), "")
        of, tool, id = self._of(agent, seen.address), call.get("name", name), call.get("id", "")
        shown = arguments if isinstance(arguments, Mapping) else given
        if seen.status == "running":
            yield ToolCallPart(str(tool), shown, str(id), **of)
            return
        output = seen.output if isinstance(seen.output, Mapping) else None
        yield ToolEnded(str(tool), shown, str(id), shown_status(seen, spec), output, **of)

    def _result(self, seen: Observation) -> Iterator[AgentPart]:
        """Yield the result of a call as sent to the model, once the call has ended."""
        message = answering_message(seen.output) if seen.status == "succeeded" else {}
        if not message or not isinstance(seen.output, Mapping):
            return  # it begins, or all calls have ended
        content, error = str(message["content"]), self._errors.pop(seen.address, "")
        yield ToolResultPart(
            tool=str(message.get("name") or ""),
            value=value_of(seen.output.get("value")),
            error=error if content.startswith(ERROR) else "",  # a hook may have answered instead
            call=str(message.get("tool_call_id") or ""),
            result=unmarked(content),
            **self._of(self._callers[seen.step], seen.address),
        )

    def _question(self, wait: Mapping[str, Any]) -> Iterator[AgentPart]:
        if "how" in wait:
            self._asked.pop(wait["id"], None)
            return
        fields = {key: value for key, value in wait.items() if key != "source"}
        if wait["kind"] not in LISTED or self._asked.get(wait["id"]) == fields:
            return
        self._asked[wait["id"]] = fields
        item = _around(wait["address"])
        call, agent = self._call_at(item), self._active.get(_around(item), "")
        tool = str(call.get("name") or wait.get("tool", ""))
        yield QuestionPart(wait, tool, str(call.get("id", "")), **self._of(agent, wait["address"]))

    def _call_at(self, item: str) -> Mapping[str, Any]:
        """Return a call as the model made it, by the address of its item, or an empty mapping."""
        place = item.rpartition("[")[2].removesuffix("]")
        return self._calls.get(_around(item), {}).get(place, {})


def _callers(flow: CompiledFlow) -> tuple[dict[int, str], dict[int, str]]:
    """Return the steps that run calls, and the steps inside them, with their agents' names."""
    callers: dict[int, str] = {}
    inside: dict[int, str] = {}
    steps, bodies = flow["steps"], flow["bodies"]
    for body in bodies:
        numbers = {steps[number]["id"]: number for number in body["steps"]}
        for spec in (steps[number] for number in body["steps"]):
            calls = None
            if spec.get("kind") == TURN:
                calls = numbers.get(calls_of(spec["task"]["agent"]["name"]))
            if calls is not None:
                callers[calls] = _name(spec)
                inside |= dict.fromkeys(bodies[steps[calls]["child"]]["steps"], _name(spec))
    return callers, inside


def _name(turn: StepSpec) -> str:
    """Return the name of the agent whose turn a step is."""
    return display_name(turn["task"]["agent"])


def _around(address: str) -> str:
    return address.rpartition("/")[0]


def _words(error: ErrorData) -> str:
    return f"{error['type']}: {error['message']}"


class Subflow(NamedTuple):
    """An active subflow."""

    address: str
    """Address of the step that runs it."""
    state: Mapping[str, Plain]
    """Key → value."""
    items: Mapping[str, list[Plain]]
    """Step → outputs of the successful items of each running map, in item order. The state contains
    their writes once the map has ended."""


def subflows(graph: Graph, state: State) -> Iterator[Subflow]:
    """Yield the active subflows of an execution, outer ones first.

    Args:
        graph: Its flow.
        state: Its state.
    """
    view = View(graph, state)
    for scope in view.subflows():
        items: dict[str, list[Plain]] = {}
        for number in scope["live"]:
            act = state["acts"][number]
            if "results" in act:
                ended = [result for result in act["results"] if result is not None]
                items[view.node(act).id] = [
                    result[1] for result in ended if result[0] == "succeeded"
                ]
        values = {key: cell[0] for key, cell in view.vars_of(scope["frame"]).items()}
        yield Subflow(scope["path"].rstrip("/"), values, items)
