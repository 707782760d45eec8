"""Places of the parts of a built flow: a call in a Python file, or a position in a YAML file.

A call records only its code object and instruction. The file is read and parsed when a position is
requested. The position is as precise as the source allows: the keyword, the entry of its dict, the
character in its text.
"""

from __future__ import annotations

import ast
import linecache
import os
import sys
from functools import lru_cache
from types import CodeType
from typing import NamedTuple, Protocol

from flowengine.flow.source.diagnostics import Loc, Position
from flowengine.sdk.python.imported_modules import parse

_HERE = __name__.rpartition(".")[0]
_Span = tuple[int | None, int | None, int | None, int | None]
_End = tuple[int | None, int | None]


class DeclarationSite(Protocol):
    """The place where a part of a flow was declared."""

    def position(self, path: Loc, *, key: bool = False) -> Position:
        """Return the position of something in the part. `path` leads to it from the part."""

    def inside(self, path: Loc, offset: int, length: int) -> Position:
        """Return the position of a character in a text."""


class _Parsed(NamedTuple):
    """The expressions of a Python file. Of several in the same place, the outermost one."""

    expressions: dict[_Span, ast.expr]
    """By beginning and end."""
    calls: dict[_End, ast.expr]
    """By end."""


class InCode(NamedTuple):
    """A part that a call declares."""

    code: CodeType
    instruction: int
    file: str
    line: int

    def position(self, path: Loc, *, key: bool = False) -> Position:
        """Return the position of an argument of the call, as close to `path` as possible."""
        node = self._node(path)
        return self._at(self.line, 0, 1) if node is None else self._of(node)

    def inside(self, path: Loc, offset: int, length: int) -> Position:
        """Return the position of a character of an argument, if it is a text without escapes."""
        node = self._node(path)
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            return self.position(path)
        line = linecache.getline(self.file, node.lineno).encode()
        written = line[node.col_offset : node.end_col_offset].decode()
        start = written.find(node.value)
        if node.lineno != node.end_lineno or start < 0:
            return self.position(path)
        column = len(line[: node.col_offset].decode()) + start + offset
        return Position(node.lineno, column + 1, max(1, length), shown(self.file))

    def _node(self, path: Loc) -> ast.expr | None:
        """Return the argument that `path` leads to, or the deepest one on the way."""
        node: ast.expr | None = self._call()
        for step in path:
            inner = None if node is None else _argument(node, step)
            node = inner or node
        return node

    def _call(self) -> ast.expr | None:
        spans = list(self.code.co_positions())
        span = spans[self.instruction // 2] if self.instruction // 2 < len(spans) else None
        if span is None or None in span:
            return None
        source = _parsed(tuple(linecache.getlines(self.file)))
        return source.expressions.get(span) or source.calls.get(span[1::2])

    def _of(self, node: ast.expr) -> Position:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func  # in a chain of calls over several lines, this call
            start = (name.end_col_offset or 0) - len(name.attr)
            return self._at(name.end_lineno or name.lineno, start, len(name.attr))
        last = node.end_col_offset if node.end_lineno == node.lineno else None
        line = linecache.getline(self.file, node.lineno).rstrip("\n").encode()
        return self._at(node.lineno, node.col_offset, (last or len(line)) - node.col_offset)

    def _at(self, line: int, start: int, size: int) -> Position:
        """Return the position of bytes in a line."""
        written = linecache.getline(self.file, line).encode()
        column = len(written[:start].decode(errors="replace")) + 1
        length = len(written[start : start + size].decode(errors="replace"))
        return Position(line, column, max(1, length), shown(self.file))


def here() -> InCode:
    """Return the place of the call into this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_HERE):
        frame = frame.f_back
    return InCode(frame.f_code, frame.f_lasti, frame.f_code.co_filename, frame.f_lineno)


def shown(file: str) -> str:
    """Return the path of a file for reports, relative to the current directory if it is inside."""
    try:
        relative = os.path.relpath(file)
    except ValueError:  # another drive
        return file
    return file if file.startswith("<") or relative.startswith("..") else relative


@lru_cache(maxsize=8)
def _parsed(lines: tuple[str, ...]) -> _Parsed:
    """Parse a file once, because a flow requests a position for each of its expressions."""
    parsed = _Parsed({}, {})
    try:
        tree = parse("".join(lines))
    except (SyntaxError, ValueError):
        return parsed
    for node in ast.walk(tree):
        if isinstance(node, ast.expr):
            end = node.end_lineno, node.end_col_offset
            parsed.expressions.setdefault((node.lineno, end[0], node.col_offset, end[1]), node)
            if isinstance(node, ast.Call):
                parsed.calls.setdefault(end, node)
    return parsed


def _argument(node: ast.expr, step: str | int) -> ast.expr | None:
    """Return the part of a call, a dict or a list that one element of a path leads to."""
    match node:
        case ast.Call(args=args, keywords=keywords):
            if isinstance(step, int):
                return args[step] if step < len(args) else None
            for keyword in keywords:
                if keyword.arg in {step, f"{step}_"}:
                    return keyword.value
            return args[0] if step in {"id", "python"} and args else None
        case ast.Dict(keys=keys, values=values):
            for key, value in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant) and key.value == step:
                    return value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return items[step] if isinstance(step, int) and step < len(items) else None
    return None
