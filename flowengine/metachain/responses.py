"""Conversion of an execution's result to the response of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from flowengine.agents.agent import Agent, Response
from flowengine.agents.kept_images import with_data
from flowengine.agents.usage_totals import UsageTotals, usage_of
from flowengine.engines.host import KeptFiles
from flowengine.metachain.conversations import Conversation, conversations
from flowengine.metachain.flows import STEP

if TYPE_CHECKING:
    from flowengine.engines.engine import Engine
    from flowengine.engines.results import ExecutionResult

_TOLD = (
    "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "cost_usd", "estimated",
)  # fmt: skip


def response(
    engine: Engine, result: ExecutionResult, agents: Mapping[str, Agent], given: int
) -> Response:
    """Return the response of a run.

    Args:
        engine: The engine with the execution.
        result: Result of the execution.
        agents: Id in the flow → agent.
        given: Number of messages that the caller supplied.
    """
    if result.outputs is None:
        return _so_far(engine, result, agents, given)
    run: dict[str, Any] = result.outputs["run"]
    ended: Any = "no_progress" if run["no_progress"] else result.outputs["outcome"]
    history = _history(engine, result.execution, run["messages"])
    agent = agents.get(run["agent"])
    return Response(
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


def _so_far(
    engine: Engine, result: ExecutionResult, agents: Mapping[str, Agent], given: int
) -> Response:
    """Return the progress of a waiting run. A session may only wait for the next message."""
    waits = [dict(wait) for wait in result.waits if next_message([wait]) is None]
    reply = Response(execution=result.execution, waits=waits)
    conversation = conversations(engine, result.execution).get(STEP)
    if conversation is not None:
        asks = next_message(result.waits) is not None
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
