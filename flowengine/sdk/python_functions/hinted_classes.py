"""The classes that a type hint names, by their full names, read without importing anything."""

from __future__ import annotations

import ast

from flowengine.sdk.python_functions.modules import Module, absolute
from flowengine.syntax_trees import parse

_HOPS = 8
"""Names behind names; more of them is a circle."""


def hinted_classes(hint: ast.AST | None, module: Module, hops: int = _HOPS) -> list[str]:
    """Return what classes a hint allows: `package.module.Class`, of a union each.

    Args:
        hint: As it stands in the source.
        module: Where it stands.
        hops: How many names are followed.

    Returns:
        Those that the module imports; what is built in or made there is not among them.
    """
    if hops == 0:
        return []

    def each(*parts: ast.AST) -> list[str]:
        return [name for part in parts for name in hinted_classes(part, module, hops - 1)]

    match hint:
        case ast.Constant(value=str(text)):
            try:
                return each(parse(text.strip(), mode="eval").body)
            except SyntaxError:
                return []
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return each(left, right)
        case ast.Subscript(value=generic, slice=inner):
            items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            match generic:
                case ast.Name(id="Annotated") | ast.Attribute(attr="Annotated"):
                    return each(items[0])
                case ast.Name(id="Optional" | "Union") | ast.Attribute(attr="Optional" | "Union"):
                    return each(*items)
        case ast.Name() | ast.Attribute():
            dotted = ast.unparse(hint)
            bound = module.names.get(dotted)
            if isinstance(bound, ast.expr):  # another name for it
                return each(bound)
            return _imported(dotted, module)
    return []


def _imported(dotted: str, module: Module) -> list[str]:
    """Return the full name of what an import binds the beginning of a name to."""
    begin, rest = dotted, ""
    while begin:
        node = module.names.get(begin)
        if isinstance(node, ast.Import | ast.ImportFrom):
            alias = next(
                imported for imported in node.names if (imported.asname or imported.name) == begin
            )
            home = f"{absolute(node, module)}." if isinstance(node, ast.ImportFrom) else ""
            return [f"{home}{alias.name}{rest}"]
        begin, dot, last = begin.rpartition(".")
        rest = f"{dot}{last}{rest}"
    return []
