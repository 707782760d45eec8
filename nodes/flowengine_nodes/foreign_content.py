"""What others wrote, as tools of agents return it: in a block that it cannot close.

A page or document may pose as the project in what it says and in why it cannot be read: an error
quotes names, headers and text of the file. The environment that read it marks it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from flowengine.sdk import Plain, StepContext, StepError, ValidationError


class _Reads(NamedTuple):
    """What a tool reads, and where."""

    place: str
    """Under which name it finds its environment."""
    sources: tuple[str, ...]
    """Arguments that may name what is read."""


_READS: Mapping[str, _Reads] = {
    "read_document": _Reads("documents", ("url", "path")),
    "visit_page": _Reads("documents", ("address",)),
    "http": _Reads("web", ("url",)),
}


def result_for_model(
    context: StepContext, tool: str, args: Mapping[str, Any], result: Plain
) -> Plain:
    """Return the result of a tool as a model may be shown it; text is marked already."""
    if tool not in _READS or isinstance(result, str):
        return result
    text = json.dumps(result, ensure_ascii=False)
    told: str = context.resources[_READS[tool].place].marked(text, _source(tool, args))
    return told


def mark_error(context: StepContext, tool: str, args: Mapping[str, Any], error: StepError) -> None:
    """Put the message of an error as a model may be shown it.

    That arguments are refused is said before anything is read, in our own words.
    """
    if tool in _READS and not isinstance(error, ValidationError):
        resource = context.resources[_READS[tool].place]
        error.message = resource.marked_failure(error.message, _source(tool, args))
        error.args = (error.message,)


def _source(tool: str, args: Mapping[str, Any]) -> str:
    return next((str(args[name]) for name in _READS[tool].sources if args.get(name)), tool)
