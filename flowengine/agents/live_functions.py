"""Functions of agents in Python: by name, or only in the program that made them, under a key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from flowengine.sdk import Plain, StepContext, ToolError, import_function

if TYPE_CHECKING:
    from flowengine.sdk.previews import PreviewContext

LIVE = "_agent_functions"
"""Among the resources of an execution: key → function."""


def function_of(
    context: StepContext | PreviewContext, named: Mapping[str, Plain]
) -> Callable[..., Any]:
    """Return a function as a flow names it.

    Args:
        context: Has the objects of the program.
        named: Its `name` and `folder`; or `live`, its key.

    Raises:
        ToolError: It is in another program.
    """
    if "name" in named:
        return import_function(named["name"], named["folder"])
    found = context.resources.get(LIVE, {}).get(named["live"])
    if found is None:
        raise ToolError(
            f"the function {named['live']} is in the program that began this execution, and not "
            "in this one: resume it there",
            retryable=False,
        )
    return found  # type: ignore[no-any-return]
