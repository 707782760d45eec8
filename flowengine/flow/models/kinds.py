"""The step kinds that are installed, as the language sees them: action keys and what is behind.

A kind's configuration is a JSON Schema. Its key `x-main` names the property that a bare value
stands for, as `script` in `run: make test`.
"""

from __future__ import annotations

from typing import Any, Literal

from flowengine import registry

Place = Literal["step", "tool"]
_NOT_IN: dict[Place, frozenset[str]] = {
    "step": frozenset({"std", "shell", "mcp"}),
    "tool": frozenset({"std", "run", "mcp"}),
}
"""`std` is called by its tools' names; a script is no tool, and a shell tool no step of its own.
What a tool says of an MCP server is a word of the language: it declares an environment."""


def kind_names(place: Place) -> list[str]:
    """Return the step kinds that can be an action key of a step, or the kind of a tool."""
    return [name for name in registry.kind_names() if name not in _NOT_IN[place]]


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
    return [
        f"{kind}.{tool}"
        for kind in registry.kind_names()
        for tool in registry.kind_class(kind).tools()
    ]


def short_form(schema: dict[str, Any], value: Any) -> Any:
    """Return the long form of a configuration that is given as a bare value."""
    main = schema.get("x-main")
    return value if main is None or value is None or isinstance(value, dict) else {main: value}
