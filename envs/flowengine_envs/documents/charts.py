"""The data of charts in Word and PowerPoint, from the values that are stored with them.

Source: ECMA-376, part 1, 21.2 (DrawingML charts).
"""

from __future__ import annotations

from typing import Any

from flowengine_envs.documents.markdown import Writer

_CHART = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"
_TEXT = "{http://schemas.openxmlformats.org/drawingml/2006/main}t"


def write(space: Any, out: Writer) -> None:
    """Write a chart: its title, and a table with a column for each series.

    Args:
        space: The root of its part, `c:chartSpace`.
        out: Where it goes.
    """
    title = space.find(f"{_CHART}chart/{_CHART}title")
    if title is not None:
        out.heading(3, "".join(one.text or "" for one in title.iter(_TEXT)))
    series = [*space.iter(f"{_CHART}ser")]
    columns = [_points(one, "val", "yVal") for one in series]
    if not any(columns):
        out.note("the data of a chart cannot be read")
        return
    names = next(filter(None, (_points(one, "cat", "xVal") for one in series)), {})
    if values := _axis(space, "valAx"):
        out.paragraph(f"Values: {values}")
    head = [_name(one) or f"series {at}" for at, one in enumerate(series, 1)]
    places = sorted({place for column in (names, *columns) for place in column})
    rows = (
        [names.get(place, str(place + 1)), *(column.get(place, "") for column in columns)]
        for place in places
    )
    out.table([[_axis(space, "catAx", "dateAx") or "Category", *head], *rows])


def _axis(space: Any, *kinds: str) -> str:
    """Return the title of an axis; of two value axes, of the second one: the first is level."""
    titles = [
        "".join(one.text or "" for one in title.iter(_TEXT))
        for kind in kinds
        for title in space.iterfind(f".//{_CHART}{kind}/{_CHART}title")
    ]
    return " ".join(titles[-1].split()) if titles else ""


def _points(series: Any, *kinds: str) -> dict[int, str]:
    """Return the values of a series by their place; of several levels the innermost."""
    found: dict[int, str] = {}
    for kind in kinds:
        for point in series.iterfind(f"{_CHART}{kind}//{_CHART}pt"):
            place = point.get("idx", "")
            if place.isascii() and place.isdigit() and len(place) < 10:
                found.setdefault(int(place), _value(point.findtext(f"{_CHART}v") or ""))
    return found


def _name(series: Any) -> str:
    return str(series.findtext(f"{_CHART}tx//{_CHART}v") or "").strip()


def _value(text: str) -> str:
    """Return a value without the traces of its binary form: `0.1`, not `0.1000000000000001`."""
    try:
        return f"{float(text):.15g}"
    except ValueError:
        return text
