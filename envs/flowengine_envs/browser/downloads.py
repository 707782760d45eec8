"""Files that pages offer, which are saved in the directory `downloads` of the workspace.

They arrive in the sandbox, where only their size is checked, and are copied out when complete.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from flowengine.sdk.confined_files import Below
from flowengine.sdk.sizes import size_text
from flowengine_envs.browser import faults
from flowengine_envs.browser.addresses import shown_url
from flowengine_envs.browser.observation import Downloaded
from flowengine_envs.network.file_names import safe, unused

if TYPE_CHECKING:
    from playwright.async_api import Download

FOLDER = "downloads"
_LOOK = 0.1
"""Seconds between checks of the size received."""
_PIECE = 1 << 16


class Downloads:
    """The downloads of one browser.

    Args:
        workspace: The directory that receives them.
        arriving: The directory of this machine in which the browser process collects them.
        largest: Maximum bytes in transit in the process.
    """

    def __init__(self, workspace: Path, arriving: Path, largest: int) -> None:
        self._workspace = workspace
        self._files = Below(workspace, "downloads stay in the workspace", name="the workspace")
        self._arriving = arriving
        self._largest = largest
        self._running: set[asyncio.Task[None]] = set()
        self._names: set[str] = set()
        self._done: list[Downloaded] = []

    def save(self, download: Download) -> None:
        """Start saving a file that a page offers."""
        task = asyncio.ensure_future(self._take(download))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def wait(self, seconds: float) -> int:
        """Wait for pending files, and return how many are still pending after that time."""
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)
        return len(self._running)

    def taken(self) -> list[Downloaded]:
        """Return the downloads that ended since the last call."""
        done, self._done = self._done, []
        return done

    async def close(self) -> None:
        """Accept no more downloads."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _take(self, download: Download) -> None:
        url = shown_url(download.url) if not download.url.startswith("data:") else "data:"
        try:
            reason = await self._arrived(download)
            if not reason:
                self._done.append(await self._kept(download, url))
                return
        except faults.Error as error:
            reason = str(error).splitlines()[0]
        except OSError as error:
            reason = f"it cannot be written: {error.strerror}"
        self._done.append(Downloaded("", 0, url, reason))

    async def _arrived(self, download: Download) -> str:
        """Wait until it is complete. Return the reason if it fails."""
        ending = asyncio.ensure_future(download.failure())
        too_large = False
        try:
            while not ending.done():
                await asyncio.wait([ending], timeout=_LOOK)
                if not too_large and not ending.done() and self._size() > self._largest:
                    too_large = True
                    await download.cancel()
            failure = ending.result()
            too_large |= failure is None and self._size() > self._largest
        finally:
            ending.cancel()
        if too_large:
            with suppress(Exception):
                await download.delete()
            return self._too_large()
        return failure or ""

    def _size(self) -> int:
        """Return the bytes received that have not been copied out."""
        size = 0
        with suppress(OSError):
            for each in self._arriving.iterdir():
                with suppress(OSError):
                    size += each.lstat().st_size
        return size

    async def _kept(self, download: Download, url: str) -> Downloaded:
        """Copy a complete file out of the sandbox.

        A page may have compromised the server that sends it, so the bytes sent are also counted.
        """
        data = await _content(download, self._largest)
        await download.delete()
        if data is None:
            return Downloaded("", 0, url, self._too_large())
        path = self._free(download.suggested_filename)
        await asyncio.to_thread(self._files.write, path, data)
        await asyncio.to_thread((self._workspace / path).chmod, 0o644, follow_symlinks=False)
        return Downloaded(path, len(data), url)

    def _too_large(self) -> str:
        return f"it is larger than {size_text(self._largest)} (config: downloads)"

    def _free(self, suggested: str) -> str:
        """Return an unused path."""
        used = {*self._names}
        with suppress(OSError):
            used.update(os.listdir(self._workspace / FOLDER))
        name = unused(safe(suggested), used)
        self._names.add(name)
        return f"{FOLDER}/{name}"


async def _content(download: Download, largest: int) -> bytes | None:
    """Return the bytes of a received download. None: it exceeds the limit.

    Playwright can save downloads only as files without a size limit. It therefore writes to a pipe,
    and its next write fails once the other end is closed.
    """
    source, sink = os.pipe()
    reader = asyncio.StreamReader()
    reading, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(source, "rb", buffering=0)
    )
    saving = asyncio.ensure_future(download.save_as(f"/proc/self/fd/{sink}"))
    saving.add_done_callback(lambda _: os.close(sink))
    data = bytearray()
    try:
        while piece := await reader.read(_PIECE):
            data += piece
            if len(data) > largest:
                return None
        await saving
        return bytes(data)
    finally:
        reading.close()
        saving.cancel()
        await asyncio.gather(saving, return_exceptions=True)
