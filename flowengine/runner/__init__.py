"""`Runner`, which runs Python agents as executions of a flow.

The flow is generated from the agents, and an engine runs it like any other. Crash recovery,
approvals and history therefore work as for other flows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.util.lazy_names import exports

if TYPE_CHECKING:
    from flowengine.engines.stream_parts import StreamPart
    from flowengine.runner.chain import MetaChain, Runner, get_chat_completion, handle_tool_calls
    from flowengine.runner.responses import AgentRunFailed

_HOMES = {
    "AgentRunFailed": ".responses",
    "Runner": ".chain",
    "StreamPart": "flowengine.engines.stream_parts",
    **dict.fromkeys(("MetaChain", "get_chat_completion", "handle_tool_calls"), ".chain"),
}

__all__ = [
    "AgentRunFailed",
    "MetaChain",
    "Runner",
    "StreamPart",
    "get_chat_completion",
    "handle_tool_calls",
]

__getattr__, __dir__ = exports(__name__, __all__, _HOMES)
