"""Optional libraries, each imported when one of its names is first used.

The classes of a kind's resources are inspected when a flow is checked, even if the library is not
installed. `library` beside them stands for its modules.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


def names_of(*modules: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module that has the names of other modules."""

    @cache
    def named(name: str) -> Any:
        for module in () if name.startswith("__") else modules:
            loaded = import_module(module)
            if hasattr(loaded, name):
                return getattr(loaded, name)
        raise AttributeError(f"{' and '.join(modules)} have no name {name!r}")

    return named
