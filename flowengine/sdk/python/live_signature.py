"""Signatures of live callables: functions, methods, partials and callable objects.

`signature.derive` reads a function that is only declared in source: it makes one with the same
parameters, without running the module, and has it read here.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from flowengine.errors import UsageError
from flowengine.sdk.environments.resources import Resource
from flowengine.sdk.errors import public_name
from flowengine.sdk.python.docstrings import parse
from flowengine.sdk.python.live_types import LiveTypes, annotated, plain_default
from flowengine.sdk.python.plain_hints import INJECTED, is_field
from flowengine.sdk.python.schema_forms import ABSENT, Parameter, Schema, arguments

Given = inspect.Parameter
_COROUTINES = inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE


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
    paths: Sequence[str] = ()
    """Files that were read, as absolute paths. The first is the module's."""
    classes: Mapping[str, list[str]] = {}
    """Parameters whose hints name imported classes → the full names of these classes."""


def read_function(
    function: Callable[..., Any],
    *,
    environments: Collection[str] = (),
    is_environment: Callable[[type], bool] | None = None,
    lenient: bool = False,
) -> Signature:
    """Read the signature of a function.

    Args:
        function: The callable.
        environments: Names of parameters that receive environments.
        is_environment: Returns whether a class that does not derive from `Resource` is that of an
            environment.
        lenient: Whether a type without a JSON form allows anything, as in a flow, where the
            function checks the value. Environments are then arguments with `classes`, because the
            flow decides which it gives, and `*args` is left out.

    Returns:
        Its arguments and result. Parameters that the engine fills are not among the arguments:
        `context_variables`, `runtime_resources`, a `StepContext`, environments.

    Raises:
        UsageError: An argument cannot be passed by name, or its type has no JSON form.
    """
    name, code = name_of(function), getattr(innermost(function), "__code__", None)
    hints = resolved_hints(function)
    types = LiveTypes(lenient=lenient)
    description, descriptions = parse(_docstring(function))
    parameters, others, every, classes = [], None, set(), {}
    for parameter in given_parameters(function):
        hint = hints.get(parameter.name, Given.empty)
        every.add(parameter.name)
        if parameter.kind is Given.VAR_KEYWORD:
            fields_of = unpacked(hint)
            others = _of_parameter(types, name, f"**{parameter.name}", fields_of or hint)
            if fields_of is not None:
                parameters += types.records.fields(others)
                others = None
        elif parameter.name not in {*INJECTED, *environments} and not (
            is_context(hint) or (not lenient and is_injected(hint, is_environment))
        ):
            if lenient and parameter.kind is Given.VAR_POSITIONAL:
                continue
            _check_kind(parameter, name)
            schema = _of_parameter(types, name, parameter.name, hint)
            parameters.append(_described(parameter, schema, descriptions))
            if schema.keys() <= {"description"} and (named := _classes(hint)):
                classes[parameter.name] = named
    known = {*every, *INJECTED, *(parameter.name for parameter in parameters)}
    unknown = [f"{name}: {text}" for name, text in descriptions.items() if name not in known]
    results = LiveTypes(result=True, lenient=lenient)
    returns = _of_result(results, hints)
    return Signature(
        description="\n".join([description, *([""] if description and unknown else []), *unknown]),
        args=types.records.tidied(arguments(parameters, others)),
        returns=None if returns is None else results.records.tidied(returns),
        is_async=bool(code and code.co_flags & _COROUTINES),
        quick=getattr(function, "__flowengine_quick__", False),
        takes_resources="runtime_resources" in every,
        classes=classes,
    )


def _check_kind(parameter: inspect.Parameter, function: str) -> None:
    if parameter.kind is Given.POSITIONAL_ONLY:
        raise UsageError(
            f"the parameter '{parameter.name}' of {function} can only be given by position",
            hint="remove the '/' from its parameters: arguments are given by name",
        )
    if parameter.kind is Given.VAR_POSITIONAL:
        raise UsageError(
            f"the parameter '*{parameter.name}' of {function} cannot be given by name",
            hint="give each argument a parameter with a separate name",
        )


def _described(
    parameter: inspect.Parameter, schema: Schema, descriptions: Mapping[str, str]
) -> Parameter:
    name, field = parameter.name, field_of(parameter)
    required = parameter.default is Given.empty if field is None else field.is_required()
    # A field's schema already contains its default.
    without = required or field is not None
    default = ABSENT if without else plain_default(parameter.default)
    return Parameter(name, schema, required, default, descriptions.get(name))


def name_of(function: Any) -> str:
    """Return the name of a function, of the function in a partial, or of an object's class."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", None) or type(function).__name__)


def given_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a function, without those that a partial has bound.

    Args:
        function: The callable.

    Returns:
        In the order of the signature.

    Raises:
        UsageError: The object has no signature or is not callable.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"the parameters of {name_of(function)} are not known: {error}",
            hint="define a Python function that calls it",
        ) from None
    bound: set[str] = set()
    inner: Any = function
    while isinstance(inner, functools.partial):
        bound |= inner.keywords.keys()
        inner = inner.func
    return [parameter for parameter in parameters if parameter.name not in bound]


def resolved_hints(function: Any) -> dict[str, Any]:
    """Return the type hints of a function, with defaults that are pydantic's `Field(...)`.

    A hint that names something unknown stays text.
    """
    inner = innermost(function)
    raw = dict(getattr(inner, "__annotations__", {}))
    try:
        hints = get_type_hints(inner, include_extras=True)
    except Exception:  # one name is unknown, and the others are resolved one by one below
        module = sys.modules.get(getattr(inner, "__module__", None) or "")
        space = getattr(inner, "__globals__", None) or vars(module or builtins)
        hints = {name: _resolved(hint, space) for name, hint in raw.items()}
    for name, field in _fields(inner):
        if not isinstance(hints.get(name), str):
            hints[name] = annotated(hints.get(name, Any), field)
    return hints


def field_of(parameter: inspect.Parameter) -> Any:
    """Return the pydantic `FieldInfo` that a parameter has as its default, or None."""
    return parameter.default if is_field(parameter.default) else None


def _fields(function: Any) -> Iterator[tuple[str, Any]]:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return
    for name, parameter in parameters.items():
        if (field := field_of(parameter)) is not None:
            yield name, field


def _resolved(hint: Any, globals: dict[str, Any]) -> Any:
    text = getattr(hint, "__forward_arg__", hint)
    if not isinstance(text, str):
        return hint
    try:
        # The same as `typing.get_type_hints` does: the text is the program's own annotation.
        return eval(text, globals)
    except Exception:
        return text


def innermost(function: Any) -> Any:
    """Return the innermost function of a partial, a method, an object or a decorator."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif inspect.ismethod(function):
            function = function.__func__
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif inspect.isroutine(function) or inspect.isclass(function):
            return function
        elif inspect.isroutine(getattr(type(function), "__call__", None)):  # noqa: B004
            return innermost(type(function).__call__)
        else:
            return function


def _docstring(function: Any) -> str | None:
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function):
        return inspect.getdoc(function)
    return inspect.getdoc(innermost(function)) or inspect.getdoc(type(function))


def is_injected(hint: Any, is_environment: Callable[[type], bool] | None = None) -> bool:
    """Return whether the engine injects the type that a hint names."""
    if is_context(hint):
        return True
    each = [hinted for hinted in get_args(hint) if hinted is not type(None)] or [hint]
    return all(
        inspect.isclass(hinted)
        and (
            is_context(hinted)
            or issubclass(hinted, Resource)
            or (is_environment is not None and is_environment(hinted))
        )
        for hinted in each
    )


def is_context(hint: Any) -> bool:
    """Return whether a hint names the class of an attempt's context."""
    name = hint if isinstance(hint, str) else getattr(hint, "__name__", "")
    return name.strip("'\"").rpartition(".")[2] == "StepContext"


def _classes(hint: Any) -> list[str]:
    """Return the full names of the classes in a hint, one per union member.

    Those of Python itself are left out, because no environment is one of them.
    """
    if isinstance(hint, type) and get_origin(hint) is None:
        module = public_name(hint.__module__)
        of_python = module.partition(".")[0] in sys.stdlib_module_names
        return [] if of_python else [f"{module}.{hint.__qualname__}"]
    members = get_args(hint)[:1] if hasattr(hint, "__metadata__") else get_args(hint)
    is_union = get_origin(hint) in {Union, UnionType} or hasattr(hint, "__metadata__")
    return [name for member in members for name in _classes(member)] if is_union else []


def unpacked(hint: Any) -> Any:
    """Return the TypedDict of `**kwargs: Unpack[...]`, or None."""
    return get_args(hint)[0] if str(get_origin(hint)).endswith(".Unpack") else None


def _of_parameter(types: LiveTypes, function: str, name: str, hint: Any) -> Any:
    if isinstance(hint, str):
        if types.lenient:
            return {}
        raise UsageError(
            f"the type {hint!r} of parameter '{name}' of {function} is not known",
            hint="name it where the function's module can see it",
        )
    try:
        return types.schema(hint)
    except (UsageError, NameError, TypeError) as error:
        if types.lenient:
            return {}
        why = getattr(error, "message", str(error))
        raise UsageError(
            f"the parameter '{name}' of {function} cannot be an argument: {why}",
            hint="give it a type that JSON has. If the program provides it to an agent, list its "
            f"name: Agent(environments=[{name!r}])",
        ) from None


def _of_result(types: LiveTypes, hints: dict[str, Any]) -> Any:
    """Return the schema of the result, or None if it is undeclared or not data."""
    if "return" not in hints:
        return None
    try:
        return types.schema(hints["return"])
    except (UsageError, NameError, TypeError):
        return {}
