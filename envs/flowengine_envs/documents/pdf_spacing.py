"""Texts of a PDF whose blanks are wider than those of their font, or represent a gap.

Ghostscript and other programs draw a whole line with a set width of its blanks. Here each blank
receives its actual width, so that the end of a text and the beginning of the next one after a gap
are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pypdf import PageObject

Operation = tuple[Any, bytes]
_GAP = -900
"""An offset that separates two texts, in thousandths of the font size."""
_WORD_GAP = -250
"""An offset that separates two words, in any font: about the width of a narrow blank."""
_CLEAR_GAP = -2_000
"""An offset that the library treats as a gap in every font."""


class _Font(NamedTuple):
    """A font whose characters are bytes."""

    first: int
    widths: Sequence[Any]


class _State(NamedTuple):
    font: _Font | None = None
    size: float = 0.0
    between: float = 0.0
    """Spacing added to each character."""
    blank: float = 0.0
    """Spacing added to each blank."""


def spaced(operations: Iterable[Operation], page: PageObject) -> Iterator[Operation]:
    """Yield the operations of a page, with blanks in their actual width.

    Args:
        operations: The drawing operations.
        page: The page, which knows its fonts.
    """
    for state, operands, operator in _with_state(operations, _fonts(page)):
        if operator == b"Tj" and state.blank and state.font and state.size and operands:
            yield [_parted(operands[0], state)], b"TJ"
        elif operator == b"TJ" and state.blank and state.font and state.size and operands:
            parts = [entry for item in operands[0] for entry in _parted(item, state)]
            yield [_array(parts)], b"TJ"
        else:
            yield operands, operator


def apart(operations: Iterable[Operation], page: PageObject) -> Iterator[Operation]:
    """Yield the operations of a page with texts separated by a gap as separate operations.

    Args:
        operations: The drawing operations.
        page: The page, which knows its fonts.
    """
    moved = 0.0
    """Horizontal offset of the text."""
    for state, operands, operator in _with_state(operations, _fonts(page)):
        given = operands
        if operator in (b"Td", b"TD") and moved:
            given = [operands[0] - moved, *operands[1:]]
        elif operator == b"T*" and moved:
            yield [-moved, 0], b"Td"
        if operator in (b"Td", b"TD", b"T*", b"Tm", b"BT"):
            moved = 0.0
        if operator not in (b"Tj", b"TJ"):
            yield given, operator
            continue
        yield [], b"ET"  # ends a text for the library, and changes nothing else
        if operator == b"Tj" or not state.font or not operands:
            yield operands, operator
            continue
        part: list[Any] = []
        for item in operands[0]:
            if part and isinstance(item, (int, float)) and item <= _GAP:
                step = _width(part, state) - item * state.size / 1000
                yield [_array(part)], b"TJ"
                yield [step, 0], b"Td"
                yield [], b"ET"
                moved += step
                part = []
            else:
                part.append(item)
        yield [_array(part)], b"TJ"


def with_gaps(operations: Iterable[Operation]) -> Iterator[Operation]:
    """Yield operations in which the library sees a gap between words in fonts without a blank.

    It guesses the width of a blank in such a font, often too wide, and then joins the words.
    """
    for operands, operator in operations:
        if operator != b"TJ" or not operands or not any(map(_is_word_gap, operands[0])):
            yield operands, operator
            continue
        parts: list[Any] = []
        for item in operands[0]:
            parts += [_CLEAR_GAP, item - _CLEAR_GAP] if _is_word_gap(item) else [item]
        yield [_array(map(_own_number, parts))], operator


def _is_word_gap(item: Any) -> bool:
    return isinstance(item, (int, float)) and _CLEAR_GAP < item <= _WORD_GAP


def _own_number(item: Any) -> Any:
    from pypdf.generic import FloatObject

    return FloatObject(item) if isinstance(item, (int, float)) else item


def _with_state(
    operations: Iterable[Operation], fonts: Mapping[str, Any]
) -> Iterator[tuple[_State, Any, bytes]]:
    """Yield operations with the text state. Operations with two effects are split."""
    state, kept = _State(), list[_State]()
    for operands, operator in _simple(operations):
        if operator == b"q":
            kept.append(state)
        elif operator == b"Q":
            state = kept.pop() if kept else state
        elif operator == b"Tf" and len(operands) == 2:
            state = state._replace(font=_font(fonts, operands[0]), size=_number(operands[1]))
        elif operator == b"Tc" and operands:
            state = state._replace(between=_number(operands[0]))
        elif operator == b"Tw" and operands:
            state = state._replace(blank=_number(operands[0]))
        yield state, operands, operator


def _simple(operations: Iterable[Operation]) -> Iterator[Operation]:
    """Yield operations, with those that begin a line and show a text split into two."""
    for operands, operator in operations:
        if operator == b'"' and len(operands) == 3:
            yield operands[:1], b"Tw"
            yield operands[1:2], b"Tc"
        if operator in (b"'", b'"'):
            yield [], b"T*"
            yield operands[-1:], b"Tj"
        else:
            yield operands, operator


def _parted(text: Any, state: _State) -> Any:
    """Return a text as an array, with the width of each blank after it."""
    if not isinstance(text, bytes):
        return _array([text])
    offset = -state.blank * 1000 / state.size
    parts: list[Any] = []
    for word in text.split(b" "):
        parts += [_bytes(word + b" "), offset]
    return _array([*parts[:-2], _bytes(parts[-2][:-1])])


def _width(parts: Iterable[Any], state: _State) -> float:
    """Return the width of the parts of a text."""
    width = 0.0
    first, widths = state.font or _Font(0, ())
    for part in parts:
        if isinstance(part, bytes):
            own = (code - first for code in part)
            known = sum(_number(widths[at]) for at in own if 0 <= at < len(widths))
            width += known * state.size / 1000 + state.between * len(part)
        else:
            width -= _number(part) * state.size / 1000
    return width


def _fonts(page: PageObject) -> Mapping[str, Any]:
    try:
        resources: Any = page["/Resources"].get_object()
        fonts = resources["/Font"].get_object()
    except Exception:  # of the library: it has errors of many types
        return {}
    return fonts if isinstance(fonts, Mapping) else {}


def _font(fonts: Mapping[str, Any], name: Any) -> _Font | None:
    """Return a font by its name, or None if its characters may have several bytes."""
    try:
        font = fonts[name].get_object()
        if font["/Subtype"] == "/Type0":
            return None
        return _Font(int(font["/FirstChar"]), font["/Widths"].get_object())
    except Exception:  # of the library: an unknown font is left unchanged
        return None


def _number(given: Any) -> float:
    number = given.get_object() if hasattr(given, "get_object") else given
    return float(number) if isinstance(number, (int, float)) else 0.0


def _array(parts: Iterable[Any]) -> Any:
    from pypdf.generic import ArrayObject

    return ArrayObject(parts)


def _bytes(text: bytes) -> Any:
    from pypdf.generic import ByteStringObject

    return ByteStringObject(text)
