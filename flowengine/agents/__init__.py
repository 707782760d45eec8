"""Agents, their tools and their handoffs as steps of the graph.

Everything is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flowengine.agents.agent import Agent, Response, Result
    from flowengine.agents.function_schemas import function_to_json
    from flowengine.agents.loggers import LogEvent, LoggerManager
    from flowengine.agents.termination import case_not_resolved, case_resolved

__all__ = [
    "Agent",
    "LogEvent",
    "LoggerManager",
    "Response",
    "Result",
    "case_not_resolved",
    "case_resolved",
    "function_to_json",
]

_HOMES = {
    **dict.fromkeys(("Agent", "Response", "Result"), "agent"),
    **dict.fromkeys(("case_not_resolved", "case_resolved"), "termination"),
    **dict.fromkeys(("LogEvent", "LoggerManager"), "loggers"),
    "function_to_json": "function_schemas",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'flowengine.agents' has no attribute {name!r}")
    from importlib import import_module

    module = import_module(f"flowengine.agents.{_HOMES[name]}")
    value = globals()[name] = getattr(module, name)
    return value
