"""Parsing of a file into a tree of nodes, by the YAML 1.2 core schema and no other part of YAML.

The parser's events become nodes with positions. Tags are not interpreted, and only text, numbers,
booleans, null, lists and maps are constructed. Syntax outside this subset is recorded as an error,
and the rest is read nevertheless.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from flowengine.flow.source.diagnostics import Diagnostic, Position
from flowengine.flow.source.scanner import ANCHOR, MAX_DEPTH, TooDeep
from flowengine.flow.source.syntax_errors import QUOTE, Slip, cut_short
from flowengine.sdk.texts.near_words import did_you_mean
from flowengine.sdk.texts.sizes import size_text

PAIR = r"u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
"""A pair without its first backslash."""
_ESCAPE = re.compile(rf"\\(?:({PAIR})|[\s\S])")
_FILL = "\U0001fffe" * 2
"""Noncharacters, which no text contains."""
_REPLACED = re.compile(rf"\\U[0-9A-F]{{8}}{_FILL}")


def for_parser(text: str) -> str:
    """Return the text of a file with the escapes of YAML."""
    if ("\\ud" not in text and "\\uD" not in text) or _FILL[0] in text:
        return text
    return _ESCAPE.sub(_in_yaml, text)


def read_value(value: str, style: str, written: str) -> str:
    """Return the value of a scalar as the file means it.

    Args:
        value: The value from the parser.
        style: The style of the scalar. Only double quotes have escapes.
        written: The scalar as the file has it.
    """
    if _FILL[0] not in value:
        return value
    if style == '"':
        return value.replace(_FILL, "")
    pairs = (match[0] for match in _ESCAPE.finditer(written) if match[1])
    return _REPLACED.sub(lambda _: next(pairs), value)


def _in_yaml(match: re.Match[str]) -> str:
    if match[1] is None:
        return match[0]
    high, low = int(match[1][1:5], 16), int(match[1][7:], 16)
    return f"\\U{0x10000 + (high - 0xD800) * 0x400 + low - 0xDC00:08X}{_FILL}"


MAX_ALIASED = 1 << 20
"""Characters that all aliases of a file together may expand to, the same as the maximum size of a
file."""
LEAST_WEIGHT = 256
"""Characters that a value counts for at least, since each is checked and compiled."""


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
class SourceNode:
    """A value of the file with its position."""

    start: int
    """Index of the first character in the text of the file. `end` is the index after the last."""
    end: int
    data: Any
    style: str | None = None
    """Style of a scalar: plain (``""``), ``'``, ``"``, ``|`` or ``>``. None if it is not a
    scalar."""
    entries: dict[str, tuple[SourceNode, SourceNode]] = field(default_factory=dict)
    """For a map: the nodes of each key and value."""
    items: list[SourceNode] = field(default_factory=list)
    """For a list: its items."""
    weight: int = LEAST_WEIGHT
    """Characters of the value with every alias expanded, at least `LEAST_WEIGHT` for each part."""
    origin: SourceNode | None = None
    """For an alias: the node with the anchor."""

    @property
    def content(self) -> SourceNode:
        """The node with the value's text: the node itself, or for an alias that of its anchor."""
        return self.origin or self

    def child(self, step: str | int) -> SourceNode | None:
        """Return the node of a key or an index, or None."""
        if isinstance(step, int):
            items = self.content.items
            return items[step] if 0 <= step < len(items) else None
        entry = self.content.entries.get(step)
        return None if entry is None else entry[1]


def not_yaml(place: Position, message: str, hint: str | None) -> Diagnostic:
    """Return the diagnostic for text that is not YAML, or not in this subset."""
    return Diagnostic("E101", message, place.file, place.line, place.column, place.length, hint)


class Composer:
    """Builds the tree of nodes from the parser's events, and records syntax outside the subset.

    Args:
        text: The text to parse.
        written: The text of the file, which differs from `text` where it was repaired.
        mended: The original texts of repairs, by the place where they start.
        span: Returns the position of the characters between two indexes.
        loader: The parser.
    """

    def __init__(
        self,
        text: str,
        written: str,
        mended: Mapping[int, Slip],
        span: Callable[..., Position],
        loader: Any,
    ) -> None:
        self.text = text
        self.written = written
        self.mended = mended
        self.span = span
        self.problems: list[Diagnostic] = []
        self.last: tuple[int, int] | None = None
        """Start and end of the last plain text. The parser's errors are often about its end."""
        self._anchors: dict[str, SourceNode | None] = {}
        self._room = MAX_ALIASED
        """Characters that aliases may still expand to."""
        self._events = yaml.parse(text, Loader=loader)
        self._event: Any = None
        self._at = 0
        """Index after the last event."""
        self._indent = -1
        """Column of the innermost list or map without brackets."""
        self._brackets = 0
        """Number of open brackets."""
        self.different: list[int] = []
        """Indexes of texts that YAML 1.1, by which libyaml parses, cuts in two."""

    def document(self) -> SourceNode | None:
        """Return the tree of the file's single document, or None if there is none."""
        self._next(yaml.StreamStartEvent)
        self._advance()
        if isinstance(self._event, yaml.StreamEndEvent):
            self._refuse(0, 1, "the file is empty", "flowengine init writes a first flow")
            return None
        if self._event.tags:
            self._refuse(0, 1, NO_TAGS, "remove the %TAG line")
        if self._event.version and tuple(self._event.version) != (1, 2):
            self._refuse(0, 1, "a flow file is YAML 1.2", "remove the %YAML line")
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
        start, end = self._event.start_mark.index, self._event.end_mark.index
        name = ANCHOR.match(self.text, start) if getattr(self._event, "anchor", None) else None
        opens = getattr(self._event, "flow_style", None) is True
        if (name and name[1] != self._event.anchor) or QUESTION.match(
            self.text, self._at, start + opens
        ):
            self.different.append(start)
        if start > self._at and (match := NO_COMMENT.match(self.text, self._at, start)):
            at = match.end() - 1
            self._refuse(at, at + 1, BLANK_MISSING, "add it, or use quotes")
        self._at = max(self._at, end)

    def _next(self, kind: type) -> None:
        self._advance()
        assert isinstance(self._event, kind), self._event

    def _end(self) -> int:
        return int(self._event.end_mark.index)

    def _refuse(self, start: int, end: int, message: str, hint: str | None = None) -> None:
        self.problems.append(not_yaml(self.span(start, end), message, hint))

    def _node(self, depth: int) -> SourceNode:
        """Return the node that begins with the current event."""
        event: Any = self._event
        start, end = event.start_mark.index, event.end_mark.index
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event.anchor, start, end)
        if depth > MAX_DEPTH:
            raise TooDeep(start)
        if event.anchor:
            self._anchors[event.anchor] = None
        if event.tag is not None:
            self._refuse(
                start, start + 1, "tags are not part of a flow file", f"remove {event.tag!r}"
            )
        around, brackets = self._indent, self._brackets
        if isinstance(event, yaml.ScalarEvent):
            node = self._scalar(event)
        else:
            self._brackets += bool(event.flow_style)
            if not self._brackets and event.anchor is None and event.tag is None:
                self._indent = event.start_mark.column
            is_list = isinstance(event, yaml.SequenceStartEvent)
            node = self._sequence(start, depth) if is_list else self._mapping(start, depth)
        self._indent, self._brackets = around, brackets
        if not brackets and (node.style is not None or getattr(event, "flow_style", False)):
            self._check_lines(node, around)
        if event.anchor:
            self._anchors[event.anchor] = node
        return node

    def _check_lines(self, node: SourceNode, indent: int) -> None:
        """Refuse lines of a value, of a block text the first, outside of the block around it."""
        start, end = node.start, node.end
        if node.style in {"|", ">"}:
            start, end = max(self.text.rfind("\n", 0, start), 0), start + 1
        for match in LINE.finditer(self.text, start, end):
            if len(match[1]) <= indent and match.end() >= node.start:
                what = (
                    "a tab in the indentation" if match[2] else "this line is not indented enough"
                )
                hint = f"indent it with at least {indent + 1} spaces, like all lines of its value"
                self._refuse(match.start(1), match.end(), what, hint)
                return

    def _alias(self, anchor: Any, start: int, end: int) -> SourceNode:
        if anchor not in self._anchors:
            hint = (
                did_you_mean(anchor, self._anchors) or "put a text that starts with '*' in quotes"
            )
            self._refuse(start, end, f"anchor '&{anchor}' is not defined before this", hint)
            return SourceNode(start, end, None, "")
        origin = self._anchors[anchor]
        if origin is None:
            self._refuse(start, end, f"'*{anchor}' is inside the value that it refers to", None)
            return SourceNode(start, end, None, "")
        room, self._room = self._room, self._room - origin.weight
        if self._room < 0:
            if room >= 0:
                values, size = MAX_ALIASED // LEAST_WEIGHT, size_text(MAX_ALIASED)
                message = f"from here on the aliases expand to more than {values} values, or {size}"
                self._refuse(start, end, message, "use fewer aliases")
            return SourceNode(start, end, None, "")
        content = origin.content
        return SourceNode(
            start, end, content.data, content.style, weight=content.weight, origin=content
        )

    def _sequence(self, start: int, depth: int) -> SourceNode:
        node = SourceNode(start, start + 1, [])
        self._advance()
        while not isinstance(self._event, yaml.SequenceEndEvent):
            item = self._node(depth + 1)
            node.items.append(item)
            node.data.append(item.data)
            node.weight += item.weight
            self._advance()
        node.end = self._end()
        return node

    def _mapping(self, start: int, depth: int) -> SourceNode:
        node = SourceNode(start, start + 1, {})
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

    def _good_key(self, node: SourceNode, key: SourceNode) -> bool:
        name = key.data
        if not isinstance(name, str):
            written = self.text[key.start : key.end].strip()
            hint = f'write "{written}" in quotes' if key.style == "" and written else None
            if isinstance(name, dict) and self.text[key.start - 1 : key.start + 1] == "{{":
                hint = f"an expression has a dollar sign: ${{{written}}}"
            self._refuse(key.start, key.end, "a key must be text", hint)
        elif name == "<<" and key.style == "":
            hint = "'defaults' holds for all steps, and an anchor can hold a whole value"
            self._refuse(key.start, key.end, "'<<' merge keys are not part of a flow file", hint)
        elif name in node.entries:
            line = self.span(node.entries[name][0].start, 0).line
            hint = f"it is already in line {line}. Keep one of them"
            self._refuse(key.start, key.end, f"duplicate key {name!r}", hint)
        else:
            return True
        return False

    def _scalar(self, event: Any) -> SourceNode:
        start, end = event.start_mark.index, event.end_mark.index
        start = min(PROPERTIES.match(self.text, start).end(), end)  # type: ignore[union-attr]
        slip = self.mended.get(start)
        if slip is not None:
            value = self.written[start : slip.end]
            return SourceNode(start, slip.end, value, "", weight=max(len(value), LEAST_WEIGHT))
        style = event.style or ""
        if match := HEADER.match(self.text, start):
            self._refuse(match.end() - 1, match.end(), BLANK_MISSING, "add it")
        value = read_value(event.value, style, self.written[start:end])
        node = SourceNode(start, end, value, style, weight=max(len(value), LEAST_WEIGHT))
        if style == "":
            self._plain(node)
        return node

    def _plain(self, node: SourceNode) -> None:
        """Resolve the type of a plain scalar, and report an expression that a comment cuts."""
        if node.data == "-":
            self._refuse(node.start, node.end, "'-' alone is no text", "put it in quotes")
        if node.end > node.start:
            self.last = (node.start, node.end)
        cut = cut_short(self.text, node.start, node.end)
        if cut is not None:
            self._refuse(
                node.start, cut, "' #' starts a comment and cuts the expression short", QUOTE
            )
            node.data, node.end = self.text[node.start : cut], cut
            return
        try:
            node.data = resolve(node.data)
        except ValueError as error:
            self._refuse(node.start, node.end, str(error), "put it in quotes to make it text")
            node.data = None


NO_TAGS = "tags are not part of a flow file"
HEADER = re.compile(r"[|>][-+0-9]*#")
"""The first line of a block text, with a comment that has no blank before it."""
BLANK_MISSING = "a comment needs a blank before '#'"
QUESTION = re.compile(r"(?:[^#?]|#[^\n]*+|\?(?=\s))*+\?")
"""Text between two values, up to a question mark that YAML 1.2 reads as part of the value."""
NO_COMMENT = re.compile(r"(?:[^#]|(?<!\S)#[^\n]*+)*+#")
"""Text between two values, up to a number sign that begins no comment."""
LINE = re.compile(r"\r?\n( *)(\t?)[ \t]*(?=[^\s#])")
PROPERTIES = re.compile(r"(?:[&!]\S*\s*)*")
"""Anchor and tag before a value."""


def resolve(text: str) -> Any:
    """Return the value of a plain scalar by the core schema of YAML 1.2.

    Args:
        text: The scalar, folded, without blanks around it.

    Returns:
        None, a bool, an int, a float, or the text itself.

    Raises:
        ValueError: The number does not exist in JSON, or is too large.
    """
    if NULL.fullmatch(text):
        return None
    if text in TRUE or text in FALSE:
        return text in TRUE
    if INTEGER.fullmatch(text):
        return _storable(text, 10)
    if OCTAL.fullmatch(text):
        return _storable(text[2:], 8)
    if HEXADECIMAL.fullmatch(text):
        return _storable(text[2:], 16)
    if FLOAT.fullmatch(text) or NO_NUMBER.fullmatch(text):
        if NO_NUMBER.fullmatch(text) or abs(float(text)) == float("inf"):
            raise ValueError(f"{text} is not a number that JSON can represent")
        return float(text)
    return text


def _storable(digits: str, base: int) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    value = int(digits, base)
    if not -(2**63) <= value < 2**64:
        raise ValueError(
            f"this is an integer of {value.bit_length()} bits. Only integers from -2^63 "
            "to 2^64-1 can be stored"
        )
    return value
