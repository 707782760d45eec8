"""Objects and environments that a caller provides for one execution, besides its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from flowengine import registry
from flowengine.errors import UsageError
from flowengine.kernel.graph.specs import CompiledFlow
from flowengine.sdk import StepError
from flowengine.sdk.python.argument_checks import check_kind
from flowengine.sdk.steps.context import LIVE, ExecutionContext

_OBJECT = {
    "spec_id": "",
    "kind": "runtime_resources",
    "provider": "",
    "scope": "execution",
    "generation": 1,
}
"""An object of the caller, as shown in lists of environments."""

SCOPES = ("execution", "session")
"""Possible scopes of an environment that no step declares."""


class ResourceMissing(StepError):
    """An object that the starting program provided for the execution is missing here."""

    type = "ResourceMissing"


def missing(execution: ExecutionContext) -> ResourceMissing:
    """Return the error of a step whose execution misses objects of the caller in this process."""
    id, names = execution.id, [name for name in execution.missing if name != LIVE]
    listed = ", ".join(f"'{name}'" for name in names)
    given = f"runtime_resources={{{', '.join(f'{name!r}: …' for name in names)}}}"
    what = f"the program that started it gave it {listed}"
    call = f"engine.resume({id!r}, {given})"
    if LIVE in execution.missing:
        what = "its functions are nested, methods or lambdas of the program that started it"
        what += f", which also gave it {listed}" if names else ""
        call = f"Runner(engine).resume({id!r}, agent{', ' * bool(names)}{given if names else ''})"
    return ResourceMissing(
        f"{what}. There, {call} continues it",
        data={
            "environment": {
                **_OBJECT,
                "owner_id": id,
                "resource_key": listed or "functions of agents",
            }
        },
        retryable=False,
    )


def check_names(
    flow: CompiledFlow, resources: Mapping[str, Any], given: Mapping[str, Any] = {}
) -> None:
    """Refuse objects of the caller that have the name of an environment or of an argument.

    An argument that a model or the flow supplies would be replaced by the object.

    Args:
        flow: The flow to run.
        resources: The caller's objects by name.
        given: Environments that the execution was given, by name.

    Raises:
        UsageError: A name is in use. Nothing was started.
    """
    check_kind("runtime_resources", resources, dict)
    for name in resources:
        if not isinstance(name, str):
            raise UsageError(f"runtime_resources: the name {name!r} is not text")
        if name in given:
            raise UsageError(
                f"runtime_resources has '{name}', and the execution was given an environment of "
                "this name",
                hint="give the object another name",
            )
    if not resources:
        return
    _check_arguments(flow, resources)
    if "environments" not in flow:
        return
    for step, name in _declared(flow):
        if name in resources:
            raise UsageError(
                f"runtime_resources has '{name}', and step '{step}' gets an "
                "environment of this name",
                hint="give the object another name",
            )


def check_environments(
    flow: CompiledFlow,
    resources: Mapping[str, Any],
    specs: Sequence[Mapping[str, Any]],
    named: Callable[[Mapping[str, Any]], tuple[str, str]],
) -> dict[str, Any]:
    """Check the environments that a caller provides for an execution, without opening any.

    Args:
        flow: The flow to run.
        resources: The caller's objects by name.
        specs: The specs, as provided.
        named: Checks a spec, and returns its name and scope.

    Returns:
        Name → the record of the environment to store with the execution.

    Raises:
        UsageError: A name is in use, or a scope is not possible.
        SpecInvalid: A spec has errors.
    """
    taken = {
        name: f"step '{step}' gets an environment of this name" for step, name in _declared(flow)
    }
    taken |= dict.fromkeys(resources, "runtime_resources has an object of this name")
    values: dict[str, Any] = {}
    for spec in specs:
        name, scope = named(spec)
        if scope not in SCOPES:
            raise UsageError(
                f"execution_environments has '{name}' with scope '{scope}'",
                hint=f"it is one of: {', '.join(SCOPES)}",
            )
        if name in taken:
            raise UsageError(
                f"execution_environments has '{name}', and {taken[name]}",
                hint="give it another resource_key",
            )
        taken[name] = "another one has this name"
        values[name] = {"scope": scope, "spec": {**spec, "resource_key": name}, "secrets": True}
    return values


def _check_arguments(flow: CompiledFlow, resources: Mapping[str, Any]) -> None:
    """Refuse objects whose names are those of a function's arguments."""
    for step in flow["steps"]:
        arguments = (step.get("task", {}).get("schema") or {}).get("properties", {})
        for name in resources.keys() & arguments.keys():
            remedy = registry.kind_class(step["kind"]).object_remedy
            if remedy:
                filler = "a model" if "caller" in step else "the flow"
                raise UsageError(
                    f"the program provides an object '{name}', and '{step['id']}' has a parameter "
                    f"of this name, which {filler} fills in",
                    hint=remedy.format(name),
                )


def _declared(flow: CompiledFlow) -> Iterator[tuple[str, str]]:
    """Yield the names of environments of steps, each with the id of the step."""
    for step in flow["steps"]:
        if step.get("environments"):
            for name in step["input"][1]["environments"][1]:
                yield step["id"], name
