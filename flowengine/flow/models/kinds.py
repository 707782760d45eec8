"""The installed step kinds as the language sees them: action keys and their configurations.

A kind's configuration is a JSON Schema. Its key `x-main` names the property that a bare value
stands for, such as `script` in `run: make test`.
"""

from __future__ import annotations

from typing import Any

from flowengine import registry
from flowengine.errors import FlowEngineError
from flowengine.flow.models.types import in_generated
from flowengine.sdk.steps.step_kind import KindPlace, StepKind, Synonym, Tool

ASK = "std.ask"
"""The question to a user. It is a wait, not a call."""


def is_kind(name: str, place: KindPlace) -> bool:
    """Return whether a step kind can be used at a place, importing it if it is installed.

    A kind that cannot be imported counts as usable anywhere. The failed import is reported at its
    use.

    Args:
        name: A key of the file.
        place: Whether it would be the action of a step or the kind of a tool.
    """
    if not registry.has_kind(name):
        return False
    places = _class_of(name).places
    return place in places or (in_generated.get() and "generated" in places)


def kind_names(place: KindPlace) -> list[str]:
    """Return the step kinds that can be used at a place.

    Imports all of them: for messages and schemas.
    """
    return [name for name in registry.kind_names() if is_kind(name, place)]


def _class_of(name: str) -> type[StepKind]:
    """Return the class of a step kind, or `StepKind` for one that is unknown or not importable."""
    try:
        return registry.kind_class(name) if registry.has_kind(name) else StepKind
    except FlowEngineError:
        return StepKind


def takes_arguments(name: str, place: KindPlace = "step") -> bool:
    """Return whether a step kind is called with arguments. False for unknown kinds."""
    if not is_kind(name, place):
        return False
    try:
        return registry.kind_class(name).takes_arguments
    except FlowEngineError:
        return True  # it may, and the failed import is reported elsewhere


def works_in_environment(name: str) -> bool:
    """Return whether a step with this action has `in`. False for unknown kinds."""
    return _class_of(name).in_environment


def generates(name: str) -> bool:
    """Return whether a step kind may generate flows. False for unknown kinds."""
    generate = _class_of(name).generate
    return generate.__func__ is not StepKind.generate.__func__  # type: ignore[attr-defined]


def session_of(name: str) -> str | None:
    """Return the kind of environment that a tool of a step kind opens, or None."""
    return _class_of(name).session


def idempotent_if(name: str) -> str:
    """Return the condition under which a flow may declare a step kind idempotent."""
    return _class_of(name).idempotent_if


def synonym_of(kind: str, word: str) -> Synonym | None:
    """Return the key of a step kind's configuration for a term from other systems."""
    return registry.kind_class(kind).synonym(word)


def configuration(name: str) -> dict[str, Any]:
    """Return the JSON Schema of the configuration of a kind.

    Args:
        name: One of `kind_names`.

    Returns:
        A JSON Schema, draft 2020-12.

    Raises:
        UnknownKind: The kind's package cannot be imported.
    """
    return dict(registry.kind_class(name).configuration())


def brought_tools() -> list[str]:
    """Return the names of the tools that need no declaration, such as `std.print`."""
    return [f"{kind}.{tool}" for kind in registry.kind_names() for tool in tools_of(kind)]


def tools_for_globs(kind: str, *, all: bool) -> list[str]:
    """Return the tools of a step kind that a glob can match, without those that must be named.

    Tools that ask users, run commands or run code must be named in full, so that `std.*` does not
    give them to a model by accident. Tools that are `apart` must be named at least by the beginning
    of their names.

    Args:
        kind: The step kind.
        all: The glob consists of the kind only.
    """
    return [
        f"{kind}.{name}"
        for name, tool in tools_of(kind).items()
        if f"{kind}.{name}" != ASK
        and ("environments" not in tool or tool.get("optional", False))
        and not (all and tool.get("apart", False))
    ]


def tools_of(kind: str) -> dict[str, Tool]:
    """Return the tools of a step kind, or none if it cannot be imported."""
    return dict(_class_of(kind).tools())


def short_form(schema: dict[str, Any], value: Any) -> Any:
    """Return the long form of a configuration that is given as a bare value."""
    main = schema.get("x-main")
    return value if main is None or value is None or isinstance(value, dict) else {main: value}
