"""Text and tables out of PDF, DOCX, PPTX, HTML and CSV files.

One function a format, chosen by the ending of the file name. Each library is imported when the
first file of its format is met.
"""

from __future__ import annotations

import csv
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Lock
from typing import NamedTuple, TypedDict

from flowengine.sdk import StepContext

Table = list[list[str]]

ONE_AT_A_TIME = Lock()
"""Files are read on several threads; the readers of Office files share one parser of lxml among
them, which is not made for that."""


class Document(TypedDict):
    """What a file says, whatever its format."""

    file: str
    """The name of the file, without its folder."""
    kind: str
    pages: int
    """Pages or slides; 1 where the format has none."""
    text: str
    """All text in reading order; the rows of tables as lines."""
    tables: list[Table]
    """Rows of cells, as text."""
    problem: str
    """Why it could not be read; empty if it could."""


class Unreadable(Exception):
    """The file is damaged, locked by a password, or of another format than its name says."""

    retryable = False


class Content(NamedTuple):
    """What a reader found in a file."""

    pages: int
    lines: list[str]
    tables: list[Table]


def read(path: str, context: StepContext) -> Document:
    """Read one document.

    Args:
        path: Path of the file, below the working folder of the execution.
        context: The attempt; not an argument of the tool.

    Returns:
        Its text and its tables.
    """
    return read_file(Path(context.execution.workdir, path))


def read_file(file: Path) -> Document:
    """Read one document, wherever it is.

    Args:
        file: The file.

    Returns:
        Its text and its tables.

    Raises:
        Unreadable: It cannot be read; the message says why.
    """
    reader = READERS.get(file.suffix.lower())
    if reader is None:
        raise Unreadable(f"{file.name}: no reader for files of this kind")
    try:
        content = reader(file)
    except OSError:
        raise
    except Exception as error:  # each library has errors of its own
        raise Unreadable(f"{file.name}: {str(error) or type(error).__name__}") from error
    return {
        "file": file.name,
        "kind": file.suffix.lower().lstrip("."),
        "pages": content.pages,
        "text": "\n".join(line.strip() for line in content.lines if line.strip()),
        "tables": content.tables,
        "problem": "",
    }


def read_pdf(file: Path) -> Content:
    """Read the text of all pages; a scan has none."""
    from pypdf import PdfReader

    pages = PdfReader(file).pages
    text = "\n".join(page.extract_text() for page in pages)
    # Fonts draw some pairs of letters as one sign; searches need the letters.
    return Content(len(pages), unicodedata.normalize("NFKC", text).splitlines(), [])


def read_docx(file: Path) -> Content:
    """Read paragraphs and tables in the order they stand in."""
    from docx import Document as Docx
    from docx.table import Table as DocxTable

    lines: list[str] = []
    tables: list[Table] = []
    with ONE_AT_A_TIME:
        for block in Docx(str(file)).iter_inner_content():
            if isinstance(block, DocxTable):
                tables.append([[cell.text for cell in row.cells] for row in block.rows])
                lines += as_lines(tables[-1])
            else:
                lines.append(block.text)
    return Content(1, lines, tables)


def read_pptx(file: Path) -> Content:
    """Read texts, tables and the speaker's notes, slide by slide."""
    from pptx import Presentation

    lines: list[str] = []
    tables: list[Table] = []
    with ONE_AT_A_TIME:
        slides = Presentation(str(file)).slides
        for slide in slides:
            for shape in slide.shapes:
                if shape.has_table:
                    tables.append([[cell.text for cell in row.cells] for row in shape.table.rows])
                    lines += as_lines(tables[-1])
                elif shape.has_text_frame:
                    lines += shape.text_frame.text.splitlines()
            if slide.has_notes_slide:
                lines += slide.notes_slide.notes_text_frame.text.splitlines()
        return Content(len(slides), lines, tables)


def read_html(file: Path) -> Content:
    """Read what a browser would show; scripts and styles are no text."""
    from bs4 import BeautifulSoup

    page = BeautifulSoup(file.read_bytes(), "html.parser")
    for hidden in page(["script", "style", "template", "head"]):
        hidden.decompose()
    tables: list[Table] = []
    for table in page("table"):
        rows = [
            [cell.get_text(" ", strip=True) for cell in row(["td", "th"])] for row in table("tr")
        ]
        tables.append(rows)
        table.replace_with("\n" + "\n".join(as_lines(rows)) + "\n")
    for block in page(["p", "div", "li", "br", "h1", "h2", "h3", "h4", "section", "tr"]):
        block.append("\n")
    return Content(1, page.get_text().splitlines(), tables)


def read_csv(file: Path) -> Content:
    """Read a table, whatever it is separated by."""
    text = decode(file.read_bytes())
    dialect = csv.Sniffer().sniff(text, delimiters=",;\t|") if text.strip() else csv.excel
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines(), dialect)]
    return Content(1, as_lines(rows), [rows])


def decode(data: bytes) -> str:
    """Turn bytes into text: UTF-8 if they are, else what Windows programs write in the West."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252")


def as_lines(rows: Iterable[list[str]]) -> list[str]:
    """Write rows of cells as lines of text."""
    return [" | ".join(" ".join(cell.split()) for cell in row) for row in rows]


READERS: dict[str, Callable[[Path], Content]] = {
    ".pdf": read_pdf,
    ".docx": read_docx,
    ".pptx": read_pptx,
    ".html": read_html,
    ".htm": read_html,
    ".csv": read_csv,
}
