"""Responses of runs, from results of executions and from unfinished conversations in a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.agents.agent import Agent, Response
from flowengine.agents.generated_calls import calls_of
from flowengine.agents.kept_images import with_data
from flowengine.agents.termination import CASE_TOOLS, ended_by_word, is_case_tool
from flowengine.agents.usage_totals import UsageTotals, usage_of
from flowengine.engines.host import KeptFiles
from flowengine.engines.inspection.subflows import Subflow, subflows
from flowengine.engines.starting.beginning import exists
from flowengine.errors import FlowEngineError
from flowengine.metachain.flows import STEP

if TYPE_CHECKING:
    from flowengine.engines.engine import Engine
    from flowengine.engines.results import ExecutionResult

_TOLD = (
    "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "cost_usd", "estimated",
)  # fmt: skip
_KEYS = frozenset({"messages", "context", "active", "calls", "asked", "end", "text"})
"""State keys of the flow that runs agents."""


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


def conversations(engine: Engine, execution: str) -> dict[str, Conversation]:
    """Return the conversations of an execution, by the addresses of their steps.

    Args:
        engine: The engine with the execution.
        execution: Its full id. If it does not exist yet, the result is empty.
    """
    if not exists(engine._host, execution):
        return {}
    flows = subflows(engine._read(execution))
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


def response(
    engine: Engine, result: ExecutionResult, agents: Mapping[str, Agent], given: int
) -> Response:
    """Return the response of a run.

    Args:
        engine: The engine with the execution.
        result: Result of the execution.
        agents: Id in the flow → agent.
        given: Number of messages that the caller supplied.

    Raises:
        AgentRunFailed: The run failed, or the newest message of a session has no answer.
    """
    if result.status in {"failed", "cancelled"}:
        error = result.error or {"type": "Cancelled", "message": "the run was cancelled"}
        raise AgentRunFailed(error, result.execution)
    if result.outputs is None:
        return _so_far(engine, result, agents, given)
    run: dict[str, Any] = result.outputs["run"]
    ended: Any = "no_progress" if run["no_progress"] else result.outputs["outcome"]
    history = _history(engine, result.execution, run["messages"])
    agent = agents.get(run["agent"])
    reply = Response(
        messages=history[given:],
        history=history,
        agent=agent,
        context_variables=run["context"],
        termination=ended,
        result=agent.answer(run["result"]) if agent and ended == "resolved" else run["result"],
        reason=run["reason"] or "",
        execution=result.execution,
        usage=_usage(engine, result.execution),
    )
    _end_with_answer(reply)
    return reply


def _so_far(
    engine: Engine, result: ExecutionResult, agents: Mapping[str, Agent], given: int
) -> Response:
    """Return the progress of a waiting run. A session may only wait for the next message."""
    waits = [dict(wait) for wait in result.waits if next_message([wait]) is None]
    reply = Response(execution=result.execution, waits=waits)
    conversation = conversations(engine, result.execution).get(STEP)
    if conversation is not None:
        asks = next_message(result.waits) is not None
        if asks and conversation.failed:  # sending the same message again retries it
            type, _, message = conversation.failed.partition(": ")
            raise AgentRunFailed({"type": type, "message": message}, result.execution)
        reply.history = _history(engine, result.execution, conversation.messages)
        reply.messages = reply.history[conversation.asked + 1 if asks else given :]
        reply.agent = agents.get(conversation.active)
        reply.context_variables = conversation.context
        if asks:
            _answer(reply, conversation)
    reply.usage = _usage(engine, result.execution)
    return reply


def next_message(waits: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the id of the wait for the next message of a session, if there is one."""
    parts = (
        wait["id"] for wait in waits
        if wait.get("chat") and wait["address"].rpartition("/")[0] == STEP
    )  # fmt: skip
    return next(parts, None)


def _answer(reply: Response, conversation: Conversation) -> None:
    """Set how the work on the newest message ended."""
    end: Any = conversation.end
    reply.termination = end["outcome"] or "max_turns"
    reply.reason = end["reason"] or ""
    reply.result = conversation.text if end["value"] is None else end["value"]
    if reply.agent is not None and reply.termination == "resolved":
        reply.result = reply.agent.answer(reply.result)
    if end["no_progress"]:
        reply.termination = "no_progress"
    _end_with_answer(reply)


def _end_with_answer(reply: Response) -> None:
    """Reduce the last message to the answer, if the model named the end of its work beside it."""
    last = reply.history[-1] if reply.messages else {}
    content = last.get("content")
    if (
        last.get("role") != "assistant"
        or not isinstance(content, str)
        or reply.termination not in CASE_TOOLS.values()
        or reply.agent is None
        or not any(map(is_case_tool, reply.agent.functions))
    ):
        return
    end = ended_by_word(content)
    if end is not None:
        reply.history[-1] = reply.messages[-1] = {**last, "content": end.reason}
        if reply.result == content:  # the last text of a case that was not resolved
            reply.result = end.reason


def _history(engine: Engine, execution: str, messages: Sequence[Any]) -> list[dict[str, Any]]:
    """Return messages with images that are stored as artifacts of the execution."""
    find = KeptFiles(engine.store, execution).path
    return [with_data(message, find) for message in messages]


def _usage(engine: Engine, execution: str) -> dict[str, Any]:
    """Return the usage of all model calls, in total and by model, without unknown costs."""
    total, models = usage_of(engine.events(execution))
    return {**_shown(total), "models": {model: _shown(value) for model, value in models.items()}}


def _shown(usage: UsageTotals) -> dict[str, Any]:
    return {name: asdict(usage)[name] for name in _TOLD}
