"""The cells of a sheet of an Excel workbook, with their links, and marks of hidden ones."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

from flowengine_envs.documents.archives import relationships
from flowengine_envs.documents.sheet_dates import elapsed, is_clock
from flowengine_envs.documents.sheet_marks import linked, mark_columns, mark_row
from flowengine_envs.documents.sheet_values import text_of

_MOST_ROWS = 1_048_576
_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_BUILT_IN = 164
"""Number of the first number format that a workbook defines itself."""
_LINK = re.compile(r'HYPERLINK\(\s*"((?:[^"]|"")+)"\s*[,)]', re.IGNORECASE)
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
        from openpyxl.worksheet._reader import WorkSheetParser

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
        text = text_of(value, format)
        cell["value"] = linked(text, link) if link else text
        return cell

    def _format(self, style: int) -> str:
        if style not in self._formats:
            from openpyxl.styles.numbers import BUILTIN_FORMATS

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
        from openpyxl.utils.cell import range_boundaries

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
