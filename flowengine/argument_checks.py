"""Checks of the arguments of public functions, as the command line checks its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flowengine.errors import UsageError


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
    for name in given:
        if name not in names:
            raise TypeError(f"{what} has no {name!r}; {_hint(name, names)}")


def check_one_of(name: str, value: str | None, known: Iterable[str]) -> None:
    """Check an argument that is one of a few words, or left out.

    Raises:
        UsageError: It is another.
    """
    words = list(known)
    if value is not None and value not in words:
        raise UsageError(f"{name} is {value!r}", hint=_hint(str(value), words))


def milliseconds(name: str, value: float | str) -> int:
    """Return a span of time that is given in seconds, or as a duration such as `30d`.

    Raises:
        UsageError: It is neither.
    """
    from flowengine.kernel.notation.times import parse_duration

    try:
        return parse_duration(value) if isinstance(value, str) else int(value * 1000)
    except (ValueError, TypeError, OverflowError):
        hint = "give seconds, or a duration such as 30d"
        raise UsageError(f"{name} is {value!r}", hint=hint) from None


def _hint(word: str, known: list[str]) -> str:
    from flowengine.sdk.near_words import did_you_mean

    return did_you_mean(word, known) or f"it is one of: {', '.join(known)}"
