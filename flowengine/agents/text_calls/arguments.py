"""Validation of a call written by a model.

`<parameter=a>5</parameter>` does not show whether 5 is a number or text. The schema decides: a text
that fits it stays unchanged, any other is read as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice, product
from json import dumps
from typing import Any

from jsonschema_rs import ValidationError

from flowengine.agents.text_calls.json_text import MAX_DEPTH, BrokenJson, read_json
from flowengine.agents.text_calls.marked_form import (
    CallFault,
    Ended,
    ModelCall,
    ToolOffer,
    Untyped,
)
from flowengine.errors import InputError
from flowengine.sdk.texts.near_words import nearest
from flowengine.sdk.values.validation import Validator, as_plain, shared

MAX_LENGTH = 1_000_000
"""Maximum characters of the arguments of one call."""
_LONGEST_NAME = 64
_SHOWN = 300
_LONGEST_FAULT = 2_000
"""Maximum characters about wrong arguments, whose names can be long."""
_OPENED = 2
"""Maximum levels of JSON text inside JSON text that are parsed."""
_MOST_READINGS = 64
"""Maximum number of ways to read the texts of one call that are tried against its schema."""
_NULLS = ("null", "None")
_OF_ANY_TYPE: tuple[Any, ...] = ("", 0, True, None, [], {})


class Misfit(Exception):
    """Arguments do not fit their schema. The message describes the required values."""


def bind(
    call: ModelCall, tools: Mapping[str, ToolOffer], *, ended: Ended = "stop"
) -> tuple[ModelCall | CallFault, tuple[str, ...]]:
    """Find the tool of a call, and convert its arguments to fit.

    Args:
        call: The call as written.
        tools: Tools on offer, by name.
        ended: Why the reply ended.

    Returns:
        The call or the fault to report to the model, and the repairs that were made.
    """
    tool = tools.get(call.name)
    if tool is None:
        return _unknown(call.name, tools), ()
    try:
        arguments, repairs = _opened(call.arguments, complete=ended == "stop")
        return ModelCall(tool.name, _fitting(arguments, tool, repairs)), tuple(
            dict.fromkeys(repairs)
        )
    except BrokenJson as broken:
        message = f"The arguments of {tool.name} cannot be read: {broken.reason}."
    except Misfit as misfit:
        message = f"The arguments of {tool.name} do not fit: {misfit}."
    written = call.arguments[:_SHOWN] if isinstance(call.arguments, str) else ""
    return CallFault(message, tool.name, written), ()


def _unknown(name: str, tools: Mapping[str, ToolOffer]) -> CallFault:
    short = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
    close = nearest(short, tools)
    hint = f" Did you mean {close}?" if close else ""
    offer = f"These are on offer: {', '.join(tools)}." if tools else "None is on offer."
    return CallFault(f"There is no tool '{short}'.{hint} {offer}", close)


def _opened(arguments: Any, *, complete: bool) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments as a dict, parsing JSON text and JSON text inside it.

    Raises:
        BrokenJson: They cannot be parsed, or are not an object.
    """
    repairs: list[str] = []
    for _ in range(_OPENED):
        if not isinstance(arguments, str):
            break
        if not arguments.strip():
            return {}, repairs
        if len(arguments) >= MAX_LENGTH:
            raise BrokenJson(f"they have {len(arguments)} characters, {MAX_LENGTH} are too many")
        arguments, rest, mended = read_json(arguments, complete=complete)
        repairs += mended
        if rest.strip():
            if not isinstance(arguments, dict):
                raise BrokenJson("they must be one JSON object")
            repairs.append("what stood after the arguments was left out")
    if arguments is None:
        return {}, repairs
    if not isinstance(arguments, dict):
        raise BrokenJson("they must be one JSON object")
    return arguments, repairs


def _fitting(arguments: dict[str, Any], tool: ToolOffer, repairs: list[str]) -> dict[str, Any]:
    """Return the arguments in the types of the schema.

    Raises:
        Misfit: They do not fit. The message names every invalid field.
    """
    untyped = [name for name, value in arguments.items() if isinstance(value, Untyped)]
    values = arguments | {name: arguments[name].text for name in untyped}
    _check_plain(values)
    try:
        validator = shared(tool.schema)
        if not untyped:
            with suppress(InputError):
                return _checked(values, validator)
        typed = {
            name: _typed(value, name, validator, repairs, is_typed=name not in untyped)
            for name, value in values.items()
        }
        _check_plain(typed)
        try:
            return _checked(typed, validator)
        except InputError:
            # Where the type of an argument depends on another one, only the whole shows it.
            for other in _other_readings(values, typed):
                with suppress(InputError):
                    if not validator.misfits(other):
                        return _checked(other, validator)
            raise
    except InputError as error:
        fault = error.message.removeprefix("they").lstrip(": ")
        raise Misfit(fault[:_LONGEST_FAULT].rstrip(".")) from None


def _checked(values: dict[str, Any], validator: Validator) -> dict[str, Any]:
    """Return arguments that fit, with 2.0 as 2 where an integer is declared.

    Raises:
        InputError: They do not fit.
    """
    for name, value in values.items():
        as_plain(value, f"'{name}'")
    fitting: dict[str, Any] = validator.check(values, "they")
    return fitting


def _typed(
    value: Any, name: str, validator: Validator, repairs: list[str], *, is_typed: bool
) -> Any:
    """Return the value that a text represents, and any other value unchanged.

    Args:
        value: The value as written by the model.
        name: Name of the argument.
        validator: Of all arguments.
        repairs: Repairs are appended to it.
        is_typed: Whether a text can only be meant as text where the schema allows text.
    """
    if not isinstance(value, str):
        return value

    def fits(other: Any) -> bool:
        with suppress(InputError):
            return not list(_at(name, validator.misfits({name: other})))
        return False

    if not is_typed and value.strip() in _NULLS and fits(None):
        return None
    if fits(value) and (is_typed or not all(map(fits, _OF_ANY_TYPE))):
        return value
    try:
        found, rest, mended = read_json(value)
    except BrokenJson:
        return value
    # If both fail, the error about the text is more useful than one about a number.
    if rest.strip() or not (isinstance(found, list | dict) or fits(found)):
        return value
    repairs += mended
    return found


def _at(name: str, errors: Iterable[ValidationError]) -> Iterator[ValidationError]:
    """Yield the errors of an argument. One of alternatives has it if every alternative has."""
    for error in errors:
        if error.instance_path[:1] == [name]:
            yield error
        elif not error.instance_path and error.kind.name in {"anyOf", "oneOf"}:
            forms = [list(_at(name, form)) for form in error.kind.as_dict()["context"]]
            if all(forms):
                yield from (fault for form in forms for fault in form)


def _other_readings(
    values: Mapping[str, Any], typed: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield arguments in which texts are read in other ways.

    Args:
        values: The arguments as written.
        typed: Their likely values.
    """
    each = []
    for name, value in values.items():
        readings = [typed[name]]
        if isinstance(value, str):
            if typed[name] is not value:
                readings.append(value)
            else:
                with suppress(BrokenJson):
                    found, rest, _ = read_json(value)
                    readings += [] if rest.strip() else [found]
        each.append(readings)
    for other in islice(product(*each), 1, _MOST_READINGS):
        arguments = dict(zip(values, other, strict=True))
        with suppress(Misfit):
            _check_plain(arguments)
            yield arguments


def _check_plain(value: Any) -> None:
    """Check for values that JSON can express but the store cannot keep.

    Raises:
        Misfit: The value is nested too deeply, or a text is not Unicode.
    """
    try:
        dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Misfit("a text has half a surrogate pair, which is not Unicode") from None
    except RecursionError:
        raise Misfit(f"they are nested more than {MAX_DEPTH} levels deep") from None
