"""From the result of an execution to what a run of agents gives back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flowengine.agents.agent import Agent, Response

if TYPE_CHECKING:
    from flowengine.engines.engine import Engine
    from flowengine.engines.results import Result

_COUNTED = ("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")


def response(engine: Engine, result: Result, agents: Mapping[str, Agent], given: int) -> Response:
    """Return what a run gives back.

    Args:
        engine: Has the execution.
        result: Of the execution.
        agents: Id in the flow → agent.
        given: How many messages the caller gave.
    """
    if result.outputs is None:
        return Response(execution=result.execution, waits=[dict(one) for one in result.waits])
    run: dict[str, Any] = result.outputs["run"]
    ended: Any = "no_progress" if run["no_progress"] else result.outputs["outcome"]
    history = run["messages"]
    return Response(
        messages=history[given:],
        history=history,
        agent=agents.get(run["agent"]),
        context_variables=run["context"],
        termination=ended,
        result=run["result"],
        reason=run["reason"] or "",
        execution=result.execution,
        usage=_usage(engine, result.execution),
    )


def _usage(engine: Engine, execution: str) -> dict[str, Any]:
    """Return what all calls of models used together; a cost that is not known counts nothing."""
    total: dict[str, Any] = dict.fromkeys(_COUNTED, 0) | {"cost_usd": 0.0, "estimated": False}
    for step in engine.show(execution)["steps"]:
        output = step.get("output")
        used = output.get("usage") if isinstance(output, Mapping) else None
        if isinstance(used, Mapping):
            for name in _COUNTED:
                total[name] += used.get(name, 0)
            total["cost_usd"] += used.get("cost_usd") or 0.0
            total["estimated"] |= bool(used.get("estimated"))
    return total
