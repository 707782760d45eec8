"""Driving executions: events are committed and commands carried out until nothing is left to do.

What drives on an event loop is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.util.lazy_names import modules

if TYPE_CHECKING:
    from flowengine.engines.running import local

__all__ = ["local"]

__getattr__ = modules(__name__, *__all__)
