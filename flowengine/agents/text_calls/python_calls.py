"""Calls as Python writes them, `add(a=1, b=2)`: read as syntax, and never run.

Only literals are arguments. Anything else - a name, a call inside a call, an operator - is refused.
"""

from __future__ import annotations

import ast
import re
import threading
import warnings
from typing import Any

from flowengine.agents.text_calls.json_text import MAX_DEPTH
from flowengine.agents.text_calls.records import RawCall
from flowengine.syntax_trees import parse

MAX_LENGTH = 100_000
_TOKEN = re.compile(
    r"'''(?:[^\\]|\\.)*?'''|\"\"\"(?:[^\\]|\\.)*?\"\"\""
    r"|'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"|['\"]|[\[\](){}]",
    re.DOTALL,
)
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_NAMES = {"true": True, "false": False, "null": None}
_FILTERS = threading.Lock()
"""Warnings are switched off for the whole process, so by one thread at a time."""


class BrokenPython(Exception):
    """No call can be read, or more than a call stands there."""


def end_of_brackets(text: str, at: int) -> tuple[int, bool]:
    """Return where the bracket at a place closes, and whether it does.

    Args:
        text: The whole text.
        at: Where the bracket opens.
    """
    open_: list[str] = []
    for token in _TOKEN.finditer(text, at, at + MAX_LENGTH):
        sign = token[0]
        if sign in {"'", '"'}:
            return token.end(), False
        if sign in _CLOSING:
            open_.append(_CLOSING[sign])
            if len(open_) > MAX_DEPTH:
                return token.end(), False
        elif sign in {")", "]", "}"}:
            if open_.pop() != sign:
                return token.end(), False
            if not open_:
                return token.end(), True
    return min(len(text), at + MAX_LENGTH), False


def read_python(text: str) -> tuple[list[RawCall], list[str]]:
    """Read a list of calls, or calls one to a line.

    Args:
        text: Nothing but them.

    Returns:
        The calls, and what was mended.

    Raises:
        BrokenPython: Something else stands there.
    """
    if len(text) > MAX_LENGTH:
        raise BrokenPython(f"it has {len(text)} characters, {MAX_LENGTH} are the most")
    try:
        with _FILTERS, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `"\d"` is a matter of style
            parsed = parse(text.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else "it is nested too deeply"
        raise BrokenPython(f"it is not Python: {reason}") from None
    calls: list[RawCall] = []
    repairs: list[str] = []
    for statement in parsed.body:
        if not isinstance(statement, ast.Expr):
            raise BrokenPython("only calls may stand there")
        calls += _calls(statement.value, repairs)
    return calls, list(dict.fromkeys(repairs))


def _calls(node: ast.expr, repairs: list[str]) -> list[RawCall]:
    if isinstance(node, ast.List | ast.Tuple):
        return [call for item in node.elts for call in _calls(item, repairs)]
    if not isinstance(node, ast.Call):
        raise BrokenPython("only calls may stand there")
    name = _name(node.func)
    if name == "print" and len(node.args) == 1 and not node.keywords:
        return _calls(node.args[0], repairs)
    if node.args:
        raise BrokenPython(f"the arguments of {name} need their names")
    arguments: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise BrokenPython(f"the arguments of {name} need their names")
        if keyword.arg in arguments:
            raise BrokenPython(f"'{keyword.arg}' is given twice")
        arguments[keyword.arg] = _literal(keyword.value, keyword.arg, repairs)
    return [RawCall(name, arguments)]


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id="functions" | "default_api" | "tools"), attr=name):
            return name
        case ast.Attribute(value=inner, attr=name):
            return f"{_name(inner)}.{name}"
    raise BrokenPython("a call needs the name of a tool")


def _literal(node: ast.expr, where: str, repairs: list[str]) -> Any:
    match node:
        case ast.Constant(value=None | bool() | str() | int() | float() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_literal(item, where, repairs) for item in items]
        case ast.Dict(keys=keys, values=values):
            return _dict(keys, values, where, repairs)
        case ast.Name(id="true" | "false" | "null" as name):
            repairs.append("true, false and null were read as Python writes them")
            return _NAMES[name]
    raise BrokenPython(f"'{where}' must be a literal: text, a number, a list or a dict")


def _dict(
    keys: list[ast.expr | None], values: list[ast.expr], where: str, repairs: list[str]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in zip(keys, values, strict=True):
        if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
            raise BrokenPython(f"a key in '{where}' must be text")
        if key.value in found:
            raise BrokenPython(f"'{key.value}' is given twice")
        found[key.value] = _literal(value, where, repairs)
    return found


def written_python(name: str, arguments: dict[str, Any]) -> str:
    """Write a call as Python.

    Args:
        name: Of the tool.
        arguments: Plain data.
    """
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
