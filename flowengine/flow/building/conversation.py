"""A flow file as a conversation of one of its agents with a user."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from flowengine.errors import InputError
from flowengine.flow.building.flow import Flow
from flowengine.flow.building.from_file import adopt
from flowengine.flow.compile.expressions import is_constant
from flowengine.flow.loading.inline_agents import with_entries
from flowengine.flow.source.yaml_source import read
from flowengine.sdk.texts.near_words import did_you_mean

STEP = "chat"
KEPT = (
    "flowengine", "id", "title", "version", "imports", "inputs", "state", "secrets", "agents",
    "tools", "environments", "flows", "defaults", "rules", "budget",
)  # fmt: skip
"""The sections of a file that a conversation keeps. Its steps and their settings are left out."""


def conversation(
    path: str | PathLike[str], agent: str | None = None, *, lazy: bool = False
) -> Flow:
    """Return a flow in which an agent of a file talks with a user.

    Args:
        path: The flow file, or one with declarations only.
        agent: The name of the agent, or of the step that declares it. None means the agent of the
            first step that runs one, or the only agent.
        lazy: Whether its environments are opened on first use, regardless of the file.

    Returns:
        The flow. It takes the inputs of the file except for required ones that only steps use, such
        as the parts of a prompt.

    Raises:
        FlowFileError: The file is not YAML, or not a mapping.
        InputError: The agent does not exist, or it is ambiguous.
    """
    flow = Flow("", folder=Path(path).resolve().parent)
    adopt(flow, with_entries(read(fspath(path))))
    declared = flow.head.get("agents")
    names = list(declared) if isinstance(declared, Mapping) else []
    agents = [step.spec.get("agent") for step in flow.every()]
    run = [agent.get("name") if isinstance(agent, Mapping) else agent for agent in agents]
    runnable = (one for one in run if isinstance(one, str) and (one in names or "." in one))
    name = agent or next(runnable, None) or (names[0] if len(names) == 1 else None)
    if name is None:
        message = f"{path} declares no agents"
        if names:
            message = f"{path} declares several agents: {', '.join(names)}"
        raise InputError(message, hint="choose one with --agent NAME" if names else None)
    if agent is not None and agent not in names and "." not in agent:
        raise InputError(f"{path} declares no agent {agent!r}", hint=did_you_mean(agent, names))
    flow.head = {key: value for key, value in flow.head.items() if key in KEPT}
    if isinstance(inputs := flow.head.get("inputs"), Mapping):
        flow.head["inputs"] = {
            name: value for name, value in inputs.items() if _is_taken(name, value, flow.head)
        }
    environments = flow.head.get("environments")
    if lazy and isinstance(environments, Mapping):
        flow.head["environments"] = {
            name: _lazy(environment) for name, environment in environments.items()
        }
    flow.steps.clear()
    flow.cleanup.clear()
    return _talking(flow, name)


def conversation_with(agent: object, folder: str | PathLike[str]) -> Flow:
    """Return a flow in which an agent built in Python talks with a user.

    Args:
        agent: The `Agent`.
        folder: The directory of the file that defines it.
    """
    flow = Flow("chat", folder=folder)
    return _talking(flow, agent)


def _talking(flow: Flow, agent: object) -> Flow:
    """Add the only step of a conversation."""
    words: dict[str, Any] = {"agent": {"name": agent, "chat": True}}
    flow.step(STEP, **words)
    flow.head["outputs"] = {"last": f"${{{{ steps.{STEP}.output }}}}"}
    return flow


def _is_taken(name: str, schema: Any, head: Mapping[str, Any]) -> bool:
    """Return whether a conversation takes an input: it is optional, or it is used.

    Args:
        name: The name of the input.
        schema: Its declaration.
        head: The sections that the conversation keeps.
    """
    if isinstance(schema, Mapping) and "default" in schema:
        return True
    # Flows of the file have separate inputs.
    others = {key: value for key, value in head.items() if key != "flows"}
    return not is_constant(others, lambda one: one not in (("inputs", name), ("inputs", None)))


def _lazy(environment: Any) -> Any:
    """Return the declaration of an environment without `eager`."""
    if not isinstance(environment, Mapping):
        return environment
    return {key: value for key, value in environment.items() if key != "eager"}
