"""Names of a package that are imported when they are first used.

Modules import the types in signatures for type checkers only, so that a process starts fast.
`typing.get_type_hints`, and code based on it, reads them nevertheless: the hints of names that a
package exports import their types when they are read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ast


def exports(
    package: str, names: Collection[str], homes: Mapping[str, str], rest: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package, below its own definitions.

    Args:
        package: Name of the package.
        names: The names that it exports.
        homes: Name → module that defines it. It begins with a dot if it is in the package.
        rest: The module that defines the others.
    """

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes.get(name, rest), package), name)
        _import_hints(value)
        setattr(sys.modules[package], name, value)
        return value

    def listed() -> list[str]:
        special = (name for name in vars(sys.modules[package]) if name.startswith("__"))
        return sorted({*names, *special})

    for name in vars(sys.modules[package]).keys() & names:
        _import_hints(vars(sys.modules[package])[name])
    return get, listed


def modules(package: str, *names: str) -> Callable[[str], Any]:
    """Return `__getattr__` of a package whose modules are imported when they are first used.

    Args:
        package: Name of the package.
        names: Names of the modules, from the package on. A module is known by its last word.
    """
    homes = {name.rpartition(".")[2]: name for name in names}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return import_module(f"{package}.{homes[name]}")

    return get


class _Hints(dict[str, Any]):
    """The annotations of a function or class, whose names are imported when they are read."""

    def __init__(self, hints: Mapping[str, Any], module: str) -> None:
        super().__init__(hints)
        self._module = module

    def __iter__(self) -> Iterator[str]:
        _import_types(self._module)
        return super().__iter__()

    def keys(self) -> Any:
        _import_types(self._module)
        return super().keys()

    def items(self) -> Any:
        _import_types(self._module)
        return super().items()


def _import_hints(value: Any) -> None:
    """Make the hints of a class, its methods, or a function importable."""
    if not isinstance(value, type):
        _import_hint(value)
        return
    for base in value.__mro__:
        if base.__module__.startswith("flowengine"):
            _import_hint(base)
            for name, member in vars(base).items():
                if name == "__init__" or not name.startswith("_"):
                    _import_hint(getattr(member, "fget", None) or member)


def _import_hint(owner: Any) -> None:
    owner = getattr(owner, "__func__", owner)  # of a class method or static method
    own = vars(owner) if isinstance(owner, type) else None
    hints = getattr(owner, "__annotations__", None) if own is None else own.get("__annotations__")
    if not hints or isinstance(hints, _Hints):
        return
    inner = owner
    while hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    owner.__annotations__ = _Hints(hints, inner.__module__)


@cache
def _import_types(module: str) -> None:
    """Run a module's imports for type checkers. Names of missing packages are `Any`."""
    import ast
    from inspect import getsource

    loaded = sys.modules[module]
    try:
        source = ast.parse(getsource(loaded))
    except OSError:
        return  # an installation without sources
    for part in source.body:
        if isinstance(part, ast.If) and ast.unparse(part.test) == "TYPE_CHECKING":
            for line in part.body:
                try:
                    if hasattr(loaded, "__getattr__"):  # a package, whose hints are importable
                        vars(loaded).update({name: getattr(loaded, name) for name in _bound(line)})
                    else:
                        exec(compile(ast.Module([line], []), module, "exec"), vars(loaded))
                except (ImportError, TypeError):
                    vars(loaded).update(dict.fromkeys(_bound(line), Any))


def _bound(line: ast.stmt) -> Iterator[str]:
    """Yield the names that an import or an assignment binds."""
    import ast

    for part in ast.walk(line):
        if isinstance(part, ast.alias):
            yield part.asname or part.name
        elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            yield part.id
