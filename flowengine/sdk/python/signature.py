"""Signatures of Python functions, read from the source that declares them."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flowengine.errors import UsageError
from flowengine.sdk.python.declared import Declarations
from flowengine.sdk.python.declared_classes import synchronous
from flowengine.sdk.python.imported_modules import (
    MAIN,
    FunctionNotFound,
    import_function,
    may_read_module,
    name_of_program,
)
from flowengine.sdk.python.live_signature import Signature, read_function
from flowengine.sdk.python.schema_forms import Schema, Unread
from flowengine.sdk.python.source_modules import (
    HOPS,
    BoundValue,
    Module,
    ModuleReader,
    last_name,
)
from flowengine.sdk.python.tagged_unions import schema_for_models
from flowengine.sdk.steps.step_kind import SignatureError
from flowengine.sdk.texts.near_words import did_you_mean

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_BESIDE = "declare it beside 'python', as a JSON Schema"


def signature_of(function: str, folder: str) -> Signature:
    """Read the signature of a function without running its module.

    A program in no file, such as a notebook, is running already. Its functions are read themselves.

    Args:
        function: `package.module:function`.
        folder: Directory of the flow file: modules there come first.

    Returns:
        Its arguments and result.

    Raises:
        SignatureError: The function does not exist, or its signature cannot be read.
    """
    if not function.startswith(f"{MAIN}:") or name_of_program() is not None:
        return derive(function, folder)

    try:
        return read_function(import_function(function, folder), lenient=True)
    except FunctionNotFound as error:
        raise SignatureError(str(error)) from None
    except UsageError as error:
        raise SignatureError(error.message, hint=error.hint) from None


def derive(function: str, folder: str) -> Signature:
    """Read the signature of a function from its module's source.

    Args:
        function: `package.module:function`.
        folder: Directory of the flow file: modules there come first.

    Returns:
        Its arguments and result.

    Raises:
        SignatureError: The module or function does not exist, has a syntax error, or has a
            parameter that cannot be passed by name.
    """
    value, reader = _found(function, folder, "function")
    return Signature(paths=reader.paths) if value is None else _signature(value, reader)


def type_schema(name: str, folder: str) -> tuple[Schema, Sequence[str]]:
    """Return the JSON Schema of a type whose values models write, and the files that it is in.

    Args:
        name: `package.module:Type`.
        folder: Directory of the flow file: modules there come first.

    Raises:
        SignatureError: The type does not exist, or only running the module shows its form.
    """
    value, reader = _found(name, folder, "type")
    declarations = Declarations(reader)
    with declarations.open():
        hint: Any = Any
        if value is not None:
            hint = declarations.hint(ast.Name(name.partition(":")[2]), value.module)
        if hint is Any or (inspect.isclass(hint) and issubclass(hint, Unread)):
            raise SignatureError(
                f"the form of '{name}' is in no source that can be read",
                hint=_BESIDE,
            )
        try:
            return schema_for_models(hint), reader.paths
        except UsageError as error:
            raise SignatureError(error.message, hint=error.hint) from None
        except Exception as error:
            raise SignatureError(f"'{name}' has no JSON Schema: {error}", hint=_BESIDE) from None


def _found(named: str, folder: str, what: str) -> tuple[BoundValue | None, ModuleReader]:
    """Return what a name is bound to, or None if only running the module shows it.

    Raises:
        SignatureError: The name does not exist, or its module has a syntax error.
    """
    module_name, colon, name = named.partition(":")
    parts = [*module_name.split("."), name]
    if not colon or not all(part.isidentifier() for part in parts):
        raise SignatureError(
            f"'{named}' does not name a {what}", hint=f"write it as package.module:{what}"
        )
    if not may_read_module(module_name):
        raise SignatureError(
            f"the server's host does not allow the module '{module_name}'",
            hint="its settings.yaml lists modules: deploys: {modules: [NAME]}",
        )
    reader = ModuleReader(folder)
    module = reader.module(module_name)
    if module is None:
        raise SignatureError(
            f"there is no module '{module_name}'",
            hint="modules are searched in the directory of the flow file, then where Python finds "
            "them",
        )
    value = None if module.tree is None else reader.find(module, name)
    if value is None and module.tree is not None and not module.open:
        functions = [key for key, node in module.names.items() if isinstance(node, _Function)]
        raise SignatureError(
            f"module '{module_name}' has no {what} '{name}'",
            hint=did_you_mean(name, functions if what == "function" else [*module.names]),
            path=module.path,
        )
    return value, reader


def _signature(value: BoundValue, reader: ModuleReader) -> Signature:
    """Read a function from what its source declares, as `read_function` reads the function."""
    declarations = Declarations(reader)
    with declarations.open():
        function = _callee(value, declarations)
        if function is None:
            return Signature(paths=reader.paths)
        try:
            return read_function(function, lenient=True)._replace(paths=reader.paths)
        except UsageError as error:
            path, line = value.module.path, getattr(value.node, "lineno", None)
            raise SignatureError(error.message, hint=error.hint, path=path, line=line) from None


# Functions with the parameters of declared ones, and without their bodies.


def _callee(bound: BoundValue, read: Declarations, hops: int = HOPS) -> Callable[..., Any] | None:
    """Return the function that a name is bound to, or None if only running the module shows it.

    The name may be bound to another name (`search = _search`), a partial or a method.
    """
    node, module = bound
    if hops == 0:
        return None
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return _function(node, module, read)
        case ast.Name(id=name):
            other = read.reader.find(module, name)
            return None if other is None else _callee(other, read, hops - 1)
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            return _part(read.reader.find(module, owner), owner, name, read, hops - 1)
        case ast.Attribute(value=ast.Call(func=ast.Name(id=cls)), attr=name):
            return _method(read.reader.find(module, cls), name, read)
        case ast.Call(args=[inner, *given], keywords=words) if last_name(node) == "partial":
            function = _callee(BoundValue(inner, module), read, hops - 1)
            names = [word.arg for word in words]
            if (
                function is None
                or None in names
                or any(isinstance(each, ast.Starred) for each in given)
            ):
                return None
            return functools.partial(function, *given, **dict.fromkeys(map(str, names)))
    return None


def _part(
    owner: BoundValue | None, called: str, name: str, read: Declarations, hops: int
) -> Callable[..., Any] | None:
    """Return a function of a module, or a method of an object that a module makes."""
    match owner:
        case BoundValue(ast.Import(names=names)):
            full = next(item.name for item in names if (item.asname or item.name) == called)
            source = read.reader.module(full)
            value = None if source is None else read.reader.find(source, name)
            return None if value is None else _callee(value, read, hops)
        case BoundValue(ast.Call(func=ast.Name(id=cls)), home):
            return _method(read.reader.find(home, cls), name, read)
        case BoundValue(ast.ClassDef()):
            return _method(owner, name, read, of_class=True)
    return None


def _method(
    cls: BoundValue | None, name: str, read: Declarations, *, of_class: bool = False
) -> Callable[..., Any] | None:
    """Return a method of an object, or of the class itself."""
    for node in getattr(cls and cls.node, "body", ()):
        if isinstance(node, _Function) and node.name == name and cls is not None:
            marks = {last_name(mark) for mark in node.decorator_list}
            is_bound = "classmethod" in marks or not (of_class or "staticmethod" in marks)
            is_method = not marks - {"staticmethod", "classmethod"}
            return _function(node, cls.module, read, int(is_bound)) if is_method else None
    return None  # it may be inherited


def _function(
    node: _Function, module: Module, read: Declarations, bound: int = 0
) -> Callable[..., Any]:
    """Return a function with the parameters of another one, without leading ones."""
    parameters, hints = [], {}
    for parameter, kind, default in list(_parameters(node.args))[bound:]:
        value = inspect.Parameter.empty
        if default is not None:
            value = read.value(default, module)
        parameters.append(inspect.Parameter(parameter.arg, kind, default=value))
        if parameter.annotation is not None:
            hints[parameter.arg] = read.hint(parameter.annotation, module)
    if node.returns is not None:
        hints["return"] = read.hint(node.returns, module)
    made: Any = _asynchronous() if isinstance(node, ast.AsyncFunctionDef) else synchronous()
    made.__name__, made.__qualname__, made.__module__ = node.name, node.name, module.name
    made.__doc__, made.__annotations__ = ast.get_docstring(node), hints
    made.__signature__ = inspect.Signature(parameters)
    made.__flowengine_quick__ = any(last_name(mark) == "quick" for mark in node.decorator_list)
    return made  # type: ignore[no-any-return]


def _parameters(
    given: ast.arguments,
) -> Iterator[tuple[ast.arg, Any, ast.expr | None]]:
    """Yield the parameters of a function, with their kinds and defaults."""
    kinds = inspect.Parameter
    positional = [*given.posonlyargs, *given.args]
    defaults = [*[None] * (len(positional) - len(given.defaults)), *given.defaults]
    for index, (parameter, default) in enumerate(zip(positional, defaults, strict=True)):
        before = index < len(given.posonlyargs)
        kind = kinds.POSITIONAL_ONLY if before else kinds.POSITIONAL_OR_KEYWORD
        yield parameter, kind, default
    if given.vararg is not None:
        yield given.vararg, kinds.VAR_POSITIONAL, None
    for parameter, value in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield parameter, kinds.KEYWORD_ONLY, value
    if given.kwarg is not None:
        yield given.kwarg, kinds.VAR_KEYWORD, None


def _asynchronous() -> Callable[..., Any]:
    async def made(*given: Any, **words: Any) -> None: ...

    return made
