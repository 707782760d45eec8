"""From a file to a compiled flow.

The compiler is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.util.lazy_names import modules

if TYPE_CHECKING:
    from flowengine.flow import compile

__all__ = ["compile"]

__getattr__ = modules(__name__, __all__)
