"""Properties of Python functions, read from their sources without importing them.

Its modules are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.util.lazy_names import modules

if TYPE_CHECKING:
    from flowengine.sdk.python_functions import carried_values, typed_values

__all__ = ["carried_values", "typed_values"]

__getattr__ = modules(__name__, *__all__)
