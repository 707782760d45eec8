"""The place that approves and runs calls of tools: registry, approval, execution, observers.

    from flowengine.tool_environment import LocalEnvironment, tool

    @tool
    def add(a: int, b: int) -> int:
        "Add two numbers."
        return a + b

    async with LocalEnvironment() as environment:
        await environment.register_tool(add)
        response = await environment.execute_tool(
            {"tool_call_id": "1", "tool_name": "add", "args": {"a": 1, "b": 2}}
        )

Nothing is loaded before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flowengine.sdk.tool_calls import (
        ApprovalResponse,
        BaseEnvironment,
        Environment,
        EnvironmentResponse,
        Image,
        Observer,
        ObserverResult,
        ResponseError,
        ToolCall,
        ToolResult,
        check_environment,
    )
    from flowengine.tool_environment.abort import Aborted, AbortSignal
    from flowengine.tool_environment.agent_functions import through
    from flowengine.tool_environment.agent_tools import AgentTool
    from flowengine.tool_environment.authority import CallbackAuthority
    from flowengine.tool_environment.clients import EnvironmentClient, Link, MemoryClient
    from flowengine.tool_environment.clock import Clock, LoopClock
    from flowengine.tool_environment.context import ToolContext
    from flowengine.tool_environment.errors import (
        CallError,
        DecisionError,
        EnvironmentClosed,
        RegistrationError,
        StateError,
        ToolEnvironmentError,
    )
    from flowengine.tool_environment.host import Bounds
    from flowengine.tool_environment.ledger import MemoryLedger, SqliteLedger
    from flowengine.tool_environment.local_environment import LocalEnvironment
    from flowengine.tool_environment.mcp_tools import mcp_tools
    from flowengine.tool_environment.registry import (
        InstanceRegistry,
        ToolRegistry,
        tool_registry,
    )
    from flowengine.tool_environment.shell_command import execute_command
    from flowengine.tool_environment.task_client import Client
    from flowengine.tool_environment.tool_messages import tool_message
    from flowengine.tool_environment.tools import Tool, create_tool_instance, tool
    from flowengine.tool_environment.websocket_client import WebSocketClient

_CALLS = "flowengine.sdk.tool_calls"
_HERE = "flowengine.tool_environment"
_HOMES = {
    "AbortSignal": f"{_HERE}.abort",
    "Aborted": f"{_HERE}.abort",
    "ApprovalResponse": _CALLS,
    "BaseEnvironment": _CALLS,
    "Bounds": f"{_HERE}.host",
    "CallError": f"{_HERE}.errors",
    "CallbackAuthority": f"{_HERE}.authority",
    "Client": f"{_HERE}.task_client",
    "Clock": f"{_HERE}.clock",
    "DecisionError": f"{_HERE}.errors",
    "Environment": _CALLS,
    "EnvironmentClient": f"{_HERE}.clients",
    "EnvironmentClosed": f"{_HERE}.errors",
    "EnvironmentResponse": _CALLS,
    "Image": _CALLS,
    "InstanceRegistry": f"{_HERE}.registry",
    "Link": f"{_HERE}.clients",
    "LocalEnvironment": f"{_HERE}.local_environment",
    "LoopClock": f"{_HERE}.clock",
    "MemoryClient": f"{_HERE}.clients",
    "MemoryLedger": f"{_HERE}.ledger",
    "Observer": _CALLS,
    "ObserverResult": _CALLS,
    "RegistrationError": f"{_HERE}.errors",
    "ResponseError": _CALLS,
    "SqliteLedger": f"{_HERE}.ledger",
    "StateError": f"{_HERE}.errors",
    "Tool": f"{_HERE}.tools",
    "ToolCall": _CALLS,
    "ToolContext": f"{_HERE}.context",
    "ToolEnvironmentError": f"{_HERE}.errors",
    "ToolRegistry": f"{_HERE}.registry",
    "ToolResult": _CALLS,
    "WebSocketClient": f"{_HERE}.websocket_client",
    "check_environment": _CALLS,
    "create_tool_instance": f"{_HERE}.tools",
    "execute_command": f"{_HERE}.shell_command",
    "mcp_tools": f"{_HERE}.mcp_tools",
    "AgentTool": f"{_HERE}.agent_tools",
    "through": f"{_HERE}.agent_functions",
    "tool": f"{_HERE}.tools",
    "tool_message": f"{_HERE}.tool_messages",
    "tool_registry": f"{_HERE}.registry",
}

__all__ = [
    "AbortSignal",
    "Aborted",
    "AgentTool",
    "ApprovalResponse",
    "BaseEnvironment",
    "Bounds",
    "CallError",
    "CallbackAuthority",
    "Client",
    "Clock",
    "DecisionError",
    "Environment",
    "EnvironmentClient",
    "EnvironmentClosed",
    "EnvironmentResponse",
    "Image",
    "InstanceRegistry",
    "Link",
    "LocalEnvironment",
    "LoopClock",
    "MemoryClient",
    "MemoryLedger",
    "Observer",
    "ObserverResult",
    "RegistrationError",
    "ResponseError",
    "SqliteLedger",
    "StateError",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolEnvironmentError",
    "ToolRegistry",
    "ToolResult",
    "WebSocketClient",
    "check_environment",
    "create_tool_instance",
    "execute_command",
    "mcp_tools",
    "through",
    "tool",
    "tool_message",
    "tool_registry",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'flowengine.tool_environment' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
