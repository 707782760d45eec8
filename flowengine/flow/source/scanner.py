"""A scanner of YAML 1.2, for texts that libyaml, a parser of YAML 1.1, refuses or reads otherwise.

They differ in `[?.txt, :x]`, `&an:chor`, tabs that separate, and keys over several lines in braces.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from yaml.scanner import ScannerError
from yaml.tokens import FlowMappingStartToken, ScalarToken

MAX_DEPTH = 100
"""Maximum depth of nested lists and maps. A deeper file is an attack or a bug of a generator."""
_BLANKS = " \t\r\n"
_FLOW = ",[]{}"
_SPACE = re.compile(r"[ \t]*")
ANCHOR = re.compile(r"[&*]([^\s,\[\]{}\0]+)")
"""An anchor or an alias, with its name."""
_HEADER = re.compile(r"([1-9]?[-+]?|[-+][1-9])(?!\S)[ \t]*")
_PLAIN = re.compile(r"(?:[^\s\0:]|:(?![\s\0]))+")
_PLAIN_IN_FLOW = re.compile(r"(?:[^\s\0:,\[\]{}]|:(?![\s\0,\[\]{}]))+")


class TooDeep(yaml.YAMLError):
    """Lists and maps are nested too deeply. Its argument is the index in the text."""


class Loader(yaml.Loader):
    """Scans YAML 1.2. It takes thirty times as long as libyaml."""

    def __init__(self, stream: str) -> None:
        self.braces: list[bool] = []
        """For each open bracket: whether it is a brace, in which a key may have several lines."""
        super().__init__(stream)

    def fetch_flow_collection_start(self, TokenClass: Any) -> None:
        if len(self.braces) >= MAX_DEPTH:
            raise TooDeep(self.index)
        super().fetch_flow_collection_start(TokenClass)
        self.braces.append(TokenClass is FlowMappingStartToken)

    def fetch_flow_collection_end(self, TokenClass: Any) -> None:
        super().fetch_flow_collection_end(TokenClass)
        del self.braces[-1:]

    def stale_possible_simple_keys(self) -> None:
        in_braces = {
            level: key
            for level, key in self.possible_simple_keys.items()
            if level and self.braces[level - 1 : level] == [True]
        }
        for level in in_braces:
            del self.possible_simple_keys[level]
        super().stale_possible_simple_keys()
        self.possible_simple_keys.update(in_braces)

    def check_key(self) -> bool:
        return self._ends(self.peek(1))

    def check_value(self) -> bool:
        if self.flow_level in self.possible_simple_keys and self.flow_level:
            last = self.tokens[-1]
            if last.id in {"]", "}"} or (isinstance(last, ScalarToken) and not last.plain):
                return True
        return self._ends(self.peek(1))

    def check_plain(self) -> bool:
        if self.peek() in "-?:":
            return not self._ends(self.peek(1))
        return self.peek() not in "\0 \t\r\n,[]{}#&*!|>'\"%@`"

    def _ends(self, character: str) -> bool:
        """Return whether a character cannot continue a plain text."""
        return character in "\0" + _BLANKS or (self.flow_level > 0 and character in _FLOW)

    def scan_to_next_token(self) -> None:
        if self.index == 0 and self.peek() == "\ufeff":
            self.forward()
        while True:
            blanks, starts = self._blanks(), self.column == 0
            self.forward(len(blanks))
            if self.peek() == "#":
                while self.peek() not in "\0\r\n":
                    self.forward()
            if not self._line_break():
                break
            self.allow_simple_key = self.allow_simple_key or not self.flow_level
        if "\t" in blanks and self.peek() != "\0":
            self.allow_simple_key = self.allow_simple_key and self.flow_level > 0
            if starts and blanks.index("\t") <= self.indent:
                raise ScannerError(None, None, "found a tab character", self.get_mark())

    def scan_anchor(self, TokenClass: Any) -> Any:
        start = self.get_mark()
        match = ANCHOR.match(self.buffer, self.pointer)
        if match is None:
            raise ScannerError("while scanning an anchor", start, "no name", self.get_mark())
        self.forward(len(match[0]))
        return TokenClass(match[1], start, self.get_mark())

    def scan_block_scalar_indicators(self, start_mark: Any) -> Any:
        match = _HEADER.match(self.buffer, self.pointer)
        if match is None:
            return super().scan_block_scalar_indicators(start_mark)
        self.forward(len(match[0]))
        indent = match[1].strip("-+")
        return None if match[1] == indent else "+" in match[1], int(indent) if indent else None

    def scan_flow_scalar_non_spaces(self, double: bool, start_mark: Any) -> list[str]:
        try:
            chunks: list[str] = super().scan_flow_scalar_non_spaces(double, start_mark)
            "".join(chunks).encode()
        except (ValueError, OverflowError):
            problem = "found an invalid escape code"
            raise ScannerError(None, None, problem, self.get_mark()) from None
        return chunks

    def scan_plain(self) -> Any:
        start = end = self.get_mark()
        pattern = _PLAIN_IN_FLOW if self.flow_level else _PLAIN
        chunks: list[str] = []
        spaces: list[str] | None = []
        while self.peek() != "#" and (match := pattern.match(self.buffer, self.pointer)):
            self.allow_simple_key = False
            chunks += [*(spaces or ()), match[0]]
            self.forward(len(match[0]))
            end = self.get_mark()
            spaces = self.scan_plain_spaces(self.indent + 1, start)
            if not spaces or (not self.flow_level and self.column <= self.indent):
                break
        return ScalarToken("".join(chunks), True, start, end)

    def scan_plain_spaces(self, indent: int, start_mark: Any) -> list[str] | None:
        blanks = self._blanks()
        self.forward(len(blanks))
        if self.peek() not in "\r\n":
            return [blanks] if blanks else []
        self._line_break()
        self.allow_simple_key = True
        breaks: list[str] = []
        while not (self.prefix(3) in {"---", "..."} and self.peek(3) in "\0" + _BLANKS):
            blanks = self._blanks()
            self.forward(len(blanks))
            if not (line_break := self._line_break()):
                if "\t" in blanks:
                    self.allow_simple_key = False
                return breaks or [" "]
            breaks.append(line_break)
        return None

    def _line_break(self) -> str:
        return str(self.scan_line_break())  # type: ignore[no-untyped-call]

    def _blanks(self) -> str:
        match = _SPACE.match(self.buffer, self.pointer)
        return match[0] if match else ""
