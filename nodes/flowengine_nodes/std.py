"""`std.*`: tools that need no declaration."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Callable, Mapping

from flowengine.sdk import Plain, Refused, StepContext, StepKind, Tool, ToolError
from flowengine.sdk.confined_files import Below

LARGEST = 16 * 1024 * 1024
"""Bytes of a file that is read as text into the execution."""

LARGEST_DOCUMENT = 64 * 1024 * 1024

_RULE = "the file tools stay below the working folder (--workdir)"


class Std(StepKind):
    """Printing, and files below the working folder. `std.ask` is a wait, not a task."""

    places = ()
    effect = "idempotent"

    @classmethod
    def tools(cls) -> dict[str, Tool]:
        """Return the tools, with what they take and give."""
        return _TOOLS

    def quick(
        self, task: Mapping[str, Plain]
    ) -> Callable[[StepContext, Mapping[str, Plain]], Plain] | None:
        """Return what prints; the tools that touch files are called on a thread."""
        if task["tool"] != "print":
            return None
        return lambda context, input: context.say(input["args"]["text"])

    async def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Plain:
        """Call the tool that the step names."""
        at_once = self.quick(task)
        if at_once is not None:
            return at_once(context, input)
        folder = Below(context.execution.workdir, _RULE, Refused, ToolError)
        if task["tool"] == "read_document":
            return await _read_document(context, folder, **input["args"])
        call = _FILE_TOOLS[task["tool"]]
        return await context.on_thread(lambda: call(folder, **input["args"]))


def glob(folder: Below, pattern: str, path: str = ".") -> Plain:
    """Find files.

    Args:
        folder: The working folder.
        pattern: What their paths below `path` look like.
        path: Folder to look in.

    Returns:
        `{files}`: paths relative to the working folder, sorted.
    """
    return {"files": folder.glob(path, pattern)}


def read_file(folder: Below, path: str, encoding: str = "utf-8") -> Plain:
    """Read a text file.

    Args:
        folder: The working folder.
        encoding: How its text is coded.

    Returns:
        `{text, size, sha256}`.

    Raises:
        ToolError: It is not text in this encoding.
    """
    data = folder.read(path, LARGEST)
    try:
        text = data.decode(encoding)
    except (UnicodeDecodeError, LookupError) as error:
        raise ToolError(
            f"'{path}' cannot be read as {encoding}: {error}", retryable=False
        ) from None
    return {"text": text, **_digest(data)}


def write_file(folder: Below, path: str, text: str) -> Plain:
    """Write a text file, in UTF-8; an old one of that name is replaced as a whole.

    Args:
        folder: The working folder.
        path: The file; folders on the way are made.
        text: Its content.

    Returns:
        `{path, size, sha256}`.
    """
    data = text.encode()
    folder.write(path, data)
    return {"path": path, **_digest(data)}


async def _read_document(context: StepContext, folder: Below, path: str) -> Plain:
    """Convert a document, in the environment that reads documents.

    Args:
        context: The attempt.
        folder: The working folder.
        path: The file.

    Returns:
        `{format, title, markdown, parts, tables, notes, truncated, size, sha256}`.
    """
    data = await context.on_thread(lambda: folder.read(path, LARGEST_DOCUMENT))
    document = await context.resources["documents"].async_read(data, posixpath.basename(path))
    return {**document.as_data(), **_digest(data)}


def _digest(data: bytes) -> dict[str, Plain]:
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _object(properties: dict[str, Plain], required: list[str]) -> dict[str, Plain]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _complete(properties: dict[str, Plain]) -> dict[str, Plain]:
    """Return the schema of an object that has all of these."""
    return _object(properties, [*properties])


def _list(items: dict[str, Plain]) -> dict[str, Plain]:
    return {"type": "array", "items": items}


_TEXT: dict[str, Plain] = {"type": "string"}
_WHOLE: dict[str, Plain] = {"type": "integer"}
_FLAG: dict[str, Plain] = {"type": "boolean"}
_PART: dict[str, Plain] = {"kind": _TEXT, "number": _WHOLE, "name": _TEXT, "start": _WHOLE}

_FILE_TOOLS: dict[str, Callable[..., Plain]] = {
    "glob": glob,
    "read_file": read_file,
    "write_file": write_file,
}

_TOOLS: dict[str, Tool] = {
    "print": {
        "description": "Shows a text to the user.",
        "args": _object({"text": _TEXT}, ["text"]),
        "returns": {"type": "null"},
        "effect": "idempotent",
    },
    "ask": {
        "description": "Asks a person, on the terminal or in the inbox.",
        "args": _object({"question": _TEXT, "form": {"type": "object"}}, ["question"]),
        "returns": {},
        "effect": "idempotent",
    },
    "glob": {
        "description": "Finds files below the working folder.",
        "args": _object({"pattern": _TEXT, "path": {**_TEXT, "default": "."}}, ["pattern"]),
        "returns": _object({"files": {"type": "array", "items": _TEXT}}, ["files"]),
        "effect": "idempotent",
    },
    "read_file": {
        "description": "Reads a text file below the working folder.",
        "args": _object({"path": _TEXT, "encoding": {**_TEXT, "default": "utf-8"}}, ["path"]),
        "returns": _object(
            {"text": _TEXT, "size": _WHOLE, "sha256": _TEXT}, ["text", "size", "sha256"]
        ),
        "effect": "idempotent",
    },
    "read_document": {
        "description": "Reads a PDF, Word, PowerPoint, Excel, HTML, EPUB, mail, notebook, CSV or "
        "text file below the working folder as Markdown.",
        "args": _object({"path": _TEXT}, ["path"]),
        "returns": _complete(
            {
                "format": _TEXT,
                "title": _TEXT,
                "markdown": _TEXT,
                "parts": _list(_complete(_PART)),
                "tables": _list(_list(_list(_TEXT))),
                "notes": _list(_TEXT),
                "truncated": _FLAG,
                "size": _WHOLE,
                "sha256": _TEXT,
            }
        ),
        "effect": "idempotent",
        "environment": "documents",
    },
    "write_file": {
        "description": "Writes a text file below the working folder.",
        "args": _object({"path": _TEXT, "text": _TEXT}, ["path", "text"]),
        "returns": _object(
            {"path": _TEXT, "size": _WHOLE, "sha256": _TEXT}, ["path", "size", "sha256"]
        ),
        "effect": "idempotent",
    },
}
