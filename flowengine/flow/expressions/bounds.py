"""The size of the values that expressions, and texts, lists and maps with expressions, create."""

from __future__ import annotations

from flowengine.flow.expressions.clock import plain_time
from flowengine.flow.expressions.paths import TooExpensive
from flowengine.flow.expressions.scope import is_time
from flowengine.kernel.graph.compiled import Plain

MAX_SIZE = 32 * 1024 * 1024
"""Characters of all texts in a value, and `PART` for each item or key."""
PART = 8
_NUMBERS = frozenset([int, float, bool, type(None)])


def room_for(length: int, each: int = 1) -> None:
    """Refuse to create a value that is too large.

    Args:
        length: The length of the text, or the number of items or keys.
        each: 1 for a text, or `PART`.

    Raises:
        TooExpensive: It is larger than an expression may create.
    """
    if length * each > MAX_SIZE:
        what = f"{length} characters" if each == 1 else f"{length} items"
        raise TooExpensive(
            f"the value would have {what}, but the maximum is {MAX_SIZE // each}. "
            "Compute it in a tool"
        )


def within(value: Plain) -> Plain:
    """Return the result of one operation, unless it is too large. Its parts are not examined."""
    if isinstance(value, (str, bytes)):
        room_for(len(value))
    elif isinstance(value, (list, dict)):
        room_for(len(value), PART)
    return value


def finished(value: Plain) -> Plain:
    """Return a value as plain data, with times and durations as text.

    Args:
        value: The value of a whole expression, or of a list, a map or a text with expressions.

    Raises:
        TooExpensive: It is larger than an expression may create. A part that occurs several times
            counts each time: a store writes it each time.
        NoValue: A duration has no text in the notation of the language.
    """
    left, level, timed = MAX_SIZE, [value], False
    while level:
        inner: list[Plain] = []
        for part in level:
            kind = type(part)
            if kind is str or kind is bytes:
                left -= len(part)
            elif kind is list or kind is dict:
                left -= PART * len(part)
                if left >= 0 and kind is dict:
                    left -= sum(map(len, part))
                    inner += part.values()
                elif left >= 0:
                    inner += part
            elif kind not in _NUMBERS and is_time(part):
                timed = True
        if left < 0:
            raise TooExpensive(
                f"the value is too large: its texts have more than {MAX_SIZE} characters, or it "
                f"has more than {MAX_SIZE // PART} parts. Compute it in a tool"
            )
        level = inner
    return _untimed(value) if timed else value


def _untimed(value: Plain) -> Plain:
    if isinstance(value, list):
        return [_untimed(part) for part in value]
    if isinstance(value, dict):
        return {key: _untimed(part) for key, part in value.items()}
    if not is_time(value):
        return value

    return plain_time(value)
