"""Durable graph flows that run, wait for approvals, survive crashes, and resume.

    import flowengine

    with flowengine.Engine() as engine:
        result = engine.run("review.yaml", {"directory": "reports"})
        for wait in result.waits:
            result = engine.approvals.approve(wait["id"]).result

Everything is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.util.lazy_names import exports

__version__ = "0.1.0"

if TYPE_CHECKING:
    from flowengine.agents import Agent, LoggerManager, Response, Result, function_to_json
    from flowengine.client.client import AsyncClient, Client
    from flowengine.engines.engine import Engine
    from flowengine.engines.flows import LoadedFlow, check, load
    from flowengine.engines.infos import Answering, Difference, ExecutionInfo, Reason, WaitInfo
    from flowengine.engines.results import Decision, ExecutionResult, Sent, Update
    from flowengine.errors import (
        Conflict,
        FlowEngineError,
        FlowFileError,
        InputError,
        LeaseLost,
        NotAllowed,
        NotFound,
        StoreError,
        UsageError,
    )
    from flowengine.flow.building import Flow, Step, cel, step
    from flowengine.runner import (
        AgentRunFailed,
        MetaChain,
        Runner,
        StreamPart,
        get_chat_completion,
        handle_tool_calls,
    )
    from flowengine.sdk import StepContext, StepError, quick
    from flowengine.tool_environment import tool

__all__ = [
    "Agent",
    "AgentRunFailed",
    "Answering",
    "AsyncClient",
    "Client",
    "Conflict",
    "Decision",
    "Difference",
    "Engine",
    "ExecutionInfo",
    "ExecutionResult",
    "Flow",
    "FlowEngineError",
    "FlowFileError",
    "InputError",
    "LeaseLost",
    "LoadedFlow",
    "LoggerManager",
    "MetaChain",
    "NotAllowed",
    "NotFound",
    "Reason",
    "Response",
    "Result",
    "Runner",
    "Sent",
    "Step",
    "StepContext",
    "StepError",
    "StoreError",
    "StreamPart",
    "Update",
    "UsageError",
    "WaitInfo",
    "cel",
    "check",
    "function_to_json",
    "get_chat_completion",
    "handle_tool_calls",
    "load",
    "quick",
    "step",
    "tool",
]

_HOMES = {
    **dict.fromkeys(
        ("Agent", "LoggerManager", "Response", "Result", "function_to_json"), ".agents"
    ),
    **dict.fromkeys(("AsyncClient", "Client"), ".client.client"),
    "Engine": ".engines.engine",
    **dict.fromkeys(
        (
            "AgentRunFailed",
            "MetaChain",
            "Runner",
            "StreamPart",
            "get_chat_completion",
            "handle_tool_calls",
        ),
        ".runner",
    ),
    "LoadedFlow": ".engines.flows",
    "check": ".engines.flows",
    "load": ".engines.flows",
    **dict.fromkeys(("Flow", "Step", "cel", "step"), ".flow.building"),
    **dict.fromkeys(("StepContext", "StepError", "quick"), ".sdk"),
    "tool": ".tool_environment",
    **dict.fromkeys(("Decision", "ExecutionResult", "Sent", "Update"), ".engines.results"),
    **dict.fromkeys(
        ("Answering", "Difference", "ExecutionInfo", "Reason", "WaitInfo"), ".engines.infos"
    ),
}

__getattr__, __dir__ = exports(__name__, __all__, _HOMES, ".errors")
