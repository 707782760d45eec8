"""Type hints as JSON Schemas, read from sources.

Supported are scalars, types of the standard library such as dates, containers, unions, `Literal`,
`Annotated` (see `constraints`), data classes (see `class_fields`) and aliases of these, in the
module, in modules beside the flow file and in modules of the same package. Every other hint means
"anything". `live_types` reads live functions.
It may return a more precise schema, but never a contradicting one.
"""

from __future__ import annotations

import ast
from importlib import import_module
from typing import Any

from flowengine.sdk.python_functions.class_fields import class_schema
from flowengine.sdk.python_functions.constants import (
    UNKNOWN,
    annotated,
    constant,
    constrained,
    words_of,
)
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
    Parameter,
    Schema,
    array,
    choices,
    fixed,
    mapping,
    union,
)
from flowengine.sdk.python_modules import parse

_OLD_NAMES = {"List": "list", "Dict": "dict", "Tuple": "tuple", "Set": "set"}
_TRANSPARENT = frozenset(
    {"Required", "NotRequired", "ReadOnly", "Final", "Awaitable", "SerializeAsAny"}
)
_PYDANTIC = frozenset({"pydantic", "pydantic.types", "pydantic.networks"})
"""Modules whose types are read from the live type, as no code of the program runs for that."""


class TypeHints:
    """Converts type hints to JSON Schemas, or `{}` for a hint without a JSON form.

    Args:
        reader: Reads the modules that names lead to.
        result: Whether of results. Types of the standard library are then "anything", because
            their values are written in one of the forms in which they are read.
    """

    def __init__(self, reader: ModuleReader, *, result: bool = False) -> None:
        self._reader = reader
        self._result = result
        self.records = ClassSchemas()
        """The classes that the schemas name. Its `tidied` completes a schema."""

    def schema(self, node: ast.AST | None, module: Module, depth: int = HOPS) -> Schema:
        """Return the JSON Schema of a hint."""
        if not self._reader.may_read() or depth == 0:
            return {}
        match node:
            case ast.Constant(value=None):
                return dict(SCALARS["None"])
            case ast.Constant(value=str(text)):
                return self._quoted(text, module, depth - 1)
            case ast.Name(id=name):
                return self._named(name, module, depth - 1)
            case ast.Attribute(attr=name):
                return _known(name) or self._of_library(node, module)
            case ast.Call():
                return self._made(node, module, depth - 1)
            case ast.BinOp(op=ast.BitOr(), left=left, right=right):
                return self._union([left, right], module, depth - 1)
            case ast.Subscript(value=generic, slice=ast.Tuple(elts=items)):
                return self._generic(generic, items, module, depth - 1)
            case ast.Subscript(value=generic, slice=item):
                return self._generic(generic, [item], module, depth - 1)
        return {}

    def others(self, hint: ast.AST | None, module: Module) -> tuple[list[Parameter], Schema | None]:
        """Return the parameters that `**kwargs` makes, and the schema of the other values."""
        if isinstance(hint, ast.Constant) and isinstance(hint.value, str):
            hint = ast.parse(hint.value, mode="eval").body
        if not isinstance(hint, ast.Subscript) or original(hint.value, module) != "Unpack":
            return [], self.schema(hint, module)
        fields = self.records.fields(self.schema(hint.slice, module))
        return fields, None if fields else {}

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
                there = ast.Name(name)
                return _known(original(there, module)) or self._of_library(there, module)
            case ast.expr():
                return self.schema(value.node, value.module, depth)
        return {}

    def _of_library(
        self, name: ast.AST, module: Module, words: dict[str, Any] | None = None
    ) -> Schema:
        """Return the schema of a type of the standard library or pydantic.

        Args:
            name: Its name in the source.
            module: The module that contains it.
            words: The arguments of the call that makes it: `condecimal(max_digits=4)`.
        """
        full = qualified(name, module)
        home, _, last = full.rpartition(".")
        if home not in _PYDANTIC:
            return {} if self._result or words is not None else dict(LIBRARY.get(full, {}))
        from flowengine.sdk.python_functions.live_types import schema_of

        type: Any = getattr(import_module(home), last, None)
        try:
            type = type if words is None else type(**words)
            # Results of other types are written in one of the forms in which they are read.
            base = getattr(type, "__origin__", None)
            schema = {} if self._result and base not in {str, int, float} else schema_of(type)
        except Exception:  # such as arguments that it does not have, or a package that is missing
            return {}
        return {} if "properties" in schema else schema  # a class to inherit from

    def _made(self, call: ast.Call, module: Module, depth: int) -> Schema:
        """Return the schema of a type that a call makes: `conint(ge=1)`, `NewType("Id", int)`."""
        name = original(call.func, module)
        if name == "NewType" and len(call.args) == 2:
            return self.schema(call.args[1], module, depth)
        words = words_of(call, module, self._reader)
        if name in {"conlist", "conset", "confrozenset"} and call.args:
            items = self.schema(call.args[0], module, depth)
            return constrained(array(items, unique=name != "conlist"), words)
        return self._of_library(call.func, module, words)

    def _generic(
        self, generic: ast.expr, items: list[ast.expr], module: Module, depth: int
    ) -> Schema:
        name = original(generic, module)
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
        return self.schema(generic, module, depth)  # perhaps a generic class

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
