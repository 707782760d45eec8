"""`std` tools for files of the working directory, or of an environment of kind `files`."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any, NamedTuple, Protocol

from flowengine.sdk import Effect, Plain, Refused, StepContext, Tool, ToolError
from flowengine.sdk.files.confined_files import Below
from flowengine.sdk.steps.previews import PreviewContext
from flowengine.sdk.texts.sizes import size_text
from flowengine.sdk.tools.schemas import FLAG, TEXT, WHOLE, listed, record
from flowengine_documents.encodings import codec_of

LARGEST = 16 * 1024 * 1024
"""Maximum size of a file that is read as text into the execution, in bytes."""
SEARCHED = 2 * 1024 * 1024
"""Maximum size of a file that is searched, in bytes. Larger files are data, not written text."""
SEARCHED_IN_ALL = 256 * 1024 * 1024
COMPARED = 512 * 1024
"""Maximum size of a file whose changes are previewed, in bytes."""
LINE = 300
"""Maximum characters shown of a matching line."""

_LINE_END = re.compile(r"(?:\r\n|\r|\n)")
_DIGEST_ALONE = re.compile("[0-9a-f]{64}")
TAB = "\t"
"""Separates line numbers from lines in files shown to models."""
_NUMBERED = re.compile(rf" *\d+{TAB}")
RULE = "the file tools stay below the working directory (--workdir)"
FILES = "files"
"""The name under which a tool finds its environment."""


class Readable(Protocol):
    """A place where files can be read."""

    def read(self, path: str, limit: int) -> bytes:
        """Return the content of a file."""


class ReadableFolder(Readable, Protocol):
    """A place that contains files."""

    def write(self, path: str, data: bytes) -> None:
        """Write a file."""

    def glob(self, path: str, pattern: str) -> list[str]:
        """Return the files below `path` that match a pattern."""


class _Opened:
    """The directory of an environment."""

    def __init__(self, resource: Any) -> None:
        self.read = resource.read
        self.write = resource.write
        self._resource = resource

    def glob(self, path: str, pattern: str) -> list[str]:
        paths: list[str] = self._resource.list(pattern, path)
        return paths


class _Kept:
    """A file kept by the execution, under any name."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self, path: str, limit: int) -> bytes:
        with open(self._path, "rb") as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise ToolError(f"'{path}' has more than {size_text(limit)}", retryable=False)
        return data


def kept_file(context: StepContext, path: str) -> str | None:
    """Return the path for reading a file that a step has kept, or None.

    Args:
        context: The attempt.
        path: Its digest, or the path in the step's output, which can be that on another machine.
    """
    folder, name = os.path.split(path)
    names = (name, os.path.basename(folder) + name)
    digest = next(filter(_DIGEST_ALONE.fullmatch, names), None)
    if digest is None or (folder and not os.path.isabs(path)):
        return None
    try:
        return context.execution.artifacts.path(digest)
    except KeyError:
        return None


def read_kept(path: str, limit: int) -> bytes:
    """Return the content of a kept file.

    Args:
        path: A result of `kept_file`.
        limit: Largest size.

    Raises:
        ToolError: The file is larger.
    """
    return _Kept(path).read(path, limit)


def folder_of(context: StepContext) -> ReadableFolder:
    """Return the directory that a tool works in."""
    resource = context.resources.get(FILES)
    return below(context.execution.workdir) if resource is None else _Opened(resource)


def below(workdir: str) -> Below:
    """Return a working directory."""
    return Below(workdir, RULE, Refused, ToolError)


def glob(folder: ReadableFolder, pattern: str, path: str = ".") -> Plain:
    """Find files by their names."""
    return {"files": folder.glob(path, pattern)}


def read_file(
    folder: Readable,
    path: str,
    encoding: str = "utf-8",
    first_line: int = 1,
    lines: int | None = None,
) -> Plain:
    """Read a text file, or some of its lines.

    Raises:
        ToolError: The file is not text in this encoding.
    """
    data = folder.read(path, LARGEST)
    text = _text(path, data, encoding)
    if first_line == 1 and lines is None:
        return {"text": text, **digest(data)}
    texts = lines_of(text)
    last = len(texts) if lines is None else first_line - 1 + lines
    return {"text": "".join(texts[first_line - 1 : last]), **digest(data), "lines": len(texts)}


def write_file(folder: ReadableFolder, path: str, text: str, encoding: str = "utf-8") -> Plain:
    """Write a text file, creating its directories. An existing file is replaced.

    Raises:
        ToolError: The text cannot be written in this encoding.
    """
    data = _bytes(path, text, encoding)
    folder.write(path, data)
    return {"path": path, **digest(data)}


def edit_file(
    folder: ReadableFolder,
    path: str,
    old: str,
    new: str,
    all: bool = False,
    encoding: str = "utf-8",
) -> Plain:
    """Replace a part of a text file, which must occur exactly once unless `all` is set.

    Raises:
        ToolError: It does not occur, or occurs several times, or the file is not text in this
            encoding.
    """
    edit = _edited(folder, path, old, new, all=all, encoding=encoding)
    data = _bytes(path, edit.after, encoding)
    folder.write(path, data)
    return {"path": path, "line": edit.line, "replaced": edit.times, **digest(data)}


class _Edit(NamedTuple):
    before: str
    after: str
    line: int
    times: int


def _edited(
    folder: ReadableFolder, path: str, old: str, new: str, *, all: bool, encoding: str
) -> _Edit:
    data = folder.read(path, LARGEST)
    text = _text(path, data, encoding)
    if _bytes(path, text, encoding) != data:
        raise ToolError(
            f"'{path}' cannot be edited as {encoding}, because other parts would change: give its "
            "encoding without variants, such as utf-16-be",
            retryable=False,
        )
    # Models write only one kind of line ends.
    wanted = re.compile(_LINE_END.pattern.join(map(re.escape, _LINE_END.split(old))))
    found = [*wanted.finditer(text)]
    if not found:
        hint = "read the file, and give the text exactly as it stands there"
        if _NUMBERED.match(old):
            hint += ", without the line numbers"
        raise ToolError(f"'old' is not in '{path}': {hint}", retryable=False)
    if len(found) > 1 and not all:
        hint = "include more of the surrounding text, or set all: true"
        raise ToolError(f"'old' is in '{path}' {len(found)} times: {hint}", retryable=False)
    lines, usual = _LINE_END.split(new), _usual_end(text)
    after = wanted.sub(lambda match: _usual_end(match[0], usual).join(lines), text)
    line = len(lines_of(text[: found[0].start() + 1]))
    return _Edit(text, after, line, len(found))


def _usual_end(*texts: str) -> str:
    """Return the most frequent line end in the first text that has any."""
    ends: list[str] = next(filter(None, map(_LINE_END.findall, texts)), ["\n"])
    return max(sorted({*ends}), key=ends.count)


def preview(context: PreviewContext, tool: str, args: dict[str, Any]) -> str | None:
    """Return the changes that a call would make to a file as a diff, or None if there are none.

    Args:
        context: Contains the directory: the working directory, or that of an environment.
        tool: Its name.
        args: Its arguments.

    Raises:
        ToolError: The call would fail, or the directory cannot be opened here.
    """
    if tool not in ("write_file", "edit_file"):
        return None
    path, encoding = args["path"], args.get("encoding", "utf-8")
    folder: ReadableFolder = below(context.workdir)
    if FILES in context.environments:
        if FILES not in context.opened:
            raise ToolError(
                "the environment of its files has to be approved first, or is open elsewhere",
                retryable=False,
            )
        folder = _Opened(context.opened[FILES])
    if tool == "edit_file":
        edit = _edited(
            folder, path, args["old"], args["new"], all=args.get("all", False), encoding=encoding
        )
        return _difference(path, edit.before, edit.after)
    return _difference(path, _there(folder, path, encoding), args["text"])


def _there(folder: ReadableFolder, path: str, encoding: str) -> str | None:
    """Return the text of a file, or None if it does not exist yet."""
    try:
        return _text(path, folder.read(path, COMPARED), encoding)
    except ToolError as error:
        if isinstance(error.__context__, FileNotFoundError):
            return None
        raise


def _difference(path: str, before: str | None, after: str) -> str:
    """Return a unified diff. For a new file, it begins with nothing."""
    if max(len(before or ""), len(after)) > COMPARED:
        raise ToolError(f"'{path}' is too large to be compared", retryable=False)
    from difflib import unified_diff

    name = "/dev/null" if before is None else path
    old, new = (before or "").splitlines(), after.splitlines()
    lines = [line.rstrip("\n") for line in unified_diff(old, new, name, path)]
    if not lines:
        return "nothing changes" if before == after else "only line ends change, or an empty file"
    return "\n".join(lines)


class _Found(NamedTuple):
    path: str
    line: int
    text: str


def search_files(
    folder: ReadableFolder,
    text: str,
    path: str = ".",
    pattern: str = "**",
    ignore_case: bool = False,
    limit: int = 100,
    stopped: Callable[[], bool] = lambda: False,
) -> Plain:
    """Find lines that contain a text."""
    matches: list[_Found] = []
    wanted = text.casefold() if ignore_case else text
    left = SEARCHED_IN_ALL
    for name in folder.glob(path, pattern):
        try:
            data = folder.read(name, SEARCHED)
        except ToolError:  # it is too large, or already deleted
            continue
        if b"\0" in data:  # it is not text
            continue
        left -= len(data)
        if left < 0 or stopped():
            return _matches(matches, limit, truncated=True)
        for hit in _lines_with(name, data, wanted, ignore_case=ignore_case):
            matches.append(hit)
            if len(matches) > limit:
                return _matches(matches, limit, truncated=True)
    return _matches(matches, limit, truncated=False)


def _lines_with(path: str, data: bytes, wanted: str, *, ignore_case: bool) -> Iterator[_Found]:
    lines = lines_of(data.decode("utf-8", "replace"))
    for number, line in enumerate(map(without_end, lines), 1):
        at = (line.casefold() if ignore_case else line).find(wanted)
        if at >= 0:
            begin = max(0, at - LINE // 2) if len(line) > LINE else 0
            yield _Found(path, number, line[begin : begin + LINE])


def _matches(matches: list[_Found], limit: int, *, truncated: bool) -> Plain:
    return {"matches": [hit._asdict() for hit in matches[:limit]], "truncated": truncated}


def lines_of(text: str) -> list[str]:
    """Return the lines of a file with their ends, as editors count them.

    A form feed does not end a line.
    """
    return [*StringIO(text, newline="")]


def without_end(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


def _text(path: str, data: bytes, encoding: str) -> str:
    try:
        return data.decode(_codec(encoding))
    except (UnicodeError, LookupError) as error:
        hint = "give its encoding, such as cp1252"
        raise ToolError(
            f"'{path}' cannot be read as {encoding}: {error}: {hint}", retryable=False
        ) from None


def _bytes(path: str, text: str, encoding: str) -> bytes:
    try:
        return text.encode(_codec(encoding))
    except (UnicodeError, LookupError) as error:
        raise ToolError(
            f"'{path}' cannot be written as {encoding}: {error}", retryable=False
        ) from None


def _codec(encoding: str) -> str:
    """Return the codec of an encoding, which keeps a byte order mark in UTF-16.

    Raises:
        LookupError: It is no encoding of texts.
    """
    codec = codec_of(encoding)
    if not codec:
        raise LookupError("it is not the name of a text encoding")
    return encoding if codec.startswith("utf-16") else codec


def digest(data: bytes) -> dict[str, Plain]:
    """Return size and digest of a file's content."""
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


async def call(context: StepContext, tool: str, args: dict[str, Any]) -> Plain:
    """Call one of these tools.

    Args:
        context: The attempt.
        tool: Its name.
        args: Its arguments.
    """
    folder: Readable = folder_of(context)
    function = _FUNCTIONS[tool]
    if tool == "read_file" and (kept := kept_file(context, args["path"])) is not None:
        folder = _Kept(kept)
    if tool == "search_files":
        args = {**args, "stopped": context.cancelled.is_set}
    return await context.on_thread(lambda: function(folder, **args))


_FUNCTIONS: dict[str, Callable[..., Plain]] = {
    "glob": glob,
    "read_file": read_file,
    "write_file": write_file,
    "edit_file": edit_file,
    "search_files": search_files,
}


_COUNT: dict[str, Plain] = {"type": "integer", "minimum": 1}
_SWITCH: dict[str, Plain] = {**FLAG, "default": False}
_PATH: dict[str, Plain] = {**TEXT, "description": "Relative path of the file."}
_ENCODING: dict[str, Plain] = {**TEXT, "default": "utf-8"}
_BELOW: dict[str, Plain] = {**TEXT, "default": ".", "description": "Folder to look in."}
_DIGEST: dict[str, Plain] = {"size": WHOLE, "sha256": TEXT}


def _tool(
    about: str, args: dict[str, Plain], returns: dict[str, Plain], effect: Effect = "idempotent"
) -> Tool:
    return {
        "description": about,
        "args": args,
        "returns": returns,
        "effect": effect,
        "environments": {FILES: ["flowengine_envs.kinds.files.Folder"]},
        "optional": True,
    }


TOOLS: dict[str, Tool] = {
    "glob": _tool(
        "Finds files by their names. Gives their paths, sorted.",
        record(
            {
                "pattern": {
                    **TEXT,
                    "description": "A pattern for the path below 'path': '*.py' in that "
                    "directory, '**/*.py' in all directories below it.",
                },
                "path": _BELOW,
            },
            ["pattern"],
        ),
        record({"files": listed(TEXT)}),
    ),
    "read_file": _tool(
        "Reads a text file, or some of its lines. Each line is preceded "
        "by its number and a tab, which do not belong to the file.",
        record(
            {
                "path": _PATH,
                "encoding": _ENCODING,
                "first_line": {**_COUNT, "default": 1, "description": "Number of the first line."},
                "lines": {**_COUNT, "description": "Number of lines. Default: all."},
            },
            ["path"],
        ),
        record({"text": TEXT, **_DIGEST, "lines": WHOLE}, ["text", "size", "sha256"]),
    ),
    "write_file": _tool(
        "Writes a text file, and creates its directories. A file that is there is "
        "replaced as a whole.",
        record({"path": _PATH, "text": TEXT, "encoding": _ENCODING}, ["path", "text"]),
        record({"path": TEXT, **_DIGEST}),
    ),
    "edit_file": _tool(
        "Replaces a part of a text file. Gives the line of the first replacement.",
        record(
            {
                "path": _PATH,
                "old": {
                    **TEXT,
                    "minLength": 1,
                    "description": "The text to replace, exactly as in the file, without "
                    "line numbers. It must occur once.",
                },
                "new": {**TEXT, "description": "The replacement."},
                "all": {**_SWITCH, "description": "Replace it wherever it is."},
                "encoding": _ENCODING,
            },
            ["path", "old", "new"],
        ),
        record({"path": TEXT, "line": WHOLE, "replaced": WHOLE, **_DIGEST}),
        effect="once",
    ),
    "search_files": _tool(
        "Finds the lines of text files that contain a text.",
        record(
            {
                "text": {
                    **TEXT,
                    "minLength": 1,
                    "description": "The text to search for, literally.",
                },
                "path": _BELOW,
                "pattern": {
                    **TEXT,
                    "default": "**",
                    "description": "In which files: '**/*.py'. Default: all.",
                },
                "ignore_case": _SWITCH,
                "limit": {
                    **_COUNT,
                    "maximum": 1000,
                    "default": 100,
                    "description": "How many lines are given at most.",
                },
            },
            ["text"],
        ),
        record(
            {
                "matches": listed(record({"path": TEXT, "line": WHOLE, "text": TEXT})),
                "truncated": FLAG,
            }
        ),
    ),
}
"""The tools, with their arguments and results."""
