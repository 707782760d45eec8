"""Agents, their tools and their handoffs as steps of the graph.

Everything is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.util.lazy_names import exports

if TYPE_CHECKING:
    from flowengine.agents.agent import Agent, Handoff, Response, Result
    from flowengine.agents.function_schemas import function_to_json
    from flowengine.agents.loggers import LogEvent, LoggerManager
    from flowengine.agents.termination import case_not_resolved, case_resolved

MODEL_VARIABLE = "FLOWENGINE_MODEL"
"""Environment variable with the model of agents that name none."""

__all__ = [
    "MODEL_VARIABLE",
    "Agent",
    "Handoff",
    "LogEvent",
    "LoggerManager",
    "Response",
    "Result",
    "case_not_resolved",
    "case_resolved",
    "function_to_json",
]

_HOMES = {
    **dict.fromkeys(("Agent", "Handoff", "Response", "Result"), ".agent"),
    **dict.fromkeys(("case_not_resolved", "case_resolved"), ".termination"),
    **dict.fromkeys(("LogEvent", "LoggerManager"), ".loggers"),
    "function_to_json": ".function_schemas",
}

__getattr__, __dir__ = exports(__name__, __all__, _HOMES)
