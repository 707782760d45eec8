"""Keywords that a function takes as a typed map: one that is unknown is an error, as everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def check_keywords(what: str, given: Mapping[str, object], known: Iterable[str]) -> None:
    """Check the keywords that a function took by `**`.

    Args:
        what: What they belong to, for the message: `a decision`.
        given: The keywords.
        known: Those that there are.

    Raises:
        TypeError: One is unknown; the message names the nearest that there is.
    """
    names = sorted(known)
    unknown = next((name for name in given if name not in names), None)
    if unknown is None:
        return
    from difflib import get_close_matches

    near = get_close_matches(unknown, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(names)}"
    raise TypeError(f"{what} has no {unknown!r}; {hint}")
