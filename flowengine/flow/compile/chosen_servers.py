"""Tools whose caller chooses the server of their requests, which a model must not do.

For a tool that is a flow, the requests of its steps are examined, including those of flows and
tools below it. There, only constants in the file, or values that are fixed like those of `bind`,
may name a server. Results of steps are foreign text, and may repeat the caller's input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from flowengine import registry
from flowengine.flow.compile.callee import Callee
from flowengine.flow.compile.environments import EnvironmentDeclarations
from flowengine.flow.compile.expressions import Name, deciding, is_constant, is_listed
from flowengine.flow.compile.tools import Tools
from flowengine.flow.loading.files import Definition
from flowengine.flow.models import Compensation, Step, Tool
from flowengine.kernel.graph import environment_uses

_Seen = set[tuple[Definition, frozenset[str]]]


class ChosenServer(NamedTuple):
    """Environments that the caller of a tool names for it."""

    environments: EnvironmentDeclarations
    """The environments of the file."""
    named: Mapping[str, Any]


def chosen_by_caller(tools: Tools, callee: Callee, model: Tool, use: ChosenServer) -> str | None:
    """Return the expression by which the caller of a tool chooses a server, or None.

    Args:
        tools: The tools of the file that declares it.
        callee: The tool, compiled.
        model: Its declaration.
        use: The environments that its caller names for it.
    """
    if callee.flow is not None:
        return _in_flow(tools, callee.flow, callee.bind or {}, set())
    host = callee.chosen_host()
    return host if _is_free(tools.environments, callee, model, use) else None


def _is_free(
    environments: EnvironmentDeclarations, callee: Callee, model: Tool, use: ChosenServer
) -> bool:
    """Return whether the servers that a tool can reach are not limited.

    An environment that it works in limits them. A secret requires one that lists the servers.
    """
    if not callee.hinted and not callee.environments:
        return not callee.has_secret  # otherwise it was reported at the declaration
    names = [name for named in (model.environments or {}).values() for name in named]
    given = environment_uses.names(typed.value for typed in callee.environments.values())
    names += [name for name in given if name in environments.scope.model.environments]
    lists = all(map(environments.lists_servers, names)) and all(
        use.environments.lists_servers(name) for named in use.named.values() for name in named
    )
    return callee.has_secret and not lists


def _in_flow(tools: Tools, flow: Definition, fixed: Iterable[str], seen: _Seen) -> str | None:
    """Return the expression by which the caller of a flow chooses a server, or None.

    Args:
        tools: The tools of any file.
        flow: The flow.
        fixed: Its inputs that its caller does not determine.
        seen: The parts examined so far.
    """
    listed = (name for name, schema in flow.inputs.items() if is_listed(schema))
    known = frozenset({*fixed, *listed})
    if (flow, known) in seen:
        return None
    seen.add((flow, known))
    there = tools.of_file(flow.file)

    def is_fixed(name: Name) -> bool:
        root, key = name
        return _is_fixed_anywhere(name) or (root == "inputs" and key in known)

    for key, given, step in _actions(flow):
        server = None
        arguments = {} if isinstance(step.with_, str) else step.with_
        passed = [name for name, value in arguments.items() if is_constant(value, is_fixed)]
        if key == "flow":
            inner = there.others.find(flow.file, str(given), (*step.loc, "flow"))
            inputs = {} if inner is None or isinstance(step.with_, str) else inner.inputs
            passed += [
                name
                for name, schema in inputs.items()
                if name not in arguments and is_constant(schema.get("default"), _is_fixed_anywhere)
            ]
            server = None if inner is None else _in_flow(there, inner, passed, seen)
        elif key == "call":
            server = _in_tool(there, flow, str(given), step, passed, seen)
        elif registry.has_kind(key) and isinstance(given, dict):
            address = registry.kind_class(key).address(given)
            bounded = isinstance(step, Step) and step.environments
            server = None if address is None or bounded else deciding(address, is_fixed)
        if server is not None:
            return server
    return None


def _is_fixed_anywhere(name: Name) -> bool:
    """Return whether no caller of a flow determines the value of a name."""
    return name[0] in ("execution", "secrets")


def _in_tool(
    tools: Tools,
    flow: Definition,
    name: str,
    step: Step | Compensation,
    given: Iterable[str],
    seen: _Seen,
) -> str | None:
    """Return how the caller of a flow chooses a server for a tool that one of its steps calls.

    Args:
        given: The arguments that the caller does not determine.
    """
    owner = tools.others.files.owner(flow.file, "tools", name, (*step.loc, "call"))
    model = None if owner is None else owner[0].model.tools.get(owner[1])
    if owner is None or model is None or model.server is not None:
        return None
    there = tools.of_file(owner[0])
    callee = there.declared(owner[1])
    if callee is None:
        return None
    if callee.flow is not None:
        return _in_flow(there, callee.flow, [*(callee.bind or {}), *given], seen)
    host = callee.chosen_host(given)
    use = ChosenServer(tools.environments, (isinstance(step, Step) and step.environments) or {})
    return host if _is_free(there.environments, callee, model, use) else None


def _actions(flow: Definition) -> Iterator[tuple[str, Any, Step | Compensation]]:
    """Yield the actions of a flow, including those inside groups and of compensations."""
    steps = [*flow.steps, *flow.finally_]
    for step in steps:  # the list grows during the loop
        steps += [*(step.group or ()), *(step.parallel or ()), *step.finally_]
        for part in (step, step.compensate):
            if part is not None and part.action is not None:
                yield (*part.action, part)
