"""Interventions of operators: fork, retry, upgrade, cancel.

Its modules are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.util.lazy_names import modules

if TYPE_CHECKING:
    from flowengine.engines.interventions import fork, moving, planning, retrying, upgrading

__all__ = ["fork", "moving", "planning", "retrying", "upgrading"]

__getattr__ = modules(__name__, *__all__)
