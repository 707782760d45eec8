"""Downloads from an address to a file, within limits, with a check of each redirect."""

from __future__ import annotations

import asyncio
import hashlib
import html
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

from flowengine.sdk import Timeout
from flowengine.sdk.web import responses
from flowengine.sdk.web.client import HttpClient
from flowengine.sdk.web.responses import BadAnswer, ConnectionInterrupted, ResponseHead, WebRequest
from flowengine.sdk.web.urls import Url, UrlRefused
from flowengine_envs.network.file_names import offered

SECONDS = 120.0
"""Seconds for a download with its redirects, if the spec sets no limit."""
REQUESTS = 3
"""Attempts of a request that fails in a transient way."""
_PAUSES = (1.0, 4.0)
_LONGEST_PAUSE = 20.0
_ACCEPTED = {
    "User-Agent": "flowengine",
    "Accept": "text/html,application/xhtml+xml,application/pdf,*/*;q=0.8",
}
_REFRESH = re.compile(
    rb"""<meta[^>]{1,200}?http-equiv\s*=\s*["']?refresh["']?[^>]{1,500}?"""
    rb"""content\s*=\s*["']?\s*(\d{1,4})(?:\.\d*)?\s*[;,]\s*(?:url\s*=\s*)?["']?([^"'>\s]+)""",
    re.IGNORECASE,
)
_HEAD_OF_PAGE = 16 * 1024
_AT_ONCE = 5
"""Maximum delay of a page's self-refresh that counts as a redirect, in seconds."""


@dataclass
class DownloadedFile:
    """A file, with the server's response headers."""

    url: Url
    """Its final address."""
    status: int
    media_type: str
    name: str
    size: int
    sha256: str
    notes: list[str] = field(default_factory=list)

    @property
    def reason(self) -> str:
        """Its status with the standard phrase."""
        return f"{self.status} {responses.phrase_of(self.status)}".rstrip()


@dataclass(frozen=True)
class Downloader:
    """Downloads files."""

    client: HttpClient
    """Sends requests."""
    bytes: int
    """Maximum size of a file, packed and unpacked."""
    seconds: float = SECONDS
    """Time limit of a download, including its redirects, without pauses between attempts."""
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Waits for some seconds before another attempt."""

    async def get(
        self, url: Url, to: Path, headers: Mapping[str, str] | None = None
    ) -> DownloadedFile:
        """Download a file. A response of any status counts as one.

        Args:
            url: Its address.
            to: The file to write. After an error it does not exist.
            headers: Headers for the server of this address, and no other.

        Returns:
            The download.

        Raises:
            UrlRefused: The address, or one that it redirects to, must not be reached.
            HttpError: The server did not respond, or redirected too often.
            Timeout: It takes too long.
            TooLarge: It exceeds the maximum size.
        """
        chain = [url]
        try:
            async with asyncio.timeout(self.seconds):
                while not isinstance(
                    downloaded := await self._tried(chain, to, headers or {}), DownloadedFile
                ):
                    responses.follow(chain, downloaded)
                return downloaded
        except BaseException as error:
            with suppress(FileNotFoundError):
                os.unlink(to)
            if isinstance(error, TimeoutError):
                waited = str(error) or f"it was not downloaded in {self.seconds:g} s"
                raise Timeout(f"{responses.shown(chain)}: {waited}") from None
            raise

    async def _tried(
        self, chain: list[Url], to: Path, headers: Mapping[str, str]
    ) -> DownloadedFile | Url:
        """Send a request, and repeat it after a transient error."""
        for number in range(REQUESTS):
            last = number == REQUESTS - 1
            try:
                answer, wait = await self._asked(chain, to, headers)
                if wait is None or last:
                    return answer
            except TimeoutError:
                raise
            except (OSError, BadAnswer) as error:
                if last or not isinstance(error, ConnectionInterrupted):
                    raise responses.failed(chain, error) from None
                wait = 0.0
            await self.pause(min(max(wait, _PAUSES[number]), _LONGEST_PAUSE))
        raise AssertionError

    async def _asked(
        self, chain: list[Url], to: Path, headers: Mapping[str, str]
    ) -> tuple[DownloadedFile | Url, float | None]:
        """Send one request. Return its result, and the pause after which to repeat it, if any."""
        request = WebRequest(_ACCEPTED, headers, lambda _: self.bytes)
        try:
            async with responses.requested(self.client, chain, request) as (head, body):
                if isinstance(body, Url):
                    return body, None
                size, digest = 0, hashlib.sha256()
                with to.open("wb") as file:
                    async for piece in body:
                        file.write(piece)
                        digest.update(piece)
                        size += len(piece)
            refresh = _refresh(to, head) if head.status == HTTPStatus.OK else ""
            if refresh:
                return responses.next_url(chain[-1], refresh), None
        except UrlRefused as error:
            raise responses.refused(chain, error) from None
        downloaded = _download(chain, head, size, digest.hexdigest())
        wait = responses.retry_after(head.headers.get("retry-after")) or 0.0
        return downloaded, wait if head.status in (502, 503, 504) else None


def _download(chain: list[Url], head: ResponseHead, size: int, digest: str) -> DownloadedFile:
    url, headers = chain[-1], head.headers
    media_type = headers.get("content-type", "")
    path = url.target.partition("?")[0]
    name = offered(headers.get("content-disposition", ""), path, media_type)
    notes = [each.note for each in chain if each.note]
    if len(chain) > 1:
        notes.append(f"redirected from {chain[0]}")
    return DownloadedFile(url, head.status, media_type, name, size, digest, notes)


def _refresh(path: Path, head: ResponseHead) -> str:
    """Return the address that a page immediately refreshes to."""
    if "html" not in head.headers.get("content-type", ""):
        return ""
    with path.open("rb") as file:
        refresh = _REFRESH.search(file.read(_HEAD_OF_PAGE))
    if refresh is None or int(refresh[1]) > _AT_ONCE:
        return ""
    return html.unescape(refresh[2].decode("utf-8", "replace"))
