"""Captures a container's output: beginning, end, size of the gap, and all of it in a file.

A container of an arbitrary image has no supervisor to truncate its output, so it is truncated here.
Memory holds only as much as the result contains. The rest is written to a file of the workspace
piece by piece.
"""

from __future__ import annotations

import asyncio
from typing import Any

from flowengine_envs.kinds.results import OutputStreams
from flowengine_envs.workspaces.files import Draft, PathRefused, Workspace

_READ = 1 << 18


class Captured:
    """One output stream.

    Args:
        name: `stdout` or `stderr`.
        streams: Receive the part that is kept.
        workspace: The directory that holds the file with the complete output.
        path: Path of that file.
        kept: Bytes in the result: half from the beginning, half from the end.
        most: Maximum size of the file in bytes.
    """

    def __init__(
        self,
        name: str,
        streams: OutputStreams,
        workspace: Workspace,
        path: str,
        kept: int,
        most: int,
    ) -> None:
        self._name = name
        self._streams = streams
        self._workspace = workspace
        self._path = path
        self._kept = kept
        self._most = most
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0
        self._in_file = 0
        self._draft: Draft | None = None

    async def read(self, source: asyncio.StreamReader) -> None:
        """Read everything from the source."""
        while data := await source.read(_READ):
            self._take(data)

    def finish(self) -> dict[str, Any]:
        """Close the file, and return the description of this stream for `OutputStreams.text`."""
        if self._draft is not None:
            try:
                self._draft.finish()
            except PathRefused:
                self._in_file = 0
                self._draft.drop()
        self._streams.take({"stream": self._name, "tail": True}, bytes(self._tail))
        kept = len(self._head) + len(self._tail)
        if self._total <= kept:
            return {}
        missing = self._total - self._in_file
        return {"left_out": self._total - kept, "file": self._path, "missing": missing}

    def _take(self, data: bytes) -> None:
        half = self._kept // 2
        begins = data[: half - len(self._head)]
        self._head += begins
        self._total += len(data)
        if begins:
            self._streams.take({"stream": self._name}, begins)
        rest = data[len(begins) :]
        if not rest:
            return
        if self._draft is None and self._total > self._kept:
            self._begin_file()
        self._tail += rest
        if self._draft is not None:
            self._write(rest)
        if len(self._tail) > self._kept - half:
            del self._tail[: len(self._tail) - (self._kept - half)]

    def _begin_file(self) -> None:
        try:
            self._draft = self._workspace.write(self._path, 0o644)
        except PathRefused:
            return
        self._write(bytes(self._head))
        self._write(bytes(self._tail))

    def _write(self, data: bytes) -> None:
        part = data[: self._most - self._in_file]
        if self._draft is None or not part:
            return
        try:
            self._draft.add(part)
            self._in_file += len(part)
        except PathRefused:  # The disk is full. The result reports how much is missing.
            self._most = self._in_file
