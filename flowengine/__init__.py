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
    from flowengine.agents.agent import Handoff, Response, Result
    from flowengine.agents.loggers import LogEvent
    from flowengine.agents.termination import case_not_resolved, case_resolved
    from flowengine.agents.tool_marks import tool
    from flowengine.client.client import AsyncClient, Client
    from flowengine.engines.engine import Engine
    from flowengine.engines.flows import LoadedFlow, check, load
    from flowengine.engines.infos import Difference, ExecutionInfo, Reason
    from flowengine.engines.results import (
        Answering,
        Decision,
        ExecutionResult,
        Sent,
        Update,
        WaitInfo,
    )
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
    from flowengine.runner.agent import Agent
    from flowengine.runner.chain import Runner
    from flowengine.runner.responses import AgentRunFailed
    from flowengine.runner.stored_sessions import Sessions
    from flowengine.sdk import StepContext, StepError, quick

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
    "LogEvent",
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
    "Sessions",
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
    "case_not_resolved",
    "case_resolved",
    "cel",
    "check",
    "load",
    "quick",
    "step",
    "tool",
]

_HOMES = {
    "Agent": ".runner.agent",
    **dict.fromkeys(("Handoff", "Response", "Result"), ".agents.agent"),
    "LogEvent": ".agents.loggers",
    **dict.fromkeys(("case_not_resolved", "case_resolved"), ".agents.termination"),
    **dict.fromkeys(("AsyncClient", "Client"), ".client.client"),
    "Engine": ".engines.engine",
    "Runner": ".runner.chain",
    "AgentRunFailed": ".runner.responses",
    "Sessions": ".runner.stored_sessions",
    "LoadedFlow": ".engines.flows",
    "check": ".engines.flows",
    "load": ".engines.flows",
    **dict.fromkeys(("Flow", "Step", "cel", "step"), ".flow.building"),
    **dict.fromkeys(("StepContext", "StepError", "quick"), ".sdk"),
    "tool": ".agents.tool_marks",
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
    **dict.fromkeys(("Difference", "ExecutionInfo", "Reason"), ".engines.infos"),
    **dict.fromkeys(
        ("Answering", "Decision", "ExecutionResult", "Sent", "Update", "WaitInfo"),
        ".engines.results",
    ),
}

__getattr__, __dir__ = exports(__name__, __all__, _HOMES, ".errors")
