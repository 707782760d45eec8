"""Environments and servers of agents in Python, as the flow that runs them declares them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flowengine import registry
from flowengine.agents.agent_tools import AgentWithTools, name_of
from flowengine.errors import FlowEngineError, UsageError
from flowengine.sdk import Plain
from flowengine.sdk.literal_text import literal_text
from flowengine.sdk.python_functions.live_signature import given_parameters, resolved_hints

_SCOPES = {"action_call": "step", "request": "region", "execution": "execution"}
"""Scopes of specs, as a flow says them."""
_LONGEST = 57
"""Characters of a name to which a number can be added."""
_OWN = ("scope", "owner_id", "resource_key")
"""Keys of specs that a flow has in another form."""


class FlowEnvironments:
    """What the flow declares for all agents of a run: what is the same is declared once.

    Args:
        tools: What it declares as tools; gets the servers.
        environments: What it declares as environments.
    """

    def __init__(self, tools: dict[str, Plain], environments: dict[str, Plain]) -> None:
        self.tools = tools
        self.environments = environments

    def environment(
        self, spec: Mapping[str, Any], agent: AgentWithTools, around: Sequence[str] = ()
    ) -> str:
        """Return the name under which a spec of an agent is declared.

        Args:
            spec: The spec; what it mounts is declared as well.
            agent: Whose it is.
            around: Names of the specs that mount it.

        Raises:
            UsageError: It says what no flow can say, or mounts itself.
        """
        name = name_of(dict(spec))
        if name in around:
            raise UsageError(
                f"agent {agent.name!r}: the mounts of the environment {name!r} form a cycle",
                hint="let one of them mount nothing",
            )
        declaration = self._with_mounts(_declaration(spec, agent), agent, [*around, name])
        return declare(self.environments, name, declaration)

    def _with_mounts(
        self, declaration: dict[str, Plain], agent: AgentWithTools, around: Sequence[str]
    ) -> dict[str, Plain]:
        """Return a declaration in which mounted environments have the names of the flow."""
        config: Any = declaration.get("config")
        mounts = config.get("mounts") if isinstance(config, Mapping) else None
        if not isinstance(mounts, Mapping):
            return declaration
        specs = agent.specs
        names = {one: self.environment(specs[one], agent, around) for one in mounts if one in specs}
        mounted = {names.get(one, one): inside for one, inside in mounts.items()}
        return {**declaration, "config": {**config, "mounts": mounted}}

    def server(self, agent: AgentWithTools, name: str) -> str:
        """Return the name under which a server of an agent is declared."""
        [one] = [one for one in agent.servers if one.name == name]
        chosen: dict[str, Plain] = {"exclude": [*one.exclude]}
        if one.include is not None:
            chosen["include"] = [*one.include]
        config: Any = self._with_mounts({"config": one.config}, agent, ())["config"]
        declaration: dict[str, Plain] = {"mcp": literal_text({**config, **chosen})}
        if one.effect is not None:
            declaration["effect"] = one.effect
        if name in agent.approvals:
            declaration["approval"] = agent.approvals[name]
        if (limits := agent.limits_of(name)) is not None:
            declaration["limits"] = limits
        return declare(self.tools, name, declaration)

    def taken(self, agent: AgentWithTools, function: Callable[..., Any]) -> dict[str, Plain]:
        """Return the environments that a function takes: parameter → name in the flow.

        Args:
            agent: Whose tool it is.
            function: It takes them by name, by class, or all in `runtime_resources`.
        """
        specs = agent.specs | _own(function)
        parameters = [one.name for one in given_parameters(function)]
        hints = resolved_hints(function)
        every = "runtime_resources" in parameters
        found = {
            name: self.environment(spec, agent)
            for name, spec in specs.items()
            if every or name in parameters
        }
        for parameter in parameters:
            hint = hints.get(parameter)
            fitting = [spec for spec in specs.values() if _opens(spec["kind"], hint)]
            if parameter not in found and len(fitting) == 1:
                found[parameter] = self.environment(fitting[0], agent)
        return {**found}


def environment_names(agent: AgentWithTools, function: Any) -> list[str]:
    """Return the parameters of a function that are for environments, by their names."""
    return [*agent.environment_names, *_resources(function)]


def _own(function: Any) -> dict[str, dict[str, Any]]:
    """Return the specs that a function names itself, by `@tool(resources={…})`."""
    own = _resources(function).items()
    return {name: {"resource_key": name, **spec} for name, spec in own if spec is not None}


def _resources(function: Any) -> Mapping[str, Any]:
    """Return what `@tool(resources={…})` says."""
    return getattr(getattr(function, "__flowengine_tool__", None), "resources", None) or {}


def _opens(kind: str, hint: Any) -> bool:
    """Return whether a kind of environment opens resources of a class."""
    if not isinstance(hint, type):
        return False
    try:
        opened = registry.provider(kind).resource_types()
    except FlowEngineError:
        return False  # reported with the declaration
    return hint is not object and any(issubclass(one, hint) for one in opened)


def declare(known: dict[str, Plain], name: str, declaration: Plain, case: bool = False) -> str:
    """Declare something unless it is, and return its name: the given one, as far as it can be one.

    Args:
        known: What is declared so far, by name.
        name: The name that it is to have.
        said: What is declared.
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
    """Return a spec as a flow declares it."""
    scope = spec.get("scope", "execution")
    declaration = {key: one for key, one in spec.items() if key not in _OWN}
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
