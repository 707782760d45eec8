"""Parsing of Python source, one thread at a time."""

from __future__ import annotations

import ast
from _thread import allocate_lock
from typing import Any

_lock = allocate_lock()


def parse(source: str | bytes, filename: str = "<unknown>", mode: str = "exec") -> Any:
    """Return the syntax tree of Python source, with the arguments and errors of `ast.parse`.

    CPython 3.11 counts the nesting depth of trees for all threads together, so two threads that
    parse at once raise a `SystemError` (https://github.com/python/cpython/issues/106905).
    """
    with _lock:
        return ast.parse(source, filename, mode)
