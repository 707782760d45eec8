"""A picture in the language of Graphviz."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flowengine.drawing.picture import Arrow, Box, Line, Picture, ScopeFrame, Shape
from flowengine.sdk.texts.visible_text import printable

SHAPES: Mapping[Shape, str] = {
    "start": "shape=circle, width=0.15, style=filled, fillcolor=black",
    "end": "shape=circle, fontsize=9",
    "end_all": "shape=doublecircle, fontsize=9",
    "error": 'shape=box, style="rounded,dashed", fontsize=10',
    "trigger": "shape=cds, fontsize=10",
    "cancel": "shape=box, peripheries=2",
    "flow": "shape=box3d",
    "choice": "shape=diamond",
    "fork": 'shape=box, fillcolor="#343a40", fontcolor=white',
    "person": "shape=hexagon, margin=0",
    "wait": 'shape=box, style="rounded,filled"',
    "fail": "shape=octagon",
    "undo": "shape=box, style=dashed",
    "step": "shape=box",
}
FILLS = {
    "succeeded": "#d9f2dd",
    **dict.fromkeys(("failed", "refused", "rejected", "expired"), "#ffe0e0"),
    "waiting": "#fff3c4",
    "running": "#d6ecff",
    "uncertain": "#ffe3cc",
    "cancelled": "#eeeeee",
    "skipped": "#ffffff",
}
LINES: Mapping[Line, str] = {
    "next": "",
    "calls": "arrowhead=odot",
    "error": "style=dashed",
    "undo": "style=dotted, dir=none",
    "after": "style=dotted",
}


def dot(picture: Picture) -> str:
    """Return a picture as text for `dot`."""
    lines = [
        "digraph flow {",
        f'  label={_quoted([picture.title])}; labelloc=t; compound=true; fontname="Helvetica";',
        '  node [fontname="Helvetica", style=filled, fillcolor=white];',
        '  edge [fontname="Helvetica", fontsize=10];',
        *_frame(picture.frame, 1),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _frame(frame: ScopeFrame, depth: int) -> Iterator[str]:
    indent = "  " * depth
    groups = {box.id: box.frame for box in frame.boxes if box.frame is not None}
    for box in frame.boxes:
        if box.frame is None:
            yield f"{indent}{box.id} [{_attributes(box)}];"
            continue
        yield f"{indent}subgraph cluster_{box.id} {{"
        fill = FILLS.get(box.status or "", "#fafafa")
        style = "rounded,filled,dashed" if box.shape == "finally" else "rounded,filled"
        yield f'{indent}  label={_quoted(box.lines)}; style="{style}"; fillcolor="{fill}";'
        yield from _frame(box.frame, depth + 1)
        yield f"{indent}}}"
    for arrow in frame.arrows:
        yield f"{indent}{_arrow(arrow, groups)}"


def _attributes(box: Box) -> str:
    fill = FILLS.get(box.status or "")
    shape = "step" if fill and box.shape == "fork" else box.shape
    parts = [f"label={_quoted(box.lines)}", SHAPES[shape]]
    if fill:
        parts.append(f'fillcolor="{fill}"')
    return ", ".join(parts)


def _arrow(arrow: Arrow, groups: dict[str, ScopeFrame]) -> str:
    """Return an edge. One to or from a group ends at its border, via a box inside."""
    source, target = arrow.source, arrow.target
    parts = [f"label={_quoted([arrow.label])}"] if arrow.label else []
    parts += [LINES[arrow.kind]] if LINES[arrow.kind] else []
    if source in groups:
        parts.append(f"ltail=cluster_{source}")
        source = _inside(groups[source], last=True)
    if target in groups:
        parts.append(f"lhead=cluster_{target}")
        target = _inside(groups[target], last=False)
    attributes = f" [{', '.join(parts)}]" if parts else ""
    return f"{source} -> {target}{attributes};"


def _inside(frame: ScopeFrame, *, last: bool) -> str:
    box = frame.boxes[-1 if last else 0]
    return box.id if box.frame is None else _inside(box.frame, last=last)


def _quoted(lines: list[str]) -> str:
    text = "\\n".join(printable(line).replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return f'"{text}"'
