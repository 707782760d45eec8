"""Environments offered by a caller to its callees, and the selection by each tool.

An agent declares the environments of its tools. Each tool takes those that it can use, and nothing
is opened for the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from flowengine import registry
from flowengine.errors import FlowEngineError
from flowengine.flow.compile.callee import Callee
from flowengine.flow.compile.environments import HOST, EnvironmentDeclarations
from flowengine.flow.compile.hinted_environments import fits
from flowengine.flow.models import Tool
from flowengine.sdk.step_kind import Tool as BroughtTool

if TYPE_CHECKING:
    from flowengine.kernel.graph.compiled import Plain

Uses = Mapping[str, Mapping[str, Any]]
"""By the name that a function uses for it: `{environment: arguments}`."""


class Ambiguous(Exception):
    """Several of the environments fit.

    Args:
        names: Their names.
    """

    def __init__(self, names: list[str]) -> None:
        super().__init__(names)
        self.names = names


def taken(
    environments: EnvironmentDeclarations, callee: Callee, model: Tool, offered: Uses
) -> dict[str, Plain]:
    """Return the environment settings of a step that calls a tool: `in`, `environments`.

    Args:
        environments: The environments of the file of both.
        callee: The tool.
        model: Its declaration.
        offered: The offered environments.

    Returns:
        Modifiers of the step, empty if the tool takes none of them.

    Raises:
        Ambiguous: It works in one environment, and several of them fit.
    """
    if callee.step_kind.in_environment:
        return _place(environments, callee, model, offered)
    if not callee.step_kind.takes_arguments or callee.flow is not None:
        return {}
    uses = {**_named(model, offered), **_by_parameter(environments, callee, model, offered)}
    return {"environments": uses} if uses else {}


def taken_by_brought(
    environments: EnvironmentDeclarations, tool: BroughtTool, offered: Uses
) -> dict[str, Plain]:
    """Return the same for a tool of a step kind.

    Args:
        environments: The environments of the file.
        tool: A tool that works in an environment of a kind, or in some whose resources have certain
            classes.
        offered: The offered environments.
    """
    kinds = {_name(use): environments.kind_of(_name(use)) for use in offered.values()}
    fitting: dict[str, list[Mapping[str, Any]]] = {
        place: [use for use in offered.values() if fits(kinds[_name(use)], [*classes])]
        for place, classes in tool.get("environments", {}).items()
    }
    kind = tool.get("environment")
    if kind is not None:
        fitting[kind] = [use for use in offered.values() if kinds[_name(use)] == kind]
    uses = {place: use for place, found in fitting.items() if (use := _only(found)) is not None}
    return {"environments": uses} if uses else {}


def _place(
    environments: EnvironmentDeclarations, callee: Callee, model: Tool, offered: Uses
) -> dict[str, Plain]:
    """Return the environment of a tool that runs a command, unless the tool sets it."""
    given = next(iter(model.kinds.values()), None)
    says_where = isinstance(given, dict) and "in" in given
    if says_where or callee.task.get("in") != HOST:
        return {}
    places = [
        environment
        for environment in offered.values()
        if _runs_programs(environments, _name(environment))
    ]
    use = _only(places)
    return {} if use is None else {"in": use}


def _named(model: Tool, offered: Uses) -> dict[str, Plain]:
    """Return those that the tool names as well, which all offered callers then share."""
    by_name = {_name(use): use for use in offered.values()}
    return {
        parameter: dict(by_name[_name(use)])
        for parameter, use in (model.environments or {}).items()
        if _name(use) in by_name and not any(use.values())
    }


def _by_parameter(
    environments: EnvironmentDeclarations, callee: Callee, model: Tool, offered: Uses
) -> dict[str, Plain]:
    """Return those that a function takes: by name, by type, or all."""
    own = {*(model.environments or {}), *model.bind, *_settled(environments, callee, model)}
    properties = (callee.args or {}).get("properties", {})
    kinds = {name: environments.kind_of(_name(use)) for name, use in offered.items()}
    uses: dict[str, Plain] = {}
    for name, use in offered.items():
        hinted = callee.hinted.get(name)
        parameter = name in properties or name in callee.environments
        untyped = properties.get(name, {}).keys() <= {"description"}
        suits = untyped if hinted is None else fits(kinds[name], hinted.classes)
        if name not in own and parameter and suits:
            uses[name] = dict(use)
    for argument, known in callee.hinted.items():
        fitting = [use for name, use in offered.items() if fits(kinds[name], known.classes)]
        if argument not in own and argument not in uses and len(fitting) == 1:
            uses[argument] = dict(fitting[0])
    if callee.takes_resources:
        uses |= {name: dict(use) for name, use in offered.items() if name not in {*uses, *own}}
    return uses


def _settled(environments: EnvironmentDeclarations, callee: Callee, model: Tool) -> Iterator[str]:
    """Yield the parameters that receive an environment named by the tool itself."""
    kinds = [environments.kind_of(_name(use)) for use in (model.environments or {}).values()]
    for argument, known in callee.hinted.items():
        if any(fits(kind, known.classes) for kind in kinds):
            yield argument


def _only(fitting: list[Mapping[str, Any]]) -> dict[str, Plain] | None:
    if len(fitting) > 1:
        raise Ambiguous([_name(use) for use in fitting])
    return dict(fitting[0]) if fitting else None


def _name(use: Mapping[str, Any]) -> str:
    return next(iter(use))


def _runs_programs(environments: EnvironmentDeclarations, name: str) -> bool:
    kind = environments.kind_of(name)
    try:
        return kind is not None and registry.provider(kind).runs_programs
    except FlowEngineError:
        return False  # reported at the declaration
