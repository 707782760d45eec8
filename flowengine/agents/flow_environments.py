"""Declarations of the environments and servers of Python agents, for the flow that runs them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flowengine import registry
from flowengine.agents.agent_tools import AgentWithTools, name_of, tool_options
from flowengine.errors import FlowEngineError, UsageError
from flowengine.sdk import Plain
from flowengine.sdk.literal_text import literal_text
from flowengine.sdk.python_functions.live_signature import given_parameters, resolved_hints

_SCOPES = {"action_call": "step", "request": "region", "execution": "execution"}
"""Scopes of specs and the corresponding scopes in a flow."""
_LONGEST = 57
"""Maximum characters of a name to which a number can be appended."""
_OWN = ("scope", "owner_id", "resource_key")
"""Keys of specs that a flow expresses differently."""


class FlowEnvironments:
    """Declarations shared by all agents of a run. Equal ones are declared once.

    Args:
        tools: Tool declarations, to which servers are added.
        environments: Environment declarations.
    """

    def __init__(self, tools: dict[str, Plain], environments: dict[str, Plain]) -> None:
        self.tools = tools
        self.environments = environments

    def environment(
        self, spec: Mapping[str, Any], agent: AgentWithTools, around: Sequence[str] = ()
    ) -> str:
        """Declare an environment spec of an agent, and return its name in the flow.

        Args:
            spec: The spec. Environments that it mounts are declared as well.
            agent: The agent that owns it.
            around: Names of the specs that mount it.

        Raises:
            UsageError: A flow cannot express the spec, or the spec mounts itself.
        """
        name = name_of(dict(spec))
        if name in around:
            raise UsageError(
                f"agent {agent.name!r}: the mounts of the environment {name!r} form a cycle",
                hint="let one of them mount nothing",
            )
        declaration = self.with_mounts(_declaration(spec, agent), agent, [*around, name])
        return declare(self.environments, name, declaration)

    def with_mounts(
        self, declaration: dict[str, Plain], agent: AgentWithTools, around: Sequence[str] = ()
    ) -> dict[str, Plain]:
        """Return a declaration in which mounted environments have their names in the flow.

        Args:
            declaration: The declaration of an environment or a server, with its `config`.
            agent: The agent that owns it.
            around: Names of the specs that mount it.
        """
        config: Any = declaration.get("config")
        mounts = config.get("mounts") if isinstance(config, Mapping) else None
        if not isinstance(mounts, Mapping):
            return declaration
        specs = agent.specs
        names = {
            mount: self.environment(specs[mount], agent, around)
            for mount in mounts
            if mount in specs
        }
        mounted = {names.get(mount, mount): inside for mount, inside in mounts.items()}
        return {**declaration, "config": {**config, "mounts": mounted}}

    def taken(self, agent: AgentWithTools, function: Callable[..., Any]) -> dict[str, Plain]:
        """Return the environments that a function takes: parameter → name in the flow.

        Args:
            agent: The agent that has the function as a tool.
            function: The function. It takes environments by name, by class, or all of them in
                `runtime_resources`.
        """
        specs = agent.specs | _own(function)
        parameters = [source.name for source in given_parameters(function)]
        hints = resolved_hints(function)
        every = "runtime_resources" in parameters
        environments = {
            name: self.environment(spec, agent)
            for name, spec in specs.items()
            if every or name in parameters
        }
        for parameter in parameters:
            hint = hints.get(parameter)
            fitting = [spec for spec in specs.values() if _opens(spec["kind"], hint)]
            if parameter not in environments and len(fitting) == 1:
                environments[parameter] = self.environment(fitting[0], agent)
        return {**environments}


def environment_names(agent: AgentWithTools, function: Any) -> list[str]:
    """Return the names of a function's parameters that receive environments."""
    return [*agent.environment_names, *_resources(function)]


def _own(function: Any) -> dict[str, dict[str, Any]]:
    """Return the specs that a function declares itself with `@tool(resources={…})`."""
    own = _resources(function).items()
    return {name: {"resource_key": name, **spec} for name, spec in own if spec is not None}


def _resources(function: Any) -> Mapping[str, Any]:
    """Return the value of `@tool(resources={…})`."""
    return (tool_options(function) or {}).get("resources") or {}


def _opens(kind: str, hint: Any) -> bool:
    """Return whether a kind of environment opens resources of a class."""
    if not isinstance(hint, type):
        return False
    try:
        opened = registry.provider(kind).resource_types()
    except FlowEngineError:
        return False  # reported with the declaration
    return hint is not object and any(issubclass(cls, hint) for cls in opened)


def declare(known: dict[str, Plain], name: str, declaration: Plain, case: bool = False) -> str:
    """Add a declaration unless an equal one exists, and return its name.

    The name is the given one, converted to a valid and unused id.

    Args:
        known: Existing declarations, by name.
        name: The preferred name.
        declaration: The declaration.
        case: Whether the name keeps its capital letters.
    """
    plain = name if case else name.lower()
    base = re.sub(r"[^A-Za-z0-9]+", "_", plain).strip("_")[:_LONGEST]
    base = base if base[:1].isalpha() else f"x_{base}"
    number, free = 1, base
    while known.get(free, declaration) != declaration:
        number += 1
        free = f"{base}_{number}"
    known[free] = declaration
    return free


def _declaration(spec: Mapping[str, Any], agent: AgentWithTools) -> dict[str, Plain]:
    """Return the declaration of a spec in a flow."""
    scope = spec.get("scope", "execution")
    declaration = {key: value for key, value in spec.items() if key not in _OWN}
    for key in declaration.keys() & {"config", "policy"}:
        declaration[key] = literal_text(declaration[key])
    where = f"agent {agent.name!r}: the environment {name_of(dict(spec))!r}"
    if isinstance(declaration.get("keep_for"), int | float):
        declaration["keep_for"] = f"{round(declaration['keep_for'] * 1000)}ms"
    if scope in ("session", "agent"):
        owner = spec.get("owner_id") or (agent.name if scope == "agent" else "")
        if not owner:
            raise UsageError(
                f"{where} is of the scope 'session' and does not say whose",
                hint="add owner_id: executions of one owner share it",
            )
        key = owner if scope == "session" else f"agent {owner}"
        return {**declaration, "scope": "session", "key": key}
    if scope not in _SCOPES:
        raise UsageError(
            f"{where} has the scope {scope!r}",
            hint=f"it is one of: {', '.join([*_SCOPES, 'session', 'agent'])}",
        )
    return {**declaration, "scope": _SCOPES[scope]}
