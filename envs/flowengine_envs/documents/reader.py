"""Documents by address: web pages, and files and directories of the workspace.

Each file is converted in a separate process, in a sandbox without a network. The processes are
forked by a server that has imported the converters. After any misbehavior caused by a file - a
crash, an exceeded limit, an invalid answer - a new server is started, although none of its
processes can reach it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import posixpath
import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from http import HTTPStatus
from itertools import islice
from pathlib import Path, PurePath
from typing import Any

from flowengine.sdk import (
    EnvironmentFailure,
    EnvironmentLost,
    LimitExceeded,
    NotAFile,
    ValidationError,
)
from flowengine.sdk.environments import Request, Sandbox, both_forms
from flowengine.sdk.processes import scratch_folder
from flowengine.sdk.texts.sizes import size_text
from flowengine.sdk.web.client import HttpClient
from flowengine.sdk.web.connections import Network, Rules
from flowengine.sdk.web.responses import TooLarge
from flowengine.sdk.web.urls import UrlRefused, read_url
from flowengine_documents.converters import modules
from flowengine_documents.document import ConversionLimits, Document, LimitReached
from flowengine_documents.formats import SUFFIXES
from flowengine_documents.pages import CHARACTERS as LONGEST_PAGE
from flowengine_documents.pages import Pages
from flowengine_envs.documents import downloads
from flowengine_envs.documents.conversion import (
    FAULTS,
    MEMORY,
    WHOLE,
    Stretch,
    UnreadableDocument,
    about,
    checked,
    exceeded,
    search_path,
)
from flowengine_envs.documents.visits import (
    OpenedDocument,
    Page,
    Visit,
    destination,
    listing,
    looks_like_host,
)
from flowengine_envs.documents.worker import START, head
from flowengine_envs.kinds.results import CommandResult, last_line
from flowengine_envs.kinds.supervised import Supervised
from flowengine_envs.link.call_limits import TIMEOUT
from flowengine_envs.link.channel import Channel
from flowengine_envs.network.file_names import unused

_NOT_KEPT = frozenset({"html", "text", "feed"})
"""Formats of pages. Downloads in other formats are kept as files."""
_BEGINNING = 1.0
"""Processor seconds for the first pages of a PDF that is read page by page."""
_FURTHER = 8.0
"""Processor seconds for further pages."""
_RECENT = 4
"""Number of documents kept to read their next pages."""
LINES = 1_024
CHARACTERS = 8_000
"""Default characters of a page: about as many as a model is shown of a tool's result."""


class Documents(Supervised):
    """Reads documents. Files passed to it last as long as its workspace.

    Args:
        request: The opening.
        sandbox: The open sandbox, which has no network.
        channel: The connection to its supervisor.
        rules: Rules for allowed downloads.
        added: Sources of converters that are tried first.
    """

    def __init__(
        self,
        request: Request,
        sandbox: Sandbox,
        channel: Channel,
        rules: Rules,
        added: Sequence[Mapping[str, str]] = (),
    ) -> None:
        super().__init__(request, sandbox, channel)
        self._added = added
        self._formats: set[str] = set()
        """Formats converted so far, and therefore likely to follow."""
        self._server = 0
        """Number of the fork server. A new number starts a new server."""
        self._rules = rules
        self._client = HttpClient(Network(rules))
        self._downloads = str(request.config.downloads)
        self._keeping = asyncio.Lock()
        self._recent: OrderedDict[str, OpenedDocument] = OrderedDict()

    async def _visit(
        self,
        address: str,
        headers: Mapping[str, str] | None = None,
        password: str = "",
        timeout: float | None = None,
        stretch: Stretch = WHOLE,
    ) -> Visit:
        """Open a web page, or a file or a directory of the workspace.

        Args:
            address: `https://...`, a path, or the name of a host.
            headers: Headers for the server of this address, and no other.
            password: The password of an encrypted PDF.
            timeout: Seconds for the conversion, at most the limit of the spec. Default: that limit,
                or 30.
            stretch: The part of a PDF to convert. Default: all of it.

        Returns:
            The page. An error response of a server also counts as a page.

        Raises:
            UrlRefused: The address must not be reached.
            HttpError: The server did not respond.
            Timeout: The server did not respond in time.
            UnreadableDocument: It cannot be read. A download is kept, and the error's `data`
                contains its path.
            LimitExceeded: It exceeds a limit.
            EnvironmentLost: The sandbox has ended.
        """
        place = destination(address, [str(self.workspace), self.workdir])
        if isinstance(place, str):
            seen = await self._visit_path(place, password, timeout, stretch)
            if seen is not None:
                return seen
            place = read_url(place)
        if not self._rules.allows_anything:
            raise UrlRefused(
                f"{place}: {self.name} may fetch nothing: declare it with policy: "
                "{network: public} or the hosts that it may reach"
            )
        with scratch_folder() as folder:
            path = folder / "download"
            getting = downloads.Downloader(
                self._client, self.request.config.bytes, self.limits.time or downloads.SECONDS
            )
            try:
                download = await getting.get(place, path, headers)
            except TooLarge as error:
                raise exceeded(str(place), str(error), "bytes", error.limit) from None
            if not download.size:
                empty = Document("text", size=0, sha256=download.sha256, notes=download.notes)
                return Visit(empty, str(download.url), download.reason)
            base, failed = str(download.url), download.status >= HTTPStatus.BAD_REQUEST
            kept, unreadable = "", None
            try:
                document = await self._converted(
                    *(path, download.name, download.media_type, password, base, timeout),
                    WHOLE if failed else stretch,  # it must be kept to continue reading
                )
            except (UnreadableDocument, LimitExceeded) as error:
                document, unreadable = Document("unknown", notes=[error.message]), error
            if not failed and document.format not in _NOT_KEPT:
                kept = await self._keep(path, download.name)
            if unreadable is not None and not failed:
                message = f"{base}: {unreadable.message}. The file is kept as '{kept}'"
                data = {**(unreadable.data or {}), "file": kept}
                kind = type(unreadable)
                raise kind(message, data=data, type=unreadable.name, retryable=False)
            document.notes[:0] = download.notes
            return Visit(document, base, download.reason, kept)

    visit, async_visit = both_forms(_visit)

    async def _page(
        self,
        source: str | bytes,
        page: int = 1,
        find: str = "",
        name: str = "",
        address: str = "",
        lines: int = LINES,
        characters: int = CHARACTERS,
    ) -> Page:
        """Return one page of a document.

        A document is not reloaded while its pages are read. Requesting its first page loads it
        again. A long PDF is converted as far as needed, so its number of pages is the number known
        so far.

        Args:
            source: An address as for `visit`, or the bytes of a file.
            page: Its number, from 1.
            find: A text whose page is returned: this page or a later one, then from the start.
            name: The name of the file, if the source is bytes.
            address: The origin of the bytes, shown to the reader.
            lines: Maximum lines of a page.
            characters: Maximum characters of a page.

        Returns:
            The page. If the text is not found, the page with the given number.

        Raises:
            UnreadableDocument: The page does not exist, or `visit` raised this error.
        """
        about = source if isinstance(source, str) else hashlib.sha256(source).hexdigest()
        key = f"{lines} {characters} {about}"
        known = self._recent.get(key) if page > 1 or find or isinstance(source, bytes) else None
        if known is None:
            known = await self._opened(source, name, address, lines, characters)
        visit, pages = known.visit, known.pages
        self._recent[key] = known
        self._recent.move_to_end(key)
        while len(self._recent) > _RECENT:
            self._recent.popitem(last=False)
        await known.reach(page)
        if not 1 <= page <= len(pages):
            message = f"{visit.address}: there is no page {page}: pages are 1 to {len(pages)}"
            raise UnreadableDocument(message, type="NoSuchPage", retryable=False)
        hit = await known.page_with(find, page) if find else None
        number = hit or page
        text = pages.content(number)
        return Page(visit, number, len(pages), text, find, bool(hit), pages.more)

    async def _opened(
        self, source: str | bytes, name: str, address: str, lines: int, characters: int
    ) -> OpenedDocument:
        """Open a document to read its pages.

        Args:
            source: An address, or the bytes of a file.
            name: The name of the file, if the source is bytes.
            address: The origin of the bytes, shown to the reader.
            lines: Maximum lines of a page.
            characters: Maximum characters of a page. 0 means the default of `Pages`.
        """
        most = (self.limits.time or TIMEOUT) / 4
        beginning, further = Stretch(1, min(_BEGINNING, most)), min(_FURTHER, most)
        kept: str | bytes
        if isinstance(source, bytes):
            document = await self._converted(source, name, stretch=beginning)
            visit, kept = Visit(document, address or name), source
        else:
            visit = await self._visit(source, stretch=beginning)
            kept = visit.file or visit.address
        pages = Pages(visit.document.markdown, lines, characters or LONGEST_PAGE)

        async def convert(first: int) -> Document:
            return await self._converted(kept, name, stretch=Stretch(first, further))

        return OpenedDocument(visit, pages, convert)

    is_host = staticmethod(looks_like_host)
    page, async_page = both_forms(_page)

    async def _visit_path(
        self, path: str, password: str, timeout: float | None, stretch: Stretch
    ) -> Visit | None:
        """Return the target of a path, or None if it does not exist and is the name of a host."""
        try:
            return Visit(listing(path, await self.entries(path or ".", deep=False)), path or ".")
        except EnvironmentFailure as error:
            if isinstance(error, EnvironmentLost):
                raise
        try:
            read = self._converted(path, password=password, timeout=timeout, stretch=stretch)
            return Visit(await read, path)
        except UnreadableDocument as error:
            if error.name == "NoSuchFile" and looks_like_host(path):
                return None
            raise

    async def _keep(self, path: Path, name: str) -> str:
        """Keep a download in the workspace under an unused name."""
        async with self._keeping:
            used: set[str] = set()
            with suppress(NotAFile):
                here = await self.entries(self._downloads, deep=False)
                used = {posixpath.basename(each["path"]) for each in here}
            kept = f"{self._downloads}/{unused(name, used)}"
            await self.write_file(kept, path, 0o644)
        return kept

    # Conversion in the sandbox

    @property
    def vision_model(self) -> str:
        """The model that describes images, empty if there is none."""
        return self.request.config.vision_model or ""

    async def _read(
        self,
        source: str | bytes,
        name: str = "",
        media_type: str = "",
        password: str = "",
        base: str = "",
        timeout: float | None = None,
    ) -> Document:
        """Convert a document.

        Args:
            source: A path below the workspace or a mounted directory, or the bytes of a file.
            name: The name of the file, if the path does not contain it.
            media_type: The type declared by a server.
            password: The password of an encrypted PDF.
            base: The address of a page, against which its links are resolved.
            timeout: Seconds, at most the limit of the spec. Default: that limit, or 30.

        Returns:
            The document.

        Raises:
            UnreadableDocument: It cannot be read. The message contains the reason.
            LimitExceeded: It exceeds a limit. The message names the limit.
            EnvironmentLost: The sandbox has ended.
        """
        if not isinstance(source, str | bytes):
            raise ValidationError(f"{self.name}: a document is a path or bytes, not {source!r:.50}")
        return await self._converted(source, name, media_type, password, base, timeout)

    read, async_read = both_forms(_read)

    async def _converted(
        self,
        source: str | bytes | Path,
        name: str = "",
        media_type: str = "",
        password: str = "",
        base: str = "",
        timeout: float | None = None,
        stretch: Stretch = WHOLE,
    ) -> Document:
        """Convert a path of the workspace, bytes, or a file of the host."""
        path, data = (source, b"") if isinstance(source, str) else (None, source)
        name = name or posixpath.basename(path or "")
        config = self.request.config
        limits = ConversionLimits(
            **{each.name: getattr(config, each.name) for each in fields(ConversionLimits)}
        )
        if isinstance(data, bytes) and len(data) > limits.bytes:
            reached = LimitReached("bytes", limits.bytes, f"the file has {len(data):,} bytes")
            raise exceeded(name, str(reached), reached.limit, reached.allowed)
        options = {
            "limits": asdict(limits),
            "memory": self._memory,
            "path": None if path is None else posixpath.join(self.workdir, path),
            "roots": [self.workdir, *self.request.mounts],
            "name": name,
            "media_type": media_type,
            "password": password,
            "base": base,
            "picture": bool(self.vision_model),
            "added": self._added,
            "comments": bool(config.comments),
            "first": stretch.first,
            "seconds": stretch.seconds,
        }
        kills = self.sandbox.memory_kills()
        python, known = self.interpreter or sys.executable, json.dumps(search_path())
        try:
            result, answer = await self._program(
                [python, "-I", "-c", START, known, f"{self._server}"],
                *(None, timeout, None, head(options), None),
                result=True,
                file=data,
                preload=modules({*self._formats, SUFFIXES.get(PurePath(name).suffix.lower(), "")}),
            )
        except BaseException:
            self._server += 1
            raise
        if result.exit_code:  # regardless of its answer
            self._server += 1
        if self.sandbox.memory_kills() > kills:
            raise self._out_of_memory(name)
        if result.timed_out:
            seconds = self.call_limits.seconds(timeout) or TIMEOUT
            raise self._exceeded(name, self.call_limits.too_long(timeout), "time", seconds)
        document = self._document(name, result, answer)
        document.pictures = dict(islice(document.pictures.items(), limits.pictures))
        self._formats.add(document.format)
        return document

    @property
    def _memory(self) -> int:
        return int(self.limits.memory or MEMORY)

    def _out_of_memory(self, name: str) -> LimitExceeded:
        message = "reading it takes more memory than it may: limits.memory"
        return self._exceeded(
            name, f"{message} is {size_text(self._memory)}", "memory", self._memory
        )

    def _exceeded(self, name: str, message: str, limit: str, allowed: Any) -> LimitExceeded:
        self._server += 1
        return exceeded(name, message, limit, allowed)

    def _document(self, name: str, result: CommandResult, data: bytes) -> Document:
        """Return the document in the answer of the process, after validating all of it."""
        try:
            answer = checked(data)
        except ValueError:
            reason = f": {last_line(result)}" if result.stderr.strip() else ""
            self._server += 1
            how = f"the process that read it ended with {result.exit_code}{reason}"
            raise UnreadableDocument(about(name, how), type="Damaged", retryable=False) from None
        if isinstance(answer, Document):
            return answer
        message, kind = str(answer.get("message", "")), str(answer.get("type", ""))
        if kind == "MemoryError":
            raise self._out_of_memory(name)
        if kind == "LimitReached":
            raise self._exceeded(name, message, str(answer.get("limit")), answer.get("allowed"))
        raise UnreadableDocument(
            about(name, message), type=kind if kind in FAULTS else "Damaged", retryable=False
        )
