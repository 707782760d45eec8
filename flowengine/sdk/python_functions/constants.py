"""Constants and constraints, read from source."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from flowengine.sdk.python_functions.modules import (
    HOPS,
    BoundValue,
    Module,
    ModuleReader,
    absolute,
    original,
)
from flowengine.sdk.python_functions.schema_forms import DECIMAL, SCALARS, Schema, is_plain

# Values of constants, read from source: literals, names, attributes of classes and modules.

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
    if not reader.may_read():
        return UNKNOWN
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


# Constraints in `Annotated[…]` and `Field(…)`, read from source.
#
# A constraint that cannot be read is left out: the schema then allows more, and the function
# checks the value itself.

_BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
_LENGTHS = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}
_ONE_WORD = {
    "Ge": "ge",
    "Gt": "gt",
    "Le": "le",
    "Lt": "lt",
    "MultipleOf": "multiple_of",
    "MinLen": "min_length",
    "MaxLen": "max_length",
}
"""Classes of `annotated_types` with one argument."""
_MANY_WORDS = frozenset({"Field", "StringConstraints", "Interval", "Len"})
_REPLACING = frozenset(
    {"PlainValidator", "WithJsonSchema", "GetPydanticSchema", "InstanceOf"}
    | {"PlainSerializer", "WrapSerializer"}
)
"""Annotations of pydantic that change which values are valid, or how they are written."""
_DECIDING = frozenset({"json_schema_input_type", "discriminator"})
"""Arguments of annotations by which other code chooses the schema."""
_TRANSFORMING = frozenset({"AfterValidator", "WrapValidator"})
_HOOKS = frozenset({"__get_pydantic_core_schema__", "__get_pydantic_json_schema__"})


def annotated(
    schema: Schema, notes: Iterable[ast.AST], module: Module, reader: ModuleReader
) -> Schema:
    """Return a schema with the effects of the annotations in `Annotated`.

    Args:
        schema: The schema of the annotated hint.
        notes: The annotations.
        module: The module that contains them.
        reader: Reads the modules that names lead to.
    """
    of_input = True
    for note in notes:
        node, home = _resolved(note, module, reader)
        name = original(node.func, home) if isinstance(node, ast.Call) else ""
        if name in _TRANSFORMING:
            of_input = False  # what follows constrains the transformed value
        if name in _REPLACING or _has_hooks(node, home, reader):
            return {}
        changed = _with_note(schema, node, name, home, reader)
        if of_input:
            schema = changed
        elif "description" in changed:
            schema = {**schema, "description": changed["description"]}
    return schema


def _resolved(note: ast.AST, module: Module, reader: ModuleReader) -> BoundValue:
    """Return the annotation that a name stands for."""
    for _ in range(HOPS):
        bound = named(note, module, reader)
        if bound is None or not isinstance(bound.node, ast.expr | ast.ClassDef):
            break
        note, module = bound
    return BoundValue(note, module)


def _has_hooks(node: ast.AST, module: Module, reader: ModuleReader) -> bool:
    """Return whether code of the annotation's class determines the schema."""
    if isinstance(node, ast.Call):
        if any(item.arg in _DECIDING for item in node.keywords):
            return True
        node = _resolved(node.func, module, reader).node
    body = node.body if isinstance(node, ast.ClassDef) else []
    return any(isinstance(item, ast.FunctionDef) and item.name in _HOOKS for item in body)


def _with_note(
    schema: Schema, node: ast.AST, name: str, module: Module, reader: ModuleReader
) -> Schema:
    """Return a schema with the effect of one annotation."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return {**schema, "description": node.value}
    if not isinstance(node, ast.Call):
        return schema
    values = [constant(item, module, reader) for item in node.args]
    words = words_of(node, module, reader)
    if name == "Doc" and values and isinstance(values[0], str):
        return {**schema, "description": values[0]}
    if name in _ONE_WORD and values:
        return constrained(schema, {_ONE_WORD[name]: values[0]})
    if name == "Len":
        words = {**dict(zip(("min_length", "max_length"), values, strict=False)), **words}
    if name in _ONE_WORD or name in _MANY_WORDS:
        return constrained(schema, words)
    return schema


def words_of(call: ast.Call, module: Module, reader: ModuleReader) -> dict[str, Any]:
    """Return the keyword arguments of a call that are known."""
    words = {}
    for item in call.keywords:
        value = item.value
        if isinstance(value, ast.Call) and original(value.func, module) == "compile" and value.args:
            value = value.args[0]  # of a pattern
        known = constant(value, module, reader)
        if item.arg is not None and known is not UNKNOWN:
            words[item.arg] = known
    return words


def constrained(schema: Schema, words: Mapping[str, Any]) -> Schema:
    """Return a schema with the constraints of pydantic's `Field(…)`, as far as they are known.

    Args:
        schema: The schema of the type.
        words: The arguments of `Field`, without its default.
    """
    if schema == DECIMAL and (bounds := {key: words[key] for key in words.keys() & _BOUNDS}):
        number = constrained(SCALARS["float"], bounds)
        rest = {key: value for key, value in words.items() if key not in bounds}
        return constrained({"anyOf": [number, dict(SCALARS["str"])]}, rest)
    changed = dict(schema)
    types = schema.get("type", ())
    kinds = {types} if isinstance(types, str) else {str(kind) for kind in types} - {"null"}
    kind = kinds.pop() if len(kinds) == 1 else ""
    kind = "bytes" if "contentEncoding" in schema else kind  # their length is not that of the text
    for word, value in words.items():
        if word == "description" and isinstance(value, str):
            changed["description"] = inspect.cleandoc(value)
        elif word == "examples" and isinstance(value, list) and is_plain(value):
            changed["examples"] = value
        elif word in _BOUNDS and kind in {"integer", "number"} and type(value) in {int, float}:
            changed[_BOUNDS[word]] = value
        elif word == "pattern" and kind == "string" and isinstance(value, str):
            changed["pattern"] = value
        elif word in {"min_length", "max_length"} and kind in _LENGTHS and type(value) is int:
            changed[_LENGTHS[kind][word == "max_length"]] = value
    return changed
