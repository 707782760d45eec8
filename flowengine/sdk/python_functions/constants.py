"""Values of constants, read from source: literals, names, attributes of classes and modules."""

from __future__ import annotations

import ast
from typing import Any

from flowengine.sdk.python_functions.modules import (
    HOPS,
    BoundValue,
    Module,
    ModuleReader,
    absolute,
)

UNKNOWN: Any = object()
"""A value that is only known by running the code."""
_LARGEST = 2**64


def literal(node: ast.AST) -> Any:
    """Return the value of a literal, or `UNKNOWN` for any other expression."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return UNKNOWN


def constant(node: ast.AST, module: Module, reader: ModuleReader, hops: int = HOPS) -> Any:
    """Return the value of an expression, or `UNKNOWN` if only running the code shows it.

    A member of an enum is its value. Names that are bound several times are unknown.

    Args:
        node: The expression.
        module: The module that contains it.
        reader: Reads the modules that names lead to.
        hops: How many names are followed.
    """
    value = literal(node)
    if value is not UNKNOWN or hops == 0:
        return value

    def of(part: ast.AST) -> Any:
        return constant(part, module, reader, hops - 1)

    match node:
        case ast.Name() | ast.Attribute():
            bound = named(node, module, reader, hops)
            if bound is not None and id(bound.node) not in bound.module.rebound:
                return constant(bound.node, bound.module, reader, hops - 1)
            if isinstance(node, ast.Attribute) and node.attr == "value":
                return of(node.value)  # of a member of an enum
        case ast.UnaryOp(op=ast.USub(), operand=part) if type(of(part)) in {int, float}:
            return -of(part)
        case ast.BinOp(left=left, op=op, right=right):
            return _arithmetic(of(left), op, of(right))
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            items = [of(part) for part in parts]
            return UNKNOWN if UNKNOWN in items else items
    return UNKNOWN


def named(
    node: ast.AST, module: Module, reader: ModuleReader, hops: int = HOPS
) -> BoundValue | None:
    """Return what a dotted name stands for: a value, a class, or the import of a module.

    Args:
        node: The name. Its parts can be modules and classes.
        module: The module that contains it.
        reader: Reads the modules that names lead to.
        hops: How many parts are followed.
    """
    if isinstance(node, ast.Name):
        return reader.find(module, node.id, near=True)
    if not isinstance(node, ast.Attribute) or hops == 0:
        return None
    owner = named(node.value, module, reader, hops - 1)
    match owner:
        case BoundValue(ast.ClassDef() as cls, home):
            values = [value for name, value in assignments(cls) if name == node.attr]
            return BoundValue(values[0], home) if len(values) == 1 else None
        case BoundValue(ast.Import() | ast.ImportFrom() as imported, home):
            called = node.value.id if isinstance(node.value, ast.Name) else ""
            names = [item.name for item in imported.names if called in (item.asname, item.name)]
            if not names:
                return None
            before = f"{absolute(imported, home)}." if isinstance(imported, ast.ImportFrom) else ""
            full = before + names[0]
            source = reader.module(full) if reader.is_near(full, home) else None
            return None if source is None else reader.find(source, node.attr, near=True)
    return None


def assignments(node: ast.ClassDef) -> list[tuple[str, ast.expr]]:
    """Return the names that the body of a class binds, with their values."""
    found = []
    for statement in node.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found.append((name, value))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found.append((name, value))
    return found


def _arithmetic(left: Any, op: ast.operator, right: Any) -> Any:
    if type(left) not in {int, float} or type(right) not in {int, float}:
        return UNKNOWN
    match op:
        case ast.Add():
            value = left + right
        case ast.Sub():
            value = left - right
        case ast.Mult():
            value = left * right
        case _:
            return UNKNOWN
    return value if abs(value) < _LARGEST else UNKNOWN
