"""Conversion of files to Markdown, each in a separate process, in a sandbox without a network.

The processes are forked by a server that has imported the converters. After any misbehavior caused
by a file - a crash, an exceeded limit, an invalid answer - a new server is started, although none
of its processes can reach it.
"""

from __future__ import annotations

import json
import posixpath
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from importlib.util import find_spec
from itertools import islice
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from pydantic import TypeAdapter

import flowengine
import flowengine_documents
from flowengine.sdk import LimitExceeded, StepError, ValidationError
from flowengine.sdk.environments import Request, Sandbox, both_forms
from flowengine.sdk.texts.sizes import size_text
from flowengine_documents import document as documents
from flowengine_documents.converters import modules
from flowengine_documents.document import MIB, ConversionLimits, Document, LimitReached
from flowengine_documents.formats import SUFFIXES
from flowengine_envs.documents.worker import START, head
from flowengine_envs.kinds.results import CommandResult, last_line
from flowengine_envs.kinds.supervised import Supervised
from flowengine_envs.link.call_limits import TIMEOUT
from flowengine_envs.link.channel import Channel
from flowengine_envs.sandboxes.installations import is_below

_OWN = [
    Path(__file__).parents[1],
    *(Path(str(each.__file__)).parent for each in (flowengine, flowengine_documents)),
]
_NEEDED = (
    *("PIL", "charset_normalizer", "docx", "lxml", "olefile", "openpyxl", "pptx", "pypdf"),
    *("pypdfium2", "webencodings"),
)


def missing() -> list[str]:
    """Return the libraries that are not installed."""
    return [name for name in _NEEDED if find_spec(name) is None]


@cache
def folders() -> tuple[str, ...]:
    """Return the directories with the converters and their libraries, except for the system's."""
    return _not_shown([*map(str, _OWN), *_libraries()])


@cache
def search_path() -> list[str]:
    """Return the module search path for a Python process that has none by default."""
    return [*dict.fromkeys(str(package.parent) for package in _OWN), *_not_shown(_libraries())]


def _libraries() -> list[str]:
    specs = map(find_spec, _NEEDED)
    return [str(Path(spec.origin).parents[1]) for spec in specs if spec and spec.origin]


def _not_shown(places: list[str]) -> tuple[str, ...]:
    """Return the directories outside of Python's own, which every sandbox shows."""
    shown = (sys.prefix, sys.base_prefix)
    return tuple(place for place in dict.fromkeys(places) if not is_below(place, shown))


MEMORY = 1024 * MIB
"""Bytes that a conversion may use, if the spec sets no limit."""
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
"""Error types for handlers in flows."""


class Stretch(NamedTuple):
    """The part of a PDF to convert."""

    first: int = 1
    """The first page."""
    seconds: float = 0.0
    """Processor time after which no further page is begun. 0 means no limit."""


WHOLE = Stretch()


class UnreadableDocument(StepError):
    """A file cannot be read.

    Its type contains the reason for handlers: `Damaged`, `UnsupportedFormat`.
    """

    type = "Unreadable"


class Conversion(Supervised):
    """Converts files of its workspace, bytes, and files of the host.

    Args:
        request: The opening.
        sandbox: The open sandbox, which has no network.
        channel: The connection to its supervisor.
        added: Sources of converters that are tried first.
    """

    def __init__(
        self,
        request: Request,
        sandbox: Sandbox,
        channel: Channel,
        added: Sequence[Mapping[str, str]] = (),
    ) -> None:
        super().__init__(request, sandbox, channel)
        self._added = added
        self._formats: set[str] = set()
        """Formats converted so far, and therefore likely to follow."""
        self._server = 0
        """Number of the fork server. A new number starts a new server."""

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
        limits = self._of_file()
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
            "comments": bool(self.request.config.comments),
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

    def _of_file(self) -> ConversionLimits:
        config = self.request.config
        named = {name: getattr(config, name) for name in asdict(ConversionLimits())}
        return replace(ConversionLimits(), **named)

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
            raise UnreadableDocument(_about(name, how), type="Damaged", retryable=False) from None
        if isinstance(answer, Document):
            return answer
        message, kind = str(answer.get("message", "")), str(answer.get("type", ""))
        if kind == "MemoryError":
            raise self._out_of_memory(name)
        if kind == "LimitReached":
            raise self._exceeded(name, message, str(answer.get("limit")), answer.get("allowed"))
        raise UnreadableDocument(
            _about(name, message), type=kind if kind in FAULTS else "Damaged", retryable=False
        )


def checked(data: bytes) -> Document | Mapping[str, Any]:
    """Return a document, or the description of an error. Raise `ValueError` for anything else."""
    answer = json.loads(data)
    if isinstance(answer, dict) and isinstance(answer.get("error"), dict):
        return dict(answer["error"])
    document = answer.get("document") if isinstance(answer, dict) else None
    return _documents().validate_python(document, strict=None)


@cache
def _documents() -> TypeAdapter[Document]:
    return TypeAdapter(Document)


def _about(name: str, message: str) -> str:
    return f"{name}: {message}" if name else message


def exceeded(name: str, message: str, limit: str, allowed: Any) -> LimitExceeded:
    data = {"limit": limit, "value": allowed}
    return LimitExceeded(_about(name, message), data=data, retryable=False)
