"""Approval and execution of tool calls: registration, decisions, execution, observers.

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
"""

from flowengine.agents.tool_marks import tool
from flowengine.sdk.tools.tool_calls import (
    ApprovalResponse,
    EnvironmentResponse,
    Image,
    ToolCall,
    ToolResult,
)
from flowengine.tool_environment.agent_functions import Client, through
from flowengine.tool_environment.approval import CallbackAuthority
from flowengine.tool_environment.calls import tool_message
from flowengine.tool_environment.local_environment import LocalEnvironment
from flowengine.tool_environment.tools import Tool, ToolContext, execute_command

__all__ = [
    "ApprovalResponse", "CallbackAuthority", "Client", "EnvironmentResponse", "Image",
    "LocalEnvironment", "Tool", "ToolCall", "ToolContext", "ToolResult", "execute_command",
    "through", "tool", "tool_message",
]  # fmt: skip
