"""Conversion of arguments to a function's type hints: models, dataclasses, enums, dates, sets.

Arguments arrive as plain data that fits the schema of the function. Most functions take plain data,
and receive it unchanged.
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
    """Return a function that converts arguments to the types that a function's hints name.

    Args:
        function: The called function.
        skip: Parameters that do not receive arguments.

    Returns:
        A function from arguments by name to the values that the function is called with. It raises
        `ValidationError`, which lists all errors. None if the function takes plain data.
    """
    hints = resolved_hints(function)
    each: dict[str, Callable[[Any], Any]] = {}
    fields: dict[str, Any] = {}
    for one in given_parameters(function):
        hint = hints.get(one.name, inspect.Parameter.empty)
        convert = None if one.name in skip else _of_type(hint)
        if convert is not None and one.kind in {one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY}:
            each[one.name] = convert
        if (field := field_of(one)) is not None and not field.is_required():
            fields[one.name] = field
    return _together(each, fields) if each else None


def _together(each: Mapping[str, Callable[[Any], Any]], fields: Mapping[str, Any]) -> Convert:
    def convert(arguments: dict[str, Any]) -> dict[str, Any]:
        made, wrong = dict(arguments), dict[str, str]()
        for name, field in fields.items():
            # otherwise the function would receive the field object itself
            if name not in arguments:
                made[name] = field.get_default(call_default_factory=True)
        for name, one in each.items():
            if name in arguments:
                try:
                    made[name] = one(arguments[name])
                except _Misfit as misfit:
                    wrong |= {f"{name}{path}": said for path, said in misfit.said.items()}
        if wrong:
            told = "; ".join(f"'{path}' {said}" for path, said in wrong.items())
            data: Plain = {"fields": {**wrong}}
            raise ValidationError(f"the arguments do not fit: {told}", data=data)
        return made

    return convert


class _Misfit(Exception):
    """A value does not fit: path inside it → error."""

    def __init__(self, said: dict[str, str]) -> None:
        super().__init__()
        self.said = said


def _of_type(hint: Any) -> Callable[[Any], Any] | None:
    """Return a function that converts a value to a type, or None if the value is used unchanged."""
    if isinstance(hint, str) or _is_plain(hint, ()) or is_injected(hint):
        return None
    from pydantic import TypeAdapter
    from pydantic import ValidationError as Invalid
    from pydantic.errors import PydanticUserError

    try:
        adapter = TypeAdapter(hint)
    except PydanticUserError:
        return None  # a class of the program, which the function checks itself
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
            raise _Misfit({_path(one["loc"]): _said(one) for one in errors}) from None

    return convert


def _said(error: Any) -> str:
    return "is missing" if error["type"] == "missing" else predicate(error)


def _path(location: tuple[int | str, ...]) -> str:
    return "".join(f".{part}" for part in location)


def _is_plain(hint: Any, around: tuple[Any, ...]) -> bool:
    """Return whether a hint stands for plain data."""
    if hint in _PLAIN or hint in _HOLDING:
        return True
    origin = get_origin(hint)
    if origin is Literal:
        return all(isinstance(one, str | int | bool | NoneType) for one in get_args(hint))
    if origin in _HOLDING:
        return all(_is_plain(one, around) for one in get_args(hint))
    if hasattr(hint, "__metadata__"):
        said = all(isinstance(one, str) for one in hint.__metadata__)
        return said and _is_plain(get_args(hint)[0], around)
    if is_typeddict(hint):
        from typing import get_type_hints

        return hint in around or all(
            _is_plain(one, (*around, hint)) for one in get_type_hints(hint).values()
        )
    return False
