"""JSON Schemas of data classes, read from source: TypedDicts, dataclasses, enums, models.

Effects of a class's code, such as a validator or a computed default, are not read. If such code
would change the schema, the class has no schema.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from flowengine.sdk.python_functions.modules import Module, ModuleReader, absolute, last_name
from flowengine.sdk.python_functions.schema_forms import COMPUTED, Schema, choices, record

Kind = Literal["typed_dict", "dataclass", "enum", "model"]
_ENUMS = frozenset({"Enum", "IntEnum", "StrEnum"})
_MIXED_IN = frozenset({"str", "int", "float"})
_BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
}
_LENGTHS = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}
_HARMLESS = frozenset({"frozen", "extra", "validate_assignment", "use_enum_values", "strict"})
"""Settings of a model that do not affect the names and types of its fields."""
_CHECKS = frozenset(
    {"field_validator", "model_validator", "property", "cached_property", "computed_field"}
    | {"classmethod", "staticmethod"}
)
UNKNOWN: Any = object()
"""A value that is only known by running the code."""


@dataclass
class ClassFields:
    """The fields of a class, including inherited ones."""

    kind: Kind
    properties: Schema = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    closed: bool = False

    def put(self, name: str, schema: Schema, required: bool) -> None:
        """Add a field, or replace an inherited one."""
        self.properties[name] = schema
        if name in self.required:
            self.required.remove(name)
        if required:
            self.required.append(name)


Hint = Callable[[ast.expr, Module], Schema]
"""Returns the schema of a type hint."""


def class_schema(node: ast.ClassDef, module: Module, reader: ModuleReader, hint: Hint) -> Schema:
    """Return the schema of a class, or `{}` if it is not a data class.

    Args:
        node: The class.
        module: The module that contains it.
        reader: Finds the classes that it derives from.
        hint: Returns the schema of a type hint.
    """
    described = ast.get_docstring(node)
    text = inspect.cleandoc(described) if described else None
    if _is_enum(node, module):
        schema = _members(node)
        return {"description": text, **schema} if text and schema else schema
    fields = _fields(node, module, reader, hint, ())
    if fields is None:
        return {}
    return record(fields.properties, fields.required, description=text, closed=fields.closed)


def original(name: ast.AST, module: Module) -> str:
    """Return the name of something in its own module, as for `from typing import List as L`."""
    node = module.names.get(name.id) if isinstance(name, ast.Name) else None
    if isinstance(node, ast.ImportFrom) and isinstance(name, ast.Name):
        for alias in node.names:
            if alias.asname == name.id:
                return alias.name
    return last_name(name)


def _fields(
    node: ast.ClassDef,
    module: Module,
    reader: ModuleReader,
    hint: Hint,
    below: tuple[ast.ClassDef, ...],
) -> ClassFields | None:
    if node in below:
        return None
    bases = [_base(base, module, reader, hint, (*below, node)) for base in node.bases]
    known = [base for base in bases if base is not None]
    is_dataclass = _is_dataclass(node, module)
    if len(known) < len(bases) or not (known or is_dataclass):
        return None
    kind: Kind = "dataclass" if is_dataclass else known[0].kind
    if any(base.kind != kind for base in known) or (kind == "model" and not _is_readable(node)):
        return None
    fields = ClassFields(kind)
    for base in reversed(known):
        for name, schema in base.properties.items():
            fields.put(name, schema, name in base.required)
        fields.closed |= base.closed
    fields.closed |= _forbids_more(node)
    if kind == "dataclass" and not is_dataclass:
        return fields  # attributes that a plain class adds to an enum are not fields
    for name, annotation, default in _declared(node):
        found = _field(kind, node, (annotation, default), module, hint)
        if found is None:
            return None
        fields.put(name, *found)
    for name, returned in _computed(node) if kind == "model" else ():
        schema = {} if returned is None else hint(returned, module)
        fields.put(name, {**schema, COMPUTED: True}, required=False)
    return fields


def _base(
    base: ast.expr,
    module: Module,
    reader: ModuleReader,
    hint: Hint,
    below: tuple[ast.ClassDef, ...],
) -> ClassFields | None:
    """Return the fields that a class inherits, or None if a base class cannot be read."""
    name = original(base, module)
    if name == "TypedDict":
        return ClassFields("typed_dict")
    if name == "BaseModel" and _home(base, module) == "pydantic":
        return ClassFields("model")
    base_class = reader.find(module, base.id, near=True) if isinstance(base, ast.Name) else None
    if base_class is None or not isinstance(base_class.node, ast.ClassDef):
        return None
    return _fields(base_class.node, base_class.module, reader, hint, below)


def _field(
    kind: Kind,
    node: ast.ClassDef,
    declared: tuple[ast.expr, ast.expr | None],
    module: Module,
    hint: Hint,
) -> tuple[Schema, bool] | None:
    """Return the schema of a field and whether it is required, or None if it cannot be known."""
    annotation, default = declared
    if _is_renamed(annotation) or (default is not None and _is_renamed(default)):
        return None
    schema = dict(hint(annotation, module))
    if kind == "typed_dict":
        return schema, _is_required(annotation, _is_total(node))
    if isinstance(default, ast.Call):
        return _called(kind, schema, default)
    return with_default(schema, default), default is None


def _is_renamed(node: ast.expr) -> bool:
    """Return whether `Field(...)` in a hint or default gives a field another name."""
    return any(
        isinstance(part, ast.Call)
        and last_name(part) == "Field"
        and any(str(word.arg).endswith("alias") for word in part.keywords)
        for part in ast.walk(node)
    )


def called_field(schema: Schema, call: ast.Call) -> tuple[Schema, bool]:
    """Return the schema of a parameter whose default is pydantic's `Field(...)`.

    Returns:
        The schema with its default, or `{}` if it cannot be known here, and whether the parameter
        is required.
    """
    return _called("model", schema, call) or ({}, False)


def _called(kind: Kind, schema: Schema, call: ast.Call) -> tuple[Schema, bool] | None:
    """Return the schema of a field with `field(...)` of dataclasses or `Field(...)` of pydantic."""
    name = last_name(call)
    words = {item.arg: item.value for item in call.keywords if item.arg is not None}
    if name != ("field" if kind == "dataclass" else "Field") or len(call.args) > 1:
        return schema, False  # the default is computed
    default = call.args[0] if call.args else words.pop("default", None)
    made = words.pop("default_factory", None) is not None
    if isinstance(default, ast.Constant) and default.value is ...:
        default = None
    if kind == "model":
        constrained = constrain(schema, words)
        if constrained is None:
            return None
        schema = constrained
    return with_default(schema, default), default is None and not made


def constrain(schema: Schema, words: dict[str, ast.expr]) -> Schema | None:
    """Return a schema with the constraints of pydantic's `Field(...)`, or None if unknown."""
    changed = dict(schema)
    for word, node in words.items():
        value = literal(node)
        if value is UNKNOWN:
            return None
        match word:
            case "description":
                changed["description"] = inspect.cleandoc(value)
            case "title" | "frozen" | "repr" | "exclude":
                pass
            case "examples":
                changed[word] = value
            case _ if not isinstance(schema.get("type"), str):
                return None  # only pydantic knows which member of a union it applies to
            case "min_length" | "max_length" if "contentEncoding" in schema:
                pass  # the size of the bytes, not of their text
            case "min_length" | "max_length" if schema["type"] in _LENGTHS:
                changed[_LENGTHS[schema["type"]][word == "max_length"]] = value
            case _ if word in _BOUNDS:
                changed[_BOUNDS[word]] = value
            case _:
                return None
    return changed


def literal(node: ast.expr) -> Any:
    """Return the value of a literal, or `UNKNOWN` for any other expression."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return UNKNOWN


def with_default(schema: Schema, default: ast.expr | None) -> Schema:
    """Return the schema of a field with its default, if the default has a JSON form."""
    from flowengine.sdk.python_functions.schema_forms import is_plain

    value = UNKNOWN if default is None else literal(default)
    return {**schema, "default": value} if value is not UNKNOWN and is_plain(value) else schema


def _declared(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr, ast.expr | None]]:
    for statement in node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                inner = annotation.value if isinstance(annotation, ast.Subscript) else annotation
                if last_name(inner) not in {"ClassVar", "KW_ONLY"} and not name.startswith("_"):
                    yield name, annotation, value


def _computed(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the computed fields of a model, by the names that they have in its results."""
    for method in (each for each in node.body if isinstance(each, ast.FunctionDef)):
        for call in (each for each in method.decorator_list if last_name(each) == "computed_field"):
            words = call.keywords if isinstance(call, ast.Call) else []
            named = [literal(item.value) for item in words if item.arg == "alias"]
            yield str(named[0]) if named else method.name, method.returns


def _is_required(annotation: ast.expr, total: bool) -> bool:
    name = last_name(annotation.value) if isinstance(annotation, ast.Subscript) else ""
    return name == "Required" or (total and name != "NotRequired")


def _is_total(node: ast.ClassDef) -> bool:
    return not any(
        item.arg == "total" and isinstance(item.value, ast.Constant) and not item.value.value
        for item in node.keywords
    )


def _is_dataclass(node: ast.ClassDef, module: Module) -> bool:
    return any(
        last_name(decorator) == "dataclass"
        and _home(decorator.func if isinstance(decorator, ast.Call) else decorator, module)
        == "dataclasses"
        for decorator in node.decorator_list
    )


def _is_readable(node: ast.ClassDef) -> bool:
    """Return whether the schema of a model follows from its fields."""
    for statement in node.body:
        match statement:
            case ast.FunctionDef(name=name, decorator_list=decorators):
                if (
                    name.startswith("__get_pydantic")
                    or not {last_name(decorator) for decorator in decorators} <= _CHECKS
                ):
                    return False
    words = {word for word, _ in _settings(node)}
    return words <= _HARMLESS and not node.decorator_list


def _settings(node: ast.ClassDef) -> Iterator[tuple[str | None, ast.expr]]:
    yield from ((item.arg, item.value) for item in node.keywords)
    for statement in node.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="model_config")], value=ast.Call(keywords=words)):
                yield from ((item.arg, item.value) for item in words)
            case ast.Assign(targets=[ast.Name(id="model_config")]) | ast.ClassDef(name="Config"):
                yield None, ast.Constant(None)


def _forbids_more(node: ast.ClassDef) -> bool:
    return any(word == "extra" and literal(value) == "forbid" for word, value in _settings(node))


def _home(name: ast.expr, module: Module) -> str:
    """Return the package that something is imported from, including `package.name`."""
    match name:
        case ast.Name(id=text):
            node = module.names.get(text)
            return absolute(node, module) if isinstance(node, ast.ImportFrom) else ""
        case ast.Attribute(value=ast.Name(id=text)):
            node = module.names.get(text)
            if isinstance(node, ast.Import):
                return next(
                    imported.name
                    for imported in node.names
                    if (imported.asname or imported.name) == text
                )
    return ""


def _is_enum(node: ast.ClassDef, module: Module) -> bool:
    names = [original(base, module) for base in node.bases]
    return any(name in _ENUMS for name in names) and set(names) <= _ENUMS | _MIXED_IN


def _members(node: ast.ClassDef) -> Schema:
    values = []
    for statement in node.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=given) if not name.startswith("_"):
                value = literal(given)
                if value is UNKNOWN or type(value) not in {str, int, float, bool}:
                    return {}
                values.append(value)
    return choices(values) if values else {}
