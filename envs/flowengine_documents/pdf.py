"""PDF, page by page: text, the headings in its outline, links."""

from __future__ import annotations

import io
import logging
import re
import time
from collections import Counter, deque
from collections.abc import Iterator
from itertools import groupby, islice
from typing import Any

from pypdf import PageObject, PdfReader, apply_configuration
from pypdf.errors import LimitReachedError, PdfReadError

from flowengine_documents.comments import Remarks
from flowengine_documents.document import (
    MIB,
    Damaged,
    LimitReached,
    PasswordRequired,
    WrongPassword,
)
from flowengine_documents.markdown import Writer, hidden_note, line_of_part
from flowengine_documents.pdf_annotations import Annotations
from flowengine_documents.pdf_directions import LETTERS
from flowengine_documents.pdf_layers import Layers
from flowengine_documents.pdf_lines import read_lines, words_apart
from flowengine_documents.pdf_order import (
    PdfLine,
    count_sizes,
    ordered,
    with_headings,
    with_rows,
)
from flowengine_documents.pdf_tables import TableRow, key_of
from flowengine_documents.pdf_tags import MarkedTexts, Structure, Tags, mapping_of
from flowengine_documents.pdfium import Pdfium, has_unknown_fonts

_LIGATURES = {
    **LETTERS,
    **{0xFB00 + at: text for at, text in enumerate(("ff", "fi", "fl", "ffi", "ffl", "st", "st"))},
    0xFFFE: "",
    0x09: " ",
    0xAD: "",
    0xA0: " ",
}
_NO_HEADING = re.compile(r"^(#{1,6}(?:\s|$)|---|===|```|~~~)")
"""Patterns that a line must not begin with. Lists and quotes are allowed."""
_MOST_HEADINGS = 10_000
_MOST_PICTURES = 8 * MIB
"""Maximum characters of all pictures together, because they are part of the answer."""
_DEEPEST = 6
_MOST_LINES_OF_HEADING = 6
_LIMITS = (
    *("maximum_declared_stream_length", "array_based_stream_maximum_output_length"),
    *("zlib_maximum_output_length", "lzw_maximum_output_length"),
    *("run_length_maximum_output_length", "brotli_maximum_output_length"),
)
"""The library's limits for the size of one stream."""
_WORK = "stream_decoding_work_maximum_length"
_UNKNOWN = Structure([], [])
_MOST_LOST = 0.7
"""Minimum fraction of the characters in unknown fonts that must be decoded."""


def convert(
    data: bytes,
    out: Writer,
    password: str = "",
    comments: bool = False,
    first: int = 1,
    seconds: float = 0.0,
    picture: bool = False,
) -> None:
    """Convert a PDF.

    Args:
        data: Its bytes.
        out: Receives the text.
        password: The password of the user or the owner.
        comments: Whether comments on its pages are included.
        first: The first page.
        seconds: Processor time after which it stops after a page. 0 means no limit.
        picture: Whether to make copies of scanned pages that may be sent to a model.

    Raises:
        Damaged: It cannot be opened.
        PasswordRequired: It is encrypted, and no password was given.
        WrongPassword: The password does not open it.
    """
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it logs every minor fault
    most = out.limits.unpacked
    limits: dict[str, Any] = {**dict.fromkeys(_LIMITS, most), _WORK: 4 * most}
    with apply_configuration(**limits):
        reader, pages = _opened(data, password)
        out.document.title = _title(reader)
        pdfium = Pdfium(data, password)
        _Pages(reader, pages, out, comments, pdfium, picture).convert(first, seconds)


def _opened(data: bytes, password: str) -> tuple[PdfReader, int]:
    """Return the library's reader of a PDF, and its number of pages."""
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(password):
            if password:
                raise WrongPassword("the password does not open it")
            raise PasswordRequired("it is encrypted. Pass its password")
        return reader, reader.get_num_pages()
    except RecursionError:
        raise Damaged("the PDF cannot be opened: its parts contain each other") from None
    except (
        PdfReadError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OSError,
        IndexError,
    ) as error:
        raise Damaged(f"the PDF cannot be opened: {str(error) or type(error).__name__}") from None


class _Pages:
    def __init__(
        self,
        reader: PdfReader,
        count: int,
        out: Writer,
        comments: bool,
        pdfium: Pdfium,
        picture: bool,
    ) -> None:
        self._reader = reader
        self._count = count
        self._out = out
        self._headings = _headings(reader)
        self._tags = Tags(reader)
        self._sizes: Counter[float] = Counter()
        """Number of characters in each font size, on the pages read so far."""
        self._remarks = Remarks(out, comments)
        self._empty: list[int] = []
        self._images = 0
        self._hidden = 0
        self._pdfium = pdfium
        self._wants_pictures = picture

    def convert(self, first: int, seconds: float) -> None:
        """Convert page after page. A broken page does not affect the others."""
        began, most = time.process_time(), self._out.limits.pages
        try:
            for at in range(first - 1, self._count):
                if at == most:
                    self._out.cut(f"cut after {most:,} pages (limit 'pages')")
                    break
                self._page(at)
                if seconds and self._is_enough(time.process_time() - began > seconds):
                    self._out.document.following = at + 2 if at + 1 < self._count else 0
                    break
        finally:
            self._remark()
            self._remarks.finish()

    def _is_enough(self, is_late: bool) -> bool:
        """Return whether a stretch ends: its time is over, or it has half its maximum length."""
        is_long = self._out.length * 2 > self._out.limits.characters
        return is_late or is_long or self._has_all_pictures()

    def _page(self, at: int) -> None:
        self._out.part("page", at + 1)
        try:
            page = self._reader.pages[at]
            layers = Layers(page)
            lines, known = self._read(page, at + 1, layers)
            text = "\n".join(map(_plain, lines))
            laid_on = Annotations(page, layers)
            self._hidden += layers.hidden
            added = [
                *laid_on.texts,
                *laid_on.stamps,
                *(f"{name}: {value}" for name, value in laid_on.fields.items()),
            ]
            files = [*laid_on.files, *(_files(self._reader) if at + 1 == self._count else ())]
            if not text.strip() and not added:
                self._check(page, at + 1)
                self._empty.append(at + 1)
                self._images += _count_images(page)
                self._scan(page, at + 1)
            links, notes = laid_on.links, [*laid_on.comments]
        except (LimitReached, MemoryError):
            raise
        except Exception as error:  # of the library: it has errors of many types
            self._check(page, at + 1)
            self._out.note(f"page {at + 1} cannot be read: {str(error) or type(error).__name__}")
            return
        self._write(at, lines, known)
        for item in added:
            self._out.paragraph(item.translate(_LIGATURES))
        for name in files:
            self._out.item(0, f"Attachment: {name}")
        for author, comment in notes:
            self._remarks.write(author, comment)
        fresh = [link for link in links if link not in text]
        if fresh:
            self._out.paragraph("Links: " + " ".join(f"<{link}>" for link in fresh))

    def _write(self, at: int, lines: list[PdfLine], known: Structure) -> None:
        """Write the lines of a page, with headings and tables."""
        headings = {_comparable(heading): level for heading, level in known.headings}
        headings |= self._headings.get(at, {})
        lines = with_rows(lines if self._tags else self._ordered(lines))
        for is_text, group in groupby(lines, lambda line: not line.rows and not line.level):
            if is_text:
                text = "\n".join(line.text for line in group)
                self._text(text.translate(_LIGATURES), headings, known.tables)
                continue
            for line in group:
                if line.rows:
                    cells = [[cell.translate(_LIGATURES) for cell in row] for row in line.rows]
                    self._out.table(cells)
                else:
                    self._out.heading(line.level, line.text.translate(_LIGATURES))

    def _has_all_pictures(self) -> bool:
        pictures = self._out.document.pictures
        size = sum(map(len, pictures.values()))
        return len(pictures) >= self._out.limits.pictures or size > _MOST_PICTURES

    def _scan(self, page: PageObject, number: int) -> None:
        """Make a picture of a page without text, if it is a scan."""
        if not self._wants_pictures:
            return
        if self._has_all_pictures():
            count = len(self._out.document.pictures)
            self._out.cut(f"scanned pages described: {count:,} (limit 'pictures'). Others are not")
            return
        try:
            picture = self._pdfium.copy_of_scan(page, number, self._out.limits.pixels)
        except MemoryError:
            raise
        except Exception as error:  # of the libraries: they have errors of many types
            reason = str(error) or type(error).__name__
            self._out.note(f"page {number} is not described: its images cannot be read: {reason}")
            return
        if picture:
            self._out.document.pictures[line_of_part("page", number)] = picture

    def _read(
        self, page: PageObject, number: int, layers: Layers
    ) -> tuple[list[PdfLine], Structure]:
        """Return the lines of a page with its drawn tables, or the structure of its tags."""
        lines, known = (
            self._read_by_tags(page, number, layers)
            if self._tags
            else (read_lines(page, lambda: self._pdfium.words(number), layers), _UNKNOWN)
        )
        if not has_unknown_fonts(page):
            return lines, known
        decoded = [] if layers.hidden else self._decoded(number)
        if _letters(decoded) < _MOST_LOST * _letters(lines):
            if not has_unknown_fonts(page, even_for_pypdf=True):
                return lines, known
            self._out.note(f"page {number}: only a part of its text can be decoded")
        return (decoded, _UNKNOWN) if decoded else (lines, known)

    def _read_by_tags(
        self, page: PageObject, number: int, layers: Layers
    ) -> tuple[list[PdfLine], Structure]:
        """Return the lines of a page and its tagged structure.

        Many programs tag a table as paragraphs.
        """
        marks = MarkedTexts()
        with words_apart(page, layers):
            page.extract_text(visitor_operand_before=marks.operator, visitor_text=marks.text)
        lines, texts = marks.read()
        texts = {mark: text.translate(_LIGATURES) for mark, text in texts.items()}
        known = self._tags.structure(page, texts)
        if known.tables:
            return [PdfLine(line) for line in lines], known
        return read_lines(page, lambda: self._pdfium.words(number), layers), known

    def _decoded(self, number: int) -> list[PdfLine]:
        """Return the lines of a page from the library with more fonts, or none if it fails."""
        try:
            return [PdfLine(line) for line in self._pdfium.text(number).splitlines()]
        except MemoryError:
            raise
        except Exception:  # of the library, so the result of the other one is used
            return []

    def _ordered(self, lines: list[PdfLine]) -> list[PdfLine]:
        """Return lines in reading order. Without an outline, large lines become headings."""
        count_sizes(lines, self._sizes)
        read = ordered(lines)
        return read if self._headings else with_headings(read, self._sizes)

    def _check(self, page: PageObject, number: int) -> None:
        """Check that the content of a page is not too large to unpack."""
        try:
            contents = page.get_contents()
            if contents is not None:
                contents.get_data()
        except LimitReachedError as error:
            limit = self._out.limits.unpacked
            raise LimitReached(
                "unpacked", limit, f"page {number} unpacks to more: {error}"
            ) from None

    def _text(self, text: str, headings: dict[str, int], tables: list[list[TableRow]]) -> None:
        """Write the text of a page, with its headings and tagged tables."""
        lines: list[str] = []
        rest = deque(text.splitlines())
        while rest:
            if table := _begun(rest, tables):
                self._out.block("\n".join(lines))
                lines = []
                self._out.table([row.cells for row in table])
            line = rest.popleft() if rest else ""
            line, level = _heading(line, rest, headings)
            if level or not line.strip():
                self._out.block("\n".join(lines))
                lines = []
            if level:
                self._out.heading(level, line)
            elif line.strip():
                lines.append(_NO_HEADING.sub(r"\\\1", line.rstrip()))
        self._out.block("\n".join(lines))

    def _remark(self) -> None:
        if self._hidden:
            self._out.note(hidden_note(self._hidden))
        if self._empty:
            images = f". Images there: {self._images}, so it may be a scan" if self._images else ""
            self._out.note(f"no text on {_ranges(self._empty)}{images}")


def _title(reader: PdfReader) -> str:
    try:
        information = reader.metadata
        return str(information.title or "") if information is not None else ""
    except Exception:  # of the library, because a title is optional
        return ""


def _files(reader: PdfReader) -> list[str]:
    """Return the names of the files in a PDF."""
    try:
        return [file.alternative_name or file.name for file in reader.attachment_list]
    except Exception as error:  # of the library: it has errors of many types
        return [f"their names cannot be read: {error}"]


def _headings(reader: PdfReader) -> dict[int, dict[str, int]]:
    """Return the headings of each page in its outline: text → level."""
    cells: dict[int, dict[str, int]] = {}
    try:
        for count, (entry, level) in enumerate(_entries(reader.outline, 1)):
            if count == _MOST_HEADINGS:
                break
            page = reader.get_destination_page_number(entry)
            if page is not None and entry.title:
                cells.setdefault(page, {})[_comparable(entry.title)] = level
    except Exception:  # of the library, because an outline is optional
        return cells
    return cells


def _entries(outline: Any, level: int) -> Iterator[tuple[Any, int]]:
    for entry in outline:
        if not isinstance(entry, list):
            yield entry, level
        elif level < _DEEPEST:
            yield from _entries(entry, level + 1)


def _letters(lines: list[PdfLine]) -> int:
    return sum(len(key_of(_plain(line))) for line in lines)


def _plain(line: PdfLine) -> str:
    return "\n".join(cell for row in line.rows for cell in row) if line.rows else line.text


def _comparable(line: str) -> str:
    """Return a line in the form for comparison with the outline, which often omits the number."""
    text = re.sub(r"^\W*(?:\d+\.?)+\s+", "", line.translate(_LIGATURES).strip())
    return "".join(text.split()).casefold()


def _heading(line: str, rest: deque[str], headings: dict[str, int]) -> tuple[str, int]:
    """Return a line and 0, or the heading that it begins and its level.

    Args:
        line: The line.
        rest: The lines below it. Those that belong to the heading are removed.
        headings: The headings of the page. One that is found is removed.
    """
    key = _comparable(line)
    if not key or not headings:
        return line, 0
    if key in headings:
        return line, headings.pop(key)
    first, longer = line, [heading for heading in headings if heading.startswith(key)]
    for count, below in enumerate(islice(rest, _MOST_LINES_OF_HEADING if longer else 0), 1):
        line, key = f"{line.rstrip()} {below.strip()}", key + "".join(below.split()).casefold()
        if key in longer:
            for _ in range(count):
                rest.popleft()
            return line, headings.pop(key)
    return first, 0


def _begun(rest: deque[str], tables: list[list[TableRow]]) -> list[TableRow]:
    """Remove the lines of a table from the front of others, if the next table begins there."""
    first = key_of(rest[0])
    for at, table in enumerate(tables):
        if not (first and table[0].key.startswith(first)):
            continue
        lines = _lines_of(rest, "".join(row.key for row in table))
        if lines:
            for _ in range(lines):
                rest.popleft()
            return tables.pop(at)
    return []


def _lines_of(rest: deque[str], key: str) -> int:
    """Return the number of lines of a table that begins here. A line may be a single cell."""
    at = 0
    for number, line in enumerate(rest, 1):
        own = key_of(line)
        if not key.startswith(own, at):
            return 0
        at += len(own)
        if at == len(key):
            return number
    return 0


def _count_images(page: PageObject) -> int:
    objects = mapping_of(mapping_of(page.get("/Resources")).get("/XObject"))
    return sum(mapping_of(each).get("/Subtype") == "/Image" for each in objects.values())


def _ranges(numbers: list[int]) -> str:
    """Return page numbers as a text: `pages 1-3, 7`."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    listed = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)
    return f"page {listed}" if len(numbers) == 1 else f"pages {listed}"
