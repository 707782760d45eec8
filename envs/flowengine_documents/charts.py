"""The data of charts in Word and PowerPoint, from the values that are stored with them.

Source: ECMA-376, part 1, 21.2 (DrawingML charts).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from flowengine_documents.archives import parse_xml
from flowengine_documents.markdown import Writer
from flowengine_documents.sheets import text_of

_CHART = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"
_TEXT = "{http://schemas.openxmlformats.org/drawingml/2006/main}t"
_NUMBERS = {f"{_CHART}numCache", f"{_CHART}numLit"}
_LITERAL = re.compile(r'"[^"]*"|\\.|_.|\*.|\[[^\]]*\]')
"""Parts of a number format that only resemble letters of a date."""
_DATE = re.compile(r"[dy]|mmm", re.IGNORECASE)
_FIRST_DAY, _FIRST_DAY_OF_MACS = datetime(1899, 12, 30), datetime(1904, 1, 1)


def write(space: Any, out: Writer) -> None:
    """Write a chart: its title, and a table with a column for each series.

    Args:
        space: The root of its part, `c:chartSpace`.
        out: Receives the text.
    """
    title = space.find(f"{_CHART}chart/{_CHART}title")
    if title is not None:
        out.heading(3, "".join(item.text or "" for item in title.iter(_TEXT)))
    series = [*space.iter(f"{_CHART}ser")]
    day = space.find(f"{_CHART}date1904")
    first = _FIRST_DAY if day is None or day.get("val") in {"0", "false"} else _FIRST_DAY_OF_MACS
    columns = [next(_points(sery, first, "val", "yVal"), {}) for sery in series]
    if not any(columns):
        out.note("the data of a chart cannot be read")
        return
    levels = next(filter(None, ([*_points(sery, first, "cat", "xVal")] for sery in series)), [])
    names, outer = levels[0] if levels else {}, levels[:0:-1]
    if values := _axis(space, "valAx"):
        out.paragraph(f"Values: {values}")
    head = [_name(sery) or f"series {at}" for at, sery in enumerate(series, 1)]
    places = sorted({place for column in (names, *columns) for place in column})
    rows = (
        [
            *(level.get(place, "") for level in outer),
            names.get(place, str(place + 1)),
            *(column.get(place, "") for column in columns),
        ]
        for place in places
    )
    category = _axis(space, "catAx", "dateAx") or "Category"
    out.table([[*[""] * len(outer), category, *head], *rows])


def _axis(space: Any, *kinds: str) -> str:
    """Return the title of an axis.

    Of two value axes, the second is used: the first is horizontal.
    """
    titles = [
        "".join(item.text or "" for item in title.iter(_TEXT))
        for kind in kinds
        for title in space.iterfind(f".//{_CHART}{kind}/{_CHART}title")
    ]
    return " ".join(titles[-1].split()) if titles else ""


def _points(series: Any, first: datetime, *kinds: str) -> Iterator[dict[int, str]]:
    """Yield the values of a series by position. Of several levels, the innermost comes first."""
    for kind in kinds:
        for level in series.iterfind(f"{_CHART}{kind}//*[{_CHART}pt]"):
            is_number = level.tag in _NUMBERS
            format = level.findtext(f"{_CHART}formatCode") or "" if is_number else ""
            is_date = _DATE.search(_LITERAL.sub("", format)) is not None
            labels: dict[int, str] = {}
            for point in level.iterchildren(f"{_CHART}pt"):
                place, text = point.get("idx", ""), point.findtext(f"{_CHART}v") or ""
                if place.isascii() and place.isdigit() and len(place) < 10:
                    value = _number(text, first if is_date else None) if is_number else text
                    labels.setdefault(int(place), value)
            yield labels


def _name(series: Any) -> str:
    return str(series.findtext(f"{_CHART}tx//{_CHART}v") or "").strip()


def _number(text: str, first: datetime | None) -> str:
    """Return a number without the traces of its binary form, or a date.

    Args:
        text: The stored number.
        first: Day 0, if the number is a date.
    """
    try:
        number = float(text)
        return text_of(number if first is None else first + timedelta(days=number))
    except (ValueError, OverflowError):
        return text


# The texts of diagrams (SmartArt) in Word and PowerPoint.
#
# Source: ECMA-376, part 1, 21.4 (DrawingML diagrams).

_DIAGRAM = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}"
_DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_NO_NODES = {"pres", "parTrans", "sibTrans"}
"""Points of a diagram that describe its appearance."""


def texts(drawing: Any, part: Any) -> Iterator[str]:
    """Yield the texts of the diagrams in a drawing, in their order.

    Args:
        drawing: An element that contains them.
        part: The part of the package that contains it.
    """
    for diagram in drawing.iter(f"{_DIAGRAM}relIds"):
        relation = part.rels.get(diagram.get(f"{_RELATION}dm", ""))
        if relation is None or relation.is_external:
            continue
        for point in parse_xml(relation.target_part.blob).iter(f"{_DIAGRAM}pt"):
            if point.get("type") in _NO_NODES:
                continue
            for paragraph in point.iter(f"{_DRAWING}p"):
                text = "".join(item.text or "" for item in paragraph.iter(f"{_DRAWING}t"))
                if text.strip():
                    yield text
