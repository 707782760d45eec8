"""A picture as a Mermaid flowchart."""

from __future__ import annotations

from collections.abc import Iterator

from flowengine.cli.drawing.picture import Arrow, Box, Frame, Picture

SHAPES = {
    "start": ("((", "))"),
    "end": ("((", "))"),
    "end_all": ("(((", ")))"),
    "error": ("([", "])"),
    "trigger": (">", "]"),
    "cancel": ("[\\", "/]"),
    "flow": ("[[", "]]"),
    "choice": ("{", "}"),
    "person": ("{{", "}}"),
    "wait": ("([", "])"),
    "fail": ("[/", "/]"),
    "undo": ("[[", "]]"),
    "step": ("[", "]"),
}
LINES = {"next": "-->", "error": "-.->", "undo": "-.-", "after": "-.->"}
CLASSES = {
    "succeeded": "fill:#d9f2dd,stroke:#2b8a3e",
    "failed": "fill:#ffe0e0,stroke:#c92a2a",
    "waiting": "fill:#fff3c4,stroke:#b08900",
    "running": "fill:#d6ecff,stroke:#1971c2",
    "uncertain": "fill:#ffe3cc,stroke:#d9480f",
    "cancelled": "fill:#eeeeee,stroke:#868e96",
    "skipped": "fill:#ffffff,stroke:#adb5bd,stroke-dasharray:4",
}


def mermaid(picture: Picture) -> str:
    """Return a picture as text for Mermaid."""
    found: dict[str, list[str]] = {}
    lines = ["---", f"title: {_title(picture.title)}", "---", "flowchart TD"]
    lines += _frame(picture.frame, 1, found)
    for status, ids in found.items():
        lines.append(f"  classDef {status} {CLASSES[status]}")
        lines.append(f"  class {','.join(ids)} {status}")
    return "\n".join(lines) + "\n"


def _frame(frame: Frame, depth: int, found: dict[str, list[str]]) -> Iterator[str]:
    indent = "  " * depth
    for box in frame.boxes:
        if box.status in CLASSES:
            found.setdefault(box.status, []).append(box.id)
        if box.frame is None:
            yield indent + _box(box)
            continue
        yield f"{indent}subgraph {box.id}[{_text(box.lines)}]"
        yield from _frame(box.frame, depth + 1, found)
        yield f"{indent}end"
    for arrow in frame.arrows:
        yield indent + _arrow(arrow)


def _box(box: Box) -> str:
    left, right = SHAPES[box.shape]
    return f"{box.id}{left}{_text(box.lines or [' '])}{right}"


def _arrow(arrow: Arrow) -> str:
    label = f"|{_text([arrow.label])}|" if arrow.label else ""
    return f"{arrow.source} {LINES[arrow.kind]}{label} {arrow.target}"


def _text(lines: list[str]) -> str:
    """Return text in quotes, with what Mermaid or HTML would read as more than text written out."""
    from flowengine.cli.output import clean

    escaped = [
        "".join(c if c.isalnum() or c in " _.,:!?/+*=()|-…" else f"#{ord(c)};" for c in clean(line))
        for line in lines
    ]
    return f'"{"<br/>".join(escaped)}"'


def _title(text: str) -> str:
    from flowengine.cli.output import clean
    from flowengine.cli.yaml_text import inline

    return inline(clean(text).replace("\n", " "))
