"""Limits of the requests of each identity."""

from __future__ import annotations

import math
from collections import OrderedDict
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING

from flowengine.server.problems import RequestRefused

if TYPE_CHECKING:
    from collections.abc import Callable

PER_MINUTE = 3000
"""Requests of an identity in a minute, by default."""
_AT_ONCE = 3
"""A third of the requests of a minute may come at once."""
_MOST = 10_000
"""Identities that are remembered. One that was forgotten has its whole allowance again."""


class Rates:
    """Counts requests. Each identity has an allowance that grows with time, up to a maximum.

    Args:
        per_minute: Requests in a minute.
        now: The monotonic time, in seconds.
    """

    def __init__(self, per_minute: int = PER_MINUTE, now: Callable[[], float] = monotonic) -> None:
        self._rate = per_minute / 60
        self._most = max(1.0, per_minute / _AT_ONCE)
        self._now = now
        self._left: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()
        """Identity → its allowance, and when that was computed."""
        self._lock = Lock()

    def take(self, user: str, token: str) -> None:
        """Count a request.

        Args:
            user: The user.
            token: The name of the credential.

        Raises:
            RequestRefused: The allowance is used up (RFC 6585, 4).
        """
        with self._lock:
            now, identity = self._now(), (user, token)
            left, at = self._left.pop(identity, (self._most, now))
            left = min(self._most, left + (now - at) * self._rate)
            is_over = left < 1
            self._left[identity] = (left if is_over else left - 1), now
            if len(self._left) > _MOST:
                self._left.popitem(last=False)
        if is_over:
            wait = max(1, math.ceil((1 - left) / self._rate))
            raise RequestRefused(429, "too many requests", headers={"retry-after": str(wait)})
