"""`documents`: files become Markdown, each in a process of its own, in a sandbox."""

from __future__ import annotations

import asyncio
import json
import posixpath
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from flowengine.sdk import (
    EnvironmentFailure,
    EnvironmentLost,
    EnvironmentUnavailable,
    LimitExceeded,
    NotAFile,
    StepError,
    ValidationError,
)
from flowengine.sdk.environments import (
    Axis,
    Capabilities,
    Request,
    Sandbox,
    Spec,
    awaitable,
    blocking,
)
from flowengine.sdk.scratch import scratch_folder
from flowengine_envs.call_limits import TIMEOUT
from flowengine_envs.channel import Channel
from flowengine_envs.documents import document as documents
from flowengine_envs.documents import downloads, libraries
from flowengine_envs.documents.document import MIB, Document, LimitReached, Limits
from flowengine_envs.documents.file_names import unused
from flowengine_envs.documents.visits import Visit, destination, listing, looks_like_host
from flowengine_envs.documents.worker import START
from flowengine_envs.network.connections import Network
from flowengine_envs.network.http import Client, TooLarge
from flowengine_envs.network.rules import Rules
from flowengine_envs.network.urls import Url, read_url
from flowengine_envs.results import CommandResult, last_line
from flowengine_envs.supervised import Supervised, SupervisedProvider

if TYPE_CHECKING:
    from pydantic import BaseModel

MEMORY = 1024 * MIB
"""Bytes that a conversion may take, where the spec says nothing."""
_NOT_KEPT = frozenset({"html", "text"})
"""Formats of pages: what is downloaded in another one is kept as a file."""
FAULTS = {
    cls.__name__
    for cls in (
        documents.Unreadable,
        documents.NoSuchFile,
        documents.UnsupportedFormat,
        documents.Damaged,
        documents.PasswordRequired,
        documents.WrongPassword,
    )
}
"""Types of errors, by which flows handle them."""


class Unreadable(StepError):
    """A file cannot be read; handlers see why by its type: `Damaged`, `UnsupportedFormat`."""

    type = "Unreadable"


class Documents(Supervised):
    """Reads documents; the files it is given last as long as its workspace.

    Args:
        request: What was asked for.
        sandbox: The open sandbox; it has no network.
        channel: The connection to its supervisor.
        rules: What may be downloaded.
    """

    def __init__(self, request: Request, sandbox: Sandbox, channel: Channel, rules: Rules) -> None:
        super().__init__(request, sandbox, channel)
        self._client = Client(Network(rules))
        self._downloads = str(request.config.downloads)
        self._keeping = asyncio.Lock()

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
            source: A path below the workspace or a mounted folder, or the bytes of a file.
            name: The name of the file, if the path does not say it.
            media_type: The type that a server declares for it.
            password: Of an encrypted PDF.
            base: The address of a page, against which its links are resolved.
            timeout: Seconds; default: the spec's, or 30; the spec's is the most.

        Returns:
            The document.

        Raises:
            Unreadable: It cannot be read; the message says why.
            LimitExceeded: It takes more than it may; the message names the limit.
            EnvironmentLost: The sandbox has ended.
        """
        if not isinstance(source, str | bytes):
            raise ValidationError(f"{self.name}: a document is a path or bytes, not {source!r:.50}")
        return await self._converted(source, name, media_type, password, base, timeout)

    read = blocking(_read)
    async_read = awaitable(_read)

    async def _visit(
        self,
        address: str,
        headers: Mapping[str, str] | None = None,
        password: str = "",
        timeout: float | None = None,
    ) -> Visit:
        """Open a page of the web, a file or a folder of the workspace.

        Args:
            address: `https://...`, a path, or the name of a host.
            headers: What is sent to the server of this address, and to no other.
            password: Of an encrypted PDF.
            timeout: Seconds for the conversion; default: the spec's, or 30; the spec's is the most.

        Returns:
            What was found. An answer of a server with an error is a page, too.

        Raises:
            UrlRefused: It may not be reached.
            HttpError: There is no answer.
            Timeout: There is none in time.
            Unreadable: It cannot be read. A download is kept, and the error's `data` has its path.
            LimitExceeded: It takes more than it may.
            EnvironmentLost: The sandbox has ended.
        """
        found = destination(address, [str(self.workspace), self.workdir])
        if isinstance(found, str):
            seen = await self._visit_path(found, password, timeout)
            if seen is not None:
                return seen
            found = read_url(found)
        with scratch_folder() as folder:
            path = folder / "download"
            download = await self._download(found, path, headers)
            if not download.size:
                empty = Document("text", size=0, sha256=download.sha256, notes=download.notes)
                return Visit(empty, str(download.url), download.reason)
            return await self._read_download(download, path, password, timeout)

    visit = blocking(_visit)
    async_visit = awaitable(_visit)

    async def _visit_path(self, path: str, password: str, timeout: float | None) -> Visit | None:
        """Return what a path leads to; None: there is nothing, and it is the name of a host."""
        try:
            return Visit(listing(path, await self.entries(path or ".", deep=False)), path or ".")
        except EnvironmentFailure as error:
            if isinstance(error, EnvironmentLost):
                raise
        try:
            return Visit(await self._converted(path, password=password, timeout=timeout), path)
        except Unreadable as error:
            if error.name == "NoSuchFile" and looks_like_host(path):
                return None
            raise

    async def _download(
        self, url: Url, to: Path, headers: Mapping[str, str] | None
    ) -> downloads.Download:
        limits = downloads.Limits(self.request.config.bytes, self.limits.time or downloads.SECONDS)
        try:
            return await downloads.Downloader(self._client, limits).get(url, to, headers)
        except TooLarge as error:
            raise _exceeded(str(url), str(error), "bytes", error.limit) from None

    async def _read_download(
        self, found: downloads.Download, path: Path, password: str, timeout: float | None
    ) -> Visit:
        """Convert a download, and keep it unless it is a page or text."""
        base, failed = str(found.url), found.status >= HTTPStatus.BAD_REQUEST
        kept, unreadable = "", None
        try:
            document = await self._converted(
                path, found.name, found.media_type, password, base, timeout
            )
        except (Unreadable, LimitExceeded) as error:
            document, unreadable = Document("unknown", notes=[error.message]), error
        if not failed and document.format not in _NOT_KEPT:
            kept = await self._keep(path, found.name)
        if unreadable is not None and not failed:
            told = f"{base}: {unreadable.message}; the file is kept as '{kept}'"
            data = {**(unreadable.data or {}), "file": kept}
            kind = type(unreadable)
            raise kind(told, data=data, type=unreadable.name, retryable=False)
        document.notes[:0] = found.notes
        return Visit(document, base, found.reason, kept)

    async def _keep(self, path: Path, name: str) -> str:
        """Keep a download in the workspace under a name that nothing has."""
        async with self._keeping:
            used: set[str] = set()
            with suppress(NotAFile):
                here = await self.entries(self._downloads, deep=False)
                used = {posixpath.basename(each["path"]) for each in here}
            kept = f"{self._downloads}/{unused(name, used)}"
            await self.write_file(kept, path, 0o644)
        return kept

    async def _converted(
        self,
        source: str | bytes | Path,
        name: str = "",
        media_type: str = "",
        password: str = "",
        base: str = "",
        timeout: float | None = None,
    ) -> Document:
        """Convert a path of the workspace, bytes, or a file of the host."""
        path, data = (source, b"") if isinstance(source, str) else (None, source)
        name = name or posixpath.basename(path or "")
        limits = self._of_file()
        if isinstance(data, bytes) and len(data) > limits.bytes:
            reached = LimitReached("bytes", limits.bytes, f"the file has {len(data):,} bytes")
            raise _exceeded(name, str(reached), reached.limit, reached.allowed)
        options = {
            "search_path": libraries.search_path(),
            "limits": asdict(limits),
            "memory": self._memory,
            "path": None if path is None else posixpath.join(self.workdir, path),
            "roots": [self.workdir, *self.request.mounts],
            "name": name,
            "media_type": media_type,
            "password": password,
            "base": base,
        }
        kills = self.sandbox.memory_kills()
        argv = [self.interpreter or sys.executable, "-I", "-c", START, json.dumps(options)]
        result, told = await self._program(argv, None, timeout, None, data, None, result=True)
        if self.sandbox.memory_kills() > kills:
            raise self._out_of_memory(name)
        if result.timed_out:
            seconds = self.call_limits.seconds(timeout) or TIMEOUT
            raise _exceeded(name, self.call_limits.too_long(timeout), "time", seconds)
        return self._document(name, result, told)

    @property
    def _memory(self) -> int:
        return int(self.limits.memory or MEMORY)

    def _of_file(self) -> Limits:
        config = self.request.config
        named = {name: getattr(config, name) for name in asdict(Limits())}
        return replace(Limits(), **named)

    def _out_of_memory(self, name: str) -> LimitExceeded:
        told = "reading it takes more memory than it may: limits.memory"
        return _exceeded(name, f"{told} is {self._memory:,} bytes", "memory", self._memory)

    def _document(self, name: str, result: CommandResult, told: bytes) -> Document:
        """Return what the process answered; nothing in it is believed without a look."""
        try:
            answer = _checked(told)
        except ValueError:
            said = f": {last_line(result)}" if result.stderr.strip() else ""
            how = f"the process that read it ended with {result.exit_code}{said}"
            raise Unreadable(_about(name, how), type="Damaged", retryable=False) from None
        if isinstance(answer, Document):
            return answer
        message, kind = str(answer.get("message", "")), str(answer.get("type", ""))
        if kind == "MemoryError":
            raise self._out_of_memory(name)
        if kind == "LimitReached":
            raise _exceeded(name, message, str(answer.get("limit")), answer.get("allowed"))
        raise Unreadable(
            _about(name, message), type=kind if kind in FAULTS else "Damaged", retryable=False
        )


class DocumentsProvider(SupervisedProvider[Documents]):
    """Opens readers of documents."""

    kind = "documents"
    only_in: ClassVar[tuple[str, ...]] = ("namespace", "host")

    def config_model(self) -> type[BaseModel]:
        """Return the model of `config:`."""
        from flowengine_envs.documents.configuration import DocumentsConfig

        return DocumentsConfig

    def capabilities(self, sandbox: Capabilities) -> Capabilities:
        """Return what the sandbox enforces, and what the process enforces on itself."""
        holds: dict[Axis, str] = {
            "memory": "the process that reads a file limits itself (RLIMIT_DATA)"
        }
        mine = super().capabilities(sandbox)
        return mine.also({**holds, **mine.holds}, {"memory": MEMORY, "time": TIMEOUT})

    async def probe(self, spec: Spec) -> None:
        """Look for the libraries.

        Raises:
            EnvironmentUnavailable: One of them is not installed.
        """
        await super().probe(spec)
        if missing := libraries.missing():
            raise EnvironmentUnavailable(
                f"{spec}: {', '.join(missing)} not installed: pip install 'flowengine[documents]'"
            )

    async def ensure(self, request: Request) -> Documents:
        """Open a reader; each file is read by a process of its own."""
        policy = request.policy
        rules = Rules.of(policy.network or "public", policy.deny_network)
        # Documents are fetched here; what converts them has no network.
        closed = policy.model_copy(update={"network": None, "deny_network": None})
        inside = request._replace(policy=closed, spec=request.spec._replace(policy=closed))
        return await self.open(inside, partial(Documents, rules=rules))


def _checked(told: bytes) -> Document | Mapping[str, Any]:
    """Return a document, or what is told of an error; `ValueError` for anything else."""
    from pydantic import TypeAdapter

    answer = json.loads(told)
    if isinstance(answer, dict) and isinstance(answer.get("error"), dict):
        return dict(answer["error"])
    document = answer.get("document") if isinstance(answer, dict) else None
    found: Document = TypeAdapter(Document).validate_python(document, strict=None)
    return found


def _about(name: str, message: str) -> str:
    return f"{name}: {message}" if name else message


def _exceeded(name: str, message: str, limit: str, allowed: Any) -> LimitExceeded:
    data = {"limit": limit, "value": allowed}
    return LimitExceeded(_about(name, message), data=data, retryable=False)
