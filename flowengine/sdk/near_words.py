"""Words that were most likely meant in place of ones that do not exist, for hints of errors."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that was most likely meant.

    Args:
        word: What stands there.
        known: What could stand there.

    Returns:
        The nearest one by edit distance, or None if none is near.
    """
    from difflib import get_close_matches

    folded = {word.lower().replace("-", "_"): word for word in known}
    wanted = word.lower().replace("-", "_")
    found = get_close_matches(wanted, folded, n=3, cutoff=0.6)
    return next((folded[word] for word in found if plausible(wanted, word)), None)


def plausible(word: str, meant: str) -> bool:
    """Say whether a word may be another one misspelt: most slips leave the first letter alone.

    `switch` is not `with`, though they share most letters.

    Args:
        word: What stands there.
        meant: What may be meant.

    Returns:
        Whether it is worth a question.
    """
    from difflib import SequenceMatcher

    if word[:1] == meant[:1]:
        return len(word) > 2 or len(meant) <= 3
    same_letters = sorted(word) == sorted(meant) or (len(word) > 2 and meant.endswith(word))
    return same_letters or SequenceMatcher(None, word, meant).ratio() >= 0.85


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return the hint `did you mean '...'?`, or None if no known word is near."""
    found = nearest(word, known)
    return None if found is None else f"did you mean {found!r}?"
