"""The graph of a flow, as the page embeds it."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from flowengine.drawing.picture import Statuses, draw
from flowengine.drawing.svg import Drawing, svg

_FITS = (1100, 640)
"""Size in pixels of the largest graph that is open when the page is."""


def graph(flow: Any, statuses: Statuses) -> dict[str, Any]:
    """Return the drawing of a flow with the statuses of its steps, and whether it is small."""
    drawing: Drawing = svg(draw(flow.compiled, statuses), "graph_")
    return {
        "graph": Markup(drawing.text),  # `svg` escapes every text and every id
        "graph_fits": drawing.width <= _FITS[0] and drawing.height <= _FITS[1],
    }
