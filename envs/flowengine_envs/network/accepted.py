"""Connections that a server of this process has accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


class Accepted:
    """The tasks that answer connections, until each has ended or all are ended."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    @contextmanager
    def connection(self) -> Iterator[None]:
        """Answer one connection, in the task that does so."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            # By `close`; the streams of Python 3.11 log a cancelled task as an error.
            with suppress(asyncio.CancelledError):
                yield
        finally:
            self._tasks.discard(task)

    async def close(self) -> None:
        """End all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
