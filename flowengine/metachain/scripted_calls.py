"""Calls that a model made elsewhere, as entries of a script: so a run makes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def as_scripted(call: Any) -> dict[str, Any]:
    """Return a call as a scripted reply has it.

    Args:
        call: `{"id", "function": {"name", "arguments"}}`, or an object with such attributes.
    """

    def of(thing: Any, name: str) -> Any:
        return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)

    function = of(call, "function")
    arguments = of(function, "arguments")
    return {
        "id": of(call, "id") or "",
        "name": of(function, "name"),
        "arguments": "{}" if arguments is None else arguments,
    }
