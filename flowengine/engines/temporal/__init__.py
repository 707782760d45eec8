"""Executions in Temporal: their workflow history is the journal, and workers drive them.

Its two doors are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.util.lazy_names import modules

if TYPE_CHECKING:
    from flowengine.engines.temporal import opening, working

__all__ = ["opening", "working"]

__getattr__ = modules(__name__, *__all__)
