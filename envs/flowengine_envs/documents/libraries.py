"""Locations of the converters' libraries, for a process that sees only selected directories."""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import flowengine_envs

OWN = Path(flowengine_envs.__file__).parent
_NEEDED = ("PIL", "charset_normalizer", "docx", "lxml", "openpyxl", "pptx", "pypdf", "pypdfium2")


def missing() -> list[str]:
    """Return the libraries that are not installed."""
    return [name for name in _NEEDED if find_spec(name) is None]


@cache
def folders() -> tuple[str, ...]:
    """Return the directories with the converters and their libraries, except for the system's."""
    places = [str(OWN)]
    for name in _NEEDED:
        found = find_spec(name)
        if found is not None and found.origin is not None:
            places.append(str(Path(found.origin).parents[1]))
    shown = (sys.prefix, sys.base_prefix)
    return tuple(
        place
        for place in dict.fromkeys(places)
        if not any(Path(place).is_relative_to(folder) for folder in shown)
    )


def search_path() -> list[str]:
    """Return the module search path for a Python process that has none by default."""
    return [str(OWN.parent), *(place for place in folders() if place != str(OWN))]
