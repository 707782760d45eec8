"""The graph of a flow, as the page embeds it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from markupsafe import Markup

from flowengine.drawing.data import statuses_of
from flowengine.drawing.picture import draw
from flowengine.drawing.svg import Drawing, svg

_FITS = (1100, 640)
"""Size in pixels of the largest graph that is open when the page is."""


def graph(flow: Any, steps: Iterable[Any]) -> dict[str, Any]:
    """Return the drawing of a flow with the statuses of steps, and whether it is small."""
    drawing: Drawing = svg(draw(flow.compiled, statuses_of(list(steps))), "graph_")
    return {
        "graph": Markup(drawing.text),  # `svg` escapes every text and every id
        "graph_fits": drawing.width <= _FITS[0] and drawing.height <= _FITS[1],
    }
