"""Converts the HTML of pages to Markdown, each in a process forked from a preloaded one."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from typing import NamedTuple

from flowengine.sdk.environments import Program, Sandbox
from flowengine_documents.document import MIB
from flowengine_envs.browser.markdown_worker import LARGEST_ANSWER, START
from flowengine_envs.documents import conversion
from flowengine_envs.link.parts import async_read, part

MEMORY = 1024 * MIB
_TIME = 10.0
"""Seconds for one page."""


class Markdown(NamedTuple):
    """A page as text."""

    text: str
    title: str = ""
    truncated: bool = False
    error: str = ""
    """Why the conversion failed."""


class Converter:
    """A program that converts pages one after another, each in a separate process.

    It is started for the first page, and again after it has ended.

    Args:
        sandbox: The sandbox that it runs in.
        interpreter: The Python installation with the converters.
    """

    def __init__(self, sandbox: Sandbox, interpreter: str | None) -> None:
        self._sandbox = sandbox
        self._interpreter = interpreter or sys.executable
        self._program: Program | None = None
        self._log: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """Start the process, so that the first page does not wait for it."""
        async with self._starting:
            await self._running()

    async def convert(self, html: str, base: str, characters: int) -> Markdown:
        """Convert a page.

        Args:
            html: Its HTML.
            base: Its address, against which its links are resolved.
            characters: Maximum length of the text. The rest is cut off.

        Returns:
            Its text, or the reason for the failure.
        """
        if not html.strip():
            return Markdown("")
        asked = json.dumps({"base": base, "characters": characters}).encode()
        page = html.encode("utf-8", "replace")
        async with self._starting:
            try:
                async with asyncio.timeout(_TIME):
                    program = await self._running()
                    assert program.stdin is not None
                    assert program.stdout is not None
                    program.stdin.write(part(asked) + part(page))
                    await program.stdin.drain()
                    answer = await async_read(program.stdout.readexactly, largest=LARGEST_ANSWER)
                    return _checked(json.loads(answer))
            except TimeoutError:
                await self.close()
                return Markdown("", error=f"converting the page takes more than {_TIME:.0f} s")
            except (OSError, ValueError, asyncio.IncompleteReadError):
                await self.close()
                return Markdown("", error="the process that converts the page has ended")
            except BaseException:  # An unread answer would be mistaken for the next page's.
                await asyncio.shield(self.close())
                raise

    async def close(self) -> None:
        """End the process, if it runs."""
        program, self._program = self._program, None
        if program is not None:
            with suppress(ProcessLookupError):
                program.kill()
            await program.wait()
        if self._log is not None:
            self._log.cancel()
            await asyncio.gather(self._log, return_exceptions=True)
            self._log = None

    async def _running(self) -> Program:
        if self._program is None or self._program.returncode is not None:
            await self.close()
            options = {"search_path": conversion.search_path(), "memory": MEMORY}
            argv = [self._interpreter, "-I", "-c", START, json.dumps(options)]
            self._program = await self._sandbox.start(argv, env={"LANG": "C.UTF-8"})
            self._log = asyncio.ensure_future(_drain(self._program.stderr))
        return self._program


async def _drain(stream: asyncio.StreamReader | None) -> None:
    """Discard the errors of a process, which would otherwise block on a full pipe."""
    with suppress(OSError):
        while stream is not None and await stream.read(1 << 16):
            pass


def _checked(answer: object) -> Markdown:
    """Return the process's answer. Raises `ValueError` if it is invalid."""
    if not isinstance(answer, dict):
        raise ValueError("no answer")
    if "error" in answer:
        return Markdown("", error=str(answer["error"])[:500])
    text, title = answer.get("markdown"), answer.get("title")
    if not isinstance(text, str) or not isinstance(title, str):
        raise ValueError("no answer")
    return Markdown(text, title, bool(answer.get("truncated")))
