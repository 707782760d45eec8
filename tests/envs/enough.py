"""Time limits for tests that let one expire: long enough for the preceding steps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable


def enough(alike: Callable[[], object], least: float = 1) -> float:
    """Return a number of seconds within which an operation starts under the machine's current load.

    Args:
        alike: An operation that starts in the same way and ends at once.
        least: The minimum, enough on an idle machine.
    """
    began = time.monotonic()
    alike()
    tenths = math.ceil(100 * (time.monotonic() - began))
    return max(least, min(30, tenths / 10))
