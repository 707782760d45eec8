"""Values of cells as text, with the units that their number formats show.

Values keep their precision, except for fractions with many digits, which are rounded as displayed.

Source: ECMA-376, part 1, 18.8.31 (number formats).
"""

from __future__ import annotations

import datetime
import re
import unicodedata
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache
from typing import Any, NamedTuple

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
