"""Suggestions of known words for misspelled ones, used in hints of errors."""

from __future__ import annotations

from collections.abc import Iterable

LONGEST = 64
"""Characters of a word for which a suggestion is made."""
MOST = 20
"""Known words that are compared letter by letter: those with the most common letters at their
beginning and end, which a single mistake leaves alone."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that was most likely meant.

    Args:
        word: The word that was written.
        known: The valid words.

    Returns:
        The nearest one by edit distance, or None if none is near.
    """
    from difflib import get_close_matches
    from heapq import nlargest

    if len(word) > LONGEST:
        return None
    folded = {one.lower().replace("-", "_"): one for one in known if len(one) <= LONGEST}
    wanted = word.lower().replace("-", "_")
    near = (
        nlargest(MOST, folded, key=lambda one: _ends(wanted, one)) if len(folded) > MOST else folded
    )
    matches = get_close_matches(wanted, near, n=3, cutoff=0.6)
    return next((folded[word] for word in matches if plausible(wanted, word)), None)


def _ends(one: str, other: str) -> int:
    """Return the number of letters that two words have in common at their beginning and end."""
    return sum(
        next((at for at, (a, b) in enumerate(zip(*pair, strict=False)) if a != b), len(one))
        for pair in ((one, other), (one[::-1], other[::-1]))
    )


def plausible(word: str, meant: str) -> bool:
    """Return whether a word may be a misspelling of another: most leave the first letter alone.

    `switch` is not `with`, though they share most letters.

    Args:
        word: The word that was written.
        meant: The word that may be meant.

    Returns:
        Whether to suggest it.
    """
    from difflib import SequenceMatcher

    if word[:1] == meant[:1]:
        return len(word) > 2 or len(meant) <= 3
    same_letters = sorted(word) == sorted(meant) or (len(word) > 2 and meant.endswith(word))
    return same_letters or SequenceMatcher(None, word, meant).ratio() >= 0.85


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return the hint `did you mean '...'?`, or None if no known word is near."""
    matches = nearest(word, known)
    return None if matches is None else f"did you mean {matches!r}?"
