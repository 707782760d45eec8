"""Connections accepted by a server of this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


class Accepted:
    """The tasks that handle connections, until each has ended or all are ended."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    @contextmanager
    def connection(self) -> Iterator[None]:
        """Handle one connection in the current task."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            # Cancelled by `close`. Otherwise the streams of Python 3.11 log a cancelled task as an
            # error.
            with suppress(asyncio.CancelledError):
                yield
        finally:
            self._tasks.discard(task)

    async def close(self) -> None:
        """End all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
