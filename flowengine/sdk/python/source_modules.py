"""Python modules read from their sources: what their names are bound to, through imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

from flowengine.sdk.python.imported_modules import find_module, is_beside, parse
from flowengine.sdk.steps.step_kind import SignatureError

HOPS = 16
"""Maximum number of imports followed, and of nested hints. More of either is a cycle."""
MOST_PARTS = 20_000
"""Maximum number of parts of hints and values that are read for one function. Names that stand for
many others several times over have no end otherwise."""

LIBRARIES = frozenset(
    {"abc", "annotated_types", "collections", "collections.abc", "dataclasses", "datetime"}
    | {"decimal", "enum", "ipaddress", "pathlib", "pydantic", "pydantic.dataclasses"}
    | {"pydantic.fields", "pydantic.functional_serializers", "pydantic.functional_validators"}
    | {"pydantic.networks", "pydantic.types", "re", "typing", "typing_extensions", "uuid"}
)
"""Modules whose objects are used themselves."""


class Module:
    """A module's source, and the values of its top-level names."""

    def __init__(self, name: str, path: str | None, is_package: bool, tree: ast.Module | None):
        self.name = name
        self.path = path
        self.package = name if is_package else name.rpartition(".")[0]
        self.tree = tree
        self.names: dict[str, ast.AST] = {}
        self.open = False
        """Whether names can also come from elsewhere: `from x import *`, `__getattr__`."""
        self.stars: list[ast.ImportFrom] = []
        """Its `from x import *`."""
        self.rebound: set[int] = set()
        """Ids of the values of names that are bound several times, or changed."""
        for statement in _statements(tree.body if tree else []):
            self._bind(statement)

    def _bind(self, node: ast.stmt) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                if not any(last_name(item) == "overload" for item in node.decorator_list):
                    self.names[node.name] = node
                self.open |= node.name == "__getattr__"
            case ast.Assign():
                for name in ast.walk(ast.Tuple(node.targets)):
                    if isinstance(name, ast.Name):
                        self._put(name.id, node.value, whole=name in node.targets)
            case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
                self._put(name, value)
            case ast.AugAssign(target=ast.Name(id=name)) if name in self.names:
                self.rebound.add(id(self.names[name]))
            case _ if type(node).__name__ == "TypeAlias":  # `type X = ...`, from Python 3.12 on
                self.names[node.name.id] = node.value  # type: ignore[attr-defined]
            case ast.Import() | ast.ImportFrom():
                for alias in node.names:
                    if alias.name == "*" and isinstance(node, ast.ImportFrom):
                        self.open = True
                        self.stars.append(node)
                    self.names[alias.asname or alias.name] = node

    def _put(self, name: str, value: ast.expr, *, whole: bool = True) -> None:
        """Bind a name to a value. A part of the value, as in `a, b = …`, is not known."""
        if name in self.names or not whole:
            self.rebound |= {id(value), id(self.names.get(name))}
        self.names[name] = value


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, including those under `if`, `try` and `with`."""
    for statement in body:
        match statement:
            case ast.If() | ast.Try() | ast.With():
                for field in ("body", "handlers", "orelse", "finalbody"):
                    inner = getattr(statement, field, [])
                    for part in inner:
                        nested = part.body if isinstance(part, ast.ExceptHandler) else [part]
                        yield from _statements(nested)
            case _:
                yield statement


class BoundValue(NamedTuple):
    """The value of a name, and its module."""

    node: ast.AST
    module: Module


class ModuleReader:
    """Reads modules, each once, and follows imports between them."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._modules: dict[str, Module | None] = {}
        self.paths: list[str] = []
        self.left = MOST_PARTS

    def may_read(self, parts: int = 1) -> bool:
        """Count parts of a hint or a value. False: there were too many, and it is unknown."""
        self.left -= parts
        return self.left >= 0

    def module(self, name: str) -> Module | None:
        """Return a module, or None if it does not exist.

        Without Python source, it has no `tree`.
        """
        if name not in self._modules:
            self._modules[name] = self._read(name)
        return self._modules[name]

    def find(
        self, module: Module, name: str, *, near: bool = False, hops: int = HOPS
    ) -> BoundValue | None:
        """Return the value of a top-level name of a module, following `from ... import`.

        With `near`, only imports from the same package or from beside the flow file are followed.
        """
        node = module.names.get(name)
        if node is None:
            return self._by_star(module, name, near=near, hops=hops)
        if not isinstance(node, ast.ImportFrom):
            return BoundValue(node, module)
        original = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
        source_name = absolute(node, module)
        if hops == 0 or (near and not self.is_near(source_name, module)):
            return BoundValue(node, module)
        source = self.module(source_name)
        if source is None:
            return BoundValue(node, module)
        return self.find(source, original, near=near, hops=hops - 1) or BoundValue(node, module)

    def _by_star(self, module: Module, name: str, *, near: bool, hops: int) -> BoundValue | None:
        """Return the value that `from ... import *` binds a name to. The last one wins."""
        if hops == 0 or name.startswith("_"):
            return None
        for node in reversed(module.stars):
            source_name = absolute(node, module)
            source = None
            if not near or self.is_near(source_name, module):
                source = self.module(source_name)
            if source is not None and (value := self.find(source, name, near=near, hops=hops - 1)):
                return value
        return None

    def is_near(self, name: str, module: Module) -> bool:
        """Return whether a module is in the package of another one, or beside the flow file."""
        top = name.partition(".")[0]
        return top == module.name.partition(".")[0] or is_beside(top, self._folder)

    def _read(self, name: str) -> Module | None:
        spec = find_module(name, self._folder)
        if spec is None:
            return None
        is_package = spec.submodule_search_locations is not None
        path = spec.origin
        if path is None or not path.endswith(".py"):
            return Module(name, None, is_package, None)
        self.paths.append(path)
        try:
            with open(path, "rb") as file:
                tree = _tree(file.read(), path)
        except (SyntaxError, ValueError, OSError, RecursionError) as error:
            line = error.lineno if isinstance(error, SyntaxError) else None
            what = error.msg if isinstance(error, SyntaxError) else str(error)
            what = what.partition(":")[0] if what.startswith("unknown encoding") else what
            raise SignatureError(
                f"module '{name}' cannot be read ({path}{f':{line}' if line else ''}): {what}",
                path=path,
                line=line,
            ) from None
        return Module(name, path, is_package, tree)


@lru_cache(maxsize=4)
def _tree(source: bytes, path: str) -> ast.Module:
    """Return the syntax tree of a module, which many steps of a flow may name one after another."""
    tree: ast.Module = parse(source, path)
    return tree


def absolute(node: ast.ImportFrom, module: Module) -> str:
    """Return the full name of the module that a `from ... import` names."""
    if node.level == 0:
        return node.module or ""
    package = module.package.split(".")
    base = ".".join(package[: len(package) - node.level + 1])
    return ".".join(part for part in (base, node.module) if part)


def last_name(node: ast.AST) -> str:
    """Return the last part of a dotted name, also of a called one, or the empty text."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=function):
            return last_name(function)
    return ""


def public_part(library: ModuleType, name: str, otherwise: Any) -> Any:
    """Return a public object of one of `LIBRARIES`."""
    value = otherwise if name.startswith("_") else getattr(library, name, otherwise)
    if isinstance(value, ModuleType):
        return value if value.__name__ in LIBRARIES else otherwise
    return value
