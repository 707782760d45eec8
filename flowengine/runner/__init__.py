"""`Runner`, which runs Python agents as executions of a flow.

The flow is generated from the agents, and an engine runs it like any other. Crash recovery,
approvals and history therefore work as for other flows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.util.lazy_names import exports

if TYPE_CHECKING:
    from flowengine.agents.function_schemas import function_to_json
    from flowengine.agents.loggers import LoggerManager
    from flowengine.runner.chain import MetaChain, get_chat_completion, handle_tool_calls

__all__ = [
    "LoggerManager",
    "MetaChain",
    "function_to_json",
    "get_chat_completion",
    "handle_tool_calls",
]

_HOMES = {
    "LoggerManager": "..agents.loggers",
    "function_to_json": "..agents.function_schemas",
    **dict.fromkeys(("MetaChain", "get_chat_completion", "handle_tool_calls"), ".chain"),
}

__getattr__, __dir__ = exports(__name__, __all__, _HOMES)
