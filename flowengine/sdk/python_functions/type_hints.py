"""Type hints as JSON Schemas, read from sources.

Supported are scalars, types of the standard library such as dates, containers, unions, `Literal`,
`Annotated` (see `constraints`), data classes (see `class_fields`) and aliases of these, in the
module, in modules beside the flow file and in modules of the same package. Every other hint means
"anything". `live_types` reads live functions.
It may return a more precise schema, but never a contradicting one.
"""

from __future__ import annotations

import ast

from flowengine.sdk.python_functions.class_fields import class_schema
from flowengine.sdk.python_functions.constants import UNKNOWN, annotated, constant, constrained_type
from flowengine.sdk.python_functions.modules import (
    HOPS,
    Module,
    ModuleReader,
    original,
    qualified,
)
from flowengine.sdk.python_functions.schema_forms import (
    DICTS,
    LIBRARY,
    LISTS,
    SCALARS,
    SETS,
    ClassSchemas,
    Schema,
    array,
    choices,
    fixed,
    mapping,
    union,
)
from flowengine.sdk.python_modules import parse

_OLD_NAMES = {"List": "list", "Dict": "dict", "Tuple": "tuple", "Set": "set"}
_TRANSPARENT = frozenset({"Required", "NotRequired", "ReadOnly", "Final", "Awaitable"})


class TypeHints:
    """Converts type hints to JSON Schemas, or `{}` for a hint without a JSON form.

    Args:
        reader: Reads the modules that names lead to.
        result: Whether of results. Types of the standard library are then "anything", because
            their values are written in one of the forms in which they are read.
    """

    def __init__(self, reader: ModuleReader, *, result: bool = False) -> None:
        self._reader = reader
        self._library = {} if result else LIBRARY
        self.records = ClassSchemas()
        """The classes that the schemas name. Its `tidied` completes a schema."""

    def schema(self, node: ast.AST | None, module: Module, depth: int = HOPS) -> Schema:
        """Return the JSON Schema of a hint."""
        if depth == 0:
            return {}
        match node:
            case ast.Constant(value=None):
                return dict(SCALARS["None"])
            case ast.Constant(value=str(text)):
                return self._quoted(text, module, depth - 1)
            case ast.Name(id=name):
                return self._named(name, module, depth - 1)
            case ast.Attribute(attr=name):
                return (
                    constrained_type(name, None, module, self._reader)
                    or _known(name)
                    or dict(self._library.get(qualified(node, module), {}))
                )
            case ast.Call(func=function):
                return self._made(node, original(function, module), module, depth - 1)
            case ast.BinOp(op=ast.BitOr(), left=left, right=right):
                return self._union([left, right], module, depth - 1)
            case ast.Subscript(value=generic, slice=ast.Tuple(elts=items)):
                return self._generic(original(generic, module), items, module, depth - 1)
            case ast.Subscript(value=generic, slice=item):
                return self._generic(original(generic, module), [item], module, depth - 1)
        return {}

    def _quoted(self, text: str, module: Module, depth: int) -> Schema:
        try:
            return self.schema(parse(text.strip(), mode="eval").body, module, depth)
        except SyntaxError:
            return {}

    def _named(self, name: str, module: Module, depth: int) -> Schema:
        """Return the schema of a name, which is bound in a module or built in."""
        value = self._reader.find(module, name, near=True)
        if value is None:
            return _known(name)
        match value.node:
            case ast.ClassDef() as node:
                home = value.module
                return self.records.refer(
                    node,
                    node.name,
                    lambda: class_schema(node, home, self._reader, self.schema),
                )
            case ast.ImportFrom():
                there = original(ast.Name(name), module)
                return (
                    constrained_type(there, None, module, self._reader)
                    or _known(there)
                    or dict(self._library.get(qualified(ast.Name(name), module), {}))
                )
            case ast.expr():
                return self.schema(value.node, value.module, depth)
        return {}

    def _made(self, call: ast.Call, name: str, module: Module, depth: int) -> Schema:
        """Return the schema of a type that a call makes: `conint(ge=1)`, `NewType("Id", int)`."""
        if name == "NewType" and len(call.args) == 2:
            return self.schema(call.args[1], module, depth)
        made = constrained_type(name, call, module, self._reader)
        return {} if made is None else made

    def _generic(self, name: str, items: list[ast.expr], module: Module, depth: int) -> Schema:
        name = _OLD_NAMES.get(name, name)
        if name in LISTS:
            return array(self.schema(items[0], module, depth))
        if name in SETS:
            return array(self.schema(items[0], module, depth), unique=True)
        if name in DICTS:
            return mapping(self.schema(items[-1], module, depth))
        if name in _TRANSPARENT:
            return self.schema(items[0], module, depth)
        match name:
            case "Annotated":
                return self._annotated(items, module, depth)
            case "tuple":
                return self._tuple(items, module, depth)
            case "Optional":
                return self._union([items[0], ast.Constant(None)], module, depth)
            case "Union":
                return self._union(items, module, depth)
            case "Literal":
                values = [constant(item, module, self._reader) for item in items]
                return {} if UNKNOWN in values else choices(values)
        return self._named(name, module, depth)  # perhaps a generic class

    def _tuple(self, items: list[ast.expr], module: Module, depth: int) -> Schema:
        match items:
            case [item, ast.Constant(value=end)] if end is ...:
                return array(self.schema(item, module, depth))
        return fixed([self.schema(item, module, depth) for item in items])

    def _annotated(self, items: list[ast.expr], module: Module, depth: int) -> Schema:
        """Return the schema of the annotated hint, with a text beside it as its description."""
        schema = self.schema(items[0], module, depth)
        return annotated(schema, items[1:], module, self._reader)

    def _union(self, items: list[ast.expr], module: Module, depth: int) -> Schema:
        return union([self.schema(item, module, depth) for item in items])


def _known(name: str) -> Schema:
    name = _OLD_NAMES.get(name, name)
    if name in LISTS or name == "tuple":
        return array({})
    if name in SETS:
        return array({}, unique=True)
    if name in DICTS:
        return mapping({})
    return dict(SCALARS.get(name, {}))
