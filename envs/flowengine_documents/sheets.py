"""Sheets of workbooks: rows, and the values of cells as text, with their units and links."""

from __future__ import annotations

import datetime
import re
import unicodedata
import zipfile
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from flowengine_documents.archives import parse_xml, read_entry, relationships
from flowengine_documents.document import Damaged
from flowengine_documents.markdown import TextSpan, Writer, inline, target

# Values of cells as text, with the units that their number formats show.
#
# Values keep their precision, except for fractions with many digits, which are rounded as
# displayed.
#
# Source: ECMA-376, part 1, 18.8.31 (number formats).

_MIDNIGHT = datetime.time()
_MOST_DECIMALS = 6
"""Decimals of a value that are kept even if its format displays fewer."""
_LARGEST = 1e15
_MOST_DIGITS = 10
_LONGEST_FORMAT = 255
_PIECE = re.compile(
    r'"(?P<quoted>[^"]*)"?|\\(?P<escaped>.)|[_*].|\[\$(?P<currency>[^\]-]*)[^\]]*\]'
    r"|\[(?P<bracket>[^\]]*)\]|(?P<number>General|[0#?.,]+)|(?P<other>.)",
    re.IGNORECASE | re.DOTALL,
)
_SECTIONS = re.compile(r'(?:"[^"]*"?|\\.|\[[^\]]*\]|[^;"\\\[]|.)*?(?:;|$)', re.DOTALL)
_SIGNS = str.maketrans("", "", "-()\u2212")
_CONDITION = re.compile(r"[<>=]")
_ELAPSED = re.compile(r"\[(h+|m+|s+)\]", re.IGNORECASE)
_LITERALS = re.compile(r'"[^"]*"?|\\.|\[\$[^\]]*\]|[_*].')


class NumberFormat(NamedTuple):
    """How one section of a number format shows a number."""

    prefix: str = ""
    suffix: str = ""
    is_percent: bool = False
    digits: int = 0
    """Minimum digits before the decimal point."""
    decimals: int = 0
    """Minimum decimals."""
    most_decimals: int = 0
    is_grouped: bool = False
    thousands: int = 0
    """How often the value is divided by 1,000."""

    @property
    def changes(self) -> bool:
        """Whether it shows more than the value."""
        return bool(self.prefix or self.suffix or self.is_percent or self.digits > 1)


def text_of(value: Any, format: str = "") -> str:
    """Return a value as a user would type it.

    Args:
        value: The value.
        format: Its number format.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float) and format:
        return _number(value, format)
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < _LARGEST else f"{value:.15g}"
    if isinstance(value, datetime.timedelta):
        return _duration(value, format)
    if isinstance(value, datetime.datetime):
        day = value.date().isoformat()
        return day if value.time() == _MIDNIGHT else f"{day} {value.time().isoformat('seconds')}"
    return str(value)


def _number(value: float, format: str) -> str:
    sections = _sections(format)
    shown = sections[1] if value < 0 and len(sections) > 1 else sections[0]
    if shown is None or not shown.changes or not abs(value) < _LARGEST:
        return text_of(value)
    number = Decimal(f"{abs(value):.15g}")
    if shown.is_percent:
        number *= 100
    number = number.scaleb(-3 * shown.thousands).normalize()
    digits, places = -int(number.as_tuple().exponent), shown.decimals
    if digits > max(_MOST_DECIMALS, shown.most_decimals):
        places = shown.most_decimals
        number = number.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)
        places = max(shown.decimals, -int(number.normalize().as_tuple().exponent))
    places = min(max(places, -int(number.normalize().as_tuple().exponent)), _MOST_DIGITS)
    text = f"{number:{',' if shown.is_grouped else ''}.{places}f}"
    whole, point, rest = text.partition(".")
    text = f"{whole.rjust(shown.digits, '0')}{point}{rest}"
    sign = "-" if value < 0 and number else ""
    return f"{sign}{shown.prefix}{text}{shown.suffix}"


@lru_cache(1_000)
def _sections(format: str) -> tuple[NumberFormat | None, ...]:
    """Return the sections of a format, None for a section that leaves numbers unchanged."""
    if len(format) > _LONGEST_FORMAT:
        return (None,)
    texts = [match[0].removesuffix(";") for match in _SECTIONS.finditer(format)]
    if len(texts) > 1 and not texts[-1]:
        texts.pop()
    if any(_CONDITION.search(piece["bracket"] or "") for piece in _PIECE.finditer(format)):
        return (None,)
    return tuple(_section(text, is_negative=at == 1) for at, text in enumerate(texts[:2]))


def _section(text: str, *, is_negative: bool) -> NumberFormat | None:
    around = ["", ""]
    pattern = ""
    is_percent = False
    for piece in _PIECE.finditer(text):
        if number := piece["number"]:
            if pattern and around[1].strip():
                return None  # as in a telephone number
            around[1] = ""
            pattern += number
            continue
        other = piece["other"] or ""
        if other in {"/", "@"} or (other in {"E", "e"} and pattern):
            return None  # a fraction, a text, an exponent
        is_percent = is_percent or other == "%"
        literal = piece["quoted"] or piece["escaped"] or piece["currency"] or other
        around[bool(pattern)] += literal.translate(_SIGNS) if is_negative else literal
    if not pattern:
        return None
    prefix, suffix = around
    if pattern.casefold() == "general":
        return NumberFormat(prefix.lstrip(), suffix.rstrip(), is_percent)
    before, _, after = pattern.partition(".")
    whole = before.rstrip(",")
    decimals = after.rstrip(",")
    return NumberFormat(
        _spaced(prefix).lstrip(),
        _spaced(suffix).rstrip(),
        is_percent,
        min(whole.count("0"), _MOST_DIGITS),
        min(decimals.count("0"), _MOST_DIGITS),
        min(len(decimals), _MOST_DIGITS),
        "," in whole,
        len(before) - len(whole) + len(after) - len(decimals),
    )


def _spaced(text: str) -> str:
    """Return a text with blanks for characters that only align numbers."""
    return "".join(" " if unicodedata.category(sign) == "Zs" else sign for sign in text)


def _duration(value: datetime.timedelta, format: str) -> str:
    """Return a duration in the units of its format, with all of its seconds."""
    seconds = round(value.total_seconds(), 3)
    sign, seconds = ("-" if seconds < 0 else ""), abs(seconds)
    elapsed = _ELAPSED.search(_LITERALS.sub("", format))
    unit = elapsed[1][0].lower() if elapsed else "h"
    rest = format[elapsed.end() if elapsed else 0 :].lower()
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    fraction = f".{thousandths:03}".rstrip("0") if thousandths else ""
    if unit == "s":
        return f"{sign}{whole}{fraction}"
    minutes, second = divmod(whole, 60)
    with_seconds = f":{second:02}{fraction}" if second or fraction or "s" in rest else ""
    if unit == "m":
        return f"{sign}{minutes}{with_seconds}"
    hours, minute = divmod(minutes, 60)
    if elapsed and not minute and not with_seconds and "m" not in rest:
        return f"{sign}{hours}"
    return f"{sign}{hours}:{minute:02}{with_seconds}"


# Numbers of sheets in their formats: dates, times and durations are numbers of days.

_DATE_LITERALS = re.compile(r'"[^"]*"?|\\.|\[[^\]]*\]|[_*].')
_LONGEST_DURATION = 366
"""Days. A larger value is a point in time, even if its format shows only the time of day."""


ERRORS = {
    **{0x00: "#NULL!", 0x07: "#DIV/0!", 0x0F: "#VALUE!", 0x17: "#REF!", 0x1D: "#NAME?"},
    **{0x24: "#NUM!", 0x2A: "#N/A"},
}
"""Code of an error in binary workbooks → the error."""


def built_in(number: int) -> str:
    """Return a number format that workbooks do not define themselves."""
    from openpyxl.styles.numbers import BUILTIN_FORMATS

    return str(BUILTIN_FORMATS.get(number, ""))


@lru_cache(1_000)
def is_clock(format: str) -> bool:
    """Return whether a format shows the time of day, without a date."""
    signs = set(_DATE_LITERALS.sub("", format).lower())
    return not signs.isdisjoint("hs") and signs.isdisjoint("dy")


def elapsed(days: str | float | None, value: Any) -> Any:
    """Return a duration for more than a day or a negative number, and other values unchanged.

    Args:
        days: The number of days.
        value: The point in time for which a library takes it.
    """
    try:
        number = float(days or "")
    except ValueError:
        return value
    is_duration = number < 0 or 1 <= number < _LONGEST_DURATION
    return datetime.timedelta(days=number) if is_duration else value


class NumberFormats:
    """Shows numbers in their formats.

    Args:
        begins_1904: Whether days are counted from 1904.
    """

    def __init__(self, begins_1904: bool) -> None:
        from openpyxl.utils.datetime import MAC_EPOCH, WINDOWS_EPOCH

        self._epoch = MAC_EPOCH if begins_1904 else WINDOWS_EPOCH

    def text(self, number: float, format: str) -> str:
        """Return a number as a user would type it, with its unit."""
        is_date, is_duration = _kind(format)
        if not is_date:
            return text_of(number, format)
        from openpyxl.utils.datetime import from_excel

        try:
            value = from_excel(number, self._epoch, timedelta=is_duration)
            return text_of(elapsed(number, value) if is_clock(format) else value, format)
        except (OverflowError, ValueError):
            return text_of(number)


@lru_cache(1_000)
def _kind(format: str) -> tuple[bool, bool]:
    from openpyxl.styles.numbers import is_date_format, is_timedelta_format

    return is_date_format(format), is_timedelta_format(format)


# Links of cells, and marks of hidden rows and columns.

_HIDDEN = "<!-- hidden -->"
_MOST_RANGES = 1_000


def mark_row(row: list[str], note: Callable[[str], None]) -> None:
    """Mark a row that is not empty as hidden, in its first cell with a text."""
    at = next(at for at, text in enumerate(row) if text)
    row[at] = f"{_HIDDEN} {row[at]}"
    note("hidden rows are marked")


def mark_columns(
    rows: Sequence[list[str]], hidden: Sequence[range], note: Callable[[str], None]
) -> None:
    """Mark hidden columns with a text, in the first row.

    Args:
        rows: The rows of the sheet.
        hidden: Ranges of hidden columns.
        note: Takes a note for the reader.
    """
    if not rows or not hidden:
        return
    used = {at for row in rows for at, text in enumerate(row) if text}
    head = rows[0]
    for at in sorted(used):
        if any(at in each for each in hidden[:_MOST_RANGES]):
            head.extend([""] * (at + 1 - len(head)))
            head[at] = f"{_HIDDEN} {head[at]}".strip()
            note("hidden columns are marked")


def linked(text: str, address: str) -> str:
    """Return the text of a cell with a link, if there is a text and the address is safe."""
    where = target(address) if text.strip() else ""
    return inline([TextSpan(text, link=where)], "\n") if where else text


def write_text_boxes(archive: zipfile.ZipFile, part: str, out: Writer) -> None:
    """Write the texts of the shapes on a sheet.

    Args:
        archive: The workbook.
        part: The path of the sheet in it.
        out: Receives the texts.
    """
    for drawing in relationships(archive, part):
        if drawing.kind != "drawing":
            continue
        try:
            bodies = [*parse_xml(read_entry(archive, drawing.target)).iter("{*}txBody")]
        except Damaged as error:
            out.note(f"text boxes cannot be read: {error}")
            continue
        for body in bodies:
            if next(body.iterancestors("{*}Fallback"), None) is None:
                texts = ("".join(line.itertext("{*}t")) for line in body.iter("{*}p"))
                out.paragraph("\n".join(text for text in texts if text.strip()))


# The rows of a sheet whose cells are read one by one.

CHARTS = "charts left out. Their data is in the sheets"
LEFT_OUT = "sheets that are charts or macros left out"
_MOST_LINKS = 100_000


class SheetLink(NamedTuple):
    """A link of cells."""

    top: int
    bottom: int
    left: int
    right: int
    address: str


class SheetRows:
    """Collects the cells of a sheet, in any order, without those that are empty."""

    def __init__(self) -> None:
        self.hidden_columns: list[range] = []
        self.hidden_rows: set[int] = set()
        self._links: list[SheetLink] = []
        self._rows: dict[int, dict[int, str]] = {}

    def put(self, row: int, column: int, text: str) -> None:
        """Add a cell."""
        if text:
            self._rows.setdefault(row, {})[column] = text

    def link(self, link: SheetLink) -> None:
        if len(self._links) < _MOST_LINKS:
            self._links.append(link)

    def marked(self, note: Callable[[str], None], most: int) -> list[list[str]]:
        """Return the rows, with links and with marks of hidden rows and columns.

        Args:
            note: Takes notes for the reader.
            most: The number of cells that they may have. The row that exceeds it is the last one.
        """
        self._put_links()
        rows = []
        for number, cells in sorted(self._rows.items()):
            texts = [""] * (max(cells) + 1)
            for column, text in cells.items():
                texts[column] = text
            if number in self.hidden_rows:
                mark_row(texts, note)
            rows.append(texts)
            most -= len(texts)
            if most < 0:
                break
        mark_columns(rows, self.hidden_columns, note)
        return rows

    def _put_links(self) -> None:
        left = _MOST_LINKS
        for link in self._links:
            many = link.bottom - link.top > len(self._rows)
            for row in [*self._rows] if many else range(link.top, link.bottom + 1):
                cells = self._rows.get(row, {}) if link.top <= row <= link.bottom else {}
                for column in cells:
                    if link.left <= column <= link.right:
                        cells[column] = linked(cells[column], link.address)
                left -= 1
            if left < 0:
                return
