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

__version__ = "0.2.0"

if TYPE_CHECKING:
    from flowengine.agents import (
        Agent,
        Handoff,
        LoggerManager,
        Response,
        Result,
        function_to_json,
    )
    from flowengine.client.client import AsyncClient, Client
    from flowengine.engines.engine import Engine
    from flowengine.engines.flows import LoadedFlow, check, load
    from flowengine.engines.infos import Answering, Difference, ExecutionInfo, Reason, WaitInfo
    from flowengine.engines.results import Decision, ExecutionResult, Sent, Update
    from flowengine.engines.stream_parts import (
        CallPart,
        EndPart,
        HandoffPart,
        MissedPart,
        QuestionPart,
        ReasoningPart,
        ResponsePart,
        RestartPart,
        StartPart,
        StreamPart,
        TextPart,
        ToolCallPart,
        ToolResultPart,
    )
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
    "CallPart",
    "Client",
    "Conflict",
    "Decision",
    "Difference",
    "EndPart",
    "Engine",
    "ExecutionInfo",
    "ExecutionResult",
    "Flow",
    "FlowEngineError",
    "FlowFileError",
    "Handoff",
    "HandoffPart",
    "InputError",
    "LeaseLost",
    "LoadedFlow",
    "LoggerManager",
    "MetaChain",
    "MissedPart",
    "NotAllowed",
    "NotFound",
    "QuestionPart",
    "Reason",
    "ReasoningPart",
    "Response",
    "ResponsePart",
    "RestartPart",
    "Result",
    "Runner",
    "Sent",
    "StartPart",
    "Step",
    "StepContext",
    "StepError",
    "StoreError",
    "StreamPart",
    "TextPart",
    "ToolCallPart",
    "ToolResultPart",
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
        ("Agent", "Handoff", "LoggerManager", "Response", "Result", "function_to_json"), ".agents"
    ),
    **dict.fromkeys(("AsyncClient", "Client"), ".client.client"),
    "Engine": ".engines.engine",
    **dict.fromkeys(
        (
            "AgentRunFailed",
            "MetaChain",
            "Runner",
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
    **dict.fromkeys(
        (
            "CallPart",
            "EndPart",
            "HandoffPart",
            "MissedPart",
            "QuestionPart",
            "ReasoningPart",
            "ResponsePart",
            "RestartPart",
            "StartPart",
            "StreamPart",
            "TextPart",
            "ToolCallPart",
            "ToolResultPart",
        ),
        ".engines.stream_parts",
    ),
    **dict.fromkeys(("Decision", "ExecutionResult", "Sent", "Update"), ".engines.results"),
    **dict.fromkeys(
        ("Answering", "Difference", "ExecutionInfo", "Reason", "WaitInfo"), ".engines.infos"
    ),
}

__getattr__, __dir__ = exports(__name__, __all__, _HOMES, ".errors")
