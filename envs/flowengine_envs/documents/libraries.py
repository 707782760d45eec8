"""Locations of the converters' libraries, for a process that sees only selected directories."""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import flowengine
import flowengine_envs

_OWN = [Path(str(package.__file__)).parent for package in (flowengine_envs, flowengine)]
_NEEDED = (
    *("PIL", "charset_normalizer", "docx", "lxml", "olefile", "openpyxl", "pptx", "pypdf"),
    "pypdfium2",
)


def missing() -> list[str]:
    """Return the libraries that are not installed."""
    return [name for name in _NEEDED if find_spec(name) is None]


@cache
def folders() -> tuple[str, ...]:
    """Return the directories with the converters and their libraries, except for the system's."""
    return _not_shown([*map(str, _OWN), *_libraries()])


@cache
def search_path() -> list[str]:
    """Return the module search path for a Python process that has none by default."""
    return [*dict.fromkeys(str(package.parent) for package in _OWN), *_not_shown(_libraries())]


def _libraries() -> list[str]:
    specs = map(find_spec, _NEEDED)
    return [str(Path(spec.origin).parents[1]) for spec in specs if spec and spec.origin]


def _not_shown(places: list[str]) -> tuple[str, ...]:
    """Return the directories outside of Python's own, which every sandbox shows."""
    shown = (sys.prefix, sys.base_prefix)
    return tuple(
        place
        for place in dict.fromkeys(places)
        if not any(Path(place).is_relative_to(folder) for folder in shown)
    )
