"""Previews: what a call would do, as its tool says, for people who are asked about it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

SECONDS = 2.0
"""How long a preview is waited for."""
LONGEST = 20_000
"""Characters of a preview: more than that nobody reads before a decision."""
LONGEST_NOTE = 300


class PreviewContext(NamedTuple):
    """What a tool may look at for a preview: nothing is opened for the call before it is made."""

    workdir: str
    """The working folder of the execution."""
    environments: Collection[str]
    """Names of the environments that the call will get."""
    resources: Mapping[str, Any]
    """Objects that the program gave the execution, by name."""
    opened: Mapping[str, Any] = {}
    """Those of the environments that are open, for calls before this one, by the same names."""


class Shown(NamedTuple):
    """What people are shown: a preview, or why there is none."""

    preview: str | None = None
    note: str | None = None


def call_preview(function: Callable[..., Any], args: dict[str, Any]) -> Any:
    """Return what a function says about a call; runs a coroutine to its end.

    Args:
        function: Takes the arguments as one dict.
        args: Those of the call, secrets masked.
    """
    found = function(args)
    if not hasattr(found, "__await__"):
        return found
    import asyncio

    async def awaited() -> Any:
        return await found

    return asyncio.run(awaited())


def shown(found: Any, mask: Callable[[Any], Any]) -> Shown:
    """Return what people are shown of what a preview gave.

    Args:
        found: Anything; None: the tool has nothing to show.
        mask: Replaces secrets.
    """
    if found is None:
        return Shown()
    if not isinstance(found, str):
        return Shown(note=f"no preview: it is a {type(found).__name__}, not text")
    text = _storable(mask(found))
    if len(text) > LONGEST:
        return Shown(note=f"no preview: it has {len(text)} characters, more than {LONGEST}")
    return Shown(preview=text)


def failed(error: BaseException, mask: Callable[[Any], Any]) -> Shown:
    """Return what people are shown if a preview raised an error."""
    try:
        message = str(error)
    except Exception:  # code of somebody else, as everything about it
        message = ""
    text = _storable(
        mask(f"{type(error).__name__}: {message}" if message else type(error).__name__)
    )
    return Shown(note=f"no preview: it failed with {text}"[:LONGEST_NOTE])


def too_slow() -> Shown:
    """Return what people are shown if a preview did not end in time."""
    return Shown(note=f"no preview: it took longer than {SECONDS:g} s")


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
