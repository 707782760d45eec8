"""Conversion of arguments to a function's type hints: models, dataclasses, enums, dates, sets.

Arguments arrive as plain data that fits the schema of the function. Most functions take plain data,
and receive it unchanged.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any, get_type_hints

from flowengine.kernel.graph.compiled import Plain
from flowengine.sdk.errors import ValidationError
from flowengine.sdk.python.carried_values import NoPlainForm
from flowengine.sdk.python.live_signature import (
    field_of,
    given_parameters,
    is_injected,
    name_of,
    resolved_hints,
    unpacked,
)
from flowengine.sdk.python.plain_hints import NotObvious, obvious_conversion
from flowengine.sdk.python.typed_values import TypedValues, UnknownType
from flowengine.sdk.texts.validation_messages import predicate

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
        if (fields_of := unpacked(hint)) is not None:
            taken = get_type_hints(fields_of)
        for name, each_hint in taken.items():
            try:
                each[name] = None if name in skip else conversion_to(each_hint)
            except ValidationError as error:
                named = f"the parameter '{name}' of {name_of(function)}"
                raise ValidationError(f"{named} cannot be given: {error.message}") from None
        if parameter.kind is parameter.VAR_KEYWORD and fields_of is None:
            others = each.pop(parameter.name)
        if (field := field_of(parameter)) is not None and not field.is_required():
            fields[parameter.name] = field
    if not (any(each.values()) or fields or others):
        return None

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
            faults = {
                "".join(f".{part}" for part in error["loc"]): (
                    "is missing" if error["type"] == "missing" else predicate(error)
                )
                for error in errors
            }
            raise Misfit(faults) from None

    return convert
