"""Scarce places of a server, and each user's share of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from starlette.types import Scope

from flowengine.server.refusals import RequestRefused

HELD = "flowengine.held"
"""Field of a scope: the places that become free once the request is answered."""


class Places:
    """Places of one kind.

    A user whose share is taken is refused, so that programs notice it, unless places become free by
    themselves soon. Then the user's next request waits.

    Args:
        what: The use of a place, for messages: `"uploads"`.
        of_user: How many of them one user may take.
        most: How many there are. None: as many as the server has connections.
        waits: Whether requests wait for a place of their user.
    """

    def __init__(
        self, what: str, of_user: int, most: int | None = None, *, waits: bool = False
    ) -> None:
        self.of_user = of_user
        self._what = what
        self._waits = waits
        self._free = None if most is None else asyncio.Semaphore(most)
        self._own: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """User → the rest of the share, as long as some of it is taken."""

    @asynccontextmanager
    async def of(self, user: str, patience: float | None = None) -> AsyncIterator[None]:
        """Take a place in the block.

        Args:
            user: Who takes it.
            patience: Seconds to wait while all places are taken. None: any time.

        Raises:
            RequestRefused: The share of the user is taken, or all places are.
        """
        own = self._own.setdefault(user, asyncio.Semaphore(self.of_user))
        if own.locked() and not self._waits:
            raise self.refusal(user)
        async with own:
            if self._free is None:
                yield
                return
            try:
                async with asyncio.timeout(patience):
                    await self._free.acquire()
            except TimeoutError:
                message = f"other users have all places for {self._what}"
                raise RequestRefused(429, message, headers={"retry-after": "1"}) from None
            try:
                yield
            finally:
                self._free.release()

    async def hold(self, user: str, scope: Scope) -> None:
        """Take a place until a request is answered.

        Raises:
            RequestRefused: As `of`.
        """
        await scope[HELD].enter_async_context(self.of(user))

    def refusal(self, user: str) -> RequestRefused:
        """Return the error of a user whose share is taken."""
        return RequestRefused(
            429,
            f"{user} has {self.of_user} {self._what}, as many as one user may have",
            hint="end one of them, or wait until one has ended",
            headers={"retry-after": "1"},
        )
