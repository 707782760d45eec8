"""The process that converts one file.

    python -I -c START SEARCH_PATH NUMBER      a fork server, which forks such processes

A process reads its options, a part of JSON, and then the file from standard input. The answer is
written to descriptor 3 as JSON. The process limits its own memory, so that running out of it also
produces an answer.
"""

from __future__ import annotations

import json
import os
import resource
import stat
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

from flowengine.sdk.texts.exception_text import describe
from flowengine_documents.converters import Converter
from flowengine_documents.document import (
    ConversionLimits,
    Damaged,
    Document,
    LimitReached,
    NoSuchFile,
    Unreadable,
)
from flowengine_envs.documents.converting import convert
from flowengine_envs.inside import fork_servers
from flowengine_envs.link import parts

START = (
    "import sys, json; sys.path[:0] = json.loads(sys.argv[1]); "
    "from flowengine_envs.documents.worker import serve; serve()"
)
ANSWER = 3
_OUT_OF_MEMORY = ("emory alloc", "unknown error (<string>, line 0)")
"""Messages of the XML parser when memory runs out, with and without memory for the message."""
LARGEST = 15 * 1024 * 1024
"""Bytes of an answer."""


def head(options: Mapping[str, Any]) -> bytes:
    """Return the options in the form that a process reads before the file, as in `main`."""
    return parts.part(json.dumps(options).encode())


def serve() -> None:
    """Run a fork server whose processes convert one file each."""
    fork_servers.serve(main)


def main() -> None:
    """Convert the file on standard input, or at a path, and write the result.

    The options are `limits`, `memory`, `path`, `roots`, `added` and arguments of `convert`.
    """
    options = json.loads(parts.read(sys.stdin.buffer.read) or b"")
    memory = options["memory"]
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    soft = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    try:
        data = _answer(_converted(options))
    except LimitReached as error:
        data = _fault(error, limit=error.limit, allowed=error.allowed)
    except Unreadable as error:
        data = _fault(error)
    except MemoryError:
        data = json.dumps({"error": {"type": "MemoryError", "message": "out of memory"}}).encode()
    with open(ANSWER, "wb") as answer:
        answer.write(data)


def _converted(options: Mapping[str, Any]) -> Document:
    limits = ConversionLimits(**options["limits"])
    path = options["path"]
    data = sys.stdin.buffer.read() if path is None else read(path, options["roots"], limits.bytes)
    names = (
        *("name", "media_type", "password", "base", "picture", "comments"),
        *("first", "seconds"),
    )
    added = _loaded(options["added"]) if options["added"] else {}
    try:
        named = {name: options[name] for name in names}
        return convert(data, limits=limits, added=added, **named)
    except Damaged as error:
        if any(words in str(error) for words in _OUT_OF_MEMORY):
            raise MemoryError from None
        raise


def _loaded(sources: Sequence[Mapping[str, str]]) -> dict[str, Converter]:
    """Return the functions of sources by name. Only called in the sandbox."""
    converters: dict[str, Converter] = {}
    for each in sources:
        module = ModuleType(each["name"].partition(":")[0])
        exec(compile(each["source"], each["name"], "exec"), module.__dict__)
        converter = getattr(module, each["function"])
        converters[each["name"]] = partial(_by_added, each["name"], converter)
    return converters


def _by_added(label: str, convert: Converter, data: bytes, name: str) -> str | None:
    try:
        return convert(data, name)
    except (Unreadable, MemoryError):
        raise
    except Exception as error:
        raise Damaged(f"converter {label}: {describe(error)}") from error


def read(path: str, roots: Sequence[str], largest: int) -> bytes:
    """Return the bytes of a file below one of the directories.

    Raises:
        Unreadable: It does not exist, is outside of them, or is not a file.
        LimitReached: It is too large.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NoSuchFile(f"'{path}' does not exist") from None
    except OSError as error:
        raise Unreadable(f"'{path}' cannot be read: {error.strerror}") from None
    with open(fd, "rb") as file:
        real = os.readlink(f"/proc/self/fd/{fd}")
        if not any(real.startswith(f"{os.path.realpath(root)}/") for root in roots):
            raise Unreadable(f"'{path}' leads out of the workspace")
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable(f"'{path}' is not a file")
        if status.st_size > largest:
            raise LimitReached("bytes", largest, f"the file has {status.st_size:,} bytes")
        return file.read(largest + 1)


def _answer(document: Document) -> bytes:
    """Return a document as JSON, with its tables only if they fit."""
    data = _json({"document": document.as_data()})
    if len(data) > LARGEST:
        document.notes.append("the tables are in the Markdown only: as data they are too large")
        document.tables = []
        data = _json({"document": document.as_data()})
    if len(data) > LARGEST:
        raise LimitReached("answer", LARGEST, f"the Markdown has {len(data):,} bytes")
    return data


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def _fault(error: Unreadable, **more: Any) -> bytes:
    return _json({"error": {"type": type(error).__name__, "message": str(error), **more}})
