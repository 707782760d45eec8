"""The last output of a program that is reported only if it fails."""

from __future__ import annotations

import asyncio
from contextlib import suppress

_KEPT = 4096
"""Bytes kept."""


class Log:
    """The end of what a program has written to its standard error."""

    def __init__(self) -> None:
        self._data = bytearray()

    def __str__(self) -> str:
        return self._data.decode(errors="replace").strip()

    async def read(self, stream: asyncio.StreamReader | None) -> None:
        """Read a stream to its end. None: there is none."""
        with suppress(OSError):
            while stream is not None and (data := await stream.read(_KEPT)):
                self.add(data)

    def add(self, data: bytes) -> None:
        """Add output."""
        self._data = (self._data + data)[-_KEPT:]
