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
    Environment,
    EnvironmentResponse,
    Image,
    Observer,
    ObserverResult,
    ResponseError,
    ToolCall,
    ToolResult,
    check_environment,
)  # fmt: skip
from flowengine.tool_environment.agent_functions import Client, through, tool_message
from flowengine.tool_environment.approval import CallbackAuthority
from flowengine.tool_environment.context import Aborted, AbortSignal, ToolContext
from flowengine.tool_environment.errors import (
    CallError,
    DecisionError,
    RegistrationError,
    ToolEnvironmentClosed,
    ToolEnvironmentError,
)  # fmt: skip
from flowengine.tool_environment.local_environment import LocalEnvironment
from flowengine.tool_environment.ready_tools import execute_command, mcp_tools
from flowengine.tool_environment.registration import CallBounds
from flowengine.tool_environment.tools import Tool

__all__ = [
    "AbortSignal", "Aborted", "ApprovalResponse", "CallBounds", "CallError", "CallbackAuthority",
    "Client", "DecisionError", "Environment", "EnvironmentResponse", "Image", "LocalEnvironment",
    "Observer", "ObserverResult", "RegistrationError", "ResponseError", "Tool", "ToolCall",
    "ToolContext", "ToolEnvironmentClosed", "ToolEnvironmentError", "ToolResult",
    "check_environment", "execute_command", "mcp_tools", "through", "tool", "tool_message",
]  # fmt: skip
