"""Finds and imports the Python modules that flows name.

Modules beside a flow file come first, then what any program can import. Those beside the file are
kept apart by folder: two flows with a `tools.py` each get their own, `sys.path` stays as it is, and
nothing else in the process sees them - unless the program has imported that very file itself.
Inside such a module `import other` finds `other.py` beside it, at any time and on any thread.

How: each folder becomes a package of a name of its own (`_flow_<digest>`), its modules are parts of
that package, and their `import` statement is told to look there first.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any, NamedTuple

_PREFIX = "_flow_"
_OWN_NAMES = re.compile(rf"\b{_PREFIX}[0-9a-f]{{16}}\.")
_lock = threading.Lock()
_importing = threading.local()


class FunctionNotFound(Exception):
    """There is no such module or function."""


def import_function(function: str, folder: str | None) -> Callable[..., Any]:
    """Import a function.

    Args:
        function: `package.module:function`.
        folder: Folder of the flow file: modules there come first.

    Returns:
        The function.

    Raises:
        FunctionNotFound: There is no such module or function.
        ModuleNotFoundError: A module that it imports is not there; whatever else it raises when
            it is imported goes through as well.
    """
    module_name, _, name = function.partition(":")
    found = getattr(import_module_of(function, folder), name, None)
    if not callable(found):
        raise FunctionNotFound(f"module '{module_name}' has no function '{name}'")
    return found  # type: ignore[no-any-return]


def import_module_of(function: str, folder: str | None) -> ModuleType:
    """Import the module of a function; arguments and errors are those of `import_function`."""
    module_name = function.partition(":")[0]
    beside = folder is not None and is_beside(module_name.partition(".")[0], folder)
    full_name = f"{_package(folder)}.{module_name}" if folder and beside else module_name
    try:
        return _running(module_name, folder) or _import(full_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{full_name}.".startswith(f"{error.name}."):
            raise  # the module is there; it is a module that it imports which is not
        raise FunctionNotFound(f"there is no module '{module_name}'") from None


class ModuleSource(NamedTuple):
    """The source of a module."""

    text: str | None
    """None: there is none, or it cannot be read."""
    is_imported: bool
    """Whether this process has imported the module: then it runs what the source was."""


def module_source(function: str, folder: str | None) -> ModuleSource:
    """Return the source of the module of a function; nothing is imported.

    Args:
        function: `package.module:function`.
        folder: Folder of the flow file: modules there come first.
    """
    name = function.partition(":")[0]
    spec = find_module(name, folder)
    if spec is None or spec.origin is None:
        return ModuleSource(None, False)
    own = f"{_package(folder)}.{name}" if folder else name
    is_imported = own in sys.modules or _running(name, folder) is not None
    try:
        with open(spec.origin, encoding="utf-8", errors="replace") as file:
            return ModuleSource(file.read(), is_imported)
    except OSError:
        return ModuleSource(None, is_imported)


def _import(name: str) -> ModuleType:
    _importing.names = [*importing(), name]
    try:
        return importlib.import_module(name)
    finally:
        _importing.names = _importing.names[:-1]


def importing() -> list[str]:
    """Return the modules that are being imported on this thread for functions in them."""
    return getattr(_importing, "names", [])


def _running(name: str, folder: str | None) -> ModuleType | None:
    """Return a module that this program has imported from the very file, or is itself.

    A program that builds a flow, or imports what a flow calls, has one copy of it then, and a test
    can replace what is in it.
    """
    imported, main = sys.modules.get(name), sys.modules["__main__"]
    last = name.rpartition(".")[2]
    is_main = os.path.basename(getattr(main, "__file__", None) or "") == f"{last}.py"
    if imported is None and not is_main:
        return None
    spec = find_module(name, folder)
    if spec is None or spec.origin is None:
        return None
    for module in (imported, main if is_main else None):
        file = getattr(module, "__file__", None)
        if file is not None and os.path.realpath(file) == os.path.realpath(spec.origin):
            return module
    return None


def find_module(name: str, folder: str | None) -> ModuleSpec | None:
    """Find a module as `import_function` does, but import nothing, no parent package either.

    Args:
        name: Dotted name.
        folder: Folder of the flow file.

    Returns:
        Where it is (`origin`), or None.
    """
    top, *rest = name.split(".")
    if folder is not None and is_beside(top, folder):
        spec = PathFinder.find_spec(top, [folder])
    else:
        spec = _find_installed(top)
    found = top
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return None
        found = f"{found}.{part}"
        spec = _find_in(list(spec.submodule_search_locations), found)
    return spec


def is_beside(name: str, folder: str) -> bool:
    """Return whether a top-level name means a module in a folder.

    A folder without `__init__.py` does so only if nothing else has that name: `docs` beside a flow
    is rarely meant as a package.
    """
    spec = PathFinder.find_spec(name, [folder])
    if spec is None:
        return False
    return spec.origin is not None or _find_installed(name) is None


def public_name(name: str) -> str:
    """Return a module name, or a text with some, as its author knows it."""
    return _OWN_NAMES.sub("", name) if _PREFIX in name else name


def _find_installed(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ValueError, ImportError):  # a module without a spec, as `__main__` is one
        return None


def _find_in(path: Sequence[str], full_name: str) -> ModuleSpec | None:
    for finder in sys.meta_path:
        try:
            spec = finder.find_spec(full_name, path)
        except KeyError:
            # A folder without `__init__.py`: importlib asks `sys.modules` for its parent, which is
            # not imported. By its own name alone it has none.
            spec = PathFinder.find_spec(full_name.rpartition(".")[2], path)
        if spec is not None:
            return spec
    return None


# Modules beside a flow file


def _package(folder: str) -> str:
    """Return the name of the package that stands for a folder, making it at first use."""
    import hashlib

    folder = os.path.realpath(folder)
    name = _PREFIX + hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    with _lock:
        if name not in sys.modules:
            if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
                sys.meta_path.insert(0, _Finder())
            package = ModuleType(name, f"Modules of the flows in {folder}.")
            package.__path__ = [folder]
            package.__dict__["__builtins__"] = _builtins_of(name, folder)
            sys.modules[name] = package
    return name


class _Finder:
    """Finds modules in the packages that stand for folders."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(_PREFIX):
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """Gives a module an `import` statement that looks beside the flow file first."""

    def exec_module(self, module: ModuleType) -> None:
        package = sys.modules[module.__name__.partition(".")[0]]
        module.__dict__["__builtins__"] = package.__dict__["__builtins__"]
        super().exec_module(module)


def _builtins_of(package: str, folder: str) -> dict[str, Any]:
    known: dict[str, bool] = {}

    def import_(
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        top = name.partition(".")[0]
        if level == 0 and top not in known:
            known[top] = is_beside(top, folder)
        if level or not known[top]:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        module = importlib.import_module(f"{package}.{name}")
        if fromlist:
            return builtins.__import__(module.__name__, globals, locals, fromlist, 0)
        return sys.modules[f"{package}.{top}"]

    return {**vars(builtins), "__import__": import_}
