"""Inspection of executions: lists, history, differences, and why one makes no progress.

Its modules are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.util.lazy_names import modules

if TYPE_CHECKING:
    from flowengine.engines.inspection import diff, entries, history, reasons, steps

__all__ = ["diff", "entries", "history", "reasons", "steps"]

__getattr__ = modules(__name__, *__all__)
