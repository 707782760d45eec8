"""A picture as a Mermaid flowchart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flowengine.drawing.picture import Line, Picture, ScopeFrame, Shape
from flowengine.flow.export.yaml_text import inline
from flowengine.sdk.texts.visible_text import printable

SHAPES: Mapping[Shape, tuple[str, str]] = {
    "start": ("((", "))"),
    "end": ("((", "))"),
    "end_all": ("(((", ")))"),
    "error": ("([", "])"),
    "trigger": (">", "]"),
    "cancel": ("[\\", "/]"),
    "flow": ("[[", "]]"),
    "choice": ("{", "}"),
    "fork": ("[", "]"),
    "person": ("{{", "}}"),
    "wait": ("([", "])"),
    "fail": ("[/", "/]"),
    "undo": ("[[", "]]"),
    "step": ("[", "]"),
}
OWN_CLASSES = {
    "start": ("begin", "fill:#212529,stroke:#212529"),
    "fork": ("fork", "fill:#343a40,stroke:#343a40,color:#ffffff"),
}
"""Shapes with a separate color if no status colors them: class → style."""
TITLE_LINE = 24
"""Height of a line in the title of a group. Mermaid reserves one line."""
LINES: Mapping[Line, str] = {
    "next": "-->",
    "calls": "--o",
    "error": "-.->",
    "undo": "-.-",
    "after": "-.->",
}
CLASSES = {
    "succeeded": "fill:#d9f2dd,stroke:#2b8a3e",
    **dict.fromkeys(("failed", "refused", "rejected", "expired"), "fill:#ffe0e0,stroke:#c92a2a"),
    "waiting": "fill:#fff3c4,stroke:#b08900",
    "running": "fill:#d6ecff,stroke:#1971c2",
    "uncertain": "fill:#ffe3cc,stroke:#d9480f",
    "cancelled": "fill:#eeeeee,stroke:#868e96",
    "skipped": "fill:#ffffff,stroke:#adb5bd,stroke-dasharray:4",
}


def mermaid(picture: Picture) -> str:
    """Return a picture as text for Mermaid."""
    classes: dict[str, list[str]] = {}
    lines = ["---", f"title: {inline(printable(picture.title))}", *_margin(picture.frame), "---"]
    lines += ["flowchart TD", *_frame(picture.frame, 1, classes)]
    drawn = "\n".join(lines)
    lines += [
        f"  classDef {name} {look}" for name, look in OWN_CLASSES.values() if f":::{name}" in drawn
    ]
    for status, ids in classes.items():
        lines.append(f"  classDef {status} {CLASSES[status]}")
        lines.append(f"  class {','.join(ids)} {status}")
    return "\n".join(lines) + "\n"


def _margin(frame: ScopeFrame) -> list[str]:
    """Return the setting that leaves room for the longest title of a group."""
    most = max(_titles(frame), default=1)
    if most < 2:
        return []
    margin = f"{{top: 4, bottom: {(most - 1) * TITLE_LINE}}}"
    return ["config:", f"  flowchart: {{subGraphTitleMargin: {margin}}}"]


def _titles(frame: ScopeFrame) -> Iterator[int]:
    """Yield how many lines the titles of the groups have."""
    for box in frame.boxes:
        if box.frame is not None:
            yield len(box.lines)
            yield from _titles(box.frame)


def _frame(frame: ScopeFrame, depth: int, classes: dict[str, list[str]]) -> Iterator[str]:
    indent = "  " * depth
    for box in frame.boxes:
        if box.status in CLASSES:
            classes.setdefault(box.status, []).append(box.id)
        if box.frame is None:
            left, right = SHAPES[box.shape]
            own = ""
            if box.status not in CLASSES and box.shape in OWN_CLASSES:
                own = f":::{OWN_CLASSES[box.shape][0]}"
            yield f"{indent}{box.id}{left}{_text(box.lines or [' '])}{right}{own}"
            continue
        yield f"{indent}subgraph {box.id}[{_text(box.lines)}]"
        yield f"{indent}  direction TB"
        yield from _frame(box.frame, depth + 1, classes)
        yield f"{indent}end"
    for arrow in frame.arrows:
        label = f"|{_text([arrow.label])}|" if arrow.label else ""
        yield f"{indent}{arrow.source} {LINES[arrow.kind]}{label} {arrow.target}"


def _text(lines: list[str]) -> str:
    """Return text in quotes, with everything escaped that Mermaid or HTML would interpret."""
    escaped = [
        "".join(
            c if c.isalnum() or c in " _.,:!?/+*=()|-…" else f"#{ord(c)};" for c in printable(line)
        )
        for line in lines
    ]
    return f'"{"<br/>".join(escaped)}"'
