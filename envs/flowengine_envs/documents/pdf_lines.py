"""The lines of text of a PDF page in drawing order, with its tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flowengine_envs.documents.pdf_directions import is_right_to_left, joined
from flowengine_envs.documents.pdf_grids import Grid, Piece, grids_of
from flowengine_envs.documents.pdf_order import PdfLine, width_of
from flowengine_envs.documents.pdf_spacing import apart, spaced, with_gaps
from flowengine_envs.documents.pdf_strokes import matrix_of, product_of
from flowengine_envs.documents.pdf_tables import Word, find_tables
from flowengine_envs.documents.pdf_tags import mapping_of

if TYPE_CHECKING:
    from pypdf import PageObject
    from pypdf.generic import ContentStream

_BOLD = re.compile(r"bold|black|heavy", re.IGNORECASE)
"""The names of bold fonts."""


def read_lines(page: PageObject, words: Callable[[], Sequence[Word]]) -> list[PdfLine]:
    """Return the lines of a page in drawing order, with its tables.

    Args:
        page: The page. All of its text is in one line, without duplicates.
        words: Returns its words with their positions, for tables without lines. It is called after
            the page was read, which shows that its size is within the limits.
    """
    grids: list[Grid] = []
    with _prepared(page, grids) as is_ready:
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
                pieces.append(Piece(text, x, y, abs(size * d) if is_level else 0.0, bold))

        page.extract_text(visitor_text=piece)
    return _lines(pieces, grids, () if page.rotation else words())


@contextmanager
def words_apart(page: PageObject) -> Iterator[None]:
    """Make the library separate all words of a page while its text is extracted."""
    with _prepared(page):
        yield


@contextmanager
def _prepared(page: PageObject, grids: list[Grid] | None = None) -> Iterator[bool]:
    """Separate words, and texts that may be in different cells, on a page for a while.

    Args:
        page: The page.
        grids: Receives possible tables. None if they are not needed.

    Yields:
        Whether it was possible. It is not if no text begins there, so that parsing is unnecessary.
    """
    from pypdf.generic import NameObject

    try:
        stream = _apart(page, grids)
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


def _apart(page: PageObject, grids: list[Grid] | None) -> ContentStream | None:
    """Return the page's content with texts and words separated, or None if no text begins there."""
    from pypdf.generic import ContentStream

    stream = ContentStream(page["/Contents"].get_object(), page.pdf, "bytes")
    if b"BT" not in stream.get_data():
        return None
    operations = stream.operations
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
