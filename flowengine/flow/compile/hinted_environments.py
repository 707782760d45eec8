"""Parameters of Python functions that receive an environment because their hint names its class.

`def count(box: PythonSandbox)` receives the one environment whose resource is a `PythonSandbox`:
among those that the step or tool names, else among those that the file declares. It is passed under
the name of the parameter, as if `environments: {box: …}` were set. The code that runs the function
does not know the difference.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import Any

from flowengine import registry
from flowengine.errors import FlowEngineError
from flowengine.flow.compile.callee import Callee, Hinted
from flowengine.flow.compile.environments import EnvironmentDeclarations
from flowengine.flow.models import Loc


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
        own = {name: environments.kind_of(name) for name in environments.model.environments}
        uses = {
            next(iter(use)): use
            for name, use in named.items()
            if name in callee.environments
            and fits(environments.kind_of(next(iter(use))), hinted.classes)
        }
        if not uses and not hinted.only_named:
            uses = {name: {name: {}} for name, kind in own.items() if fits(kind, hinted.classes)}
        if not uses and not _may_fit(hinted.classes):
            continue  # a class that is not an environment, so an ordinary argument
        taken.append(parameter)
        if len(uses) == 1:
            [use] = uses.values()
            used = environments.use(use, loc, environments.scope.view, by_tool=by_tool)
            if used is not None:
                callee.environments[parameter] = used
        elif uses or hinted.required:
            _report(environments, callee, parameter, hinted, list(uses), loc)
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
    kinds = " or ".join(_kinds_of(hinted.classes))
    message = f"the parameter {parameter!r} of {callee.name} takes a {_words(hinted)}, "
    message += f"and {name!r} is of kind {kind!r}"
    environments.report.at("E402", message, loc, f"give it one of kind {kinds}")


def _words(hinted: Hinted) -> str:
    return " or ".join(name.rpartition(".")[2] for name in hinted.classes)


def _report(
    environments: EnvironmentDeclarations,
    callee: Callee,
    parameter: str,
    hinted: Hinted,
    candidates: list[str],
    loc: Loc,
) -> None:
    message = f"the parameter {parameter!r} of {callee.name} takes a {_words(hinted)}, "
    if candidates:
        message += f"and {' and '.join(map(repr, candidates))} are such environments"
        hint = f"choose one with 'environments: {{{parameter}: {candidates[0]}}}'"
    else:
        message += "and there is no such environment"
        kinds = " or ".join(_kinds_of(hinted.classes))
        hint = f"declare one: 'environments: {{{parameter}: {{kind: {kinds}}}}}'"
    environments.report.at("E402", message, loc, hint)


def _may_fit(classes: list[str]) -> bool:
    """Return whether an installed kind opens one of these classes."""
    return any(
        fits(kind, [name])
        for name in classes
        for kind in registry.kinds_from(name.rpartition(".")[0])
    )


def _kinds_of(classes: list[str]) -> list[str]:
    """Return the kinds that open one of these classes, loading only the packages of the classes."""
    packages = {name.partition(".")[0] for name in classes}
    kinds = [kind for package in sorted(packages) for kind in registry.kinds_from(package)]
    return [kind for kind in kinds if fits(kind, classes)]


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
