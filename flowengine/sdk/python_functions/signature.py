"""Signatures of Python functions, read from source without importing it.

A hint without a JSON Schema means "anything": the function checks the value itself.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flowengine.host_reads import may_read_module
from flowengine.sdk.python_functions.class_fields import called_field
from flowengine.sdk.python_functions.constants import UNKNOWN, constant
from flowengine.sdk.python_functions.docstrings import parse
from flowengine.sdk.python_functions.hinted_classes import hinted_classes
from flowengine.sdk.python_functions.modules import Module, ModuleReader, last_name, original
from flowengine.sdk.python_functions.named_functions import (
    FUNCTION,
    NamedFunction,
    named_function,
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
from flowengine.sdk.step_kind import SignatureError


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
    description, descriptions = parse(ast.get_docstring(node))
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
            classes[name] = hinted_classes(parameter.annotation, module)
    args = arguments(parameters, open=given.kwarg is not None)
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
