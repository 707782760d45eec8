"""The short forms in which people type ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

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


EXECUTION = "execution"
WAIT = "approval or wait"
_COMMANDS = {EXECUTION: "flowengine show", WAIT: "flowengine approvals show"}


def the_one(
    beginning: str, found: Sequence[str], noun: str, store: str, hint: str | None = None
) -> str:
    """Return the one id that somebody means by its beginning.

    Args:
        beginning: What was given.
        found: The ids with this prefix, in order; the first few are enough.
        noun: What the ids name, for errors.
        store: Where it was looked for, for errors.
        hint: For the error if there is none.

    Returns:
        The id: the only one, or the one that was given in full.

    Raises:
        NotFound: No id has this prefix.
        UsageError: Several do.
    """
    if beginning in found or (beginning and len(found) == 1):
        return found[0]
    if not found or not beginning:
        raise NotFound(f"there is no {noun} {beginning!r} in {store}", hint=hint)
    some = ", ".join(found[:5]) + (", …" if len(found) > 5 else "")
    raise UsageError(
        f"{beginning!r} is a prefix of several ids: {some}", hint="use a longer prefix"
    )


def the_one_of(noun: str, beginning: str, ids: Callable[[str], Sequence[str]], store: str) -> str:
    """Return the one execution or wait that somebody means; an id of the other kind is told.

    Args:
        noun: `EXECUTION` or `WAIT`.
        beginning: What was given.
        ids: Returns the ids of a kind that begin so.
        store: Where it was looked for, for errors.

    Returns:
        As `the_one`.

    Raises:
        NotFound: No id of this kind has this prefix.
        UsageError: Several do, or it is not text.
    """
    if not isinstance(beginning, str):
        hint = f"give the id as text, not {beginning!r}"
        raise UsageError(f"this is not the id of an {noun}", hint=hint)
    found, hint = ids(noun), None
    other = WAIT if noun == EXECUTION else EXECUTION
    if beginning and not found and len(ids(other)) == 1:
        hint = f"it is the id of an {other}: {_COMMANDS[other]} {beginning}"
    return the_one(beginning, found, noun, store, hint)
