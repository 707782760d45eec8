"""Lookup and import of Python modules that flows name, and host files that checks may read."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import os
import sys
import threading
from _thread import allocate_lock
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType, TracebackType
from typing import Any, NamedTuple

from flowengine.errors import UsageError
from flowengine.sdk.errors import PACKAGE_PREFIX
from flowengine.sdk.texts.exception_text import attribute_of
from flowengine.util.files import digest_of
from flowengine.util.garbage import CollectedLater

# Lookup and import of the Python modules that flows name.
#
# Modules beside a flow file come first, then those that any program can import. Modules beside a
# file are separated by directory: two flows with a `tools.py` each get their own, `sys.path` is
# unchanged, and the rest of the process does not see them - unless the program has imported that
# very file itself. Inside such a module, `import other` finds `other.py` beside it, at any time
# and on any thread.
#
# To achieve this, each directory becomes a package with a unique name (`_flow_<digest>`). Its
# modules belong to that package, and their `import` statement looks there first.

MAIN = "__main__"
"""The module of the running program. Functions in it are named so only if no other process can
import the program."""
_lock = threading.Lock()
_importing = threading.local()


class FunctionNotFound(Exception):
    """The module or function does not exist."""


def is_missing(error: BaseException) -> bool:
    """Return whether an error means that this process could not import a function.

    Another process may have its module, or what that imports. The function has not been called.
    """
    if not isinstance(error, ImportError):
        before = attribute_of(error, "__context__", FunctionNotFound)
        return before is not None or isinstance(error, FunctionNotFound)
    entry = attribute_of(error, "__traceback__", TracebackType)
    while entry is not None and entry.tb_frame.f_code is not _import.__code__:
        entry = entry.tb_next
    return entry is not None


def import_function(function: str, folder: str | None) -> Callable[..., Any]:
    """Import a function.

    Args:
        function: `package.module:function`.
        folder: Directory of the flow file: modules there come first.

    Returns:
        The function.

    Raises:
        FunctionNotFound: The module or function does not exist.
        ModuleNotFoundError: A module that it imports does not exist. Other exceptions raised during
            the import propagate as well.
    """
    module_name, _, name = function.partition(":")
    value = getattr(import_module_of(function, folder), name, None)
    if not callable(value):
        raise FunctionNotFound(f"module '{module_name}' has no function '{name}'")
    return value  # type: ignore[no-any-return]


def import_module_of(function: str, folder: str | None) -> ModuleType:
    """Import the module of a function, with the arguments and errors of `import_function`."""
    module_name = function.partition(":")[0]
    beside = folder is not None and is_beside(module_name.partition(".")[0], folder)
    full_name = f"{_package(folder)}.{module_name}" if folder and beside else module_name
    try:
        running = _running(module_name, folder)
        if running is sys.modules[MAIN]:
            return running
        # Also one that is known already: another thread may still be importing it.
        return _import(full_name if running is None else module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{full_name}.".startswith(f"{error.name}."):
            raise  # the module exists, but a module that it imports does not
        raise FunctionNotFound(f"there is no module '{module_name}'") from None


def name_of_program() -> str | None:
    """Return the name under which other processes import the running program.

    None: it is in no file, such as a notebook, or in one whose name is not that of a module.
    """
    main = sys.modules[MAIN]
    if main.__spec__ is not None:  # run with python -m package.module
        return str(main.__spec__.name)
    file = getattr(main, "__file__", None) or ""
    stem = os.path.basename(file).removesuffix(".py")
    is_module = os.path.exists(file) and stem.isidentifier() and not file.startswith("<")
    return stem if is_module else None


def check_importable(functions: Iterable[str]) -> None:
    """Refuse functions of a program that no other process can import.

    Args:
        functions: `package.module:function`, each.

    Raises:
        UsageError: The message names the first of them.
    """
    own = next((name for name in functions if name.startswith(f"{MAIN}:")), None)
    if own is None:
        return
    file = getattr(sys.modules[MAIN], "__file__", None) or "<"
    place = "is in no file" if file.startswith("<") else f"is {os.path.basename(file)}"
    raise UsageError(
        f"the program of {own.partition(':')[2]}() {place}, which no other process can import",
        hint="put the functions of the steps into a module: a .py file with a plain name, which a "
        "notebook writes with %%writefile and imports. Or run the flow in memory: Engine(None)",
    )


class ModuleSource(NamedTuple):
    """The source of a module."""

    text: str | None
    """None if the source is missing or cannot be read."""
    is_imported: bool
    """Whether this process has imported the module, and so runs the source of that time."""


def module_source(function: str, folder: str | None) -> ModuleSource:
    """Return the source of a function's module without importing it.

    Args:
        function: `package.module:function`.
        folder: Directory of the flow file: modules there come first.

    Returns:
        Its text, if it can be read, and whether this process has imported the module.
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
    """Return a module that this program has imported from the same file, or that is the program.

    A program that builds a flow, or imports its functions, then shares one copy of the module, and
    a test can replace its functions.
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
    """Find a module as `import_function` does, without importing it or a parent package.

    Args:
        name: Dotted name.
        folder: Directory of the flow file.

    Returns:
        Its spec with its location (`origin`), or None.
    """
    top, *rest = name.split(".")
    if folder is not None and is_beside(top, folder):
        spec = PathFinder.find_spec(top, [folder])
    else:
        spec = _find_installed(top)
    module = top
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return None
        module = f"{module}.{part}"
        spec = _find_in(list(spec.submodule_search_locations), module)
    return spec


def is_beside(name: str, folder: str) -> bool:
    """Return whether a top-level name refers to a module in a directory.

    For a directory without `__init__.py`, this requires that nothing else has that name: `docs`
    beside a flow is rarely meant as a package.
    """
    spec = PathFinder.find_spec(name, [folder])
    if spec is None:
        return False
    return spec.origin is not None or _find_installed(name) is None


def _find_installed(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ValueError, ImportError):  # a module without a spec, such as `__main__`
        return None


def _find_in(path: Sequence[str], full_name: str) -> ModuleSpec | None:
    for finder in sys.meta_path:
        try:
            spec = finder.find_spec(full_name, path)
        except KeyError:
            # For a directory without `__init__.py`, importlib looks up its parent in `sys.modules`,
            # where it is missing. Its last name alone has no parent.
            spec = PathFinder.find_spec(full_name.rpartition(".")[2], path)
        if spec is not None:
            return spec
    return None


# Modules beside a flow file


def _package(folder: str) -> str:
    """Return the name of the package for a directory, creating it on first use."""
    folder = os.path.realpath(folder)
    name = PACKAGE_PREFIX + digest_of(os.fsencode(folder))[:16]
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
    """Finds modules in the packages for directories."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(PACKAGE_PREFIX):
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


# Files of this machine that the check of a flow may read.
#
# A flow in a file may import other files, texts and Python modules beside it. One that came as
# text, from a user of a server, names no file of the server's machine, and only modules that its
# host allows.

_MODULES: ContextVar[tuple[str, ...] | None] = ContextVar("modules", default=None)
"""Patterns of the modules that may be read. None: everything may be read."""
_FOLDER: ContextVar[bool] = ContextVar("folder", default=True)
"""Whether tools of the flow may use the directory that its executions work in."""
NO_FILES = "a flow that is sent to a server names no file of the server's machine"


@contextmanager
def only_modules(patterns: Sequence[str], *, folder: bool = False) -> Iterator[None]:
    """Let checks in the block read no files, and only modules whose names match a pattern.

    Args:
        patterns: The patterns.
        folder: Whether tools of the flow may use the directory that its executions work in.
    """
    modules, may_use = _MODULES.set(tuple(patterns)), _FOLDER.set(folder)
    try:
        yield
    finally:
        _MODULES.reset(modules)
        _FOLDER.reset(may_use)


def may_read_files() -> bool:
    """Return whether a check may read files that a flow names."""
    return _MODULES.get() is None


def may_use_folder() -> bool:
    """Return whether tools of a flow may use the directory that its executions work in."""
    return _FOLDER.get()


def may_read_module(name: str) -> bool:
    """Return whether a check may read the source of a module."""
    patterns = _MODULES.get()
    return patterns is None or any(fnmatchcase(name, pattern) for pattern in patterns)


# Parsing of Python source, one thread at a time.

_PARSING = allocate_lock()


def parse(source: str | bytes, filename: str = "<unknown>", mode: str = "exec") -> Any:
    """Return the syntax tree of Python source, with the arguments and errors of `ast.parse`.

    CPython 3.11 counts the nesting depth of trees for all threads together, so two threads that
    parse at once raise a `SystemError` (https://github.com/python/cpython/issues/106905). So does
    one in which a finalizer parses, as Python does to print the finalizer's error.
    """
    import ast

    with _PARSING, CollectedLater():
        return ast.parse(source, filename, mode)
