"""Pages that are files of the workspace: `file:///workspace/report.html`.

The browser's sandbox contains no such files. Each request for a `file:` address is answered here,
confined to the workspace. As always in Chromium, a page from a file may show other files and run
their scripts, but not read them.
"""

from __future__ import annotations

import asyncio
import mimetypes
import posixpath
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from flowengine.sdk import PathEscape, StepError
from flowengine.sdk.confined_files import Below
from flowengine_envs.browser import faults
from flowengine_envs.browser.reasons import ActionFailed

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Route

ROOT = "/workspace"
"""Path of the workspace in addresses."""
LARGEST = 50 * 1024 * 1024
"""Maximum bytes of a file."""
_SHOWN = frozenset({"document", "image", "media", "font", "stylesheet", "script"})
"""Resource types that a page may load. Others would let a script read files."""
_AS_THEY_ARE = frozenset({"text/html", "text/css", "text/javascript"})


class WorkspaceFiles:
    """The files of one workspace, for one profile.

    Args:
        workspace: The directory.
    """

    def __init__(self, workspace: Path) -> None:
        self._folder = str(workspace)
        self._below = Below(
            workspace, "files are opened in the workspace only", name="the workspace"
        )
        self._serves = False

    async def open(self, context: BrowserContext, address: str) -> str:
        """Prepare the files for display.

        Args:
            context: The profile.
            address: The address as given.

        Returns:
            The address to load.

        Raises:
            ActionFailed: It names no file of the workspace. The message contains the reason.
        """
        path = self._path(address)
        await asyncio.to_thread(self._read, path)
        if not self._serves:
            await context.route("file://**", self._answer)
            self._serves = True
        return f"file://{ROOT}/{quote(path)}"

    def _path(self, address: str) -> str:
        """Return the path below the workspace that an address names."""
        parts = urlsplit(address)
        if parts.netloc not in {"", "localhost"}:
            host = f"'{parts.netloc:.100}'"
            raise ActionFailed(f"UrlRefused: a 'file:' address has no host, and this has {host}")
        path = posixpath.normpath(unquote(parts.path))
        for root in (ROOT, self._folder):
            if path.startswith(f"{root}/"):
                return path[len(root) + 1 :]
        raise ActionFailed(
            f"UrlRefused: '{path:.200}' is not in the workspace; write file://{ROOT}/page.html"
        )

    def _read(self, path: str) -> bytes:
        try:
            return self._below.read(path, LARGEST)
        except PathEscape as error:
            raise ActionFailed(f"UrlRefused: {error.message}") from None
        except StepError as error:
            raise ActionFailed(error.message) from None
        except ValueError:  # A character that is invalid in paths.
            raise ActionFailed(f"UrlRefused: {path[:200]!r} is not a path") from None

    async def _answer(self, route: Route) -> None:
        """Answer a request for a file, or refuse it."""
        request = route.request
        with suppress(faults.Error):  # The page may be closed by now.
            if request.resource_type not in _SHOWN:
                await route.abort("accessdenied")
                return
            try:
                path = self._path(request.url)
                data = await asyncio.to_thread(self._read, path)
            except ActionFailed:
                await route.abort("failed")
                return
            await route.fulfill(body=data, content_type=_type_of(path, data))


def _type_of(path: str, data: bytes) -> str:
    """Return the content type of a file, so that text is shown and not downloaded."""
    guessed = mimetypes.guess_type(path)[0] or ""
    try:
        data.decode()
    except UnicodeDecodeError:
        return guessed or "application/octet-stream"
    is_text = guessed.startswith("text/") or guessed in {"", "application/json", "application/xml"}
    shown = "text/plain" if is_text and guessed not in _AS_THEY_ARE else guessed
    return f"{shown}; charset=utf-8"
