"""The lines of text of a PDF page in drawing order, with its tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from pypdf import PageObject
from pypdf.generic import ArrayObject, ByteStringObject, ContentStream, FloatObject, NameObject

from flowengine_documents.pdf_directions import is_right_to_left, joined
from flowengine_documents.pdf_grids import Grid, Piece, grids_of, matrix_of, product_of
from flowengine_documents.pdf_layers import Layers
from flowengine_documents.pdf_order import PdfLine, width_of
from flowengine_documents.pdf_tables import Word, find_tables
from flowengine_documents.pdf_tags import mapping_of

Operation = tuple[Any, bytes]
_GAP = -900
"""An offset that separates two texts, in thousandths of the font size."""
_WORD_GAP = -250
"""An offset that separates two words, in any font: about the width of a narrow blank."""
_LAST = 3
"""Number of texts among which the first drawing of a text is searched."""
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
    return mapping_of(mapping_of(page.get("/Resources")).get("/Font"))


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
    return ArrayObject(parts)


def _bytes(text: bytes) -> Any:
    return ByteStringObject(text)


_BOLD = re.compile(r"bold|black|heavy", re.IGNORECASE)
"""The names of bold fonts."""


def read_lines(
    page: PageObject, words: Callable[[], Sequence[Word]], layers: Layers
) -> list[PdfLine]:
    """Return the lines of a page in drawing order, with its tables.

    Args:
        page: The page. All of its text is in one line, without duplicates.
        words: Returns its words with their positions, for tables without lines. It is called after
            the page was read, which shows that its size is within the limits.
        layers: Its layers. It counts the texts of those that are off, which are left out.
    """
    grids: list[Grid] = []
    with _prepared(page, layers, grids) as is_ready:
        if not is_ready:
            return [PdfLine(line) for line in page.extract_text().splitlines()]
        pieces: list[Piece] = []

        def piece(
            text: str, around: Sequence[float], own: Sequence[float], font: Any, size: float
        ) -> None:
            if text:
                a, b, c, d, x, y = product_of(matrix_of(own), matrix_of(around))
                is_level = (
                    abs(b) + abs(c) < 0.01 * (abs(a) + abs(d)) and a > 0 and not page.rotation
                )
                bold = bool(_BOLD.search(str(mapping_of(font).get("/BaseFont", ""))))
                drawn = Piece(text, x, y, abs(size * d) if is_level else 0.0, bold)
                if any(_is_twice(drawn, before) for before in pieces[-_LAST:]):
                    drawn = drawn._replace(text=text.replace(text.strip(), ""))
                pieces.append(drawn)

        page.extract_text(visitor_text=piece)
    return _lines(pieces, grids, () if page.rotation or layers.hidden else words())


@contextmanager
def words_apart(page: PageObject, layers: Layers) -> Iterator[None]:
    """Make the library separate all words of a page while its text is extracted."""
    with _prepared(page, layers):
        yield


@contextmanager
def _prepared(page: PageObject, layers: Layers, grids: list[Grid] | None = None) -> Iterator[bool]:
    """Separate words, and texts that may be in different cells, on a page for a while.

    Args:
        page: The page.
        layers: Its layers.
        grids: Receives possible tables. None if they are not needed.

    Yields:
        Whether it was possible. It is not if no text begins there, so that parsing is unnecessary.
    """
    try:
        stream = _apart(page, layers, grids)
    except MemoryError:
        raise
    except Exception:  # of the library, or of an invalid number, so it is only text
        stream = None
    if stream is None:
        yield False
        return
    name, before = NameObject("/Contents"), page.raw_get("/Contents")
    page[name] = stream  # so that it is parsed only once
    try:
        yield True
    finally:
        page[name] = before


def _apart(page: PageObject, layers: Layers, grids: list[Grid] | None) -> ContentStream | None:
    """Return the page's content with texts and words separated, or None if no text begins there."""
    stream = ContentStream(page["/Contents"].get_object(), page.pdf, "bytes")
    if b"BT" not in stream.get_data() and not layers:
        return None
    operations = [*layers.shown(stream.operations)] if layers else stream.operations
    if grids is not None and not page.rotation:
        grids += grids_of(operations)
    if any(operator in (b"Tw", b'"') for _, operator in operations):
        operations = [*spaced(operations, page)]
    if grids:
        operations = [*apart(operations, page)]
    stream.operations = [*with_gaps(operations)]
    return stream


def _lines(pieces: Sequence[Piece], grids: Iterable[Grid], words: Sequence[Word]) -> list[PdfLine]:
    """Return the lines of texts, with each table at the place of its first text."""
    is_reversed = is_right_to_left(piece.text for piece in pieces)
    table: dict[int, int] = {}
    """Number of a text → the first text of its table."""
    tables: dict[int, PdfLine] = {}
    for grid in grids:
        own = ((at, piece) for at, piece in enumerate(pieces) if at not in table)
        rows, taken = grid.rows(own, is_reversed)
        if rows:
            tables[min(taken)] = grid.line(rows, _size(pieces[at] for at in taken))
            table |= dict.fromkeys(taken, min(taken))
            words = [word for word in words if not grid.has(word.start, word.y)]
    shown = [piece for piece in pieces if piece.text.strip()]
    bold = {piece.y for piece in shown if piece.bold} - {
        piece.y for piece in shown if not piece.bold
    }
    for aligned in find_tables(words, bold, is_reversed):
        taken = {
            at
            for at, piece in enumerate(pieces)
            if at not in table and piece.text.strip() and aligned.has(piece.x, piece.y)
        }
        if taken:
            tables[min(taken)] = PdfLine(
                "",
                aligned.left,
                aligned.lines[-1],
                _size(pieces[at] for at in taken),
                aligned.right,
                aligned.rows,
                aligned.lines[0] - aligned.lines[-1],
            )
            table |= dict.fromkeys(taken, min(taken))
    lines: list[PdfLine] = []
    open_line: list[Piece] = []

    def end() -> None:
        if open_line:
            lines.append(_line(open_line, is_reversed))
            open_line.clear()

    for at, piece in enumerate(pieces):
        if at in tables:
            end()
            lines.append(tables[at])
        elif at not in table:
            if at - 1 in table:
                end()
            first, *more = piece.text.split("\n")
            open_line.append(piece._replace(text=first))
            for text in more:
                end()
                open_line.append(piece._replace(text=text))
    end()
    return [line for line in lines if line.text.strip() or line.rows]


def _is_twice(piece: Piece, before: Piece) -> bool:
    """Return whether a text is drawn a second time, to look bold or to have a shadow."""
    near = 0.1 * piece.size
    return (
        piece.text.strip() == before.text.strip() != ""
        and abs(piece.x - before.x) < near
        and abs(piece.y - before.y) < near
    )


def _size(pieces: Iterable[Piece]) -> float:
    """Return the font size of the longest text."""
    return max(pieces, key=lambda piece: len(piece.text)).size or 1.0


def _line(pieces: Sequence[Piece], on_right_to_left_page: bool) -> PdfLine:
    """Return a line of texts that were drawn consecutively."""
    shown = [piece for piece in pieces if piece.text.strip()] or [*pieces]
    size = _size(shown)
    if any(not piece.size for piece in shown):
        size = 0.0
    text = joined(pieces, on_right_to_left_page)
    if on_right_to_left_page:  # its pieces may be drawn from right to left
        shown = sorted(shown, key=lambda piece: piece.x)
    first, last = shown[0], shown[-1]
    end = max(last.x + width_of(last.text, last.size), first.x)
    is_bold = all(piece.bold for piece in shown)
    return PdfLine(text, first.x, first.y, size, end, bold=is_bold)
