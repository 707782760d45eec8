"""Validation of a call written by a model: its tool and its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from json import dumps
from typing import Any

from flowengine.agents.text_calls.json_text import MAX_DEPTH, BrokenJson, read_json
from flowengine.agents.text_calls.records import Ended, InvalidCall, TextCall, ToolOffer, Untyped
from flowengine.agents.text_calls.text_values import Misfit, allowed_types, typed
from flowengine.errors import InputError
from flowengine.sdk.near_words import nearest
from flowengine.validation import check_numbers, shared

MAX_LENGTH = 1_000_000
"""Maximum characters of the arguments of one call."""
_LONGEST_NAME = 64
_SHOWN = 300
_OPENED = 2
"""Maximum levels of JSON text inside JSON text that are parsed."""


def bind(
    call: TextCall, tools: Mapping[str, ToolOffer], *, ended: Ended = "stop"
) -> tuple[TextCall | InvalidCall, tuple[str, ...]]:
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
        return TextCall(tool.name, _fitting(arguments, tool, repairs)), tuple(
            dict.fromkeys(repairs)
        )
    except BrokenJson as broken:
        message = f"The arguments of {tool.name} cannot be read: {broken.reason}."
    except Misfit as misfit:
        message = f"The arguments of {tool.name} do not fit: {misfit}."
    written = call.arguments[:_SHOWN] if isinstance(call.arguments, str) else ""
    return InvalidCall(message, tool.name, written), ()


def _unknown(name: str, tools: Mapping[str, ToolOffer]) -> InvalidCall:
    short = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
    close = nearest(short, tools)
    hint = f" Did you mean {close}?" if close else ""
    offer = f"These are on offer: {', '.join(tools)}." if tools else "None is on offer."
    return InvalidCall(f"There is no tool '{short}'.{hint} {offer}", close)


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
        arguments, mended = _read(arguments, complete=complete)
        repairs += mended
    if arguments is None:
        return {}, repairs
    if not isinstance(arguments, dict):
        raise BrokenJson("they must be one JSON object")
    return arguments, repairs


def _read(text: str, *, complete: bool) -> tuple[Any, tuple[str, ...]]:
    value, rest, repairs = read_json(text, complete=complete)
    if rest.strip():
        if not isinstance(value, dict):
            raise BrokenJson("they must be one JSON object")
        repairs += ("what stood after the arguments was left out",)
    return value, repairs


def _fitting(arguments: dict[str, Any], tool: ToolOffer, repairs: list[str]) -> dict[str, Any]:
    """Return the arguments in the types of the schema.

    Raises:
        Misfit: They do not fit. The message names every invalid field.
    """
    schema = tool.schema
    declared = schema["properties"]
    values, wrong = {}, []
    for name, value in arguments.items():
        try:
            values[name] = _converted(value, declared.get(name, True), schema, repairs)
        except Misfit as misfit:
            wrong.append(f"'{name}' {misfit}, not {_short(value)}")
    if not (schema.get("additionalProperties") or schema.get("patternProperties")):
        wrong += [
            f"there is no '{name[:_LONGEST_NAME]}'" for name in values if name not in declared
        ]
    if wrong:
        missing = [name for name in schema.get("required", ()) if name not in arguments]
        wrong += [f"'{name}' is missing" for name in missing]
        raise Misfit("; ".join(wrong))
    _check_plain(values)
    try:
        for name, value in values.items():
            check_numbers(value, f"'{name}'")
        fitting: dict[str, Any] = shared(schema).check(values, "they")
    except InputError as error:
        fault = error.message.removeprefix("they").lstrip(": ")
        raise Misfit(fault.rstrip(".")) from None
    return fitting


def _converted(value: Any, schema: Any, root: Mapping[str, Any], repairs: list[str]) -> Any:
    if isinstance(value, Untyped):
        return typed(value.text, schema, root, repairs)
    if isinstance(value, str) and "string" not in allowed_types(schema, root):
        return typed(value, schema, root, repairs)
    return value


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


def _short(value: Any) -> str:
    text = value.text if isinstance(value, Untyped) else dumps(value, ensure_ascii=False)
    return f"'{text[:40]}…'" if len(text) > 40 else f"'{text}'"
