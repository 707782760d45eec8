"""The short forms in which people type ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flowengine.errors import NotFound, UsageError

SHORT_WAIT = 4
"""Fewest digits of a wait's id that are shown."""
SHORT_EXECUTION = 12
"""Fewest characters of an execution's id that are shown: 10 of its time and two that are random, so
that executions started in the same second can be distinguished, now and later."""


def shortest(full: str, others: Iterable[str], least: int) -> str:
    """Return the beginning of `full` that none of `others` shares.

    Args:
        full: The id to shorten.
        others: The ids that it must differ from; its two neighbours in order are enough.
        least: Fewest characters to show.

    Returns:
        At least `least` characters; all of `full` if another id starts with it.
    """
    length = least
    for other in others:
        while length < len(full) and full[:length] == other[:length]:
            length += 1
    return full[:length]


def the_one(beginning: str, found: Sequence[str], noun: str, store: str) -> str:
    """Return the one id that somebody means by its beginning.

    Args:
        beginning: What was given.
        found: The ids with this prefix, in order; the first few are enough.
        noun: What the ids name, for errors.
        store: Where it was looked for, for errors.

    Returns:
        The id: the only one, or the one that was given in full.

    Raises:
        NotFound: No id has this prefix.
        UsageError: Several do.
    """
    if beginning in found or (beginning and len(found) == 1):
        return found[0]
    if not found or not beginning:
        raise NotFound(f"there is no {noun} {beginning!r} in {store}")
    some = ", ".join(found[:5]) + (", …" if len(found) > 5 else "")
    raise UsageError(f"{beginning!r} is a prefix of several ids: {some}", hint="give more of it")
