"""Durable graph flows that run, wait for approvals, survive crashes, and resume.

    import flowengine

    with flowengine.Engine() as engine:
        result = engine.run("review.yaml", {"directory": "reports"})
        for wait in result.waits:
            result = engine.approve(wait["id"]).result

Everything is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from flowengine.agents import Agent, LoggerManager, Response, Result, function_to_json
    from flowengine.client.client import AsyncClient, Client
    from flowengine.engines.engine import Engine
    from flowengine.engines.flows import LoadedFlow, check, load
    from flowengine.engines.infos import Difference, ExecutionInfo, Reason, WaitInfo
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
    from flowengine.metachain import MetaChain, Runner, get_chat_completion, handle_tool_calls
    from flowengine.sdk import StepContext, StepError, quick

__all__ = [
    "Agent",
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
]

_HOMES = {
    **dict.fromkeys(("Agent", "LoggerManager", "Response", "Result", "function_to_json"), "agents"),
    **dict.fromkeys(("AsyncClient", "Client"), "client.client"),
    "Engine": "engines.engine",
    **dict.fromkeys(
        ("MetaChain", "Runner", "get_chat_completion", "handle_tool_calls"), "metachain"
    ),
    "LoadedFlow": "engines.flows",
    "check": "engines.flows",
    "load": "engines.flows",
    **dict.fromkeys(("Flow", "Step", "cel", "step"), "flow.building"),
    **dict.fromkeys(("StepContext", "StepError", "quick"), "sdk"),
    **dict.fromkeys(("Decision", "ExecutionResult", "Sent", "Update"), "engines.results"),
    **dict.fromkeys(("Difference", "ExecutionInfo", "Reason", "WaitInfo"), "engines.infos"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'flowengine' has no attribute {name!r}")
    from importlib import import_module

    module = import_module(f"flowengine.{_HOMES.get(name, 'errors')}")
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
