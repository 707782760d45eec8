"""Approval and execution of tool calls: registry, decisions, execution, observers.

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

Everything is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.util.lazy_names import exports

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
    from flowengine.tool_environment.agent_functions import Client, through, tool_message
    from flowengine.tool_environment.clients import Link, MemoryClient, WebSocketClient
    from flowengine.tool_environment.context import Aborted, AbortSignal, ToolContext
    from flowengine.tool_environment.errors import (
        CallError,
        DecisionError,
        RegistrationError,
        StateError,
        ToolEnvironmentClosed,
        ToolEnvironmentError,
    )
    from flowengine.tool_environment.local_environment import LocalEnvironment, execute_command
    from flowengine.tool_environment.observers import CallbackAuthority
    from flowengine.tool_environment.registry import (
        CallBounds,
        InstanceRegistry,
        ToolRegistry,
        tool_registry,
    )
    from flowengine.tool_environment.tools import Tool, create_tool_instance, mcp_tools, tool

_HOMES = {
    "through": ".agent_functions",
    "CallbackAuthority": ".observers",
    **dict.fromkeys(("Link", "MemoryClient"), ".clients"),
    **dict.fromkeys(("AbortSignal", "Aborted", "ToolContext"), ".context"),
    **dict.fromkeys(
        (
            "CallError",
            "DecisionError",
            "ToolEnvironmentClosed",
            "RegistrationError",
            "StateError",
            "ToolEnvironmentError",
        ),
        ".errors",
    ),
    "CallBounds": ".registry",
    "LocalEnvironment": ".local_environment",
    "mcp_tools": ".tools",
    **dict.fromkeys(("InstanceRegistry", "ToolRegistry", "tool_registry"), ".registry"),
    "execute_command": ".local_environment",
    "Client": ".agent_functions",
    "tool_message": ".agent_functions",
    **dict.fromkeys(("Tool", "create_tool_instance", "tool"), ".tools"),
    "WebSocketClient": ".clients",
}

__all__ = [
    "AbortSignal",
    "Aborted",
    "ApprovalResponse",
    "BaseEnvironment",
    "CallBounds",
    "CallError",
    "CallbackAuthority",
    "Client",
    "DecisionError",
    "Environment",
    "EnvironmentResponse",
    "Image",
    "InstanceRegistry",
    "Link",
    "LocalEnvironment",
    "MemoryClient",
    "Observer",
    "ObserverResult",
    "RegistrationError",
    "ResponseError",
    "StateError",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolEnvironmentClosed",
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

__getattr__, __dir__ = exports(__name__, __all__, _HOMES, "flowengine.sdk.tool_calls")
