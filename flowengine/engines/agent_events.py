"""The actions of agents: their conversations so far, and the parts of a run as they arise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict, cast

from flowengine.agents.actions import TURN, display_name
from flowengine.agents.agent_state import STATE
from flowengine.agents.call_answers import ERROR, value_of
from flowengine.agents.calls_of_rounds import call_in
from flowengine.agents.conversation import AnsweredCall, answers_to, rendered
from flowengine.engines.arriving_answers import ArrivingAnswers
from flowengine.engines.engine import Engine
from flowengine.engines.executions.call_endings import shown_status
from flowengine.engines.executions.linked_flows import read
from flowengine.engines.infos import LISTED
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
from flowengine.kernel.notation.addresses import is_round
from flowengine.kernel.state.records import Calls, State
from flowengine.kernel.view import View
from flowengine.sdk.texts.untrusted import unmarked

_FUNCTION = "agent_function"
_ARRIVING: Mapping[str, type[AgentPart]] = {
    "start": StartPart, "text": TextPart, "reasoning": ReasoningPart, "call": CallPart,
    "restart": RestartPart, "end": EndPart,
}  # fmt: skip
"""The parts of a reply that a model is writing, by kind."""


class Conversation(NamedTuple):
    """A conversation so far."""

    messages: list[dict[str, Any]]
    """Includes the results of completed calls while other calls of the reply are still open."""
    context: dict[str, Any]
    """The context variables after these messages."""
    active: str
    """Id of the agent that was active last."""
    calls: Mapping[str, Sequence[Mapping[str, Any]]]
    """Address of a round → the calls that it makes."""
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
    return {
        item.address: _conversation(item) for item in flows if item.state.keys() >= STATE.keys()
    }


def _conversation(subflow: Subflow) -> Conversation:
    agent: Any = subflow.state["agent"]
    entries, context = [*cast("list[Any]", subflow.state["messages"])], subflow.state["context"]
    made: list[Any] = []
    for calls in subflow.calls.values():
        for call, answer in zip(calls["made"], calls["answers"], strict=True):
            if answer is not None and "entry" in call and "into" not in call:
                made.append({**call["entry"], **answer})
    replies = (one for one in reversed(entries) if one.get("role") == "assistant")
    changed = {**cast("dict[str, Any]", context)}
    for answered in answers_to(next(replies, {}), made):
        changed |= answered.answer["context"]
    messages: list[Any] = rendered([*entries, *made])
    open_calls = {address: calls["made"] for address, calls in subflow.calls.items()}
    asked, end, text, failed = (agent[name] for name in ("asked", "end", "text", "failed"))
    return Conversation(messages, changed, agent["active"], open_calls, asked, end, text, failed)


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
        turns = [spec for spec in self._steps if spec.get("kind") == TURN]
        self._answers = ArrivingAnswers(
            {_name(turn) for turn in turns if turn["task"]["agent"].get("returns")}
        )
        self._callers = {
            number: spec for spec in turns for number in spec["exchange"]["callees"].values()
        }
        """Step that is called → the step of the agent that calls it."""
        known = before or {}
        self._active = {at: self._called(value.active) for at, value in known.items()}
        """Address of a step that runs agents → name of the active agent."""
        self._calls = {at: made for value in known.values() for at, made in value.calls.items()}
        """Address of a round → the calls that it makes."""
        self._withheld: dict[str, list[Any]] = {}
        """Address of a step that runs agents → answers that a hook is about to see."""
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
            if is_round(seen.address):
                yield from self._turn(seen)
        elif seen.step in self._callers:
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
            yield from self._round(seen.output, agent, above, seen.address)

    def _round(
        self, output: Mapping[str, Any], agent: str, above: str, address: str
    ) -> Iterator[AgentPart]:
        """Yield the parts of a round that has ended: its reply, and answers without a tool."""
        if output.get("calls"):
            self._calls[address] = output["calls"]
        added = [*output.get("before", ()), *output.get("told", ())]
        withheld = self._withheld.pop(above, [])
        hooked = [one for one in added if "hooked" in one]
        if withheld and output.get("state", {}).get("stage", [""])[0] == "after_call":
            self._withheld[above] = [*withheld, *hooked]
        else:
            for answered in answers_to({}, [*withheld, *hooked]):
                yield self._answer(answered, agent, address)
        if "message" in output:
            yield ModelReplied(output, **self._of(agent, address))
        for answered in answers_to({}, [one for one in added if one.get("role") == "tool"]):
            yield self._answer(answered, agent, address)

    def _call(self, seen: Observation) -> Iterator[AgentPart]:
        spec, caller = self._steps[seen.step], self._callers[seen.step]
        if "teller" not in spec or seen.status not in {"running", "succeeded", "failed"}:
            return
        call, agent = self._call_at(seen.address), _name(caller)
        if seen.status != "running" and seen.attempt:
            return  # the end of an attempt, after which the call may go on
        entry = call.get("entry", {})
        tool, id = str(entry.get("name", spec["id"])), str(entry.get("id", ""))
        given: Any = seen.input if isinstance(seen.input, Mapping) else {}
        arguments = given.get("args", given.get("_args", call.get("args", given)))
        if spec.get("kind") == _FUNCTION:
            arguments = given.get("args", {}) if spec["task"]["function"] else {}
        shown = arguments if isinstance(arguments, Mapping) else given
        of = self._of(agent, seen.address)
        if seen.status == "running":
            yield ToolCallPart(tool, shown, id, **of)
            return
        output = seen.output if isinstance(seen.output, Mapping) else None
        yield ToolEnded(tool, shown, id, shown_status(seen, spec), output, **of)
        if not entry:
            return
        ended = {
            **entry,
            **({"output": seen.output} if seen.error is None else {"error": seen.error}),
        }
        hooks = caller["task"]["agent"].get("hooks", ())
        if any(hook["when"] == "after_call" for hook in hooks):
            above = _around(_around(seen.address))
            self._withheld.setdefault(above, []).append(ended)
            return
        for answered in answers_to({}, [ended]):
            yield self._answer(answered, agent, seen.address)

    def _answer(self, answered: AnsweredCall, agent: str, address: str) -> ToolResultPart:
        """Return the result of a call as sent to the model."""
        message, entry = answered.answer["messages"][0], answered.entry
        content = str(message["content"])
        error = _words(entry["error"]) if "error" in entry else content.removeprefix(ERROR)
        return ToolResultPart(
            tool=str(message.get("name") or ""),
            value=value_of(answered.answer["value"]),
            error=error if content.startswith(ERROR) else "",  # a hook may have answered instead
            call=str(message.get("tool_call_id") or ""),
            result=unmarked(content),
            **self._of(agent, address),
        )

    def _question(self, wait: Mapping[str, Any]) -> Iterator[AgentPart]:
        if "how" in wait:
            self._asked.pop(wait["id"], None)
            return
        fields = {key: value for key, value in wait.items() if key != "source"}
        if wait["kind"] not in LISTED or self._asked.get(wait["id"]) == fields:
            return
        self._asked[wait["id"]] = fields
        call = self._call_at(wait["address"]).get("entry", {})
        agent = self._active.get(_around(_around(wait["address"])), "")
        tool = str(call.get("name") or wait.get("tool", ""))
        yield QuestionPart(wait, tool, str(call.get("id", "")), **self._of(agent, wait["address"]))

    def _call_at(self, address: str) -> Mapping[str, Any]:
        """Return the call that a step carries out, or an empty mapping."""
        return call_in({"calls": self._calls.get(_around(address))}, address)


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
    calls: Mapping[str, Calls]
    """Address of a round → the calls that are being made."""


def subflows(graph: Graph, state: State) -> Iterator[Subflow]:
    """Yield the active subflows of an execution, outer ones first.

    Args:
        graph: Its flow.
        state: Its state.
    """
    view = View(graph, state)
    for scope in view.subflows():
        units = (
            state["units"][unit] for act in scope["live"] for unit in state["acts"][act]["units"]
        )
        calls = {view.address(unit): unit["calls"] for unit in units if "calls" in unit}
        values = {key: cell[0] for key, cell in view.vars_of(scope["frame"]).items()}
        yield Subflow(scope["path"].rstrip("/"), values, calls)
