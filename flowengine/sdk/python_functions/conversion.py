"""Arguments as a function's type hints have them: models, dataclasses, enums, dates, sets, bytes.

Arguments come as plain data that fits the schema of the function. Most functions take plain data,
too, and get it as it is.
"""

from __future__ import annotations

import collections.abc
import inspect
from base64 import b64decode
from binascii import Error as NoBase64
from collections.abc import Callable, Collection, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, is_typeddict

from flowengine.kernel.graph.compiled import Plain
from flowengine.sdk.errors import ValidationError
from flowengine.sdk.python_functions.live_signature import (
    field_of,
    given_parameters,
    is_injected,
    resolved_hints,
)
from flowengine.sdk.validation_messages import predicate

Convert = Callable[[dict[str, Any]], dict[str, Any]]

_PLAIN = {str, int, float, bool, NoneType, None, Any, object, inspect.Parameter.empty}
_HOLDING = {
    list,
    dict,
    Union,
    UnionType,
    collections.abc.Mapping,
    collections.abc.MutableMapping,
    collections.abc.Sequence,
    collections.abc.MutableSequence,
    collections.abc.Iterable,
    collections.abc.Collection,
}


def conversion(function: Callable[..., Any], skip: Collection[str] = ()) -> Convert | None:
    """Return what converts the arguments of a function to the types that its hints name.

    Args:
        function: What is called.
        skip: Parameters that get something else than arguments.

    Returns:
        A function from arguments, by name, to those that it is called with. It raises
        `ValidationError`, which tells everything that is wrong. None: it takes plain data.
    """
    hints = resolved_hints(function)
    each: dict[str, Callable[[Any], Any]] = {}
    fields: dict[str, Any] = {}
    for parameter in given_parameters(function):
        hint = hints.get(parameter.name, inspect.Parameter.empty)
        convert = None if parameter.name in skip else _of_type(hint)
        if convert is not None and parameter.kind in {
            parameter.POSITIONAL_OR_KEYWORD,
            parameter.KEYWORD_ONLY,
        }:
            each[parameter.name] = convert
        if (field := field_of(parameter)) is not None and not field.is_required():
            fields[parameter.name] = field
    return _together(each, fields) if each else None


def _together(each: Mapping[str, Callable[[Any], Any]], fields: Mapping[str, Any]) -> Convert:
    def convert(arguments: dict[str, Any]) -> dict[str, Any]:
        made, wrong = dict(arguments), dict[str, str]()
        for name, field in fields.items():
            if name not in arguments:  # the function would get the field itself
                made[name] = field.get_default(call_default_factory=True)
        for name, convert_value in each.items():
            if name in arguments:
                try:
                    made[name] = convert_value(arguments[name])
                except _Misfit as misfit:
                    wrong |= {f"{name}{path}": fault for path, fault in misfit.faults.items()}
        if wrong:
            faults = "; ".join(f"'{path}' {fault}" for path, fault in wrong.items())
            data: Plain = {"fields": {**wrong}}
            raise ValidationError(f"the arguments do not fit: {faults}", data=data)
        return made

    return convert


class _Misfit(Exception):
    """A value does not fit: path inside it → what is wrong."""

    def __init__(self, faults: dict[str, str]) -> None:
        super().__init__()
        self.faults = faults


def _of_type(hint: Any) -> Callable[[Any], Any] | None:
    """Return what converts a value to a type; None: it is taken as it is."""
    if isinstance(hint, str) or _is_plain(hint, ()) or is_injected(hint):
        return None
    from pydantic import TypeAdapter
    from pydantic import ValidationError as Invalid
    from pydantic.errors import PydanticUserError

    try:
        adapter = TypeAdapter(hint)
    except PydanticUserError:
        return None  # a class of the program's own: the function checks it itself
    takes_bytes = bytes in {hint, *get_args(hint)} and str not in get_args(hint)

    def convert(value: Any) -> Any:
        if takes_bytes and isinstance(value, str):
            try:
                value = b64decode(value, validate=True)
            except (NoBase64, ValueError):
                raise _Misfit({"": "must be base64"}) from None
        try:
            return adapter.validate_python(value)
        except Invalid as invalid:
            errors = invalid.errors(include_url=False, include_input=False)
            raise _Misfit({_path(error["loc"]): _fault_of(error) for error in errors}) from None

    return convert


def _fault_of(error: Any) -> str:
    return "is missing" if error["type"] == "missing" else predicate(error)


def _path(location: tuple[int | str, ...]) -> str:
    return "".join(f".{part}" for part in location)


def _is_plain(hint: Any, around: tuple[Any, ...]) -> bool:
    """Return whether plain data is what a hint asks for."""
    if hint in _PLAIN or hint in _HOLDING:
        return True
    origin = get_origin(hint)
    if origin is Literal:
        return all(isinstance(value, str | int | bool | NoneType) for value in get_args(hint))
    if origin in _HOLDING:
        return all(_is_plain(part, around) for part in get_args(hint))
    if hasattr(hint, "__metadata__"):
        only_described = all(isinstance(note, str) for note in hint.__metadata__)
        return only_described and _is_plain(get_args(hint)[0], around)
    if is_typeddict(hint):
        from typing import get_type_hints

        return hint in around or all(
            _is_plain(part, (*around, hint)) for part in get_type_hints(hint).values()
        )
    return False
