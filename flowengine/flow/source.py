"""A flow file as data with positions: the YAML 1.2 core schema, and nothing else of YAML.

The parser's events become a tree of nodes. A node knows where it stands, so that every key and
value, and every character inside a text, has a place in the file. No tag is followed and nothing is
constructed but text, numbers, booleans, null, lists and maps.

What is wrong (`E101`) is collected in `Source.problems`. The parser stops at the first thing that
is not YAML; the usual slips are mended in memory (`flowengine.flow.slips`) and the file is read
again, so that one slip does not hide the other errors.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from flowengine.errors import NotFound
from flowengine.flow.diagnostics import Diagnostic, Position, did_you_mean
from flowengine.flow.slips import QUOTE, Slip, cut_short, find_slip

MAX_BYTES = 1 << 20
"""A file written by people stays far below; what generates bigger ones should pass data."""
MAX_DEPTH = 100
"""Of nested lists and maps; beyond it is an attack or a bug of a generator."""
MAX_SLIPS = 50
"""So many slips are mended before the rest of the file is left unread."""

BREAK = re.compile(r"\r\n|\r|\n")
FOREIGN = re.compile("[\x85\u2028\u2029\ud800-\udfff]")
"""Line breaks of YAML 1.1, which YAML 1.2 has as text, and halves of characters."""
NULL = re.compile(r"~|null|Null|NULL|")
TRUE = frozenset({"true", "True", "TRUE"})
FALSE = frozenset({"false", "False", "FALSE"})
INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
OCTAL = re.compile(r"0o[0-7]+")
HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
NO_NUMBER = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
MAX_DIGITS = 1000


@dataclass(slots=True, eq=False)
class Node:
    """A value of the file with its place."""

    start: int
    """Index of the first character in the text of the file; `end` that behind the last."""
    end: int
    data: Any
    style: str | None = None
    """How a scalar is written: plain (``""``), ``'``, ``"``, ``|`` or ``>``; None: no scalar."""
    entries: dict[str, tuple[Node, Node]] = field(default_factory=dict)
    """Of a map: each key's node and value."""
    items: list[Node] = field(default_factory=list)
    """Of a list."""
    weight: int = 1
    """Characters that the value would have if every alias in it were written out."""
    origin: Node | None = None
    """Of an alias: the node that has the anchor."""

    @property
    def content(self) -> Node:
        """The node whose text the value is: the node itself, of an alias that of its anchor."""
        return self.origin or self

    def child(self, step: str | int) -> Node | None:
        """Return the node of a key or an index, or None."""
        if isinstance(step, int):
            items = self.content.items
            return items[step] if 0 <= step < len(items) else None
        entry = self.content.entries.get(step)
        return None if entry is None else entry[1]


class Source:
    """One file: its text, its data, and where everything stands.

    Args:
        name: The file as the user named it.
        text: What is in it.
    """

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.problems: list[Diagnostic] = []
        """What is wrong with it as YAML."""
        self.root: Node | None = None
        self._starts = [0, *(match.end() for match in BREAK.finditer(text))]

    @property
    def data(self) -> Any:
        """The file as plain data; None if it could not be read to its end."""
        return None if self.root is None else self.root.data

    def line_text(self, number: int) -> str:
        """Return a line of the file, counted from 1, without its line break."""
        if not 1 <= number <= len(self._starts):
            return ""
        end = self._starts[number] if number < len(self._starts) else len(self.text)
        return self.text[self._starts[number - 1] : end].rstrip("\r\n")

    def position(self, loc: tuple[str | int, ...], *, key: bool = False) -> Position:
        """Return where something stands.

        Args:
            loc: A path of keys and indexes. What is not there is where it would be: at the deepest
                part of the path that exists. So a path into the long form finds the short one.
            key: The key instead of the value, where there is one.

        Returns:
            The place; of a value over several lines its first one.
        """
        node, reached, key_node = self._walk(loc)
        if node is None:
            return Position(1, 1, 1, self.name)
        if key and key_node is not None and reached == len(loc):
            return self.span(key_node.start, key_node.end)
        return self._place(node)

    def inside(self, loc: tuple[str | int, ...], offset: int, length: int = 1) -> Position:
        """Return where a character of a text stands.

        Args:
            loc: The text, as for `position`.
            offset: Index in the text's value, not in how it is written.
            length: How many characters.

        Returns:
            The place in the file, also in quoted, folded and block text.
        """
        node = self._walk(loc)[0]
        if node is None or node.content.style is None:
            return self.position(loc)
        node = node.content
        start = self._index(node, offset)
        return self.span(start, self._index(node, offset + max(length, 1) - 1) + 1)

    def span(self, start: int, end: int) -> Position:
        """Return the place of the characters from index `start` to before `end` of the file."""
        line = bisect_right(self._starts, start)
        column = start - self._starts[line - 1] + 1
        room = len(self.line_text(line)) - column + 1
        return Position(line, column, max(1, min(end - start, room)), self.name)

    def _walk(self, loc: tuple[str | int, ...]) -> tuple[Node | None, int, Node | None]:
        """Return the deepest node on a path, how far it goes, and the node of its key."""
        node, key_node = self.root, None
        for reached, step in enumerate(loc):
            child = None if node is None else node.child(step)
            if node is None or child is None:
                return node, reached, key_node
            entry = node.content.entries.get(step) if isinstance(step, str) else None
            node, key_node = child, entry[0] if entry else None
        return node, len(loc), key_node

    def _place(self, node: Node) -> Position:
        if node.origin is None and node.entries and self.text[node.start] != "{":
            first = next(iter(node.entries.values()))[0]
            return self.span(first.start, first.end)
        if node.origin is None and node.style is None:
            return self.span(node.start, node.start + 1)
        return self.span(node.start, node.end)

    def _index(self, node: Node, offset: int) -> int:
        """Return the index in the file of character `offset` of a scalar's value.

        Blanks come and go where lines are folded, and an escape is several characters for one; but
        the characters that are no blanks come in the same order in both. So they are counted.
        """
        value = node.data if isinstance(node.data, str) else ""
        blank = offset >= len(value) or value[offset].isspace()
        wanted = sum(not c.isspace() for c in value[:offset])
        last = node.start
        for count, (index, size) in enumerate(self._characters(node)):
            if count == wanted and not blank:
                return index
            if count == wanted:
                break
            last = index + size
        return min(last, max(node.end - 1, node.start))

    def _characters(self, node: Node) -> Iterator[tuple[int, int]]:
        """Yield the index and the width of each character of a scalar that is no blank."""
        start, end = node.start, node.end
        if node.style in {"'", '"'}:
            start, end = start + 1, end - 1
        elif node.style in {"|", ">"}:
            start = self.text.find("\n", start) + 1 or end
        unit = {"'": SINGLE_QUOTED, '"': DOUBLE_QUOTED}.get(node.style or "", PLAIN)
        for match in unit.finditer(self.text, start, end):
            if not _blank(match.group()):
                yield match.start(), len(match.group())


PLAIN = re.compile(r"[\s\S]")
SINGLE_QUOTED = re.compile(r"''|[\s\S]")
DOUBLE_QUOTED = re.compile(
    r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|\r?\n|[\s\S])|[\s\S]"
)
BLANK_ESCAPES = frozenset({"\\n", "\\t", "\\ ", "\\\t", "\\r", "\\v", "\\f", "\\N", "\\_", "\\L"})


def _blank(unit: str) -> bool:
    """Return whether a character as written is a blank, or nothing, in the value."""
    if not unit.startswith("\\") or len(unit) == 1:
        return unit.isspace()
    if unit[1] in "xuU" and len(unit) > 2:
        return chr(int(unit[2:], 16)).isspace()
    return unit in BLANK_ESCAPES or unit in {"\\P", "\\\n", "\\\r\n"}


def read(path: str | Path) -> Source:
    """Read a flow file.

    Args:
        path: The file; the source is named as it is given here.

    Returns:
        The source, with what is wrong in `problems`.

    Raises:
        NotFound: There is no such file, or it cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        message = f"cannot read {path}: {error.strerror or error}"
        raise NotFound(message, hint="give the path of a flow file") from error
    return read_bytes(content, str(path))


def read_bytes(content: bytes, name: str) -> Source:
    """Read a flow file from bytes; see `read`."""
    if len(content) > MAX_BYTES:
        source = Source(name, "")
        _report(
            source,
            Position(1, 1, 1, name),
            "the file is larger than 1 MiB",
            "pass data as an input",
        )
        return source
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        source = Source(name, content.decode("utf-8", errors="replace"))
        start = len(content[: error.start].decode("utf-8", errors="replace"))
        place = source.span(start, start + 1)
        _report(
            source,
            place,
            f"the file is not UTF-8: byte 0x{content[error.start]:02x}",
            "save it as UTF-8",
        )
        return source
    return read_text(text, name)


def read_text(text: str, name: str = "flow.yaml") -> Source:
    """Read a flow file from text.

    Args:
        text: What is in the file.
        name: What the file is called in reports.

    Returns:
        The source, with what is wrong in `problems`.
    """
    source = Source(name, text)
    mended = text
    for match in FOREIGN.finditer(text):
        code = f"U+{ord(match.group()):04X}"
        hint = f'write "\\u{ord(match.group()):04x}" in double quotes'
        _report(
            source, source.span(*match.span()), f"the character {code} stands in the text", hint
        )
        mended = mended[: match.start()] + " " + mended[match.end() :]
    slips: list[Slip] = []
    while len(slips) < MAX_SLIPS:
        composer = _Composer(source, mended, {slip.start: slip for slip in slips})
        try:
            source.root = composer.document()
            break
        except yaml.YAMLError as error:
            slip = find_slip(mended, error, composer.last)
            place = source.span(slip.start if slip.at is None else slip.at, slip.end)
            _report(source, place, slip.message, slip.hint)
            if slip.patch is None or slip.start in composer.mended:
                break
            slips.append(slip)
            mended = mended[: slip.start] + slip.patch + mended[slip.end :]
    source.problems += composer.problems
    return source


def _report(source: Source, place: Position, message: str, hint: str | None) -> None:
    source.problems.append(_diagnostic(place, message, hint))


def _diagnostic(place: Position, message: str, hint: str | None) -> Diagnostic:
    return Diagnostic("E101", message, place.file, place.line, place.column, place.length, hint)


class _TooDeep(yaml.YAMLError):
    """Lists and maps nested beyond all reason."""


class _Composer:
    """Makes the tree of nodes from the parser's events, and notes what is not in the subset."""

    def __init__(self, source: Source, text: str, mended: Mapping[int, Slip]) -> None:
        self.source = source
        self.text = text
        self.mended = mended
        """What was mended, by the place where it starts; its true text is in the slip."""
        self.problems: list[Diagnostic] = []
        self.last: tuple[int, int] | None = None
        """Start and end of the last plain text; the parser's errors are often about its end."""
        self._anchors: dict[str, Node | None] = {}
        self._room = MAX_BYTES
        """Characters that aliases may still stand for."""
        self._events = yaml.parse(text, Loader=yaml.CLoader)
        self._event: Any = None

    def document(self) -> Node | None:
        """Return the tree of the file's one document; None if there is none."""
        self._next(yaml.StreamStartEvent)
        self._advance()
        if isinstance(self._event, yaml.StreamEndEvent):
            self._refuse(0, 1, "the file is empty", "flowengine init writes a first flow")
            return None
        if self._event.tags:
            self._refuse(0, 1, NO_TAGS, "remove the %TAG line")
        self._advance()
        root = self._node(0)
        self._next(yaml.DocumentEndEvent)
        self._advance()
        if not isinstance(self._event, yaml.StreamEndEvent):
            start = self._event.start_mark.index
            self._refuse(
                start, start + 3, "a file holds one document", "put the other in its own file"
            )
        return root

    def _advance(self) -> None:
        self._event = next(self._events)

    def _next(self, kind: type) -> None:
        self._advance()
        assert isinstance(self._event, kind), self._event

    def _end(self) -> int:
        return int(self._event.end_mark.index)

    def _refuse(self, start: int, end: int, message: str, hint: str | None = None) -> None:
        self.problems.append(_diagnostic(self.source.span(start, end), message, hint))

    def _node(self, depth: int) -> Node:
        """Return the node that begins with the current event."""
        event: Any = self._event
        start, end = event.start_mark.index, event.end_mark.index
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event.anchor, start, end)
        if depth > MAX_DEPTH:
            raise _TooDeep(start)
        if event.anchor:
            self._anchors[event.anchor] = None
        if event.tag is not None:
            self._refuse(
                start, start + 1, "tags are not part of a flow file", f"remove {event.tag!r}"
            )
        if isinstance(event, yaml.ScalarEvent):
            node = self._scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._sequence(start, depth)
        else:
            node = self._mapping(start, depth)
        if event.anchor:
            self._anchors[event.anchor] = node
        return node

    def _alias(self, anchor: Any, start: int, end: int) -> Node:
        if anchor not in self._anchors:
            hint = (
                did_you_mean(anchor, self._anchors) or "put a text that begins with '*' in quotes"
            )
            self._refuse(start, end, f"there is no anchor '&{anchor}' before this", hint)
            return Node(start, end, None, "")
        origin = self._anchors[anchor]
        if origin is None:
            self._refuse(start, end, f"'*{anchor}' stands inside what it refers to", None)
            return Node(start, end, None, "")
        room, self._room = self._room, self._room - origin.weight
        if self._room < 0:
            if room >= 0:
                message = "from here on the aliases stand for more than 1 MiB"
                self._refuse(start, end, message, "use fewer aliases")
            return Node(start, end, None, "")
        content = origin.content
        return Node(start, end, content.data, content.style, weight=content.weight, origin=content)

    def _sequence(self, start: int, depth: int) -> Node:
        node = Node(start, start + 1, [])
        self._advance()
        while not isinstance(self._event, yaml.SequenceEndEvent):
            item = self._node(depth + 1)
            node.items.append(item)
            node.data.append(item.data)
            node.weight += item.weight
            self._advance()
        node.end = self._end()
        return node

    def _mapping(self, start: int, depth: int) -> Node:
        node = Node(start, start + 1, {})
        self._advance()
        while not isinstance(self._event, yaml.MappingEndEvent):
            key = self._node(depth + 1)
            self._advance()
            value = self._node(depth + 1)
            self._advance()
            node.weight += key.weight + value.weight
            if self._good_key(node, key):
                node.entries[key.data] = (key, value)
                node.data[key.data] = value.data
        node.end = self._end()
        return node

    def _good_key(self, node: Node, key: Node) -> bool:
        name = key.data
        if not isinstance(name, str):
            written = self.text[key.start : key.end].strip()
            hint = f'write "{written}" in quotes' if key.style == "" and written else None
            self._refuse(key.start, key.end, "a key has to be text", hint)
        elif name == "<<" and key.style == "":
            hint = "'defaults' holds for all steps, and an anchor can hold a whole value"
            self._refuse(key.start, key.end, "'<<' merge keys are not part of a flow file", hint)
        elif name in node.entries:
            line = self.source.span(node.entries[name][0].start, 0).line
            hint = f"it stands in line {line} already; keep one of them"
            self._refuse(key.start, key.end, f"duplicate key {name!r}", hint)
        else:
            return True
        return False

    def _scalar(self, event: Any) -> Node:
        start, end = event.start_mark.index, event.end_mark.index
        start = min(PROPERTIES.match(self.text, start).end(), end)  # type: ignore[union-attr]
        slip = self.mended.get(start)
        if slip is not None:
            value = self.source.text[start : slip.end]
            return Node(start, slip.end, value, "", weight=len(value) + 1)
        style = event.style or ""
        node = Node(start, end, event.value, style, weight=len(event.value) + 1)
        if style == "":
            self._plain(node)
        return node

    def _plain(self, node: Node) -> None:
        """Give a plain scalar its type, and note an expression that a comment cuts short."""
        if node.end > node.start:
            self.last = (node.start, node.end)
        cut = cut_short(self.text, node.start, node.end)
        if cut is not None:
            self._refuse(
                node.start, cut, "' #' begins a comment and cuts the expression short", QUOTE
            )
            node.data, node.end = self.text[node.start : cut], cut
            return
        try:
            node.data = resolve(node.data)
        except ValueError as error:
            self._refuse(node.start, node.end, str(error), "put it in quotes to make it text")
            node.data = None


NO_TAGS = "tags are not part of a flow file"
TAG = re.compile(r"!\S*")
PROPERTIES = re.compile(r"(?:[&!]\S*\s*)*")
"""Anchor and tag before a value."""


def resolve(text: str) -> Any:
    """Return what a plain scalar means by the core schema of YAML 1.2.

    Args:
        text: The scalar, folded, without blanks around it.

    Returns:
        None, a bool, an int, a float, or the text itself.

    Raises:
        ValueError: It is a number that JSON does not have, or beyond all use.
    """
    if NULL.fullmatch(text):
        return None
    if text in TRUE or text in FALSE:
        return text in TRUE
    if INTEGER.fullmatch(text):
        if len(text) > MAX_DIGITS:
            raise ValueError(f"a number of {len(text)} digits")
        return int(text)
    if OCTAL.fullmatch(text):
        return int(text[2:], 8)
    if HEXADECIMAL.fullmatch(text):
        return int(text[2:], 16)
    if FLOAT.fullmatch(text) or NO_NUMBER.fullmatch(text):
        return _finite(text)
    return text


def _finite(text: str) -> float:
    if NO_NUMBER.fullmatch(text) or abs(float(text)) == float("inf"):
        raise ValueError(f"{text} is no number that JSON can hold")
    return float(text)
