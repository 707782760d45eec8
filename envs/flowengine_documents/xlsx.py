"""Excel workbooks, sheet by sheet: the values that were last calculated, and comments.

A program that writes a workbook without calculating it leaves formulas without a value. The
formulas are then shown instead.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import openpyxl
from openpyxl.cell.text import Text
from openpyxl.styles.numbers import BUILTIN_FORMATS
from openpyxl.utils.cell import range_boundaries
from openpyxl.worksheet._reader import WorkSheetParser

from flowengine_documents.archives import (
    open_archive,
    parse_xml,
    read_entry,
    readable,
    relationships,
)
from flowengine_documents.comments import Remarks
from flowengine_documents.document import Damaged
from flowengine_documents.markdown import Writer
from flowengine_documents.sheets import (
    CHARTS,
    elapsed,
    is_clock,
    linked,
    mark_columns,
    mark_row,
    text_of,
    write_text_boxes,
)

_MOST_ROWS = 1_048_576
_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_BUILT_IN = 164
"""Number of the first number format that a workbook defines itself."""
_LINK = re.compile(r'HYPERLINK\(\s*"((?:[^"]|"")+)"\s*[,)]', re.IGNORECASE)
_ESCAPED = re.compile(r"_x((?![dD][89a-fA-F])[0-9a-fA-F]{4})_")
"""A character that XML cannot contain, or one line break of two characters."""
_STRINGS, _MARK = "xl/sharedStrings.xml", b"x005F_"
_MOST_LINKS = 100_000


class SheetCells:
    """The cells of a sheet.

    Args:
        archive: The workbook.
        sheet: The library's object for the sheet.
        note: Takes notes for the reader.
    """

    def __init__(self, archive: zipfile.ZipFile, sheet: Any, note: Callable[[str], None]) -> None:
        self._archive = archive
        self._note = note
        self._sheet = sheet
        self._formats: dict[int, str] = {}
        """Style → its number format."""
        self._rows: dict[int, list[str]] = {}
        """Number of a row → the texts of its cells."""

    def rows(self, most: int) -> Iterator[list[str]]:
        """Return the rows of the sheet that are not empty.

        Args:
            most: The number of cells after which the rest is not read.
        """
        book = self._sheet.parent
        with self._sheet._get_source() as source:
            parser = WorkSheetParser(
                source,
                self._sheet._shared_strings,
                data_only=True,
                epoch=book.epoch,
                date_formats=book._date_formats,
                timedelta_formats=book._timedelta_formats,
            )
            read = parser.parse_cell
            parser.parse_cell = lambda element: self._cell(parser, element, read(element))
            for number, row in parser.parse():
                if number > _MOST_ROWS:
                    break
                if texts := _texts(row):
                    self._rows[number] = texts
                    most -= len(texts)
                if most < 0:
                    break
        self._link(parser.hyperlinks.hyperlink)
        for number, row in self._rows.items():
            if _is_hidden(parser.row_dimensions.get(str(number), {}), "ht"):
                mark_row(row, self._note)
        columns = [each for each in parser.column_dimensions.values() if _is_hidden(each, "width")]
        hidden = [
            range(int(each["min"]) - 1, int(each.get("max", each["min"]))) for each in columns
        ]
        mark_columns([*self._rows.values()], hidden, self._note)
        return iter(self._rows.values())

    def _cell(self, parser: Any, element: Any, cell: dict[str, Any]) -> dict[str, Any]:
        """Return a cell of the library with its value as text."""
        value, format, link = cell["value"], self._format(cell["style_id"]), ""
        formula = element.find(f"{_MAIN}f")
        if formula is not None:
            if formula.get("t") == "shared" and formula.text:
                parser.parse_formula(element)  # the library keeps it for the other cells
            link = _link_of(formula.text or "")
        if value is None and formula is not None:
            written = parser.parse_formula(element)
            value, link = getattr(written, "text", written), ""
            self._note("formulas that were never calculated are shown as such")
        elif cell["data_type"] == "d" and is_clock(format):
            value = elapsed(element.findtext(f"{_MAIN}v"), value)
        if isinstance(value, str) and "_x" in value:
            value = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), value)
        text = text_of(value, format)
        cell["value"] = linked(text, link) if link else text
        return cell

    def _format(self, style: int) -> str:
        if style not in self._formats:
            book = self._sheet.parent
            number = book._cell_styles[style].numFmtId
            known = book._number_formats
            if number < _BUILT_IN:
                format = BUILTIN_FORMATS.get(number, "")
            else:
                format = known[number - _BUILT_IN] if number - _BUILT_IN < len(known) else ""
            self._formats[style] = "" if format == "General" else format
        return self._formats[style]

    def _link(self, links: Any) -> None:
        """Put links into the texts of their cells."""
        if not links:
            return
        addresses = {
            each.id: each.target
            for each in relationships(self._archive, self._sheet._worksheet_path)
            if each.kind == "hyperlink" and each.is_external
        }
        left = _MOST_LINKS
        for link in links:
            address = addresses.get(link.id, "") + (f"#{link.location}" if link.location else "")
            first, top, last, bottom = range_boundaries(link.ref)
            numbers = range(top, bottom + 1)
            many = len(numbers) > len(self._rows)
            for number in self._rows if many else numbers:
                row = self._rows.get(number, []) if number in numbers else []
                for at in range(first - 1, min(last, len(row))):
                    row[at] = linked(row[at], address)
                left -= 1
            if left < 0:
                self._note(f"links left out after {_MOST_LINKS:,}")
                return


def _texts(row: list[dict[str, Any]]) -> list[str]:
    """Return the texts of a row up to its last cell with a text."""
    texts: list[str] = []
    for cell in row:
        if cell["value"]:
            texts.extend([""] * (cell["column"] - len(texts)))
            texts[cell["column"] - 1] = cell["value"]
    return texts


def _is_hidden(properties: dict[str, Any], size: str) -> bool:
    """Return whether a row or column is hidden, or has no size."""
    return properties.get("hidden") in {"1", "true"} or properties.get(size) in {"0", "0.0"}


def _link_of(formula: str) -> str:
    """Return the address of a formula with `HYPERLINK`, if it is written in the formula."""
    found = _LINK.match(formula)
    return found[1].replace('""', '"') if found else ""


# Comments on the cells of Excel workbooks: notes, and threads of newer programs.


class SheetComments:
    """The comments of a workbook.

    Args:
        archive: The workbook.
        remarks: Receives them.
    """

    def __init__(self, archive: zipfile.ZipFile, remarks: Remarks) -> None:
        self._archive = archive
        self._names = frozenset(archive.namelist())
        self._remarks = remarks
        self._people: dict[str, str] = {}
        for name in self._names:
            if name.startswith("xl/persons/"):
                people = parse_xml(read_entry(archive, name))
                self._people |= {
                    person.get("id"): person.get("displayName", "") for person in people
                }

    def write(self, sheet: str) -> None:
        """Write the comments on a sheet, each with its cell.

        Args:
            sheet: The path of the sheet in the archive.
        """
        threads = [
            (item.get("ref", ""), self._people.get(item.get("personId"), ""), item)
            for root in self._related(sheet, "threadedComment")
            for item in root
        ]
        commented = {cell for cell, _, _ in threads}  # each also has a note for older programs
        notes = [
            (cell, author, entry)
            for root in self._related(sheet, "comments")
            for cell, author, entry in _notes(root)
            if cell not in commented
        ]
        for cell, author, entry in [*notes, *threads]:
            text = "".join(each.text or "" for each in entry.iter("{*}t", "{*}text"))
            self._remarks.write(author, text, cell)

    def _related(self, sheet: str, kind: str) -> Iterator[Any]:
        """Yield the roots of a sheet's comment parts of one kind."""
        for relation in relationships(self._archive, sheet):
            if relation.kind == kind and relation.target in self._names:
                yield parse_xml(read_entry(self._archive, relation.target))


def _notes(root: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield cell, author and text of notes."""
    authors = [item.text or "" for item in root.iter("{*}author")]
    for item in root.iter("{*}comment"):
        number = item.get("authorId", "")
        known = number.isascii() and number.isdigit() and int(number[:9]) < len(authors)
        yield item.get("ref", ""), authors[int(number)] if known else "", item


_CHART = re.compile(r"xl/charts/chart\d*\.xml")


def convert(data: bytes, out: Writer, comments: bool = False) -> None:
    """Convert a workbook.

    Args:
        data: Its bytes.
        out: Receives the text.
        comments: Whether its comments are included.

    Raises:
        Damaged: It cannot be opened.
    """
    data = readable(data, out.limits)
    with ExitStack() as opened:
        archive = opened.enter_context(open_archive(data, out.limits))
        book = opened.enter_context(_opened(data))
        out.document.title = book.properties.title or ""
        remarks = Remarks(out, comments)
        on_cells = SheetComments(archive, remarks)
        strings = _exact_strings(archive)
        for number, sheet in enumerate(book.worksheets, 1):
            hidden = "" if sheet.sheet_state == "visible" else " (hidden)"
            out.part("sheet", number, sheet.title, hidden)
            out.heading(2, sheet.title)
            sheet._shared_strings = strings or sheet._shared_strings
            cells = SheetCells(archive, sheet, out.note)
            try:
                out.table(cells.rows(out.cells_left))
            except (
                ValueError,
                KeyError,
                TypeError,
                SyntaxError,
            ) as error:  # of its XML parser, too
                raise Damaged(f"sheet '{sheet.title}' cannot be read: {error}") from None
            write_text_boxes(archive, sheet._worksheet_path, out)
            on_cells.write(sheet._worksheet_path)
        remarks.finish()
        if any(map(_CHART.fullmatch, archive.namelist())):
            out.note(CHARTS)


def _exact_strings(archive: zipfile.ZipFile) -> list[str]:
    """Return the strings of cells if the library would lose a mark of an escaped one, else none."""
    if _STRINGS not in archive.NameToInfo or _MARK not in (data := read_entry(archive, _STRINGS)):
        return []
    return [Text.from_tree(string).content for string in parse_xml(data).iter(f"{_MAIN}si")]


@contextmanager
def _opened(data: bytes) -> Iterator[Any]:
    try:
        book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    except Exception as error:  # of the library, of its XML parser, of zipfile
        raise Damaged(f"the workbook cannot be opened: {error}") from None
    try:
        yield book
    finally:
        book.close()
