"""From agents to the flow that runs them, compiled."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from json import dumps
from typing import TYPE_CHECKING, Any

from flowengine.agents.described import Described, describe
from flowengine.agents.python_flows import declared
from flowengine.errors import UsageError
from flowengine.flow.building.flow import Flow
from flowengine.flow.building.references import folder_of, reference
from flowengine.flow.models.types import in_generated
from flowengine.python_modules import import_function
from flowengine.sdk.literal_text import literal_text

if TYPE_CHECKING:
    from flowengine.agents.agent import Agent
    from flowengine.engines.flows import LoadedFlow

STEP = "run"
OUTCOMES = ("resolved", "not_resolved", "max_turns", "budget", "tools_not_executed")


def compile(agents: Sequence[Agent], **how: Any) -> LoadedFlow:
    """Return the flow that runs agents, compiled; `to_networkx()` gives its graph.

    Args:
        agents: The first one begins; whom they hand over to is found by their functions.
        **how: `model`, `max_turns`, `execute_tools`, as of `Runner.run`.

    Returns:
        The flow.

    Raises:
        UsageError: What a run would fail at.
    """
    if not agents:
        raise UsageError("there is no agent to compile", hint="give at least one")
    return loaded(described(agents, **how))


def described(agents: Sequence[Agent], **how: Any) -> Described:
    """Return agents as plain data, with the functions that are only in this process."""
    return describe(agents, _refer, **how)


def loaded(described: Described) -> LoadedFlow:
    """Return the flow that runs described agents."""
    return _loaded(dumps(described.configuration))


@lru_cache(maxsize=64)
def _loaded(configuration: str) -> LoadedFlow:
    from json import loads

    from flowengine.engines.flows import load

    token = in_generated.set(True)
    try:
        return load(_flow(literal_text(loads(configuration))))
    finally:
        in_generated.reset(token)


def _flow(configuration: dict[str, Any]) -> Flow:
    flow = Flow(
        "agents",
        inputs={"messages": {"type": "array"}, "context": {"type": "object"}},
        limits={"activations": 1_000_000, "steps": 1_000_000},
    )
    for section, declarations in declared(configuration).items():
        for name, declaration in declarations.items():
            flow.declare(section, name, declaration)
    agents = {key: configuration[key] for key in ("agents", "max_turns", "last", "execute_tools")}
    flow.step(
        STEP,
        action={"python_agents": agents},
        with_={"messages": "${{ inputs.messages }}", "context_variables": "${{ inputs.context }}"},
        next={"outcome": dict.fromkeys(OUTCOMES, "end")},
    )
    flow.output("run", f"${{{{ steps.{STEP}.output }}}}")
    flow.output("outcome", f"${{{{ steps.{STEP}.outcome }}}}")
    return flow


def _refer(function: Any) -> tuple[str, str] | None:
    """Return under which name another process finds a function; None: under none."""
    try:
        name = reference(function)
        module = function.__module__
        folder = folder_of(module, function.__code__.co_filename)
        found = import_function(name, folder)
    except Exception:
        return None  # a lambda, a method, of a program in no file: it is live
    return (name, folder) if found is function else None
