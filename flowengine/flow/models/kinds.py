"""The step kinds that are installed, as the language sees them: action keys and what is behind.

A kind's configuration is a JSON Schema. Its key `x-main` names the property that a bare value
stands for, as `script` in `run: make test`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from flowengine import registry
from flowengine.errors import FlowEngineError
from flowengine.flow.models.types import in_generated
from flowengine.sdk.step_kind import KindPlace, StepKind, Synonym, Tool

ASK = "std.ask"
"""The question to a person: no call, but a wait."""


def is_kind(name: str, place: KindPlace) -> bool:
    """Return whether a step kind can stand at a place; one that is installed is imported for it.

    One that cannot be imported can stand everywhere: that is reported where it is used.

    Args:
        name: A key of the file.
        place: Whether it would be the action of a step or the kind of a tool.
    """
    if not registry.has_kind(name):
        return False
    places = _places(name)
    return place in places or (in_generated.get() and "generated" in places)


def kind_names(place: KindPlace) -> list[str]:
    """Return the step kinds that can stand at a place. Imports all: for messages and schemas."""
    return [name for name in registry.kind_names() if is_kind(name, place)]


def _places(name: str) -> Collection[KindPlace]:
    try:
        return registry.kind_class(name).places
    except FlowEngineError:
        return ("step", "tool")


def takes_arguments(name: str, place: KindPlace = "step") -> bool:
    """Return whether a step kind is called with arguments; no if there is no such kind."""
    if not is_kind(name, place):
        return False
    try:
        return registry.kind_class(name).takes_arguments
    except FlowEngineError:
        return True  # it may well: that it cannot be imported is reported


def works_in_environment(name: str) -> bool:
    """Return whether a step with this action has `in`; no if there is no such step kind."""
    try:
        return registry.has_kind(name) and registry.kind_class(name).in_environment
    except FlowEngineError:
        return False


def generates(name: str) -> bool:
    """Return whether a step kind may generate flows; no if there is no such kind."""
    try:
        found = registry.kind_class(name) if registry.has_kind(name) else StepKind
    except FlowEngineError:
        return False
    return found.generate.__func__ is not StepKind.generate.__func__  # type: ignore[attr-defined]


def session_of(name: str) -> str | None:
    """Return the kind of environment that a tool of a step kind opens; None: it opens none."""
    try:
        return registry.kind_class(name).session if registry.has_kind(name) else None
    except FlowEngineError:
        return None


def idempotent_if(name: str) -> str:
    """Return what has to be true before a flow may say that a step kind is idempotent."""
    try:
        return registry.kind_class(name).idempotent_if if registry.has_kind(name) else ""
    except FlowEngineError:
        return ""


def synonym_of(kind: str, word: str) -> Synonym | None:
    """Return which key of a step kind's configuration a word from elsewhere means."""
    return registry.kind_class(kind).synonym(word)


def configuration(name: str) -> dict[str, Any]:
    """Return the JSON Schema of what stands behind the key of a kind.

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
    """Return the tools of a step kind that a glob can mean: none that runs what it is told.

    What asks people, runs commands or code is named in full, so that `std.*` gives it to no model
    by accident; what is `apart` is at least named by the beginning of its name.

    Args:
        kind: The step kind.
        all: The glob says nothing but the kind.
    """
    return [
        f"{kind}.{name}"
        for name, tool in tools_of(kind).items()
        if f"{kind}.{name}" != ASK
        and ("environments" not in tool or tool.get("optional", False))
        and not (all and tool.get("apart", False))
    ]


def tools_of(kind: str) -> dict[str, Tool]:
    """Return the tools that a step kind brings; none if it cannot be imported."""
    try:
        return dict(registry.kind_class(kind).tools()) if registry.has_kind(kind) else {}
    except FlowEngineError:
        return {}


def short_form(schema: dict[str, Any], value: Any) -> Any:
    """Return the long form of a configuration that is given as a bare value."""
    main = schema.get("x-main")
    return value if main is None or value is None or isinstance(value, dict) else {main: value}
