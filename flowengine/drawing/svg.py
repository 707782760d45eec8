"""A picture as SVG.

Its colors are attributes, for programs that know no style sheets. Each has a class, so that the
style sheet of a page replaces them.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import NamedTuple

from flowengine.drawing.dot import FILLS
from flowengine.drawing.layout import LINE, PADDING, ArrowRoute, Laid, Point, lay_out
from flowengine.drawing.picture import Box, Picture, ScopeFrame
from flowengine.sdk.visible_text import printable

MARGIN = 24.0
TITLE = 30.0
DASHES = {
    "next": "",
    "error": ' stroke-dasharray="5 4"',
    "undo": ' stroke-dasharray="2 4"',
    "after": ' stroke-dasharray="2 4"',
}


class Drawing(NamedTuple):
    """An SVG document, and its size in pixels."""

    text: str
    width: float
    height: float


def svg(picture: Picture, prefix: str = "") -> Drawing:
    """Return a picture as an SVG document.

    Args:
        picture: The picture.
        prefix: Start of all ids, unique on a page with several pictures.
    """
    laid = lay_out(picture.frame)
    width = max(laid.width, len(picture.title) * 9.0) + 2 * MARGIN
    height = laid.height + 2 * MARGIN + TITLE
    left = (width - laid.width) / 2
    prefix = escape(prefix)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="Helvetica, Arial, sans-serif" '
        'font-size="12" class="flow" fill="#212529">',
        f'<defs><marker id="{prefix}head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L10 5L0 10z" class="soft" fill="#495057"/>'
        "</marker></defs>",
        '<rect width="100%" height="100%" class="back" fill="white"/>',
        f'<text x="{width / 2:.1f}" y="{MARGIN:.0f}" text-anchor="middle" font-size="15" '
        f'font-weight="bold">{_escaped(picture.title)}</text>',
        *_frame(picture.frame, laid, left, MARGIN + TITLE, prefix),
        "</svg>",
    ]
    return Drawing("\n".join(lines) + "\n", width, height)


def _frame(frame: ScopeFrame, laid: Laid, x: float, y: float, prefix: str) -> Iterator[str]:
    for route in laid.routes:
        head = "" if route.arrow.kind == "undo" else f' marker-end="url(#{prefix}head)"'
        dashes = DASHES[route.arrow.kind]
        path = _curve(route, x, y)
        yield f'<path d="{path}" class="arrow" fill="none" stroke="#495057"{dashes}{head}/>'
    for box in frame.boxes:
        left, top, width, height = laid.places[box.id]
        yield from _box(box, left + x, top + y, width, height, prefix)
        if box.frame is not None:
            inner = laid.inside[box.id]
            below = top + y + len(box.lines) * LINE + 6 + PADDING
            yield from _frame(box.frame, inner, left + x + (width - inner.width) / 2, below, prefix)

    for route in laid.routes:
        if route.arrow.label:
            yield from _label(route, x, y)


def _label(route: ArrowRoute, x: float, y: float) -> Iterator[str]:
    """Return the label of an arrow, on a background that hides arrows behind it."""
    lx, ly = route.label[0] + x, route.label[1] + y
    half = len(route.arrow.label) * 2.8 + 4
    yield (
        f'<rect x="{lx - half:.1f}" y="{ly - 8:.1f}" width="{2 * half:.1f}" height="16" '
        'rx="3" class="back" fill="white" opacity="0.92"/>'
    )
    yield _line(route.arrow.label, lx, ly + 4, ' class="soft" fill="#495057" font-size="11"')


def _box(
    box: Box, left: float, top: float, width: float, height: float, prefix: str
) -> Iterator[str]:
    dark = box.shape == "fork" and box.status not in FILLS
    plain = "#343a40" if dark else "#f8f9fa" if box.frame is not None else "white"
    fill = FILLS.get(box.status or "", plain)
    kind = box.status or ("dark" if dark else "frame" if box.frame is not None else "plain")
    style = f'class="box {escape(kind)}" fill="{fill}" stroke="#495057"'
    middle, centre = left + width / 2, top + height / 2
    yield f'<g id="{prefix}{escape(box.id)}">'
    if box.frame is not None:
        dashes = "2 3" if box.shape == "finally" else "6 3"
        yield _rectangle(left, top, width, height, f'{style} stroke-dasharray="{dashes}" rx="10"')
        yield from _text(box.lines, middle, top + LINE + 2)
    elif box.shape == "start":
        yield f'<circle cx="{middle:.1f}" cy="{centre:.1f}" r="7" class="start" fill="#212529"/>'
    else:
        yield from _outline(box.shape, left, top, width, height, style)
        below = centre - (len(box.lines) - 1) * LINE / 2 + 4
        yield from _text(box.lines, middle, below, "white" if dark else None)
    yield "</g>"


def _outline(
    shape: str, left: float, top: float, width: float, height: float, style: str
) -> Iterator[str]:
    right, bottom = left + width, top + height
    middle, centre = left + width / 2, top + height / 2
    if shape in ("end", "end_all"):
        yield f'<circle cx="{middle:.1f}" cy="{centre:.1f}" r="22" {style}/>'
        if shape == "end_all":
            yield f'<circle cx="{middle:.1f}" cy="{centre:.1f}" r="18" {style}/>'
    elif shape == "choice":
        corners = [(middle, top), (right, centre), (middle, bottom), (left, centre)]
        yield _polygon(corners, style)
    elif shape in ("person", "fail"):
        corners = [(left + 12, top), (right - 12, top), (right, centre),
                   (right - 12, bottom), (left + 12, bottom), (left, centre)]  # fmt: skip
        yield _polygon(corners, style)
    elif shape == "trigger":
        corners = [(left, top), (right - 12, top), (right, centre),
                   (right - 12, bottom), (left, bottom)]  # fmt: skip
        yield _polygon(corners, style)
    else:
        rounded = {"wait": height / 2, "error": 12}.get(shape, 4)
        dashes = ' stroke-dasharray="4 3"' if shape in ("undo", "error") else ""
        yield _rectangle(left, top, width, height, f'{style}{dashes} rx="{rounded:.0f}"')
        if shape in ("cancel", "flow"):  # a second line inside
            yield _rectangle(left + 3, top + 3, width - 6, height - 6, f'{style} rx="2"')


def _rectangle(left: float, top: float, width: float, height: float, style: str) -> str:
    return f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" {style}/>'


def _polygon(corners: list[Point], style: str) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    return f'<polygon points="{points}" {style}/>'


def _text(lines: list[str], x: float, y: float, colour: str | None = None) -> Iterator[str]:
    for number, line in enumerate(lines):
        own = colour or (None if number == 0 else "#495057")
        name = "inverse" if colour else "soft"
        style = ' font-weight="bold"' if number == 0 else ' font-size="11"'
        style += f' class="{name}" fill="{own}"' if own else ""
        yield _line(line, x, y + number * LINE, style)


def _line(text: str, x: float, y: float, style: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle"{style}>{_escaped(text)}</text>'


def _curve(route: ArrowRoute, dx: float, dy: float) -> str:
    """Return a path that is vertical at every point, and horizontal at sides."""
    (x, y), *rest = [(px + dx, py + dy) for px, py in route.points]
    if route.arrow.source == route.arrow.target:  # at its right
        return f"M{x:.1f} {y:.1f} c40 -24 40 32 0 8"
    parts = [f"M{x:.1f} {y:.1f}"]
    for number, (nx, ny) in enumerate(rest, 1):
        if (x, y) == (nx, ny):
            continue
        half = (y + ny) / 2
        one, two = (x, half), (nx, half)
        if number == 1 and route.from_side:
            one = two = (nx, y)
        elif number == len(rest) and route.to_side:
            one = two = (x, ny)
        parts.append(f"C{one[0]:.1f} {one[1]:.1f} {two[0]:.1f} {two[1]:.1f} {nx:.1f} {ny:.1f}")
        x, y = nx, ny
    return " ".join(parts)


def _escaped(text: str) -> str:
    return escape(printable(text), quote=False)
