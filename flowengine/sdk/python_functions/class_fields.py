"""JSON Schemas of data classes, read from source: TypedDicts, dataclasses, enums, models.

Effects of a class's code, such as a validator or a computed default, are not read. What cannot be
read is left out, so that the schema allows more than the class. If the names of the fields are not
known, it allows every object.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from flowengine.sdk.python_functions.constants import (
    UNKNOWN,
    assignments,
    constant,
    constrained,
    literal,
    words_of,
)
from flowengine.sdk.python_functions.modules import (
    Module,
    ModuleReader,
    absolute,
    last_name,
    original,
)
from flowengine.sdk.python_functions.schema_forms import (
    COMPUTED,
    SCALARS,
    Schema,
    choices,
    is_plain,
    record,
)

Kind = Literal["typed_dict", "dataclass", "enum", "model"]
_ENUMS = frozenset({"Enum", "IntEnum", "StrEnum"})
_MIXED_IN = frozenset({"str", "int", "float"})
_RENAMING = frozenset(
    {"alias", "validation_alias", "serialization_alias", "alias_generator", "alias_priority"}
)
"""Settings of fields and models that change the names of fields."""
_HOOK = "__get_pydantic"
_SERIALIZERS = frozenset({"field_serializer", "model_serializer"})
_OTHER_BASES = frozenset({"Generic", "Protocol", "ABC", "object"})
"""Base classes without fields."""


@dataclass
class ClassFields:
    """The fields of a class, including inherited ones."""

    kind: Kind
    properties: Schema = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    closed: bool = False
    renamed: bool = False
    """Whether fields have other names in data, which only the program knows."""

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
        schema = _members(node, module, reader)
        return {"description": text, **schema} if text and schema else schema
    fields = _fields(node, module, reader, hint, ())
    if fields is None:
        return {}
    if fields.renamed:
        return {"description": text, "type": "object"} if text else {"type": "object"}
    return record(fields.properties, fields.required, description=text, closed=fields.closed)


def _fields(
    node: ast.ClassDef,
    module: Module,
    reader: ModuleReader,
    hint: Hint,
    below: tuple[ast.ClassDef, ...],
) -> ClassFields | None:
    if node in below or _has_hook(node):
        return None
    others = [base for base in node.bases if _name_of_base(base, module) not in _OTHER_BASES]
    bases = [_base(base, module, reader, hint, (*below, node)) for base in others]
    known = [base for base in bases if base is not None]
    is_dataclass = _is_dataclass(node, module)
    if not (known or is_dataclass):
        return None
    kind: Kind = "dataclass" if is_dataclass else known[0].kind
    if any(base.kind != kind for base in known):
        return None
    fields = ClassFields(kind)
    for base in reversed(known):
        for name, schema in base.properties.items():
            fields.put(name, schema, name in base.required)
        fields.closed |= base.closed
        fields.renamed |= base.renamed
    settings = dict(_settings(node, module, reader)) if kind == "model" else {}
    fields.renamed |= not _RENAMING.isdisjoint(settings)
    fields.closed |= settings.get("extra") == "forbid"
    if len(known) < len(bases):
        fields.closed = False  # a base class that cannot be read can have further fields
    if kind == "dataclass" and not is_dataclass:
        return fields  # attributes that a plain class adds to an enum are not fields
    for name, annotation, default in _declared(node):
        schema, required = _field(kind, node, (annotation, default), module, reader, hint)
        fields.put(name, schema, required)
        fields.renamed |= _is_renamed(annotation, default)
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
    base = base.value if isinstance(base, ast.Subscript) else base
    name = original(base, module)
    if name == "TypedDict":
        return ClassFields("typed_dict")
    if name == "BaseModel" and _home(base, module) == "pydantic":
        return ClassFields("model")
    base_class = reader.find(module, base.id, near=True) if isinstance(base, ast.Name) else None
    if base_class is None or not isinstance(base_class.node, ast.ClassDef):
        return None
    return _fields(base_class.node, base_class.module, reader, hint, below)


def _name_of_base(base: ast.expr, module: Module) -> str:
    return original(base.value if isinstance(base, ast.Subscript) else base, module)


def _field(
    kind: Kind,
    node: ast.ClassDef,
    declared: tuple[ast.expr, ast.expr | None],
    module: Module,
    reader: ModuleReader,
    hint: Hint,
) -> tuple[Schema, bool]:
    """Return the schema of a field and whether it is required."""
    annotation, default = declared
    schema = dict(hint(annotation, module))
    if kind == "typed_dict":
        return schema, _is_required(annotation, _is_total(node))
    if isinstance(default, ast.Call):
        return called_field(schema, default, module, reader)
    return with_default(schema, default, module, reader), default is None


def _is_renamed(annotation: ast.expr, default: ast.expr | None) -> bool:
    calls = [node for part in (annotation, default) if part for node in ast.walk(part)]
    words = {item.arg for call in calls if isinstance(call, ast.Call) for item in call.keywords}
    return not _RENAMING.isdisjoint(words)


def called_field(
    schema: Schema, call: ast.Call, module: Module, reader: ModuleReader
) -> tuple[Schema, bool]:
    """Return the schema of a field with `field(…)` of dataclasses or `Field(…)` of pydantic.

    Args:
        schema: The schema of its type.
        call: The call that is its default.
        module: The module that contains it.
        reader: Reads the modules that names lead to.

    Returns:
        The schema with its default, and whether the field is required.
    """
    if original(call.func, module) not in {"field", "Field"} or len(call.args) > 1:
        return schema, False  # the default is computed
    words = {item.arg: item.value for item in call.keywords if item.arg is not None}
    default = call.args[0] if call.args else words.get("default")
    if isinstance(default, ast.Constant) and default.value is ...:
        default = None
    schema = constrained(schema, words_of(call, module, reader))
    required = default is None and "default_factory" not in words
    return with_default(schema, default, module, reader), required


def with_default(
    schema: Schema, default: ast.expr | None, module: Module, reader: ModuleReader
) -> Schema:
    """Return the schema of a field with its default, if the default has a JSON form."""
    value = UNKNOWN if default is None else constant(default, module, reader)
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


def _has_hook(node: ast.ClassDef) -> bool:
    """Return whether code of a class determines its schema, or the form of its values."""
    methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
    decorators = {last_name(mark) for method in methods for mark in method.decorator_list}
    return any(method.name.startswith(_HOOK) for method in methods) or bool(
        decorators & _SERIALIZERS
    )


def _settings(
    node: ast.ClassDef, module: Module, reader: ModuleReader
) -> Iterator[tuple[str, Any]]:
    """Yield the settings of a model. If they cannot be read, they may rename its fields."""
    yield from ((item.arg or "", constant(item.value, module, reader)) for item in node.keywords)
    for statement in node.body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id="model_config")], value=config)
                | ast.AnnAssign(target=ast.Name(id="model_config"), value=ast.expr() as config)
            ):
                yield from _configured(config, module, reader)
            case ast.ClassDef(name="Config"):
                for name, value in assignments(statement):
                    yield name, constant(value, module, reader)


def _configured(
    config: ast.expr, module: Module, reader: ModuleReader
) -> Iterator[tuple[str, Any]]:
    if isinstance(config, ast.Name):
        bound = reader.find(module, config.id, near=True)
        if bound is not None and isinstance(bound.node, ast.Call | ast.Dict):
            config, module = bound.node, bound.module
    if isinstance(config, ast.Call) and all(item.arg for item in config.keywords):
        for item in config.keywords:
            yield str(item.arg), constant(item.value, module, reader)
    elif isinstance(config, ast.Dict) and all(config.keys):
        for key, value in zip(config.keys, config.values, strict=True):
            yield str(literal(key or value)), constant(value, module, reader)
    else:
        yield "alias_generator", UNKNOWN


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


def _members(node: ast.ClassDef, module: Module, reader: ModuleReader) -> Schema:
    """Return the schema of an enum, with as much of its members as can be read."""
    values = []
    for name, given in assignments(node):
        if not name.startswith("_"):
            value = constant(given, module, reader)
            if value is UNKNOWN or type(value) not in {str, int, float, bool}:
                bases = [original(base, module) for base in node.bases]
                mixed = {"StrEnum": "str", "IntEnum": "int"}
                known = [mixed.get(base, base) for base in bases]
                return next((dict(SCALARS[base]) for base in known if base in _MIXED_IN), {})
            values.append(value)
    return choices(values) if values else {}
