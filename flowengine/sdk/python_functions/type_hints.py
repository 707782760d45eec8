"""Type hints as JSON Schemas, read from sources.

`str`, `int`, `float`, `bool`, `None`, `list[...]`, `dict[str, ...]`, `tuple[...]`, unions,
`Literal`, `Annotated`, `TypedDict` and aliases of these, in the module, in those beside the flow
file and in those of the same package. Every other hint means "anything".
"""

from __future__ import annotations

import ast

from flowengine.kernel.graph.compiled import Plain
from flowengine.sdk.python_functions.modules import HOPS, Module, Reader, last_name

Schema = dict[str, Plain]

_NAMES: dict[str, Schema] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "None": {"type": "null"},
    "bytes": {"type": "string", "contentEncoding": "base64"},
}
_LISTS = frozenset(
    {
        "list",
        "List",
        "Sequence",
        "MutableSequence",
        "Iterable",
        "Collection",
    }
)
_DICTS = frozenset({"dict", "Dict", "Mapping", "MutableMapping"})
_TRANSPARENT = frozenset(
    {
        "Annotated",
        "Required",
        "NotRequired",
        "ReadOnly",
        "Final",
        "Awaitable",
        "Coroutine",
    }
)


class TypeHints:
    """Turns type hints into JSON Schemas; `{}` where a hint says nothing that JSON can."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._around: set[ast.ClassDef] = set()
        """TypedDicts being read: one inside itself is anything."""

    def schema(self, node: ast.AST | None, module: Module, depth: int = HOPS) -> Schema:
        """Return the JSON Schema of a hint."""
        if depth == 0:
            return {}
        match node:
            case ast.Constant(value=None):
                return dict(_NAMES["None"])
            case ast.Constant(value=str(text)):
                return self._quoted(text, module, depth - 1)
            case ast.Name(id=name):
                return self._named(name, module, depth - 1)
            case ast.Attribute(attr=name):
                return self._known(name)
            case ast.BinOp(op=ast.BitOr(), left=left, right=right):
                return self._union([left, right], module, depth - 1)
            case ast.Subscript(value=generic, slice=ast.Tuple(elts=items)):
                return self._generic(self._original(generic, module), items, module, depth - 1)
            case ast.Subscript(value=generic, slice=item):
                return self._generic(self._original(generic, module), [item], module, depth - 1)
        return {}

    def _quoted(self, text: str, module: Module, depth: int) -> Schema:
        try:
            return self.schema(ast.parse(text.strip(), mode="eval").body, module, depth)
        except SyntaxError:
            return {}

    def _original(self, generic: ast.AST, module: Module) -> str:
        """Return the name of a generic as its module has it: of `from typing import List as L`."""
        node = module.names.get(generic.id) if isinstance(generic, ast.Name) else None
        if isinstance(node, ast.ImportFrom) and isinstance(generic, ast.Name):
            for alias in node.names:
                if alias.asname == generic.id:
                    return alias.name
        return last_name(generic)

    def _known(self, name: str) -> Schema:
        if name in _LISTS or name in {"tuple", "Tuple"}:
            return {"type": "array"}
        if name in _DICTS:
            return {"type": "object"}
        return dict(_NAMES.get(name, {}))

    def _named(self, name: str, module: Module, depth: int) -> Schema:
        """A name: bound in a module (an alias, a TypedDict), or built in."""
        found = self._reader.find(module, name, near=True)
        if found is None:
            return self._known(name)
        match found.node:
            case ast.ClassDef():
                if found.node in self._around:
                    return {}
                self._around.add(found.node)
                schema = self._typed_dict(found.node, found.module, depth)
                self._around.remove(found.node)
                return schema
            case ast.ImportFrom():
                return self._known(self._original(ast.Name(name), module))
            case ast.expr():
                return self.schema(found.node, found.module, depth)
        return {}

    def _generic(self, name: str, items: list[ast.expr], module: Module, depth: int) -> Schema:
        if name in _LISTS:
            return self._list(self.schema(items[0], module, depth))
        if name in _DICTS:
            inner = self.schema(items[-1], module, depth)
            return {"type": "object", **({"additionalProperties": inner} if inner else {})}
        if name in _TRANSPARENT:
            return self._annotated(items, module, depth)
        match name:
            case "tuple" | "Tuple":
                return self._tuple(items, module, depth)
            case "Optional":
                return self._union([items[0], ast.Constant(None)], module, depth)
            case "Union":
                return self._union(items, module, depth)
            case "Literal":
                return _literal(items)
        return {}

    def _list(self, inner: Schema) -> Schema:
        return {"type": "array", "items": inner} if inner else {"type": "array"}

    def _tuple(self, items: list[ast.expr], module: Module, depth: int) -> Schema:
        match items:
            case [item, ast.Constant(value=end)] if end is ...:
                return self._list(self.schema(item, module, depth))
        return {
            "type": "array",
            "prefixItems": [self.schema(item, module, depth) for item in items],
            "minItems": len(items),
            "maxItems": len(items),
        }

    def _annotated(self, items: list[ast.expr], module: Module, depth: int) -> Schema:
        """The hint inside; a text beside it, as in `Annotated[int, "in cents"]`, describes it."""
        schema = self.schema(items[0], module, depth)
        for extra in items[1:]:
            if isinstance(extra, ast.Constant) and isinstance(extra.value, str):
                schema = {**schema, "description": extra.value}
        return schema

    def _union(self, items: list[ast.expr], module: Module, depth: int) -> Schema:
        schemas = [self.schema(item, module, depth) for item in items]
        if not all(schemas):
            return {}
        if all(schema.keys() == {"type"} for schema in schemas):
            types: list[Plain] = []
            for schema in schemas:
                types += schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
            return {"type": list(dict.fromkeys(types))}
        choices: list[Plain] = []
        for schema in schemas:
            choices += schema["anyOf"] if schema.keys() == {"anyOf"} else [schema]
        return {"anyOf": choices}

    def _typed_dict(self, node: ast.ClassDef, module: Module, depth: int) -> Schema:
        """A TypedDict with those it inherits from; of any other class nothing is known."""
        schema: Schema = {"type": "object", "properties": {}, "required": []}
        is_typed_dict = False
        for base in node.bases:
            if self._original(base, module) == "TypedDict":
                is_typed_dict = True
            elif isinstance(base, ast.Name):
                inherited = self._named(base.id, module, depth - 1)
                is_typed_dict |= inherited.get("type") == "object"
                schema["properties"].update(inherited.get("properties", {}))
                schema["required"] += inherited.get("required", [])
        if not is_typed_dict:
            return {}
        total = not any(
            item.arg == "total" and isinstance(item.value, ast.Constant) and not item.value.value
            for item in node.keywords
        )
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                name = field.target.id
                schema["properties"][name] = self.schema(field.annotation, module, depth - 1)
                if _is_required(field.annotation, total) and name not in schema["required"]:
                    schema["required"].append(name)
        if not schema["required"]:
            del schema["required"]
        return schema


def _is_required(annotation: ast.expr, total: bool) -> bool:
    name = last_name(annotation.value) if isinstance(annotation, ast.Subscript) else ""
    return name == "Required" or (total and name != "NotRequired")


def _literal(items: list[ast.expr]) -> Schema:
    values = [item.value for item in items if isinstance(item, ast.Constant)]
    if len(values) != len(items):
        return {}
    if all(isinstance(value, str) for value in values):
        return {"type": "string", "enum": values}
    return {"enum": values}
