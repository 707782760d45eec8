"""Functions of Python agents, found by import or, in the program that created them, by key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flowengine.agents.agent import typed_answer
from flowengine.sdk import Plain, StepContext, ToolError, import_function
from flowengine.sdk.steps.context import LIVE
from flowengine.sdk.steps.previews import PreviewContext


def converter(context: StepContext, named: Mapping[str, Plain]) -> Callable[[Plain], object] | None:
    """Return the function that converts an answer to a type, or None in another program.

    There, answers are only checked against the schema of the type.

    Args:
        context: Provides the resources of the program.
        named: Where the type is, as for `function_of`.
    """
    if "name" not in named and named["live"] not in context.resources.get(LIVE, {}):
        return None

    return lambda value: typed_answer(function_of(context, named), value)


def function_of(
    context: StepContext | PreviewContext, named: Mapping[str, Plain]
) -> Callable[..., Any]:
    """Return a function that a flow refers to.

    Args:
        context: Provides the resources of the program.
        named: Its `name` and `folder`, or its key as `live`.

    Raises:
        ToolError: The function exists only in another program.
    """
    if "name" in named:
        return import_function(named["name"], named["folder"])
    function = context.resources.get(LIVE, {}).get(named["live"])
    if function is None:
        raise ToolError(
            f"the function {named['live']} is in the program that began this execution, and not "
            "in this one: resume it there",
            retryable=False,
        )
    return function  # type: ignore[no-any-return]
