"""A flow file as data with positions for every key, every value and every character of a text.

Errors in YAML, and syntax outside the subset (`E101`), are collected in `Source.problems`. The
parser stops at the first error. Common mistakes are repaired in memory (`syntax_errors`) and the
file is read again, so that one mistake does not hide the other errors.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from flowengine.errors import NotFound
from flowengine.flow.source.composer import PAIR, Composer, SourceNode, for_parser, not_yaml
from flowengine.flow.source.diagnostics import Diagnostic, Position
from flowengine.flow.source.scanner import Loader
from flowengine.flow.source.syntax_errors import Slip, find_slip
from flowengine.sdk.texts.received import received_text
from flowengine.sdk.texts.sizes import size_text
from flowengine.util.files import check_no_pipe

MAX_BYTES = 1 << 20
"""Maximum size of a file in bytes. Handwritten files stay far below, and generators of larger ones
should pass data."""
MAX_PARSED = 1 << 21
"""Characters that all readings of a file together may have. A larger file has fewer repairs."""
SCANNED = 30
"""How often `Loader` counts each character."""
MAX_SLIPS = 20
"""Maximum number of repairs before the rest of the file is left unread."""

BREAK = re.compile(r"\r\n|\r|\n")
FOREIGN = re.compile("[\x85\u2028\u2029\ud800-\udfff]")
"""Line breaks of YAML 1.1, which are text in YAML 1.2, and surrogates."""


class Source:
    """One file: its text, its data, and all positions.

    Args:
        name: The file as the user named it.
        text: Its content.
    """

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.problems: list[Diagnostic] = []
        """Its YAML errors."""
        self.root: SourceNode | None = None
        self._starts = [0, *(match.end() for match in BREAK.finditer(text))]

    @property
    def data(self) -> Any:
        """The file as plain data, or None if it could not be read to its end."""
        return None if self.root is None else self.root.data

    @property
    def readable(self) -> bool:
        """Whether it could be read to its end."""
        return self.root is not None

    def says(self, key: str) -> bool:
        """Return whether the file has a top-level key, or appears to if it is not valid YAML.

        This key declares the type of a file. A file without it may be any file of the user, and its
        content must not be shown.
        """
        if self.readable:
            return isinstance(self.data, dict) and key in self.data
        return says(self.text, key)

    @property
    def files(self) -> dict[str, Source]:
        """The file itself, for reports."""
        return {self.name: self}

    def line_text(self, number: int) -> str:
        """Return a line of the file, counted from 1, without its line break."""
        if not 1 <= number <= len(self._starts):
            return ""
        end = self._starts[number] if number < len(self._starts) else len(self.text)
        return self.text[self._starts[number - 1] : end].rstrip("\r\n")

    def position(self, loc: tuple[str | int, ...], *, key: bool = False) -> Position:
        """Return the position of a value or a key.

        Args:
            loc: A path of keys and indexes. A missing part has the position of the deepest existing
                part of the path. A path into the long form therefore finds the short form.
            key: Whether to return the position of the key, if there is one.

        Returns:
            The position. For a value over several lines, its first line.
        """
        node, reached, key_node = self._walk(loc)
        if node is None:
            return Position(1, 1, 1, self.name)
        if key and key_node is not None and reached == len(loc):
            return self.span(key_node.start, key_node.end)
        if node.origin is None and node.entries and self.text[node.start] != "{":
            first = next(iter(node.entries.values()))[0]
            return self.span(first.start, first.end)
        if node.origin is None and node.style is None:
            return self.span(node.start, node.start + 1)
        return self.span(node.start, node.end)

    def inside(self, loc: tuple[str | int, ...], offset: int, length: int = 1) -> Position:
        """Return the position of a character in a text.

        Args:
            loc: The text, as for `position`.
            offset: Index in the text's value, not in its notation.
            length: Number of characters.

        Returns:
            The position in the file, also in quoted, folded and block text.
        """
        node = self._walk(loc)[0]
        if node is None or node.content.style is None:
            return self.position(loc)
        node = node.content
        start = self._index(node, offset)
        return self.span(start, self._index(node, offset + max(length, 1) - 1) + 1)

    def span(self, start: int, end: int) -> Position:
        """Return the position of the characters from index `start` to before `end` of the file."""
        line = bisect_right(self._starts, start)
        column = start - self._starts[line - 1] + 1
        end = min([end, *self._starts[line : line + 1]])
        length = len(self.text[start:end].rstrip("\r\n"))
        return Position(line, column, max(1, length), self.name)

    def refuse(self, start: int, end: int, message: str, hint: str | None) -> None:
        """Record that the characters from index `start` to before `end` are not valid YAML."""
        self.problems.append(not_yaml(self.span(start, end), message, hint))

    def _walk(self, loc: tuple[str | int, ...]) -> tuple[SourceNode | None, int, SourceNode | None]:
        """Return the deepest node on a path, its depth, and the node of its key."""
        node, key_node = self.root, None
        for reached, step in enumerate(loc):
            child = None if node is None else node.child(step)
            if isinstance(step, str) and node is not None and isinstance(node.data, list):
                continue  # the list is the short form of a mapping that would have this key
            if node is None or child is None:
                return node, reached, key_node
            entry = node.content.entries.get(step) if isinstance(step, str) else None
            node, key_node = child, entry[0] if entry else None
        return node, len(loc), key_node

    def _index(self, node: SourceNode, offset: int) -> int:
        """Return the index in the file of character `offset` of a scalar's value.

        Folding adds and removes blanks, and an escape has several characters for one. The other
        characters have the same order in both, so these are counted.
        """
        value = node.data if isinstance(node.data, str) else ""
        blank = offset >= len(value) or value[offset].isspace()
        wanted = sum(not c.isspace() for c in value[:offset])
        last = node.start
        for count, unit in enumerate(self._characters(node)):
            if count == wanted and not blank:
                return unit.start()
            if count == wanted:
                break
            last = unit.end()
        return min(last, max(node.end - 1, node.start))

    def _characters(self, node: SourceNode) -> Iterator[re.Match[str]]:
        """Yield each character of a scalar that is not a blank in its value, as it is written."""
        start, end = node.start, node.end
        if node.style in {"'", '"'}:
            start, end = start + 1, end - 1
        elif node.style in {"|", ">"}:
            start = self.text.find("\n", start) + 1 or end
        unit = {"'": SINGLE_QUOTED, '"': DOUBLE_QUOTED}.get(node.style or "", PLAIN)
        for match in unit.finditer(FOREIGN.sub(" ", self.text), start, end):
            written = match[0]
            meant = yaml.safe_load(f'"{written}"') if written[0] == "\\" != written else written
            if meant.strip():
                yield match


def says(text: str, key: str) -> bool:
    """Return whether a line of a text begins with a key, without parsing the text.

    Args:
        text: The content of a file.
        key: For example `flowengine`.
    """
    return re.search(rf"""^[{{\s]*["']?{key}["']?\s*:""", text, re.MULTILINE) is not None


PLAIN = re.compile(r"[\s\S]")
SINGLE_QUOTED = re.compile(r"''|[\s\S]")
DOUBLE_QUOTED = re.compile(
    rf"\\(?:x[0-9a-fA-F]{{2}}|{PAIR}|u[0-9a-fA-F]{{4}}|U[0-9a-fA-F]{{8}}|\r?\n|[\s\S])|[\s\S]"
)


def read(path: str | Path) -> Source:
    """Read a flow file.

    Args:
        path: The file. The source has this name.

    Returns:
        The source, with its errors in `problems`.

    Raises:
        NotFound: The file does not exist or cannot be read.
    """
    try:
        check_no_pipe(path)
        with Path(path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        message = f"cannot read {path}: {error.strerror or error}"
        raise NotFound(message, hint="give the path of a flow file") from error
    return read_bytes(content, str(path))


def read_bytes(content: bytes, name: str) -> Source:
    """Read a flow file from bytes. See `read`."""
    if len(content) > MAX_BYTES:
        source = Source(name, "")
        message = f"the file is larger than {size_text(MAX_BYTES)}"
        source.refuse(0, 1, message, "pass data as an input")
        return source
    try:
        text = received_text(content)
    except UnicodeDecodeError as error:
        source = Source(name, content.decode("utf-8", errors="replace"))
        start = len(content[: error.start].decode("utf-8", errors="replace"))
        message = f"the file is not UTF-8: byte 0x{content[error.start]:02x}"
        source.refuse(start, start + 1, message, "save it as UTF-8")
        return source
    return read_text(text, name)


def read_text(text: str, name: str = "flow.yaml") -> Source:
    """Read a flow file from text.

    Args:
        text: The content of the file.
        name: The name of the file in reports.

    Returns:
        The source, with its errors in `problems`.
    """
    source = Source(name, text)
    for match in islice(FOREIGN.finditer(text), MAX_SLIPS):
        number = ord(match.group())  # the parser would take it for a line break
        message = f"the character U+{number:04X} is in the text"
        is_half = 0xD800 <= number < 0xE000
        hint = "remove it" if is_half else f'write "\\u{number:04x}" in double quotes'
        source.refuse(*match.span(), message, hint)
    mended = for_parser(FOREIGN.sub(" ", text)) + ("" if text.endswith("\n") else "\n")
    slips: dict[int, Slip] = {}
    room = MAX_PARSED
    while True:
        composer = Composer(mended, text, slips, source.span, yaml.CLoader)
        error = _compose(source, composer)
        cost, different = len(mended), composer.different
        room -= cost
        again = different or (error is not None and not slips)
        if again and room >= SCANNED * cost:
            room -= SCANNED * cost
            scanned = Composer(mended, text, slips, source.span, Loader)
            second = _compose(source, scanned)
            if second is None:
                composer, error = scanned, None
            error = error or second
        elif different:
            message = "in a file of this size, such a text must be in quotes"
            source.refuse(different[0], different[0] + 1, message, "put it in quotes")
            return source
        if error is not None:
            source.root = None
            slip = find_slip(mended, error, composer.last)
            source.refuse(slip.start if slip.at is None else slip.at, slip.end, *slip[2:4])
            is_new = slip.start not in slips and len(slips) < MAX_SLIPS
            if slip.patch is not None and is_new and room >= cost * (1 + SCANNED * bool(different)):
                slips[slip.start] = slip
                mended = mended[: slip.start] + slip.patch + mended[slip.end :]
                continue
        source.problems += composer.problems
        return source


def _compose(source: Source, composer: Composer) -> yaml.YAMLError | None:
    """Set the tree of a source, or return the error of the parser."""
    try:
        source.root = composer.document()
    except yaml.YAMLError as error:
        return error
    return None
