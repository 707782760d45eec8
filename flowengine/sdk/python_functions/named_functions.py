"""The function that a name stands for, read from source.

The name may be bound to another name (`search = _search`), a partial or a method.
"""

from __future__ import annotations

import ast
from typing import NamedTuple

from flowengine.sdk.python_functions.modules import (
    HOPS,
    BoundValue,
    Module,
    ModuleReader,
    last_name,
)

FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


class NamedFunction(NamedTuple):
    """A function, and its parameters that callers do not supply."""

    node: ast.FunctionDef | ast.AsyncFunctionDef
    module: Module
    first: int = 0
    """Number of leading parameters that are already bound: `self`, those of a partial."""
    bound: frozenset[str] = frozenset()
    """Names of further parameters that a partial binds."""


def named_function(
    bound: BoundValue, reader: ModuleReader, hops: int = HOPS
) -> NamedFunction | None:
    """Return the function that a name is bound to, or None if only running the module shows it.

    Args:
        bound: The value of the name.
        reader: Reads the modules that other names lead to.
        hops: How many names and partials are followed.
    """
    if hops == 0:
        return None
    node, module = bound
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return NamedFunction(node, module)
        case ast.Name(id=name):
            other = reader.find(module, name)
            return None if other is None else named_function(other, reader, hops - 1)
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            return _attribute(owner, name, module, reader, hops - 1)
        case ast.Call(args=[function, *given], keywords=words) if last_name(node) == "partial":
            return _partial(BoundValue(function, module), given, words, reader, hops - 1)
    return None


def _partial(
    function: BoundValue,
    given: list[ast.expr],
    words: list[ast.keyword],
    reader: ModuleReader,
    hops: int,
) -> NamedFunction | None:
    inner = named_function(function, reader, hops)
    names = [word.arg for word in words]
    if (
        inner is None
        or None in names
        or any(isinstance(argument, ast.Starred) for argument in given)
    ):
        return None
    bound = inner.bound.union(name for name in names if name is not None)
    return inner._replace(first=inner.first + len(given), bound=bound)


def _attribute(
    owner: str, name: str, module: Module, reader: ModuleReader, hops: int
) -> NamedFunction | None:
    """Return a function of a module, or a method of an object that a module makes."""
    match reader.find(module, owner):
        case BoundValue(ast.Import(names=names)):
            full = next(
                imported.name for imported in names if (imported.asname or imported.name) == owner
            )
            source = reader.module(full)
            value = None if source is None else reader.find(source, name)
            return None if value is None else named_function(value, reader, hops)
        case BoundValue(ast.Call(func=ast.Name(id=cls)), home):
            return _method(reader.find(home, cls), name)
    return None


def _method(cls: BoundValue | None, name: str) -> NamedFunction | None:
    if cls is None or not isinstance(cls.node, ast.ClassDef):
        return None
    for node in cls.node.body:
        if isinstance(node, FUNCTION) and node.name == name:
            marks = {last_name(decorator) for decorator in node.decorator_list}
            if marks - {"staticmethod", "classmethod"}:
                return None
            return NamedFunction(node, cls.module, first=0 if "staticmethod" in marks else 1)
    return None  # it may be inherited
