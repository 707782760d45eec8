"""OpenDocument spreadsheets, sheet by sheet: values as shown, links, comments.

Source: Open Document Format 1.3, part 3, 9 (tables) and 19.385 (types of values).
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from lxml import etree

from flowengine_documents.archives import XML_OPTIONS, open_archive, parse_xml, read_entry
from flowengine_documents.comments import Remarks
from flowengine_documents.document import Damaged, PasswordRequired
from flowengine_documents.markdown import TextSpan, Writer, inline, target
from flowengine_documents.sheets import CHARTS, mark_columns, mark_row, text_of

_NAMES = "urn:oasis:names:tc:opendocument:xmlns"
TABLE, TEXT = f"{{{_NAMES}:table:1.0}}", f"{{{_NAMES}:text:1.0}}"
DRAW = f"{{{_NAMES}:drawing:1.0}}"
OFFICE, STYLE = f"{{{_NAMES}:office:1.0}}", f"{{{_NAMES}:style:1.0}}"
LINK = "{http://www.w3.org/1999/xlink}href"
_CELLS = (f"{TABLE}table-cell", f"{TABLE}covered-table-cell")
_EVENTS = tuple(f"{TABLE}{name}" for name in ("table", "table-row", "table-column"))
_NUMBER = re.compile(r"[-+\u2212]?[\d.,'\s]+")
_DECIMALS = re.compile(r"[.,](\d+)\s*%")
_WIDEST = 16_384


def convert(data: bytes, out: Writer, comments: bool = False) -> None:
    """Convert a spreadsheet.

    Args:
        data: Its bytes.
        out: Receives the text.
        comments: Whether its comments are included.

    Raises:
        Damaged: It cannot be read.
        PasswordRequired: It is encrypted.
    """
    content = read_entry(opened(data, out), "content.xml")
    try:
        _Sheets(out, Remarks(out, comments)).convert(content)
    except etree.XMLSyntaxError as error:
        raise Damaged(f"its XML is not well-formed: {error}") from None


def opened(data: bytes, out: Writer) -> zipfile.ZipFile:
    """Open an OpenDocument file, and take its title.

    Raises:
        Damaged: It cannot be read.
        PasswordRequired: It is encrypted.
    """
    archive = open_archive(data, out.limits)
    if "META-INF/manifest.xml" in archive.NameToInfo:
        manifest = parse_xml(read_entry(archive, "META-INF/manifest.xml"))
        if next(manifest.iter("{*}encryption-data"), None) is not None:
            raise PasswordRequired("it is an encrypted document, which cannot be opened here")
    if "meta.xml" in archive.NameToInfo:
        with suppress(Damaged):
            title = parse_xml(read_entry(archive, "meta.xml")).findtext(".//{*}title")
            out.document.title = " ".join((title or "").split())
    return archive


class _Sheets:
    def __init__(self, out: Writer, remarks: Remarks) -> None:
        self._out = out
        self._remarks = remarks
        self._boxes: list[str] = []
        """The texts of shapes on the current sheet."""
        self._notes: list[tuple[str, str, str]] = []
        """Author, text and cell of the comments on the current sheet."""
        self._hidden_columns: list[range] = []
        self._column = 0
        self._row = 0

    def convert(self, content: bytes) -> None:
        hidden = _hidden_styles(content)
        events = etree.iterparse(
            io.BytesIO(content), events=("start", "end"), tag=_EVENTS, **XML_OPTIONS
        )
        sheets = (item for event, item in events if event == "start" and _is_sheet(item))
        for number, sheet in enumerate(sheets, 1):
            name = sheet.get(f"{TABLE}name", "")
            is_hidden = sheet.get(f"{TABLE}style-name") in hidden
            self._out.part("sheet", number, name, " (hidden)" if is_hidden else "")
            self._out.heading(2, name)
            self._notes, self._hidden_columns, self._column, self._row = [], [], 0, 0
            self._boxes = []
            rows = self._rows(events, sheet)
            mark_columns(rows, self._hidden_columns, self._out.note)
            self._out.table(rows)
            for text in self._boxes:
                self._out.paragraph(text)
            for author, text, cell in self._notes:
                self._remarks.write(author, text, cell)
        self._remarks.finish()

    def _rows(self, events: Iterator[tuple[str, Any]], sheet: Any) -> list[list[str]]:
        """Return the rows of a sheet that are not empty, until they exceed the limit of cells."""
        rows: list[list[str]] = []
        left = self._out.cells_left
        for event, element in events:
            if event == "end" and element is sheet:
                self._read_shapes(sheet)
                sheet.clear()
                break
            if event == "start" or next(element.iterancestors(_EVENTS[0]), None) is not sheet:
                continue
            if element.tag == f"{TABLE}table-column":
                times = _repeated(element, "columns")
                if _is_hidden(element):
                    self._hidden_columns.append(range(self._column, self._column + times))
                self._column += times
                continue
            times = _repeated(element, "rows")
            texts = self._texts(element) if left >= 0 else []
            if texts and _is_hidden(element):
                mark_row(texts, self._out.note)
            for _ in range(times if texts else 0):
                rows.append([*texts])
                left -= len(texts)
                if left < 0:
                    break
            self._row += times
            self._read_shapes(element)
            element.clear()
        return rows

    def _read_shapes(self, around: Any) -> None:
        for shape in around.iter(f"{DRAW}*"):
            if shape.tag == f"{DRAW}object":
                self._out.note(CHARTS)
                continue
            inside = shape.iter(f"{TEXT}p")
            lines = (line for line in inside if next(line.iterancestors(f"{DRAW}*")) is shape)
            if texts := [*map(_text_of_paragraph, lines)]:
                self._boxes.append("\n".join(texts))

    def _texts(self, row: Any) -> list[str]:
        """Return the texts of a row up to its last cell with a text."""
        texts: list[str] = []
        column = 0
        for cell in row.iterchildren(*_CELLS):
            times = min(_repeated(cell, "columns"), _WIDEST - column)
            if text := _text_of_cell(cell):
                texts.extend([""] * (column - len(texts)))
                texts.extend([text] * times)
            for note in cell.iterchildren(f"{OFFICE}annotation"):
                author = note.findtext("{*}creator") or ""
                words = " ".join(map(_text_of_paragraph, note.iterchildren(f"{TEXT}p")))
                self._notes.append((author, words, _reference(column, self._row)))
            column += times
        return texts


def _hidden_styles(content: bytes) -> set[str]:
    """Return the styles of sheets that are not displayed."""
    hidden = set()
    tags = (f"{STYLE}style", f"{OFFICE}body")
    events = etree.iterparse(io.BytesIO(content), events=("start", "end"), tag=tags, **XML_OPTIONS)
    for event, element in events:
        if element.tag == tags[1]:
            break
        properties = element.find(f"{STYLE}table-properties")
        is_shown = properties is None or properties.get(f"{TABLE}display") != "false"
        if event == "end" and not is_shown:
            hidden.add(element.get(f"{STYLE}name", ""))
    return hidden


def _is_sheet(element: Any) -> bool:
    parent = element.getparent()
    return bool(
        element.tag == _EVENTS[0] and parent is not None and parent.tag == f"{OFFICE}spreadsheet"
    )


def _is_hidden(element: Any) -> bool:
    """Return whether a row or a column is hidden, filtered out, or in a closed group."""
    if element.get(f"{TABLE}visibility", "visible") != "visible":
        return True
    groups = element.iterancestors(f"{TABLE}table-row-group", f"{TABLE}table-column-group")
    return any(group.get(f"{TABLE}display") == "false" for group in groups)


def _repeated(element: Any, what: str) -> int:
    times = element.get(f"{TABLE}number-{what}-repeated", "1")
    return max(int(times), 1) if times.isascii() and times.isdigit() and len(times) < 9 else 1


def _text_of_cell(cell: Any) -> str:
    """Return the text of a cell, from its value where the displayed text may be rounded."""
    shown = "\n".join(map(_text_of_paragraph, cell.iterchildren(f"{TEXT}p"))).strip()
    kind = cell.get(f"{OFFICE}value-type", "")
    if kind in {"date", "boolean"}:
        written = cell.get(f"{OFFICE}{kind}-value", "")
        return _date(written) if kind == "date" else written.upper() or shown
    try:
        value = float(cell.get(f"{OFFICE}value", ""))
    except ValueError:
        return shown
    if kind == "percentage":
        decimals = _DECIMALS.search(shown)
        places = "0" * len(decimals[1]) if decimals else ""
        return text_of(value, f"0.{places}%" if places else "0%")
    is_plain = kind == "float" and (not shown or _NUMBER.fullmatch(shown) is not None)
    leads = len(shown) > 1 and shown[0] == "0" and shown.isdigit()  # a postal code
    return text_of(value) if not shown or (is_plain and not leads) else shown


def _date(written: str) -> str:
    day, _, time = written.partition("T")
    time = time.partition(".")[0]
    return day if time in {"", "00:00:00"} else f"{day} {time}"


def _text_of_paragraph(paragraph: Any) -> str:
    return inline(_spans(paragraph, ""), "\n")


def _spans(parent: Any, link: str) -> Iterator[TextSpan]:
    if parent.text:
        yield TextSpan(parent.text, link=link)
    for child in parent:
        if child.tag == f"{TEXT}a":
            yield from _spans(child, target(child.get(LINK, "")) or link)
        elif child.tag == f"{TEXT}line-break":
            yield TextSpan("\n", link=link)
        elif child.tag in {f"{TEXT}s", f"{TEXT}tab"}:
            yield TextSpan(" ", link=link)
        elif child.tag != f"{OFFICE}annotation" and isinstance(child.tag, str):
            yield from _spans(child, link)
        if child.tail:
            yield TextSpan(child.tail, link=link)


def _reference(column: int, row: int) -> str:
    letters = ""
    column += 1
    while column:
        column, rest = divmod(column - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return f"{letters}{row + 1}"
