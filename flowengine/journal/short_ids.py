"""Short forms of ids for display and input."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from flowengine.errors import Hint, NotFound, UsageError

SHORTEST = 4
"""Minimum number of characters of a prefix. Shorter ones match by accident, and a decision on the
wrong approval cannot be taken back."""
SHORT_WAIT = SHORTEST
"""Minimum number of digits of a wait's id to show."""
SHORT_EXECUTION = 12
"""Minimum number of characters of an execution's id to show: 10 of its time and two random ones,
which distinguish executions started in the same second."""


_RANDOM = re.compile(
    r"[0-9a-hjkmnp-tv-z]{26}|[0-9a-f]{16,}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)
"""The engine's own ids, digests and UUIDs."""


def shortest(full: str, others: Iterable[str], least: int) -> str:
    """Return the shortest prefix of a random id that none of `others` has.

    Args:
        full: The id to shorten.
        others: The ids that it must differ from. Its two neighbors in order are enough.
        least: Minimum number of characters.

    Returns:
        At least `least` characters. All of `full` if another id starts with it, or if it is made
        of words.
    """
    if not _RANDOM.fullmatch(full):  # a user has made it of words, such as `expense-2026-11`
        return full
    length = least
    for other in others:
        while length < len(full) and full[:length] == other[:length]:
            length += 1
    return full[:length]


EXECUTION = "execution"
WAIT = "approval or wait"


def the_one(
    beginning: str, ids: Sequence[str], noun: str, store: str, hint: str | None = None
) -> str:
    """Return the only id with a prefix.

    Args:
        beginning: The given prefix.
        ids: The ids with this prefix, in order. The first few are enough.
        noun: Describes the ids, for errors.
        store: The searched location, for errors.
        hint: For the error if no id matches.

    Returns:
        The only id, or the id that was given in full.

    Raises:
        NotFound: No id has this prefix, or it is shorter than `SHORTEST` and no full id.
        UsageError: Several ids have this prefix.
    """
    if beginning in ids:
        return beginning
    if ids and len(beginning) < SHORTEST:
        hint, ids = f"give at least {SHORTEST} characters of its id", ()
    if len(ids) == 1:
        return ids[0]
    if not ids:
        raise NotFound(f"there is no {noun} {beginning!r} in {store}", hint=hint)
    some = ", ".join(ids[:5]) + (", …" if len(ids) > 5 else "")
    raise UsageError(
        f"{beginning!r} is a prefix of several ids: {some}", hint="use a longer prefix"
    )


def the_one_of(noun: str, beginning: str, ids: Callable[[str], Sequence[str]], store: str) -> str:
    """Return the only execution or wait with a prefix. Errors mention ids of the other kind.

    Args:
        noun: `EXECUTION` or `WAIT`.
        beginning: The given prefix.
        ids: Returns the ids of a kind with the prefix.
        store: The searched location, for errors.

    Returns:
        As `the_one`.

    Raises:
        NotFound: As `the_one`.
        UsageError: Several ids have this prefix, or it is not text.
    """
    if not isinstance(beginning, str):
        hint = f"give the id as text, not {beginning!r}"
        raise UsageError(f"this is not the id of an {noun}", hint=hint)
    candidates, hint = ids(noun), None
    other = WAIT if noun == EXECUTION else EXECUTION
    if len(beginning) >= SHORTEST and not candidates and len(ids(other)) == 1:
        hint = Hint(f"it is the id of an {other}: flowengine show {beginning}")
    return the_one(beginning, candidates, noun, store, hint)
