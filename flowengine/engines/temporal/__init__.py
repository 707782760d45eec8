"""Executions in Temporal: their workflow history is the journal, and workers drive them.

Its door is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.util.lazy_names import modules

if TYPE_CHECKING:
    from flowengine.engines.temporal import opening

__all__ = ["opening"]

__getattr__ = modules(__name__, *__all__)
