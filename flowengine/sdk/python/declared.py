"""Python objects that represent the declarations of a module, made without running it.

A hint becomes the type that it names, a class with fields becomes a class with the same fields, a
constant becomes its value, and a function becomes one with the same parameters and no body.
`live_signature` and `live_types` read these as they read the program's own. Only types and
annotations of Python and pydantic are called. Everything else that only running the module shows is
unknown: a hint then allows anything, and a constraint or default is left out.
"""

from __future__ import annotations

import ast
import enum
import sys
import types
import typing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import count
from typing import Any, ForwardRef, Literal

from flowengine.sdk.python.declared_classes import (
    RENAMING,
    SCALARS,
    UNKNOWN,
    nothing,
    unread,
    with_fields,
    wrapper,
)
from flowengine.sdk.python.imported_modules import parse
from flowengine.sdk.python.live_types import annotated
from flowengine.sdk.python.schema_forms import Unread
from flowengine.sdk.python.source_modules import (
    LIBRARIES,
    BoundValue,
    Module,
    ModuleReader,
    absolute,
    last_name,
    public_part,
)

_CALLED = frozenset(
    {"Field", "field", "ConfigDict", "StringConstraints", "Strict", "UrlConstraints", "Doc"}
    | {"conint", "confloat", "constr", "conbytes", "condecimal", "condate"}
    | {"conlist", "conset", "confrozenset"}
    | {"Ge", "Gt", "Le", "Lt", "Interval", "Len", "MinLen", "MaxLen", "MultipleOf", "Predicate"}
    | {"AfterValidator", "BeforeValidator", "PlainValidator", "WrapValidator"}
    | {"Discriminator", "Tag", "NewType", "TypeVar", "compile"}
)
"""What is called of `LIBRARIES`."""
_DECIDING = frozenset({"GetPydanticSchema", "PlainSerializer", "WrapSerializer", "WithJsonSchema"})
"""Notes by which the project decides the form of the values."""
_DEPTH = 32
"""Names and parts inside each other that are followed."""
_BUILT_IN = {kind.__name__: kind for kind in (*SCALARS, bytes, list, dict, tuple, set, frozenset,
                                              object, type)}  # fmt: skip
_numbers = count()


class Declarations:
    """Makes the objects that modules declare.

    Args:
        reader: Reads the modules that names lead to, and limits how much is read.
    """

    def __init__(self, reader: ModuleReader) -> None:
        self.reader = reader
        self._known: dict[int, tuple[Any, int]] = {}
        """Values of names and classes, with the number of parts that they were made of."""
        self._under_way: dict[int, str] = {}
        self._classes: set[Any] = set()
        self._depth = 0
        self._space = types.ModuleType(f"_declared_{next(_numbers)}")
        """Holds the classes that refer to each other."""

    @contextmanager
    def open(self) -> Iterator[None]:
        """Let classes in the block refer to each other."""
        sys.modules[self._space.__name__] = self._space
        try:
            yield
        finally:
            del sys.modules[self._space.__name__]

    # Types

    def hint(self, node: ast.AST, module: Module) -> Any:
        """Return the type that a hint names, or `Any`."""
        match node:
            case ast.Constant(value=None):
                return None
            case ast.Constant(value=str(text)):
                try:
                    return self.hint(parse(text.strip(), mode="eval").body, module)
                except SyntaxError:
                    return Any
        value = self.value(node, module)
        if value is UNKNOWN and isinstance(node, ast.Name | ast.Attribute):
            return unread("builtins", last_name(node))
        is_type = value is None or not isinstance(value, (*SCALARS, list, dict, tuple, Module))
        return value if is_type and value is not UNKNOWN else Any

    # Values

    def value(self, node: ast.AST, module: Module) -> Any:
        """Return the value of an expression, or `UNKNOWN`."""
        if self._depth >= _DEPTH or not self.reader.may_read():
            return UNKNOWN
        self._depth += 1
        try:
            return self._value(node, module)
        finally:
            self._depth -= 1

    def _value(self, node: ast.AST, module: Module) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._named(name, module)
            case ast.Attribute(value=owner, attr=name):
                return self._attribute(node, owner, name, module)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return -value
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                try:
                    return self.hint(left, module) | self.hint(right, module)
                except TypeError:
                    return Any
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                items = [self.value(part, module) for part in parts]
                made = items if isinstance(node, ast.List) else tuple(items)
                return UNKNOWN if any(item is UNKNOWN for item in items) else made
            case ast.Dict(keys=keys, values=parts) if all(keys):
                names = [self.value(key or node, module) for key in keys]
                items = [self.value(part, module) for part in parts]
                is_known = all(type(name) is str for name in names)
                is_known &= all(item is not UNKNOWN for item in items)
                return dict(zip(names, items, strict=True)) if is_known else UNKNOWN
            case ast.Subscript(value=generic, slice=inner):
                items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
                return self._subscript(self.value(generic, module), items, module)
            case ast.Call():
                return self._call(self.value(node.func, module), node, module)
        return UNKNOWN

    def _named(self, name: str, module: Module) -> Any:
        bound = self.reader.find(module, name, near=True)
        if bound is not None:
            return self._bound(bound, name)
        return _BUILT_IN.get(name, UNKNOWN)

    def _bound(self, bound: BoundValue, name: str) -> Any:
        """Return the value of a name, made once. Each use costs as much as the first."""
        node, home = bound
        known = self._known.get(id(node))
        if known is not None and isinstance(node, ast.expr):
            return known[0] if self.reader.may_read(known[1]) else UNKNOWN
        match node:
            case ast.ClassDef():
                return self._class(node, home) if known is None else known[0]
            case ast.Import(names=names):
                full = next(alias.name for alias in names if (alias.asname or alias.name) == name)
                return self._module(full, home)
            case ast.ImportFrom():
                return self._imported(node, name, home)
            case ast.expr() if id(node) not in home.rebound and id(node) not in self._under_way:
                self._under_way[id(node)] = ""
                before = self.reader.left
                try:
                    value = self.value(node, home)
                finally:
                    del self._under_way[id(node)]
                self._known[id(node)] = (value, before - self.reader.left)
                return value
        return UNKNOWN

    def _module(self, full: str, home: Module) -> Any:
        if self.reader.is_near(full, home):
            return self.reader.module(full) or UNKNOWN
        if full in LIBRARIES:
            return import_module(full)
        return unread(full.rpartition(".")[0] or "builtins", full.rpartition(".")[2])

    def _imported(self, node: ast.ImportFrom, name: str, home: Module) -> Any:
        """Return what `from … import …` binds, if the other module's source does not show it."""
        alias = next(alias for alias in node.names if (alias.asname or alias.name) == name)
        package = absolute(node, home)
        if self.reader.is_near(package, home):
            return self.reader.module(f"{package}.{alias.name}") or unread(package, alias.name)
        if f"{package}.{alias.name}" in LIBRARIES:
            return import_module(f"{package}.{alias.name}")
        if package in LIBRARIES:
            return public_part(import_module(package), alias.name, UNKNOWN)
        return unread(package, alias.name)

    def _attribute(self, node: ast.Attribute, owner: ast.expr, name: str, module: Module) -> Any:
        dotted = ast.unparse(node)
        if isinstance(module.names.get(dotted), ast.Import):  # `import package.module`
            return self._module(dotted, module)
        inner = self.value(owner, module)
        if isinstance(inner, Module):
            found = self.reader.find(inner, name, near=True)
            return UNKNOWN if found is None else self._bound(found, name)
        if isinstance(inner, types.ModuleType):
            return public_part(inner, name, UNKNOWN)
        if isinstance(inner, type) and issubclass(inner, enum.Enum):
            return inner.__members__.get(name, UNKNOWN)
        if isinstance(inner, type) and issubclass(inner, Unread):
            return unread(f"{inner.__module__}.{inner.__qualname__}", name)
        return UNKNOWN

    def _subscript(self, generic: Any, items: Sequence[ast.expr], module: Module) -> Any:
        """Return a type with the types in its brackets."""
        if generic is UNKNOWN or (isinstance(generic, type) and issubclass(generic, Unread)):
            return Any
        if generic is typing.Annotated:
            return self._annotated(items, module)
        read = self.value if generic is Literal else self._item
        inner = tuple(read(item, module) for item in items)
        try:
            return Any if UNKNOWN in inner else generic[inner[0] if len(inner) == 1 else inner]
        except Exception:  # what these types do not allow in brackets
            return Any

    def _item(self, node: ast.expr, module: Module) -> Any:
        if isinstance(node, ast.List):  # the parameters of `Callable`
            return [self.hint(part, module) for part in node.elts]
        return UNKNOWN if isinstance(node, ast.Starred) else self.hint(node, module)

    def _annotated(self, items: Sequence[ast.expr], module: Module) -> Any:
        """Return a hint with its notes, or `Any` if code of the project validates its values."""
        base, notes = self.hint(items[0], module), []
        for item in items[1:]:
            note = self.value(item, module)
            if getattr(note, "is_hooked", False):
                return Any
            if note is not UNKNOWN and not isinstance(note, type):
                notes.append(note)
        return annotated(base, *notes) if notes else base

    def _call(self, function: Any, node: ast.Call, module: Module) -> Any:
        """Call a function of a library with the known arguments."""
        name = getattr(function, "__name__", "")
        home = str(getattr(function, "__module__", "")).partition(".")[0]
        if getattr(function, "is_hooked", False):
            return function
        if home not in LIBRARIES or name not in _CALLED | _DECIDING:
            return UNKNOWN
        given = [self.value(argument, module) for argument in node.args]
        words = self._words(node.keywords, module)
        unknown = {word for word, value in words.items() if value is UNKNOWN}
        if name in _DECIDING or unknown & {"", "json_schema_input_type", *RENAMING}:
            return unread(home, name, is_hooked=True)
        words = {word: value for word, value in words.items() if value is not UNKNOWN}
        if name in {"Field", "field"} and UNKNOWN in given:
            given, words = [], {**words, "default_factory": nothing}
        elif name.endswith("Validator") or name == "Predicate":
            given = [wrapper if name.startswith("Wrap") else nothing]
            words.pop("func", None)
        try:
            return UNKNOWN if UNKNOWN in given else function(*given, **words)
        except Exception:  # such as arguments that it does not have
            return UNKNOWN

    def _words(self, keywords: Sequence[ast.keyword], module: Module) -> dict[str, Any]:
        words: dict[str, Any] = {}
        for word in keywords:
            value = UNKNOWN if word.arg is None else self.value(word.value, module)
            if isinstance(value, type) and issubclass(value, Unread):
                value = UNKNOWN
            if word.arg == "default_factory" or (word.arg == "default" and value is UNKNOWN):
                words["default_factory"] = nothing
            elif word.arg != "json_schema_extra":
                words[word.arg or ""] = value
        return words

    # Classes

    def _class(self, node: ast.ClassDef, home: Module) -> Any:
        """Return a class with the fields of another one, or one without any."""
        key = f"_{len(self._known)}_{node.name}"
        if id(node) in self._under_way:
            return ForwardRef(self._under_way[id(node)], module=self._space.__name__)
        self._under_way[id(node)] = key
        try:
            made = with_fields(node, home, self, self._classes)
        except Exception:  # such as bases that cannot be combined, or names that are not known
            made = unread(home.name, node.name)
        finally:
            del self._under_way[id(node)]
        self._known[id(node)] = (made, 1)
        if isinstance(made, type):
            self._classes.add(made)
            setattr(self._space, key, made)
        return made
