"""What agents did in an execution, read from its journal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.engines.results import ExecutionResult, Update
from flowengine.metachain.agent_events import AgentEvents, StreamPart

if TYPE_CHECKING:
    from flowengine.engines.engine import Engine
    from flowengine.kernel.commands import Observation


class AgentParts(NamedTuple):
    """The work of agents so far."""

    result: ExecutionResult
    """The execution, not later than its parts."""
    parts: list[StreamPart]
    questions: list[StreamPart]
    """The open waits that a person decides, each with the call of a tool that it is about."""


def current_observations(engine: Engine, execution: str) -> Iterator[tuple[Observation, Any]]:
    """Yield the observations of an execution that are about its flow as it is now.

    Those from before an upgrade are left out: their numbers mean other steps.

    Args:
        engine: Contains the execution.
        execution: Its full id.
    """
    steps = engine.flow_of(execution).compiled["steps"]
    for update, flow in engine.past_updates(execution):
        seen = update.step
        if seen is None or seen.step >= len(steps):
            continue
        if (spec := flow["steps"][seen.step]) == steps[seen.step]:
            yield seen, spec


def agent_parts(engine: Engine, execution: str) -> AgentParts:
    """Return what the agents of an execution did.

    Args:
        engine: Contains the execution.
        execution: Its full id.
    """
    result = engine.result(execution)
    events = AgentEvents(engine.flow_of(execution).compiled, execution)
    parts = [
        part
        for seen, _ in current_observations(engine, execution)
        for part in events.of(Update(execution, "step", {}, seen))
    ]
    questions = [
        part for wait in result.waits for part in events.of(Update(execution, "wait", wait))
    ]
    return AgentParts(result, parts, questions)
