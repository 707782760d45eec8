"""Previews of tool calls: the effect of a call, described by its tool for the approver."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from flowengine.sdk.exception_text import describe

SECONDS = 2.0
"""Maximum time for a preview, in seconds."""
LONGEST = 20_000
"""Maximum characters of a preview. An approver would not read more."""
LONGEST_NOTE = 300


class PreviewContext(NamedTuple):
    """Data available to a preview. No resource is opened for a call before it runs."""

    workdir: str
    """The working directory of the execution."""
    environments: Collection[str]
    """Names of the environments that the call will receive."""
    resources: Mapping[str, Any]
    """Objects that the program gave the execution, by name."""
    opened: Mapping[str, Any] = {}
    """Environments of the call that earlier calls have opened, by the same names."""


class Shown(NamedTuple):
    """Information for the approver: a preview, or the reason why there is none."""

    preview: str | None = None
    note: str | None = None


def call_preview(function: Callable[..., Any], args: dict[str, Any]) -> Any:
    """Return the preview of a call by a function, running a coroutine to its end.

    Args:
        function: Takes the arguments as one dict.
        args: Arguments of the call, with secrets masked.
    """
    preview = function(args)
    if not hasattr(preview, "__await__"):
        return preview
    import asyncio

    async def awaited() -> Any:
        return await preview

    return asyncio.run(awaited())


async def computed(preview: Callable[[], Any], mask: Callable[[Any], Any]) -> Shown:
    """Return the information shown to an approver, computed on a thread within the time limit.

    Args:
        preview: Returns the preview. It may raise, hang, or return anything.
        mask: Replaces secrets.
    """
    import asyncio

    from flowengine.sdk.threads import on_thread

    def compute() -> tuple[Any, BaseException | None]:
        try:
            return preview(), None
        except BaseException as error:  # including exceptions that would end the process
            return None, error

    try:
        async with asyncio.timeout(SECONDS):
            found, error = await on_thread(compute)
    except TimeoutError:
        return Shown(note=f"no preview: it took longer than {SECONDS:g} s")
    return _shown(found, mask) if error is None else _failed(error, mask)


def _shown(preview: Any, mask: Callable[[Any], Any]) -> Shown:
    """Return the information shown to an approver for the result of a preview.

    Args:
        preview: Any value. None means that the tool has nothing to show.
        mask: Replaces secrets.
    """
    if preview is None:
        return Shown()
    if not isinstance(preview, str):
        return Shown(note=f"no preview: it is a {type(preview).__name__}, not text")
    text = _storable(mask(preview))
    if len(text) > LONGEST:
        return Shown(note=f"no preview: it has {len(text)} characters, more than {LONGEST}")
    return Shown(preview=text)


def _failed(error: BaseException, mask: Callable[[Any], Any]) -> Shown:
    """Return the information shown to an approver if a preview raised an error."""
    text = _storable(mask(describe(error)))
    return Shown(note=f"no preview: it failed with {text}"[:LONGEST_NOTE])


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
