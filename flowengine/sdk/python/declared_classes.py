"""Classes with the fields of declared ones: models, dataclasses, TypedDicts, enumerations.

They are made without the code of the class, such as its methods. Parts that cannot be read are left
out, so that they allow more.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import types
import typing
import warnings
from collections.abc import Callable, Container, Sequence
from typing import Any, Protocol

from flowengine.sdk.python.schema_forms import Unread
from flowengine.sdk.python.source_modules import Module, last_name

UNKNOWN: Any = object()
"""A value that only running the code shows."""
SCALARS = (str, int, float, bool)
RENAMING = frozenset({"alias", "validation_alias", "serialization_alias", "alias_generator"})
"""Settings of fields and models that change the names of fields."""
_SERIALIZERS = frozenset({"field_serializer", "model_serializer"})
_FIELDS = frozenset({"BaseModel", "RootModel", "TypedDict", "NamedTuple"})
_WITHOUT = frozenset({"Generic", "Protocol", "ABC"})
_ENUMS = (enum.Enum, enum.IntEnum, enum.StrEnum)

# Pydantic warns about the program's own class when the program is run.
warnings.filterwarnings("ignore", "Field name .* shadows an attribute in parent", module="types")


class Reader(Protocol):
    """Reads the expressions of a module."""

    def value(self, node: ast.AST, module: Module) -> Any:
        """Return the value of an expression, or `UNKNOWN`."""

    def hint(self, node: ast.AST, module: Module) -> Any:
        """Return the type that a hint names, or `Any`."""


def with_fields(node: ast.ClassDef, home: Module, read: Reader, declared: Container[Any]) -> Any:
    """Return a class with the fields of another one, or one without any.

    Args:
        node: The class.
        home: The module that contains it.
        read: Reads its hints and defaults.
        declared: The classes that were made before.

    Raises:
        ValueError: Its fields have other names in data, which only the program knows.
    """
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
    marks = {last_name(mark) for method in methods for mark in method.decorator_list}
    if any(method.name.startswith("__get_pydantic") for method in methods) or marks & _SERIALIZERS:
        return unread(home.name, node.name, is_hooked=True)
    bases = [read.value(base, home) for base in node.bases]
    known = [base for base in bases if _is_base(base, declared)]
    decorator = _dataclass(node, home, read)
    kinds = [base for base in known if _has_fields(base, declared)]
    if decorator is None and not kinds:
        return unread(home.name, node.name)
    if any(base in _ENUMS for base in kinds):
        return _enum(node, home, read, bases)
    is_model = any(hasattr(base, "model_config") for base in kinds)
    body: dict[str, Any] = {"__module__": home.name, "__qualname__": node.name}
    body["__doc__"] = ast.get_docstring(node)
    if is_model:
        closed = len(known) == len(bases)
        body["model_config"] = _settings(node, home, read, closed)
        body |= _computed(methods, home, read)
    annotations = body["__annotations__"] = {}
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name, default = statement.target.id, statement.value
            if name == "model_config":
                continue
            annotations[name] = read.hint(statement.annotation, home)
            if default is not None:
                value = read.value(default, home)
                if getattr(value, "is_hooked", False):
                    raise ValueError(name)
                if value is UNKNOWN:
                    value = _absent(is_model, decorator)
                body[name] = value
    words = {}
    if any(_origin(base)[1] == "TypedDict" or hasattr(base, "__total__") for base in kinds):
        total = [word.value for word in node.keywords if word.arg == "total"]
        words = {"total": read.value(total[0], home)} if total else {}
        body = {key: part for key, part in body.items() if key[:2] == "__"}
    made = types.new_class(node.name, tuple(known), words, lambda space: space.update(body))
    return made if decorator is None else decorator(made)


def _is_base(base: Any, declared: Container[Any]) -> bool:
    """Return whether a class can be derived from, here."""
    origin, name = _origin(base)
    if origin in declared:
        return not issubclass(origin, Unread)
    return name in _FIELDS | _WITHOUT or origin in (*_ENUMS, str, int, float)


def _has_fields(base: Any, declared: Container[Any]) -> bool:
    origin, name = _origin(base)
    return origin in declared or origin in _ENUMS or name in _FIELDS


def _origin(base: Any) -> tuple[Any, str]:
    """Return a class without its type arguments, and its name."""
    origin = typing.get_origin(base) or base
    return origin, getattr(origin, "__name__", "").partition("[")[0]


def _dataclass(node: ast.ClassDef, home: Module, read: Reader) -> Callable[[Any], Any] | None:
    """Return the decorator that makes a class a dataclass."""
    for mark in node.decorator_list:
        function = read.value(mark.func if isinstance(mark, ast.Call) else mark, home)
        if getattr(function, "__name__", "") == "dataclass":
            return function(kw_only=True)  # type: ignore[no-any-return]
    return None


def _enum(node: ast.ClassDef, home: Module, read: Reader, bases: Sequence[Any]) -> Any:
    """Return an enumeration, or the type of its members if they are not known."""
    members = [(n, read.value(v, home)) for n, v in assignments(node) if n[0] != "_"]
    if not members or any(type(value) not in SCALARS for _, value in members):
        mixed = [kind for base in bases for kind in (str, int, float) if issubclass(base, kind)]
        return mixed[0] if mixed else Any

    def fill(space: Any) -> None:
        space |= {"__module__": home.name, "__doc__": ast.get_docstring(node)}
        for name, value in members:
            space[name] = value

    return types.new_class(node.name, tuple(bases), {}, fill)


def _settings(node: ast.ClassDef, home: Module, read: Reader, closed: bool) -> dict[str, Any]:
    """Return the settings of a model. If they cannot be read, they may rename its fields."""
    from pydantic import ConfigDict

    given: dict[str, ast.expr] = {word.arg or "": word.value for word in node.keywords}
    settings: dict[str, Any] = {"protected_namespaces": ()}
    for statement in node.body:
        if isinstance(statement, ast.ClassDef) and statement.name == "Config":
            given |= dict(assignments(statement))
    for name, config in assignments(node):
        if name == "model_config":
            value = read.value(config, home)
            if not isinstance(value, dict):
                raise ValueError(name)
            settings |= value
    for name, expression in given.items():
        value = settings[name] = read.value(expression, home)
        if value is UNKNOWN and name in {"", *RENAMING}:
            raise ValueError(name)
    known = ConfigDict.__annotations__.keys() - {"json_schema_extra"}
    settings = {k: v for k, v in settings.items() if k in known and v is not UNKNOWN}
    if not closed:  # a base class that cannot be read can have further fields
        settings.pop("extra", None)
    return settings


def _computed(methods: Sequence[ast.FunctionDef], home: Module, read: Reader) -> dict[str, Any]:
    """Return the fields that a model computes."""
    fields = {}
    for method in methods:
        for mark in method.decorator_list:
            if last_name(mark) == "computed_field":
                from pydantic import computed_field

                words = mark.keywords if isinstance(mark, ast.Call) else []
                alias = [read.value(word.value, home) for word in words if word.arg == "alias"]
                if UNKNOWN in alias:
                    raise ValueError(method.name)
                returned = Any if method.returns is None else read.hint(method.returns, home)
                made = computed_field(return_type=returned, alias=alias[0] if alias else None)
                stub = synchronous()
                stub.__doc__ = ast.get_docstring(method)
                fields[method.name] = made(property(stub))
    return fields


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


def unread(module: str, name: str, *, is_hooked: bool = False) -> Any:
    """Return a class that stands for one whose fields are not known."""
    space = {"__module__": module, "__qualname__": name, "is_hooked": is_hooked}
    return type(name, (Unread,), space)


def _absent(is_model: bool, decorator: Any) -> Any:
    """Return the default of a field whose default is unknown."""
    if is_model:
        from pydantic import Field

        return Field(default_factory=nothing)
    return UNKNOWN if decorator is None else dataclasses.field(default_factory=nothing)


def nothing(value: Any = None) -> Any:
    """Take the place of a function of the project. It is not called."""


def wrapper(value: Any, handler: Any) -> Any:
    """Take the place of a function that calls another one. It is not called."""


def synchronous() -> Callable[..., Any]:
    """Return a function that takes the place of one of the project."""

    def made(*given: Any, **words: Any) -> None: ...

    return made
