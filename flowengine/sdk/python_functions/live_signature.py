"""Signatures of live callables: functions, methods, partials and callable objects.

`signature.derive` reads the same from source, without running it. Both produce the same forms.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from flowengine.errors import UsageError
from flowengine.kernel.graph.compiled import Plain
from flowengine.sdk.errors import ValidationError
from flowengine.sdk.python_functions.docstrings import parse
from flowengine.sdk.python_functions.live_types import LiveTypes, plain_default
from flowengine.sdk.python_functions.plain_hints import (
    INJECTED,
    NotObvious,
    is_field,
    obvious_conversion,
)
from flowengine.sdk.python_functions.schema_forms import ABSENT, Parameter, arguments
from flowengine.sdk.python_functions.signature import Signature
from flowengine.sdk.python_modules import (
    MAIN,
    FunctionNotFound,
    import_function,
    name_of_program,
    public_name,
)
from flowengine.sdk.resources import Resource
from flowengine.sdk.step_kind import SignatureError
from flowengine.sdk.validation_messages import predicate

Given = inspect.Parameter
_BY_NAME = {Given.POSITIONAL_OR_KEYWORD, Given.KEYWORD_ONLY}
_COROUTINES = inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE


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
    name, code = name_of(function), _code(function)
    hints = resolved_hints(function)
    types = LiveTypes(lenient=lenient)
    description, descriptions = parse(_docstring(function))
    parameters, others, every, classes = [], None, set(), {}
    for parameter in given_parameters(function):
        hint = hints.get(parameter.name, Given.empty)
        every.add(parameter.name)
        if parameter.kind is Given.VAR_KEYWORD:
            unpacked = _unpacked(hint)
            others = _of_parameter(types, name, f"**{parameter.name}", unpacked or hint)
            if unpacked is not None:
                parameters += types.records.fields(others)
                others = None
        elif parameter.name not in {*INJECTED, *environments} and not (
            _is_context(hint) or (not lenient and is_injected(hint, is_environment))
        ):
            if lenient and parameter.kind is Given.VAR_POSITIONAL:
                continue
            if parameter.kind not in _BY_NAME:
                stars = "*" if parameter.kind is Given.VAR_POSITIONAL else ""
                raise UsageError(
                    f"the parameter '{stars}{parameter.name}' of {name} cannot be given by name",
                    hint="give each argument a parameter with a separate name",
                )
            schema = _of_parameter(types, name, parameter.name, hint)
            field = field_of(parameter)
            required = parameter.default is Given.empty if field is None else field.is_required()
            # A field's schema already contains its default.
            without = required or field is not None
            default = ABSENT if without else plain_default(parameter.default)
            parameters.append(
                Parameter(
                    parameter.name, schema, required, default, descriptions.get(parameter.name)
                )
            )
            if schema.keys() <= {"description"} and (named := _classes(hint)):
                classes[parameter.name] = named
    results = LiveTypes(result=True, lenient=lenient)
    returns = _of_result(results, hints)
    return Signature(
        description=description,
        args=types.records.tidied(arguments(parameters, others)),
        returns=None if returns is None else results.records.tidied(returns),
        is_async=bool(code and code.co_flags & _COROUTINES),
        quick=getattr(function, "__flowengine_quick__", False),
        takes_resources="runtime_resources" in every,
        takes_context_variables="context_variables" in every,
        classes=classes,
    )


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
        spaces = _namespaces(inner)
        hints = {name: _resolved(hint, *spaces) for name, hint in raw.items()}
    for name, field in _fields(inner):
        if not isinstance(hints.get(name), str):
            # Not written as a subscript, because type checkers do not know the type.
            both = (hints.get(name, Any), field)
            hints[name] = Annotated.__class_getitem__(both)  # type: ignore[attr-defined]
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


def _resolved(hint: Any, globals: dict[str, Any], locals: dict[str, Any]) -> Any:
    text = getattr(hint, "__forward_arg__", hint)
    if not isinstance(text, str):
        return hint
    try:
        # The same as `typing.get_type_hints` does: the text is the program's own annotation.
        return eval(text, globals, locals)
    except Exception:
        return text


def _namespaces(function: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    cells = zip(
        getattr(getattr(function, "__code__", None), "co_freevars", ()),
        getattr(function, "__closure__", None) or (),
        strict=False,
    )
    around = {}
    for name, cell in cells:
        try:
            around[name] = cell.cell_contents
        except ValueError:  # bound later
            continue
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    known = getattr(function, "__globals__", None)
    return vars(module) if known is None and module else known or {}, around


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


def _code(function: Any) -> Any:
    return getattr(innermost(function), "__code__", None)


def _docstring(function: Any) -> str | None:
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function):
        return inspect.getdoc(function)
    return inspect.getdoc(innermost(function)) or inspect.getdoc(type(function))


def is_injected(hint: Any, is_environment: Callable[[type], bool] | None = None) -> bool:
    """Return whether the engine injects the type that a hint names."""
    if _is_context(hint):
        return True
    each = [hinted for hinted in get_args(hint) if hinted is not type(None)] or [hint]
    return all(
        inspect.isclass(hinted)
        and (
            _is_context(hinted)
            or issubclass(hinted, Resource)
            or (is_environment is not None and is_environment(hinted))
        )
        for hinted in each
    )


def _is_context(hint: Any) -> bool:
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


def _unpacked(hint: Any) -> Any:
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
    except (UsageError, NameError) as error:
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


# Conversion of arguments to a function's type hints: models, dataclasses, enums, dates, sets.
#
# Arguments arrive as plain data that fits the schema of the function. Most functions take plain
# data, and receive it unchanged.

Convert = Callable[[dict[str, Any]], dict[str, Any]]


def conversion(function: Callable[..., Any], skip: Collection[str] = ()) -> Convert | None:
    """Return a function that converts arguments to the types that a function's hints name.

    Args:
        function: The called function.
        skip: Parameters that do not receive arguments.

    Returns:
        A function from arguments by name to the values that the function is called with. It raises
        `ValidationError`, which lists all errors. None if the function takes plain data.

    Raises:
        ValidationError: No value of a parameter's type could be read again.
    """
    hints = resolved_hints(function)
    each: dict[str, Callable[[Any], Any] | None] = {}
    others: Callable[[Any], Any] | None = None
    fields: dict[str, Any] = {}
    for parameter in given_parameters(function):
        hint = hints.get(parameter.name, inspect.Parameter.empty)
        taken = {parameter.name: hint}
        if (unpacked := _unpacked(hint)) is not None:
            taken = get_type_hints(unpacked)
        for name, each_hint in taken.items():
            try:
                each[name] = None if name in skip else conversion_to(each_hint)
            except ValidationError as error:
                named = f"the parameter '{name}' of {name_of(function)}"
                raise ValidationError(f"{named} cannot be given: {error.message}") from None
        if parameter.kind is parameter.VAR_KEYWORD and unpacked is None:
            others = each.pop(parameter.name)
        if (field := field_of(parameter)) is not None and not field.is_required():
            fields[parameter.name] = field
    return together(each, fields, others) if any(each.values()) or fields or others else None


def together(
    each: Mapping[str, Callable[[Any], Any] | None],
    fields: Mapping[str, Any] = MappingProxyType({}),
    others: Callable[[Any], Any] | None = None,
) -> Convert:
    """Return a function that converts arguments with one function per parameter.

    Args:
        each: Parameter → its conversion. None: it receives what is given.
        fields: Parameter → pydantic's `Field(...)` that is its default.
        others: The conversion of arguments that no parameter is named after.
    """

    def convert(arguments: dict[str, Any]) -> dict[str, Any]:
        made, wrong = dict(arguments), dict[str, str]()
        for name, field in fields.items():
            # otherwise the function would receive the field object itself
            if name not in arguments:
                made[name] = field.get_default(call_default_factory=True)
        for name, value in arguments.items():
            convert_value = each.get(name, others)
            if convert_value is not None:
                try:
                    made[name] = convert_value(value)
                except Misfit as misfit:
                    wrong |= {f"{name}{path}": fault for path, fault in misfit.faults.items()}
        if wrong:
            faults = "; ".join(f"'{path}' {fault}" for path, fault in wrong.items())
            data: Plain = {"fields": {**wrong}}
            raise ValidationError(f"the arguments do not fit: {faults}", data=data)
        return made

    return convert


class Misfit(Exception):
    """A value is not of a type: path inside it → error."""

    def __init__(self, faults: dict[str, str]) -> None:
        super().__init__(
            "; ".join(
                f"'{path.lstrip('.')}' {fault}" if path else fault for path, fault in faults.items()
            )
        )
        self.faults = faults


def conversion_to(hint: Any) -> Callable[[Any], Any] | None:
    """Return a function that converts plain data to a type, or None if it is used unchanged.

    Args:
        hint: The type.

    Returns:
        A function that raises `Misfit`.

    Raises:
        ValidationError: No value of the type could be read again.
    """
    if isinstance(hint, str) or hint is inspect.Parameter.empty or is_injected(hint):
        return None
    try:
        return obvious_conversion(hint)
    except NotObvious:
        pass
    from pydantic import ValidationError as Invalid

    from flowengine.sdk.python_functions.carried_values import NoPlainForm
    from flowengine.sdk.python_functions.typed_values import TypedValues, UnknownType

    try:
        values = TypedValues(hint)
    except UnknownType:
        return None  # a class of the program, which the function checks itself
    except NoPlainForm as error:
        raise ValidationError(str(error), retryable=False) from None

    def convert(value: Any) -> Any:
        try:
            return values.read(value)
        except Invalid as invalid:
            errors = invalid.errors(include_url=False, include_input=False)
            raise Misfit({_path(error["loc"]): _fault_of(error) for error in errors}) from None

    return convert


def _fault_of(error: Any) -> str:
    return "is missing" if error["type"] == "missing" else predicate(error)


def _path(location: tuple[int | str, ...]) -> str:
    return "".join(f".{part}" for part in location)


# Where the signature of a function is read: in its source, or from the function itself.


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
        from flowengine.sdk.python_functions.signature import derive

        return derive(function, folder)

    try:
        return read_function(import_function(function, folder), lenient=True)
    except FunctionNotFound as error:
        raise SignatureError(str(error)) from None
    except UsageError as error:
        raise SignatureError(error.message, hint=error.hint) from None
