"""Signatures of Python functions, and the classes in their hints, read from source."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flowengine.sdk.python_functions.class_fields import called_field
from flowengine.sdk.python_functions.constants import UNKNOWN, constant
from flowengine.sdk.python_functions.docstrings import parse as parse_docstring
from flowengine.sdk.python_functions.modules import (
    HOPS,
    BoundValue,
    Module,
    ModuleReader,
    absolute,
    last_name,
    original,
)
from flowengine.sdk.python_functions.plain_hints import INJECTED
from flowengine.sdk.python_functions.schema_forms import (
    ABSENT,
    Parameter,
    Schema,
    arguments,
    without_computed,
)
from flowengine.sdk.python_functions.type_hints import TypeHints
from flowengine.sdk.python_modules import may_read_module, parse
from flowengine.sdk.step_kind import SignatureError

# The classes that a type hint names, by full name, determined without importing anything.

_HOPS = 8
"""Maximum length of a chain of names. A longer one is a cycle."""


def hinted_classes(
    hint: ast.AST | None, module: Module, reader: ModuleReader, hops: int = _HOPS
) -> list[str]:
    """Return the classes that a hint allows as `package.module.Class`, one per union member.

    Args:
        hint: As written in the source.
        module: The module that contains it.
        reader: Limits how much is read.
        hops: How many names are followed.

    Returns:
        The classes that the module imports, without built-in and local ones.
    """
    if not reader.may_read() or hops == 0:
        return []

    def each(*parts: ast.AST) -> list[str]:
        return [name for part in parts for name in hinted_classes(part, module, reader, hops - 1)]

    match hint:
        case ast.Constant(value=str(text)):
            try:
                return each(parse(text.strip(), mode="eval").body)
            except SyntaxError:
                return []
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return each(left, right)
        case ast.Subscript(value=generic, slice=inner):
            items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            match generic:
                case ast.Name(id="Annotated") | ast.Attribute(attr="Annotated"):
                    return each(items[0])
                case ast.Name(id="Optional" | "Union") | ast.Attribute(attr="Optional" | "Union"):
                    return each(*items)
        case ast.Name() | ast.Attribute():
            dotted = ast.unparse(hint)
            bound = module.names.get(dotted)
            if isinstance(bound, ast.expr):  # another name for it
                return each(bound)
            return _imported(dotted, module)
    return []


def _imported(dotted: str, module: Module) -> list[str]:
    """Return the full name for a dotted name whose first part is bound by an import."""
    begin, rest = dotted, ""
    while begin:
        node = module.names.get(begin)
        if isinstance(node, ast.Import | ast.ImportFrom):
            alias = next(
                imported for imported in node.names if (imported.asname or imported.name) == begin
            )
            home = f"{absolute(node, module)}." if isinstance(node, ast.ImportFrom) else ""
            full = f"{home}{alias.name}{rest}"
            return [] if full.partition(".")[0] in sys.stdlib_module_names else [full]
        begin, dot, last = begin.rpartition(".")
        rest = f"{dot}{last}{rest}"
    return []


# The function that a name stands for, read from source.
#
# The name may be bound to another name (`search = _search`), a partial or a method.

FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


class NamedFunction(NamedTuple):
    """A function, and its parameters that callers do not supply."""

    node: ast.FunctionDef | ast.AsyncFunctionDef
    module: Module
    first: int = 0
    """Number of leading parameters that are already bound: `self`, those of a partial."""
    bound: frozenset[str] = frozenset()
    """Names of further parameters that a partial binds."""


def named_function(
    bound: BoundValue, reader: ModuleReader, hops: int = HOPS
) -> NamedFunction | None:
    """Return the function that a name is bound to, or None if only running the module shows it.

    Args:
        bound: The value of the name.
        reader: Reads the modules that other names lead to.
        hops: How many names and partials are followed.
    """
    if hops == 0:
        return None
    node, module = bound
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return NamedFunction(node, module)
        case ast.Name(id=name):
            other = reader.find(module, name)
            return None if other is None else named_function(other, reader, hops - 1)
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            return _attribute(owner, name, module, reader, hops - 1)
        case ast.Call(args=[function, *given], keywords=words) if last_name(node) == "partial":
            return _partial(BoundValue(function, module), given, words, reader, hops - 1)
    return None


def _partial(
    function: BoundValue,
    given: list[ast.expr],
    words: list[ast.keyword],
    reader: ModuleReader,
    hops: int,
) -> NamedFunction | None:
    inner = named_function(function, reader, hops)
    names = [word.arg for word in words]
    if (
        inner is None
        or None in names
        or any(isinstance(argument, ast.Starred) for argument in given)
    ):
        return None
    bound = inner.bound.union(name for name in names if name is not None)
    return inner._replace(first=inner.first + len(given), bound=bound)


def _attribute(
    owner: str, name: str, module: Module, reader: ModuleReader, hops: int
) -> NamedFunction | None:
    """Return a function of a module, or a method of an object that a module makes."""
    match reader.find(module, owner):
        case BoundValue(ast.Import(names=names)):
            full = next(
                imported.name for imported in names if (imported.asname or imported.name) == owner
            )
            source = reader.module(full)
            value = None if source is None else reader.find(source, name)
            return None if value is None else named_function(value, reader, hops)
        case BoundValue(ast.Call(func=ast.Name(id=cls)), home):
            return _method(reader.find(home, cls), name)
    return None


def _method(cls: BoundValue | None, name: str) -> NamedFunction | None:
    if cls is None or not isinstance(cls.node, ast.ClassDef):
        return None
    for node in cls.node.body:
        if isinstance(node, FUNCTION) and node.name == name:
            marks = {last_name(decorator) for decorator in node.decorator_list}
            if marks - {"staticmethod", "classmethod"}:
                return None
            return NamedFunction(node, cls.module, first=0 if "staticmethod" in marks else 1)
    return None  # it may be inherited


# Signatures of Python functions, read from source without importing it.
#
# A hint without a JSON Schema means "anything": the function checks the value itself.


class Signature(NamedTuple):
    """A function as flows and models see it."""

    description: str = ""
    """The docstring, without its descriptions of parameters."""
    args: Schema | None = None
    """JSON Schema of an object with a property per parameter, closed unless the function takes
    `**kwargs`. None if the parameters are not in any readable source (a C function, the result of a
    decorator)."""
    returns: Schema | None = None
    """JSON Schema of the result, or None if it is not declared."""
    is_async: bool = False
    quick: bool = False
    """Marked with `@flowengine.quick`."""
    takes_resources: bool = False
    """It has a parameter `runtime_resources`."""
    takes_context_variables: bool = False
    """It has a parameter `context_variables`."""
    paths: Sequence[str] = ()
    """Files that were read, as absolute paths. The first is the module's."""
    classes: Mapping[str, list[str]] = {}
    """Parameters whose hints name imported classes → the full names of these classes."""


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
    module_name, colon, name = function.partition(":")
    parts = [*module_name.split("."), name]
    if not colon or not all(part.isidentifier() for part in parts):
        raise SignatureError(
            f"'{function}' does not name a function", hint="write it as package.module:function"
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
    if module.tree is None:
        return Signature(paths=reader.paths)
    value = reader.find(module, name)
    if value is None and not module.open:
        raise SignatureError(
            f"module '{module_name}' has no function '{name}'",
            hint=_suggestion(name, module),
            path=module.path,
        )
    function_found = None if value is None else named_function(value, reader)
    if function_found is None:
        return Signature(paths=reader.paths)
    return _signature(function_found, reader)


def _suggestion(name: str, module: Module) -> str | None:
    from flowengine.sdk.near_words import did_you_mean

    functions = [key for key, node in module.names.items() if isinstance(node, FUNCTION)]
    return did_you_mean(name, functions)


def _signature(named: NamedFunction, reader: ModuleReader) -> Signature:
    node, module = named.node, named.module
    hints = TypeHints(reader)
    description, descriptions = parse_docstring(ast.get_docstring(node))
    given = node.args
    by_position = given.posonlyargs[named.first :]
    if by_position:
        raise SignatureError(
            f"parameter '{by_position[0].arg}' of {module.name}:{node.name} can only be "
            "given by position; a flow gives arguments by name",
            hint="remove the '/' from its parameters",
            path=module.path,
            line=node.lineno,
        )
    parameters = []
    classes = {}
    first_default = len(given.args) - len(given.defaults)
    defaults = [*[None] * first_default, *given.defaults, *given.kw_defaults]
    every = [*given.args, *given.kwonlyargs]
    taken = {
        argument.arg for argument in given.args[: max(0, named.first - len(given.posonlyargs))]
    }
    for parameter, default in zip(every, defaults, strict=True):
        name = parameter.arg
        if name in {*INJECTED, *taken, *named.bound} or _is_context(parameter.annotation):
            continue
        schema = hints.schema(parameter.annotation, module)
        required, value = default is None, ABSENT
        if isinstance(default, ast.Call) and original(default.func, module) == "Field":
            schema, required = called_field(schema, default, module, reader)
        elif default is not None:
            value = constant(default, module, reader)
            value = ABSENT if value is UNKNOWN else value
        parameters.append(Parameter(name, schema, required, value, descriptions.get(name)))
        if schema.keys() <= {"description"}:
            classes[name] = hinted_classes(parameter.annotation, module, reader)
    named_others, others = (
        ([], None) if given.kwarg is None else hints.others(given.kwarg.annotation, module)
    )
    args = arguments([*parameters, *named_others], others)
    results = TypeHints(reader, result=True)
    returns = None if node.returns is None else results.schema(node.returns, module)
    names = {parameter.arg for parameter in every}
    return Signature(
        description=description,
        args=without_computed(hints.records.tidied(args)),
        returns=None if returns is None else results.records.tidied(returns),
        is_async=isinstance(node, ast.AsyncFunctionDef),
        quick=any(last_name(decorator) == "quick" for decorator in node.decorator_list),
        takes_resources="runtime_resources" in names,
        takes_context_variables="context_variables" in names,
        paths=reader.paths,
        classes={name: cls for name, cls in classes.items() if cls},
    )


def _is_context(annotation: ast.expr | None) -> bool:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value.rpartition(".")[2] == "StepContext"
    return annotation is not None and last_name(annotation) == "StepContext"
