"""Environments that a caller offers, and the functions and tools that receive them."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from flowengine import registry
from flowengine.errors import FlowEngineError
from flowengine.flow.compile.callee import Callee, Hinted
from flowengine.flow.compile.environments import HOST, EnvironmentDeclarations
from flowengine.flow.models import Loc, Tool
from flowengine.kernel.graph.compiled import Plain
from flowengine.sdk.steps.step_kind import Tool as BroughtTool

# Parameters of Python functions that receive an environment because their hint names its class.
#
# `def count(box: PythonSandbox)` receives the one environment whose resource is a `PythonSandbox`:
# among those that the step or tool names, else among those that the file declares. It is passed
# under the name of the parameter, as if `environments: {box: …}` were set. The code that runs the
# function does not know the difference.


def inject(
    environments: EnvironmentDeclarations,
    callee: Callee,
    named: Mapping[str, Mapping[str, Any]],
    given: Collection[str],
    loc: Loc,
    *,
    by_tool: bool = False,
) -> list[str]:
    """Pass environments to the parameters of a function whose hints name a class of theirs.

    Args:
        environments: The environments of the file.
        callee: The callee of the function, with its named environments.
        named: The environments that the step or tool names, by the names that it uses for them.
        given: Parameters that receive other values.
        loc: The step or tool, for messages.
        by_tool: Whether it is a tool.

    Returns:
        The parameters for environments, including those without one.
    """
    taken = []
    for parameter, hinted in callee.hinted.items():
        if parameter in named:
            _check_named(environments, callee, parameter, hinted, named[parameter], loc)
            continue
        if parameter in given:
            continue
        known = [use for name, use in named.items() if name in callee.environments]
        uses = _fitting(environments, {_name(use): use for use in known}.values(), hinted)
        if not uses and not hinted.only_named:
            own: Uses = {name: {name: {}} for name in environments.model.environments}
            uses = _fitting(environments, own.values(), hinted)
        if not uses and not _may_fit(hinted.classes):
            continue  # a class that is not an environment, so an ordinary argument
        taken.append(parameter)
        if len(uses) == 1:
            used = environments.use(uses[0], loc, environments.scope.view, by_tool=by_tool)
            if used is not None:
                callee.environments[parameter] = used
        elif uses or hinted.required:
            names = [_name(use) for use in uses]
            why = f"{' and '.join(map(repr, names))} are such environments"
            hint = f"choose one with 'environments: {{{parameter}: {''.join(names[:1])}}}'"
            if not names:
                why, kinds = "there is no such environment", _kinds_of(hinted.classes)
                hint = f"declare one: 'environments: {{{parameter}: {{kind: {kinds}}}}}'"
            message = _takes(callee, parameter, hinted)
            environments.report.at("E402", f"{message}, and {why}", loc, hint)
    return taken


def take_named(
    environments: EnvironmentDeclarations,
    callee: Callee,
    named: Mapping[str, Mapping[str, Any]],
    loc: Loc,
) -> None:
    """Replace environments that a callee opens by kind with named ones of that kind.

    Args:
        environments: The environments of the file.
        callee: The callee, with its named environments.
        named: As for `inject`.
        loc: The step or tool, for messages.
    """
    for place, kind in callee.opens.items():
        if place in named:
            continue
        fitting = [name for name, use in named.items() if environments.kind_of(*use) == kind]
        if len(fitting) > 1:
            message = f"{callee.name} works in one environment of kind {kind!r}, and "
            message += f"{' and '.join(map(repr, fitting))} are such environments"
            hint = f"choose one with 'environments: {{{place}: {fitting[0]}}}'"
            environments.report.at("E402", message, (*loc, "environments"), hint)
        elif fitting and fitting[0] in callee.environments:
            callee.environments[place] = callee.environments.pop(fitting[0])


def _check_named(
    environments: EnvironmentDeclarations,
    callee: Callee,
    parameter: str,
    hinted: Hinted,
    use: Mapping[str, Any],
    loc: Loc,
) -> None:
    """Refuse an environment whose class differs from that of the parameter with its name."""
    [name] = use
    kind = environments.kind_of(name)
    if kind is None or fits(kind, hinted.classes) or not _may_fit(hinted.classes):
        return
    message = f"{_takes(callee, parameter, hinted)}, and {name!r} is of kind {kind!r}"
    environments.report.at("E402", message, loc, f"give it one of kind {_kinds_of(hinted.classes)}")


def _takes(callee: Callee, parameter: str, hinted: Hinted) -> str:
    words = " or ".join(name.rpartition(".")[2] for name in hinted.classes)
    return f"the parameter {parameter!r} of {callee.name} takes a {words}"


def _fitting(
    environments: EnvironmentDeclarations, uses: Iterable[Mapping[str, Any]], hinted: Hinted
) -> list[Mapping[str, Any]]:
    """Return the uses of environments whose resources have one of the classes of a parameter."""
    return [use for use in uses if fits(environments.kind_of(_name(use)), hinted.classes)]


def _may_fit(classes: list[str]) -> bool:
    """Return whether an installed kind opens one of these classes."""
    return any(
        fits(kind, [name])
        for name in classes
        for kind in registry.kinds_from(name.rpartition(".")[0])
    )


def _kinds_of(classes: list[str]) -> str:
    """Return, for messages, the kinds that open one of these classes.

    Only the packages of the classes are loaded.
    """
    packages = {name.partition(".")[0] for name in classes}
    kinds = [kind for package in sorted(packages) for kind in registry.kinds_from(package)]
    return " or ".join(kind for kind in kinds if fits(kind, classes))


def fits(kind: str | None, classes: list[str]) -> bool:
    """Return whether the resource of a kind is an instance of one of these classes.

    Its package may re-export the class, so it is identified by package and name.
    """
    if kind is None or kind not in registry.environment_names():
        return False
    try:
        opened = registry.provider(kind).resource_types()
    except FlowEngineError:
        return False  # reported at the declaration
    known = {_known_as(base) for each in opened for base in each.__mro__}
    return any((name.partition(".")[0], name.rpartition(".")[2]) in known for name in classes)


def _known_as(cls: type) -> tuple[str, str]:
    """Return package and name of a class, or nothing for a built-in one."""
    package = cls.__module__.partition(".")[0]
    return ("", "") if package in sys.stdlib_module_names else (package, cls.__name__)


# Environments offered by a caller to its callees, and the selection by each tool.
#
# An agent declares the environments of its tools. Each tool takes those that it can use, and
# nothing is opened for the others.

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
    use = _only([use for use in offered.values() if _runs_programs(environments, _name(use))])
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
    named = (model.environments or {}).values()
    settled = [name for name, one in callee.hinted.items() if _fitting(environments, named, one)]
    own = {*(model.environments or {}), *model.with_, *settled}
    properties = (callee.args or {}).get("properties", {})
    uses: dict[str, Plain] = {}
    for name, use in offered.items():
        hinted = callee.hinted.get(name)
        parameter = name in properties or name in callee.environments
        untyped = properties.get(name, {}).keys() <= {"description"}
        suits = untyped if hinted is None else bool(_fitting(environments, [use], hinted))
        if name not in own and parameter and suits:
            uses[name] = dict(use)
    for argument, known in callee.hinted.items():
        fitting = _fitting(environments, offered.values(), known)
        if argument not in own and argument not in uses and len(fitting) == 1:
            uses[argument] = dict(fitting[0])
    if callee.takes_resources:
        uses |= {name: dict(use) for name, use in offered.items() if name not in {*uses, *own}}
    return uses


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
