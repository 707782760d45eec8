"""Tables as text: values separated by commas, semicolons, tabs or bars."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator

from flowengine_documents.document import Damaged
from flowengine_documents.markdown import Writer
from flowengine_documents.text import noted

_SEPARATORS = ",;\t|"
_SAMPLE_LINES = 20
_NAMED = re.compile(r'"?sep=([^\r\n])"?\r?\n', re.IGNORECASE)
"""The first line of a file for Excel that names its separator."""


def convert(data: bytes, out: Writer, declared: str = "") -> None:
    """Convert a table.

    Args:
        data: Its bytes.
        out: Receives the text.
        declared: The encoding that a server or message declares.
    """
    out.table(_rows(noted(data, out, declared)))


def _rows(text: str) -> Iterator[list[str]]:
    csv.field_size_limit(max(len(text), 1))
    named = _NAMED.match(text)
    text = text[named.end() :] if named else text
    separator = named[1] if named else _separator(text)
    try:
        yield from csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    except csv.Error as error:
        raise Damaged(f"the table cannot be read: {error}") from None


def _separator(text: str) -> str:
    """Return the separator by which most lines have the same number of values."""
    lines = [line for line in text[:65_536].splitlines()[:_SAMPLE_LINES] if line.strip()]
    if not lines:
        return ","

    def fit(separator: str) -> tuple[int, int]:
        rows = csv.reader(lines, delimiter=separator)
        try:
            widths = [len(row) for row in rows]
        except csv.Error:
            return 0, 0
        common = max(set(widths), key=widths.count)
        return (widths.count(common), common) if common > 1 else (0, 0)

    return max(_SEPARATORS, key=fit)
