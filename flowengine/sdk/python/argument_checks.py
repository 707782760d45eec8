"""Checks of the arguments of public functions, like those of the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from typing import Any

from flowengine.errors import InputError, UsageError
from flowengine.kernel.notation.times import LONGEST, TooLong, parse_duration
from flowengine.sdk.texts.near_words import did_you_mean

LABEL = r"[a-z0-9][a-z0-9_.-]{0,62}"
"""A label that a worker offers and a step may need."""
LABEL_HINT = "use lower case letters, digits, '-', '_' and '.', such as gpu"
"""The hint about a text that is not a label."""
MOST_LABELS = 8
"""How many of them a step may need, or a worker may offer."""
_LONGEST = 60
"""Characters of a text or number that messages show."""


def check_input_names(given: Iterable[str], known: Iterable[str]) -> None:
    """Check the names of the inputs that a caller gives.

    Raises:
        InputError: The flow does not declare one of them.
    """
    names = list(known)
    for name in given:
        if name not in names:
            hint = did_you_mean(name, names) or f"inputs: {', '.join(names) or 'none'}"
            raise InputError(f"there is no input '{name}'", field=name, hint=hint)


def check_keywords(what: str, given: Mapping[str, object], known: Iterable[str]) -> None:
    """Check the keywords that a function received by `**`.

    Args:
        what: Their owner, for the message: `a decision`.
        given: The keywords.
        known: The valid keywords.

    Raises:
        TypeError: One is unknown. The message names the nearest valid one.
    """
    names = sorted(known)
    for name in given:
        if name not in names:
            raise TypeError(f"{what} has no {name!r}; {known_words(name, names)}")


def check_one_of(name: str, value: str | None, known: Iterable[str]) -> None:
    """Check an optional argument that must be one of a few words.

    Raises:
        UsageError: It has another value.
    """
    words = list(known)
    if value is not None and value not in words:
        raise UsageError(f"{name} is {value!r}", hint=known_words(str(value), words))


def offered(labels: Iterable[str]) -> frozenset[str]:
    """Return the offers of a process to steps that need them.

    Args:
        labels: As a caller gives them.

    Raises:
        UsageError: One is not a label, or there are too many.
    """
    is_one = isinstance(labels, str) or not isinstance(labels, Iterable)
    given: list[object] = [labels] if is_one else [*labels]
    for label in given:
        if not (isinstance(label, str) and re.fullmatch(LABEL, label)):
            raise UsageError(f"offers: {in_words(label)} is not a label", hint=LABEL_HINT)
    if len(set(given)) > MOST_LABELS:
        raise UsageError(f"offers: {len(set(given))} labels are given, at most {MOST_LABELS}")
    return frozenset(map(str, given))


def milliseconds(name: str, value: float | str) -> int:
    """Return a time span given in seconds, or as a duration such as `30d`, in milliseconds.

    Raises:
        UsageError: It has another form.
    """
    try:
        span = parse_duration(value) if isinstance(value, str) else int(value * 1000)
        if span >= 0:
            return span
    except TooLong as error:
        raise UsageError(f"{name}: {error}") from None
    except (ValueError, TypeError, OverflowError):
        pass
    hint = "give seconds, or a duration such as 30d"
    raise UsageError(f"{name} is {in_words(value)}", hint=hint)


_KINDS: dict[type, tuple[type | tuple[type, ...], str, str]] = {
    dict: (Mapping, "a dict", "{'key': value}"),
    list: ((list, tuple), "a list", "[…]"),
    str: (str, "text", "'…'"),
    float: ((int, float), "a number", "30"),
    PathLike: ((str, PathLike), "a path", "'…'"),
}


def check_kinds(kind: type, **given: object) -> None:
    """Check optional arguments of one kind, each as `check_kind` does."""
    for name, value in given.items():
        if value is not None:
            check_kind(name, value, kind)


def check_function(value: object, hint: str) -> None:
    """Check an argument that must be a function, or be called as one.

    Raises:
        UsageError: It is something else.
    """
    if not callable(value):
        raise UsageError(f"{in_words(value)} is not a function", hint=hint)


def check_methods(name: str, value: object, *methods: str) -> None:
    """Check an optional argument that must be an object with some methods.

    Raises:
        UsageError: It is something else, such as a class.
    """
    has_all = all(callable(getattr(value, method, None)) for method in methods)
    if value is not None and (isinstance(value, type) or not has_all):
        words = " and ".join(f"{method}()" for method in methods)
        raise UsageError(
            f"{name} must be an object with {words}, not {in_words(value)}",
            hint=f"write {name}=Own(), where the class Own defines {words}",
        )


def check_kind(name: str, value: object, kind: type) -> None:
    """Check an argument that must be of a kind, or behave as it.

    Args:
        name: Its name.
        value: Its value.
        kind: `dict`, `list`, `str`, `float` or `PathLike`.

    Raises:
        UsageError: It is something else.
    """
    kinds, wanted, example = _KINDS[kind]
    if not isinstance(value, kinds):
        hint = f"write {name}={example}"
        raise UsageError(f"{name} must be {wanted}, not {in_words(value)}", hint=hint)


def in_words(value: object) -> str:
    """Describe an object of the program in a message. Its `repr` could contain an address."""
    if isinstance(value, str | int | float | None):
        text = repr(value)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    if isinstance(value, type):
        return f"the class {value.__name__!r}"
    kind = type(value).__name__
    name = getattr(value, "name", None) or getattr(value, "__name__", None)
    if isinstance(name, str):
        return f"the {kind} {name!r}"
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"


def known_words(word: str, known: Sequence[str]) -> str:
    """Return the hint for an unknown word: the one that was probably meant, or all."""
    return did_you_mean(word, known) or f"it is one of: {', '.join(known)}"


def seconds_of(value: Any, what: str) -> float | None:
    """Return the seconds of a duration in Python: a number, or a text such as `500ms`.

    Args:
        value: The duration, or None.
        what: Its description in messages.

    Returns:
        The seconds, or None.

    Raises:
        UsageError: It is neither.
    """
    seconds = value
    if isinstance(value, str):
        with suppress(ValueError):
            seconds = parse_duration(value) / 1000
    if seconds is None:
        return None
    most = LONGEST / 1000
    if isinstance(seconds, int | float) and type(seconds) is not bool and 0 < seconds <= most:
        return seconds
    raise UsageError(f"{what} is {value!r}", hint="give seconds above 0, or text such as '500ms'")
