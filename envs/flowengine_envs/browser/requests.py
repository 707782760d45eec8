"""The requests of a page, pages that are files of the workspace, and files that pages offer."""

from __future__ import annotations

import asyncio
import mimetypes
import os
import posixpath
import re
from collections import deque
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from flowengine.sdk import PathEscape, StepError
from flowengine.sdk.files.confined_files import Below
from flowengine.sdk.texts.sizes import size_text
from flowengine_documents.terminal_text import clean
from flowengine_envs.browser import library
from flowengine_envs.browser.observation import Downloaded
from flowengine_envs.network.file_names import safe, unused
from flowengine_envs.network.proxy import NAME

# Reasons for failed actions, worded for the caller.

LONGEST = 500
"""Maximum characters of a reason."""
BUSY = "nothing was done: scripts of the page keep it busy"
_REASONS = (
    (re.compile(r"(<[^\n]{1,200}) intercepts pointer events"), r"it is covered by \1"),
    (re.compile(r"element is not visible"), "it is not visible"),
    (re.compile(r"element is not enabled"), "it is disabled"),
    (re.compile(r"element is not editable"), "it cannot be edited"),
    (re.compile(r"element is not stable"), "it does not stop moving"),
    (re.compile(r"element is outside of the viewport"), "it is outside of the window"),
    (re.compile(r"did not find some options"), "it has no such option"),
)
"""Playwright's messages about an action that it kept retrying, and their wording here."""


class ActionFailed(Exception):
    """An action was not performed. The message contains the reason."""


def reason_of(error: Exception) -> str:
    """Return why Playwright failed, in one line."""
    text = clean(str(error).encode("utf-8", "replace"))
    for pattern, reason in _REASONS:
        if (match := pattern.search(text)) is not None:
            return match.expand(reason)
    first = text.split("Call log:")[0].strip().splitlines()
    line = first[0] if first else type(error).__name__
    return re.sub(r"^(?:Error: )?\w+\.\w+: (?:Error: )?", "", line)[:LONGEST]


# Checks addresses, and shortens them for display.

_LONGEST_URL = 2000


def checked_url(url: str) -> str:
    """Return an address that may be opened.

    Raises:
        ActionFailed: It is invalid, or its scheme is not allowed.
    """
    text = url.strip()
    if not text or len(text) > _LONGEST_URL or any(ord(each) < 0x21 for each in text):
        raise ActionFailed(f"'{url:.100}' is not an address: write https://example.org/page")
    if text.lower() == "about:blank":
        return "about:blank"
    try:
        parts = urlsplit(text)
        host = parts.hostname
    except ValueError:
        raise ActionFailed(f"'{text:.100}' is not an address") from None
    if parts.scheme.lower() not in ("http", "https"):
        named = f"scheme '{parts.scheme:.20}'" if parts.scheme else "an address without a scheme"
        raise ActionFailed(
            f"UrlRefused: {named} is not opened: only http, https and files of the workspace are"
        )
    if not host:
        raise ActionFailed(f"UrlRefused: '{text:.100}' names no host")
    return text


def is_file(url: str) -> bool:
    """Return whether an address names a file."""
    return url.strip()[:5].lower() == "file:"


def shown_url(url: str) -> str:
    """Return an address for display: without user name and password, and truncated."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url[:_LONGEST_URL]
    if "@" in parts.netloc:
        parts = parts._replace(netloc=parts.netloc.rpartition("@")[2])
        url = urlunsplit(parts)
    return url[:_LONGEST_URL]


# The requests of a page: pending, answered and failed ones.

_LOADED = frozenset({"document", "script", "stylesheet", "xhr", "fetch"})
"""Types that affect a page's text. An observation waits for them and reports their failures."""
_MOST = 100
"""Maximum number of failures recorded per tab."""
_LONGEST = 300
_FAULT = 400
"""The lowest status that counts as a failure."""
_WITHOUT_STATUS = ("about:", "blob:", "chrome-error:", "data:")
_ANSWERED = "net::ERR_HTTP_RESPONSE_CODE_FAILURE"
"""The failure of a page that consists only of a status."""
_UNTOLD = ("net::ERR_ABORTED", "net::ERR_TUNNEL_CONNECTION_FAILED")
"""Failures that are not reported: requests that the page cancelled or the proxy refused."""


class TabRequests:
    """The requests of one tab.

    Args:
        page: Its page.
    """

    def __init__(self, page: library.Page) -> None:
        self.status: int | None = None
        """Status of the page's response."""
        self.failure = ""
        """Why the last requested page failed to load, in Chromium's words."""
        self.asked = ""
        """Address of that page."""
        self.failures: deque[str] = deque(maxlen=_MOST)
        """The last requests of this page that failed or returned an error status."""
        self._page = page
        self._coming: int | None = None
        self._untold: deque[str] = deque(maxlen=_MOST)
        self.loading: set[library.Request] = set()
        """The pending ones for which an observation waits: those of the last action."""
        self.open: set[library.Request] = set()
        """The pending ones, which may change the page."""
        self._changed = asyncio.Event()
        page.on("request", self._began)
        page.on("response", self._answered)
        page.on("requestfinished", self._ended)
        page.on("requestfailed", self._failed)
        page.on("framenavigated", self._navigated)

    async def change(self) -> None:
        """Wait until a response has arrived or no request is pending."""
        self._changed.clear()
        await self._changed.wait()

    def forget(self) -> None:
        """Stop waiting, because the page is closed."""
        self.loading.clear()
        self.open.clear()
        self._changed.set()

    def untold(self) -> list[str]:
        """Return unreported failures that affect the page since the last call."""
        reported = [*dict.fromkeys(self._untold)]
        self._untold.clear()
        return reported

    async def look_back(self) -> None:
        """Determine the status of a page whose response arrived before its tab was tracked."""
        if self.status is not None or self._page.url.startswith(_WITHOUT_STATUS):
            return
        for asked in reversed(await self._page.requests()):
            if self._is_page(asked) and (response := asked.existing_response) is not None:
                self.status = response.status
                return

    def _began(self, asked: library.Request) -> None:
        if asked.redirected_from is None and self._is_page(asked):
            self.failures.clear()
            self.open.clear()
        if asked.resource_type in _LOADED:
            self.loading.add(asked)
            self.open.add(asked)

    def _ended(self, asked: library.Request) -> None:
        self.loading.discard(asked)
        self.open.discard(asked)
        self._changed.set()

    def _answered(self, response: library.Response) -> None:
        asked, status = response.request, response.status
        if self._is_page(asked):
            self._coming = status
        if status < _FAULT or response.headers.get("proxy-status", "").startswith(f"{NAME};"):
            return
        self._note(asked, str(status), is_reported=not self._is_page(asked))

    def _failed(self, asked: library.Request) -> None:
        self._ended(asked)
        failure = str(asked.failure or "failed")
        is_page = self._is_page(asked)
        if is_page:
            self.failure, self.asked = failure, asked.url
            if not failure.startswith(_ANSWERED):
                self._coming = None
        answer = asked.existing_response
        if answer is None or answer.status < _FAULT:  # otherwise already recorded
            self._note(asked, failure, is_reported=not is_page and not failure.startswith(_UNTOLD))

    def _note(self, asked: library.Request, why: str, *, is_reported: bool) -> None:
        line = f"{asked.method} {shown_url(asked.url)[:_LONGEST]} {why[:_LONGEST]}"
        self.failures.append(line)
        if is_reported and asked.resource_type in _LOADED:
            self._untold.append(line)

    def _navigated(self, frame: library.Frame) -> None:
        """Record a new page, unless it is the current one."""
        if frame is not self._page.main_frame:
            return
        if self._coming is not None or frame.url.startswith(_WITHOUT_STATUS):
            self.status, self._coming = self._coming, None

    def _is_page(self, asked: library.Request) -> bool:
        """Return whether a request is for the page itself, not for one of its resources."""
        if not asked.is_navigation_request():
            return False
        try:
            return asked.frame is self._page.main_frame
        except library.Error:  # A new tab, whose frame does not exist yet.
            return True


# Files that pages offer, which are saved in the directory `downloads` of the workspace.
#
# They arrive in the sandbox, where only their size is checked, and are copied out when complete.

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

    def save(self, download: library.Download) -> None:
        """Start saving a file that a page offers."""
        task = asyncio.ensure_future(self._save(download))
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

    async def _save(self, download: library.Download) -> None:
        url = shown_url(download.url) if not download.url.startswith("data:") else "data:"
        try:
            reason = await self._arrived(download)
            if not reason:
                self._done.append(await self._kept(download, url))
                return
        except library.Error as error:
            reason = str(error).splitlines()[0]
        except OSError as error:
            reason = f"it cannot be written: {error.strerror}"
        self._done.append(Downloaded("", 0, url, reason))

    async def _arrived(self, download: library.Download) -> str:
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

    async def _kept(self, download: library.Download, url: str) -> Downloaded:
        """Copy a complete file out of the sandbox.

        A page may have compromised the server that sends it, so the bytes sent are also counted.
        """
        data = await _content(download, self._largest)
        await download.delete()
        if data is None:
            return Downloaded("", 0, url, self._too_large())
        used = {*self._names}
        with suppress(OSError):
            used.update(os.listdir(self._workspace / FOLDER))
        name = unused(safe(download.suggested_filename), used)
        self._names.add(name)
        path = f"{FOLDER}/{name}"
        await asyncio.to_thread(self._files.write, path, data)
        await asyncio.to_thread((self._workspace / path).chmod, 0o644, follow_symlinks=False)
        return Downloaded(path, len(data), url)

    def _too_large(self) -> str:
        return f"it is larger than {size_text(self._largest)} (config: downloads)"


async def _content(download: library.Download, largest: int) -> bytes | None:
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


# Pages that are files of the workspace: `file:///workspace/report.html`.
#
# The browser's sandbox contains no such files. Each request for a `file:` address is answered
# here, confined to the workspace. As always in Chromium, a page from a file may show other files
# and run their scripts, but not read them.

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

    async def open(self, context: library.BrowserContext, address: str) -> str:
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
            f"UrlRefused: '{path:.200}' is not in the workspace: write file://{ROOT}/page.html"
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

    async def _answer(self, route: library.Route) -> None:
        """Answer a request for a file, or refuse it."""
        request = route.request
        with suppress(library.Error):  # The page may be closed by now.
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
