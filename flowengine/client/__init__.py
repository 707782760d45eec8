"""Programs that use a server instead of a store: the methods of the engine over HTTP.

The client is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.util.lazy_names import modules

if TYPE_CHECKING:
    from flowengine.client import client

__all__ = ["client"]

__getattr__ = modules(__name__, *__all__)
