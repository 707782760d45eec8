"""`Runner`, which runs Python agents as executions of a flow.

The flow is generated from the agents, and an engine runs it like any other. Crash recovery,
approvals and history therefore work as for other flows.
"""

from __future__ import annotations

from flowengine.metachain.agent_events import StreamPart
from flowengine.metachain.autoagent import MetaChain, get_chat_completion, handle_tool_calls
from flowengine.metachain.chain import Runner
from flowengine.metachain.responses import AgentRunFailed

__all__ = [
    "AgentRunFailed",
    "MetaChain",
    "Runner",
    "StreamPart",
    "get_chat_completion",
    "handle_tool_calls",
]
