"""The style sheet, scripts, font and icons of the page."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files

from flowengine.drawing.icons import ICONS

_SCRIPT = "text/javascript; charset=utf-8"
STATIC = {
    "page.css": "text/css; charset=utf-8",
    "icons.svg": "image/svg+xml",
    "inter.woff2": "font/woff2",
    **dict.fromkeys(("live.js", "events.js", "arriving.js", "keys.js", "watch.js"), _SCRIPT),
}
"""Name → media type."""


@cache
def static_files() -> dict[str, bytes]:
    """Return the files by name. The icons get those of states, which drawings have, too."""
    found = {
        name: files("flowengine.page").joinpath("static", name).read_bytes() for name in STATIC
    }
    states = "\n".join(
        f'<symbol id="{k}" viewBox="0 0 16 16">{shape}</symbol>' for k, shape in ICONS.items()
    )
    found["icons.svg"] = found["icons.svg"].replace(b"</svg>", f"{states}</svg>".encode())
    return found


@cache
def static_version() -> str:
    """Return the part of their addresses that changes when one of them does."""
    return sha256(b"".join(static_files().values())).hexdigest()[:12]


def static(name: str) -> str:
    """Return the address of a file, which changes when any of them does."""
    return f"/static/{static_version()}/{name}"
