"""Functions marked as tools by `@tool`, and their options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, Unpack, overload

from typing_extensions import TypedDict

from flowengine.sdk import Effect
from flowengine.sdk.python.argument_checks import check_function, check_keywords, seconds_of

Approval = Literal["ask", "none", "required"]
_Function = TypeVar("_Function", bound=Callable[..., Any])


class ToolOptions(TypedDict, total=False):
    """Options of `@tool`. Most are attributes of `flowengine.tool_environment.Tool`, too."""

    name: str | None
    description: str | None
    supports_parallel_execution: bool
    approval: Approval | None
    """Left out: a tool environment asks its authority, and an agent requires no approval."""
    effect: Effect
    timeout: float | str | None
    """Seconds, or a duration such as `500ms`."""
    resources: Mapping[str, Mapping[str, Any] | None] | None
    limits: Mapping[str, Any] | None
    preview: Callable[[dict[str, Any]], Any] | None
    """Takes the arguments."""


@overload
def tool(function: _Function, /) -> _Function: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[_Function], _Function]: ...
def tool(function: Any = None, /, **options: Any) -> Any:
    """Mark a function as a tool. It can still be called as before.

    Args:
        function: The function, if the decorator is used without parentheses.
        **options: As the attributes of `Tool`.

    Returns:
        The same function, or a decorator.
    """
    check_keywords("a tool", options, ToolOptions.__annotations__)
    if "timeout" in options:
        options["timeout"] = seconds_of(options["timeout"], "the timeout of a tool")

    def mark(marked: Any) -> Any:
        check_function(marked, "write @tool above the function")
        marked.__flowengine_tool__ = options
        return marked

    return mark if function is None else mark(function)


def tool_options(function: Any) -> Mapping[str, Any] | None:
    """Return the options that `@tool` gave a function, or None if it is not decorated."""
    options: Mapping[str, Any] | None = getattr(function, "__flowengine_tool__", None)
    return options


def tool_option(function: Any, name: str) -> Any:
    """Return an option of a function, set by `@tool` or by an attribute."""
    options = tool_options(function)
    return getattr(function, name, None) if options is None else options.get(name)
