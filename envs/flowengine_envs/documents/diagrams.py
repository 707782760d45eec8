"""The texts of diagrams (SmartArt) in Word and PowerPoint.

Source: ECMA-376, part 1, 21.4 (DrawingML diagrams).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flowengine_envs.documents.archives import parse_xml

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
