"""A picture as SVG.

Its colors are attributes, for programs that know no style sheets. Each has a class, so that the
style sheet of a page replaces them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape

from flowengine.drawing.icons import ICONS, look_of
from flowengine.drawing.layout import (
    CHARACTER,
    HEAD,
    PADDING,
    SMALL_CHARACTER,
    TEXT_AT,
    ArrowRoute,
    Laid,
    detail_of,
    label_of,
    lay_out,
    name_of,
)
from flowengine.drawing.picture import Arrow, Box, Picture, ScopeFrame
from flowengine.sdk.texts.visible_text import printable

MARGIN = 20.0
TITLE = 30.0
DASHES = {
    "next": "",
    "calls": ' stroke-dasharray="1 3"',
    "error": ' stroke-dasharray="5 4"',
    "undo": ' stroke-dasharray="2 4"',
    "after": ' stroke-dasharray="2 4"',
}
_COLORS = {
    "ok": ("#e7f5ec", "#3aa46c"),
    "bad": ("#fdecea", "#d94a41"),
    "run": ("#e8f0fd", "#4a86e8"),
    "you": ("#fff3d9", "#eba61f"),
    "idle": ("#f1ecfc", "#a58ae0"),
    "stop": ("#f1f1ee", "#8a8f96"),
    "none": ("white", "#8a8f96"),
}
"""Look → color of the box, and of its line and icon."""
_SIGNS = {"person": "you", "wait": "idle", "choice": "ways", "fork": "ways", "fail": "bad",
          "error": "bad", "cancel": "stop"}  # fmt: skip
"""Shape of a box that has not begun → its icon."""


Link = Callable[[Box, tuple[Box, ...]], str | None]
"""From a box and the groups around it to the address that it leads to."""


def svg(
    picture: Picture,
    prefix: str = "",
    link: Link = lambda box, groups: None,
    lit: str = "",
) -> str:
    """Return a picture as an SVG document.

    Args:
        picture: The picture. Without a title, none is drawn.
        prefix: Start of all ids, unique on a page with several pictures.
        link: Where boxes lead. Default: nowhere.
        lit: Id of the box that a style sheet emphasizes. Empty: none.
    """
    laid = lay_out(picture.frame)
    width = max(laid.width, len(picture.title) * 9.0) + 2 * MARGIN
    top = MARGIN + (TITLE if picture.title else 0)
    height = laid.height + MARGIN + top
    drawer = _Drawer(escape(prefix), link, lit, is_run=_has_begun(picture.frame))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="Helvetica, Arial, sans-serif" '
        'font-size="11" class="flow" fill="#1b1c1f">',
        *drawer.heads(),
        '<rect width="100%" height="100%" class="back" fill="white"/>',
        *(_title(picture.title, width) if picture.title else ()),
        *drawer.frame(picture.frame, laid, (width - laid.width) / 2, top),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _title(text: str, width: float) -> Iterator[str]:
    style = 'text-anchor="middle" font-size="15" font-weight="bold"'
    yield f'<text x="{width / 2:.1f}" y="{MARGIN + 4:.0f}" {style}>{_escaped(text)}</text>'


class _Drawer:
    def __init__(self, prefix: str, link: Link, lit: str, *, is_run: bool) -> None:
        self.prefix = prefix
        self.link = link
        self.lit = lit
        self.is_run = is_run
        """Whether it shows an execution, so that parts that have not begun are dashed."""

    def heads(self) -> Iterator[str]:
        """Yield the heads of arrows: of those that were taken, and of the others."""
        for name, color in (("took", "#686d75"), ("head", "#b9b8b0")):
            yield (
                f'<defs><marker id="{self.prefix}{name}" viewBox="0 0 8 8" refX="7" refY="4" '
                'markerWidth="8" markerHeight="8" orient="auto" markerUnits="userSpaceOnUse">'
                f'<path d="M0 0L8 4L0 8z" class="tip {name}" fill="{color}"/></marker></defs>'
            )

    def frame(
        self, frame: ScopeFrame, laid: Laid, x: float, y: float, groups: tuple[Box, ...] = ()
    ) -> Iterator[str]:
        boxes = {box.id: box for box in frame.boxes}
        for route in laid.routes:
            took = not self.is_run or _was_taken(route.arrow, boxes)
            name, color = ("took", "#686d75") if took else ("head", "#b9b8b0")
            head = "" if route.arrow.kind == "undo" else f' marker-end="url(#{self.prefix}{name})"'
            dashes = DASHES[route.arrow.kind] or ("" if took else ' stroke-dasharray="4 4"')
            yield (
                f'<path d="{_curve(route, x, y)}" class="arrow {name}" fill="none" '
                f'stroke="{color}" stroke-width="1.5"{dashes}{head}/>'
            )
        for box in frame.boxes:
            left, top, width, height = laid.places[box.id]
            yield from self.box(box, left + x, top + y, width, height, groups)
            if box.frame is not None:
                inner = laid.inside[box.id]
                beside = left + x + (width - inner.width) / 2
                below = top + y + HEAD + PADDING
                yield from self.frame(box.frame, inner, beside, below, (*groups, box))
        for route in laid.routes:
            if route.arrow.label:
                yield from _label(route, x, y)

    def box(
        self,
        box: Box,
        left: float,
        top: float,
        width: float,
        height: float,
        groups: tuple[Box, ...],
    ) -> Iterator[str]:
        name = f'id="{self.prefix}{escape(box.id)}"'
        look = "you" if box.shape == "person" and box.status == "waiting" else look_of(box.status)
        if box.shape in ("start", "end", "end_all"):
            fill = "white" if box.shape == "end" else "#686d75"
            yield (
                f'<circle {name} cx="{left + width / 2:.1f}" cy="{top + height / 2:.1f}" r="5" '
                f'class="dot {box.shape}" fill="{fill}" stroke="#686d75" stroke-width="1.5"/>'
            )
            return
        address = self.link(box, groups)
        tag = "g" if address is None else "a"
        href = "" if address is None else f' href="{escape(address)}"'
        lit = " lit" if box.id == self.lit else ""
        title = _escaped(". ".join(box.lines))  # the tooltip, also read by screen readers
        yield f'<{tag} {name} class="node is-{look}{lit}"{href}><title>{title}</title>'
        fill, line = _COLORS[look]
        is_dashed = box.shape == "undo" or (self.is_run and box.status is None)
        dashes = ' stroke-dasharray="4 3"' if is_dashed else ""
        sign = look if box.status else _SIGNS.get(box.shape, "none" if self.is_run else "")
        text_at = left + (TEXT_AT if sign else 14)
        if box.frame is not None:
            yield _rectangle(
                left,
                top,
                width,
                height,
                12,
                f'class="frame" fill="#f7f7f5" stroke="{line}"{dashes}',
            )
            yield _icon(sign, look, line, left + 10, top + 6)
            yield _text(name_of(box), text_at, top + 18, _BOLD)
            at = text_at + len(name_of(box)) * CHARACTER + 8
            yield _text(detail_of(box), at, top + 18, _SOFT)
        else:
            if box.counts or box.shape == "flow":  # several, behind one another
                yield _rectangle(
                    left + 5,
                    top + 5,
                    width - 10,
                    height,
                    8,
                    f'class="under" fill="white" stroke="{line}"{dashes}',
                )
            yield _rectangle(
                left, top, width, height, 8, f'class="box" fill="{fill}" stroke="{line}"{dashes}'
            )
            detail, strip = detail_of(box), 4.0 if box.counts else 0.0
            middle = top + (height - strip) / 2
            yield _icon(sign, look, line, left + 10, middle - 8)
            yield _text(name_of(box), text_at, middle - 2 if detail else middle + 4, _BOLD)
            yield _text(detail, text_at, middle + 13, _SOFT)
            yield from _strip(box, left + 10, top + height - 7, width - 20)
        yield f"</{tag}>"


_BOLD = 'class="name" font-size="12.5" font-weight="600"'
_SOFT = 'class="soft" fill="#575b62"'


def _has_begun(frame: ScopeFrame) -> bool:
    return any(box.status or (box.frame and _has_begun(box.frame)) for box in frame.boxes)


def _was_taken(arrow: Arrow, boxes: dict[str, Box]) -> bool:
    """Return whether an execution has, as far as the states show, gone along an arrow."""
    source, target = boxes[arrow.source], boxes[arrow.target]
    begun = source.status not in (None, "skipped") or source.shape == "start"
    if target.shape in ("end", "end_all"):
        return begun and source.status == "succeeded" and arrow.kind == "next"
    return begun and target.status not in (None, "skipped")


def _icon(name: str, look: str, color: str, left: float, top: float) -> str:
    if not name:
        return ""
    return (
        f'<g class="icon {look}" transform="translate({left:.1f} {top:.1f})" fill="none" '
        f'stroke="{color}" stroke-width="1.7" stroke-linecap="round" stroke-linejoin="round">'
        f"{ICONS[name]}</g>"
    )


def _strip(box: Box, left: float, top: float, width: float) -> Iterator[str]:
    """Yield one bar for each state of the activations, as long as its share."""
    total = sum(box.counts.values())
    for state, number in box.counts.items():
        length = width * number / total
        look = look_of(state)
        style = f'class="part {look}" fill="{_COLORS[look][1]}"'
        yield _rectangle(left, top, max(length - 1, 1), 3, 1.5, style)
        left += length


def _label(route: ArrowRoute, x: float, y: float) -> Iterator[str]:
    """Return the label of an arrow, on a background that hides arrows behind it."""
    lx, ly, text = route.label[0] + x, route.label[1] + y, label_of(route.arrow)
    width = len(text) * SMALL_CHARACTER + 14
    style = 'class="tag" fill="white" stroke="#e5e4df"'
    yield "<g>" + _rectangle(lx - width / 2, ly - 9, width, 18, 9, style)
    yield _text(text, lx, ly + 4, f'text-anchor="middle" {_SOFT}')
    yield f"<title>{_escaped(route.arrow.label)}</title></g>"


def _rectangle(
    left: float, top: float, width: float, height: float, round: float, style: str
) -> str:
    return (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'rx="{round}" {style}/>'
    )


def _text(text: str, x: float, y: float, style: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{_escaped(text)}</text>' if text else ""


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
