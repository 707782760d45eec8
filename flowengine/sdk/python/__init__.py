"""Code in Python: its functions and types, read with and without importing them, and its calls.

Its modules are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.util.lazy_names import modules

if TYPE_CHECKING:
    from flowengine.sdk.python import carried_values, typed_values

__all__ = ["carried_values", "typed_values"]

__getattr__ = modules(__name__, *__all__)
