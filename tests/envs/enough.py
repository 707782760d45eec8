"""Time limits that a test lets pass: long enough for what has to happen before."""

from __future__ import annotations

import math
import time
from collections.abc import Callable


def enough(alike: Callable[[], object], least: float = 1) -> float:
    """Return seconds in which something surely begins, as busy as the machine is now.

    Args:
        alike: Does something that begins in the same way, and ends at once.
        least: Seconds that are enough on a machine that does nothing else.
    """
    began = time.monotonic()
    alike()
    tenths = math.ceil(100 * (time.monotonic() - began))
    return max(least, min(30, tenths / 10))
