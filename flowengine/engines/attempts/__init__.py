"""Attempts of steps: running them, their context, their failures and their results.

The runner of steps is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.util.lazy_names import modules

if TYPE_CHECKING:
    from flowengine.engines.attempts import runner

__all__ = ["runner"]

__getattr__ = modules(__name__, *__all__)
