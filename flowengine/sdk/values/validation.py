"""Validation of values against JSON Schemas (draft 2020-12), with the field named in errors.

The verdict is always that of jsonschema-rs. Importing it takes as long as starting a small flow, so
plain Python first tries to prove that a value fits. This succeeds for valid values of the simple
schemas that most inputs and arguments have. All others are validated only if their parts apply
seldom enough to the value (`schema_expansion`), because nothing ends a validation.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import count
from json import dumps, loads
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from flowengine.errors import InputError
from flowengine.kernel.notation.times import (
    TooLong,
    lacks_offset,
    parse_duration,
    parse_microseconds,
)
from flowengine.sdk.errors import ValidationError
from flowengine.sdk.texts.near_words import did_you_mean
from flowengine.sdk.values.declared_forms import declared_form
from flowengine.sdk.values.plain_values import place_of_fault, to_plain
from flowengine.sdk.values.schema_expansion import Count, Expansion, TooMuch, plain_values_first
from flowengine.util.plain_data import with_leaves

if TYPE_CHECKING:
    import jsonschema_rs


_Proof = Callable[[Any], bool]

SMALLEST, LARGEST = -(2**63), 2**64 - 1
"""The range of integers that can be stored."""
_INFINITE = {inf: "infinity", -inf: "minus infinity"}
_SCALARS = frozenset({str, int, float, bool, bytes, type(None)})
_DEEP = 200
"""The deepest nesting of lists and maps, as of `plain_values`, which is not imported here."""
_DURATION = r"[+-]?P(?!$)(\d+Y)?(\d+M)?(\d+W)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?"
_DATA = frozenset({"default", "enum", "const", "examples"})
"""Keywords whose values are not schemas."""
_MAPS = frozenset(
    {
        "properties",
        "patternProperties",
        "$defs",
        "definitions",
        "dependentSchemas",
        "dependencies",
    }
)
"""Keywords whose values are maps of schemas."""
_SHOWN = 60
_TOLD = 5
_LISTED = 30_000
_HELD = 3_000_000
"""Maximum number of applied parts, and of values in their errors, of which all are listed."""
_BACKTRACKED = 10_000
"""Maximum number of steps in which a regular expression looks around in one text."""
_SAYS_NOTHING = frozenset(
    {
        "title",
        "description",
        "default",
        "examples",
        "ui",
        "deprecated",
        "$comment",
    }
)
_TYPES: dict[str, _Proof] = {
    "string": lambda value: type(value) is str,
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) is int or type(value) is float,
    "boolean": lambda value: type(value) is bool,
    "null": lambda value: value is None,
    "object": lambda value: type(value) is dict,
    "array": lambda value: type(value) is list,
}
TYPE_WORDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "object": "a map",
    "array": "a list",
}
"""The types of JSON Schema in the words of messages."""
_MUST = {
    "minimum": "be at least {limit}",
    "maximum": "be at most {limit}",
    "exclusiveMinimum": "be greater than {limit}",
    "exclusiveMaximum": "be less than {limit}",
    "multipleOf": "be a multiple of {multiple_of}",
    "pattern": "match {pattern}",
}
_SIZES = {
    "minLength": ("at least", "character"),
    "maxLength": ("at most", "character"),
    "minItems": ("at least", "item"),
    "maxItems": ("at most", "item"),
    "minProperties": ("at least", "key"),
    "maxProperties": ("at most", "key"),
}


class SchemaError(InputError):
    """A schema is itself invalid."""


class Validator:
    """A prepared JSON Schema, which validates a small value in a microsecond.

    `$ref` is resolved only inside the schema, and nothing is ever fetched. Formats are checked,
    including `path`: a file or directory of that name exists.

    Args:
        schema: The schema.
        folder: Base of relative paths. Default: the current directory.

    Attributes:
        proof: Returns whether a value certainly fits. None if the schema is not simple enough. A
            value that it does not prove may still be valid.

    Raises:
        SchemaError: The schema is invalid.
    """

    __slots__ = ("_convert", "_expansion", "_folder", "_full", "_schema", "proof")

    def __init__(self, schema: Any, *, folder: str | None = None) -> None:
        self._schema = schema
        self._folder = folder
        self._full: jsonschema_rs.Draft202012Validator | None = None
        self._expansion: Expansion
        self._convert: Callable[[Any], Any] | None = None
        self.proof = proof_of(schema)
        if self.proof is None:
            self._validator()

    def check(self, value: Any, what: str) -> Any:
        """Validate a value, and return it in the declared form.

        2.0 is 2 where an integer is declared, and bytes are a text where base64 is declared.

        Args:
            value: Plain data.
            what: Description of the value, which begins the message: `input 'amount'`.

        Returns:
            The value in the declared form.

        Raises:
            InputError: The value does not fit. `field` is the dotted path of the invalid part.
        """
        if self.proof is not None and self.proof(value):
            return value
        errors = self._errors(value, what)
        if errors:
            message, field, hint = self.explained(errors)
            gap = " " if message.startswith("must ") else ": "
            raise InputError(f"{what}{gap}{message}", field=field, hint=hint)
        return value if self._convert is None else self._convert(value)

    def misfits(self, value: Any, most: int = 2_000) -> list[jsonschema_rs.ValidationError]:
        """Return the errors of a value, none if it fits.

        Args:
            value: Plain data.
            most: Maximum number of applied parts of which errors are listed.

        Raises:
            InputError: The schema applies more parts to it.
        """
        if self.proof is not None and self.proof(value):
            return []
        return self._errors(value, "it", most)

    def _errors(
        self, value: Any, what: str, most: int = _LISTED
    ) -> list[jsonschema_rs.ValidationError]:
        import jsonschema_rs

        validator = self._validator()
        count: Count | None = None
        if not self._expansion.is_light:
            value, count = self._counted(value, what)
        try:
            fits = validator.is_valid(value)
        except ValueError:  # bytes, which JSON has as text
            from base64 import b64encode

            value = with_leaves(value, lambda data: b64encode(data).decode(), bytes)
            fits = validator.is_valid(value)
        if fits:
            return []
        if self._expansion.is_light:
            value, count = self._counted(value, what)
        if count and count.applied <= most and count.held <= _HELD:
            return list(validator.iter_errors(value))
        if not self._expansion.has_deep_choices:
            try:
                validator.validate(value)
            except jsonschema_rs.ValidationError as error:
                return [error]
        raise InputError(
            f"{what} does not fit its JSON Schema, which has too many alternatives for it to name "
            "the fault",
            hint="validate its parts, or nest it less",
        )

    def _counted(self, value: Any, what: str) -> tuple[Any, Count | None]:
        """Return a value in an order in which it can be validated.

        Returns:
            The value, and the number of parts that apply to it, as far as its errors can be listed.

        Raises:
            InputError: Too many apply to it.
        """
        with suppress(TooMuch):
            return value, self._expansion.count(value)
        try:
            value = plain_values_first(value)
            self._expansion.count(value, plain_first=True)
            return value, None
        except TooMuch as error:
            raise InputError(
                f"{what} cannot be validated: its JSON Schema {error}",
                hint="nest the value less, or combine fewer references and alternatives",
            ) from None

    def explained(self, errors: list[jsonschema_rs.ValidationError]) -> tuple[str, str, str | None]:
        """Return errors with their fields, the first field, and a suggested fix."""
        texts = []
        hint = None
        for error in errors[:_TOLD]:
            field = ".".join(map(str, error.instance_path))
            text, mend = _explain(error, self._schema)
            hint = hint or mend
            texts.append(f"'{field}' {text}" if field else text)
        if len(errors) > _TOLD:
            texts.append(f"and {len(errors) - _TOLD} more")
        return "; ".join(texts), ".".join(map(str, errors[0].instance_path)), hint

    def _validator(self) -> jsonschema_rs.Draft202012Validator:
        if self._full is None:
            import jsonschema_rs

            try:
                schema = _with_roots(self._schema, count())
                self._expansion = Expansion(schema)
                self._convert = declared_form(self._schema)
                self._full = jsonschema_rs.Draft202012Validator(
                    schema,
                    formats={"path": self._exists, **_FORMATS},
                    validate_formats=True,
                    offline=True,
                    pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKED),
                    mask="it",
                )
            except (jsonschema_rs.ValidationError, ValueError, TypeError, RecursionError) as error:
                place = ".".join(map(str, getattr(error, "instance_path", ())))
                message = getattr(error, "message", str(error))
                at = f" (at {place})" if place else ""
                raise SchemaError(
                    f"this JSON Schema cannot be used{at}: {message}", field=place
                ) from None
        return self._full

    def _exists(self, path: str) -> bool:
        try:
            return os.path.exists(os.path.join(self._folder or "", os.path.expanduser(path)))
        except ValueError:  # a null character
            return False


def _with_roots(schema: Any, numbers: Iterator[int], *, inner: bool = False) -> Any:
    """Return a schema of one dialect, whose references inside a part that has `$defs` lead there.

    Args:
        schema: The schema, or a part of it.
        numbers: For the ids of these parts.
        inner: Whether it is a part.
    """
    if isinstance(schema, list):
        return [_with_roots(part, numbers, inner=True) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Any] = {}
    for word, value in schema.items():
        if word in _MAPS and isinstance(value, dict):
            named = value.items()
            made[word] = {name: _with_roots(part, numbers, inner=True) for name, part in named}
        elif word != "$schema":
            made[word] = value if word in _DATA else _with_roots(value, numbers, inner=True)
    if inner and isinstance(schema.get("$defs"), dict):
        made.setdefault("$id", f"urn:part:{next(numbers)}")
    return made


def _accepted(read: Callable[[str], object]) -> Callable[[str], bool]:
    """Return a function that returns whether another one reads a text."""

    def fits(text: str) -> bool:
        try:
            read(text)
        except ValueError:
            return False
        return True

    return fits


def _of_pydantic(type: str) -> Callable[[str], bool]:
    def read(text: str) -> object:
        import pydantic

        return pydantic.TypeAdapter(getattr(pydantic, type)).validate_strings(text)

    return _accepted(read)


def _of_datetime(kind: str) -> Callable[[str], bool]:
    def read(text: str) -> object:
        import datetime

        return getattr(datetime, kind).fromisoformat(text)

    return _accepted(read)


def _read_duration(text: str) -> object:
    """Read a duration in ISO 8601, also with a sign, or as in flow files."""
    import re

    return re.fullmatch(_DURATION, text, re.ASCII) or parse_duration(text)


_FORMATS = {
    **{f"uuid{version}": _of_pydantic(f"UUID{version}") for version in (1, 3, 4, 5, 6, 7, 8)},
    "aware-date-time": _of_pydantic("AwareDatetime"),
    "naive-date-time": _of_pydantic("NaiveDatetime"),
    "url": _of_pydantic("AnyUrl"),
    "ipvanyaddress": _of_pydantic("IPvAnyAddress"),
    "ipvanyinterface": _of_pydantic("IPvAnyInterface"),
    "ipvanynetwork": _of_pydantic("IPvAnyNetwork"),
    "date-time": _accepted(parse_microseconds),
    "iso-date-time": _of_datetime("datetime"),
    "iso-time": _of_datetime("time"),
    "duration": _accepted(_read_duration),
}
"""Formats of times and of types of pydantic. `date-time` is a point in time. The values of Python's
types may be local."""


def shared(schema: Any, folder: str | None = None) -> Validator:
    """Return the validator of a schema, shared by all equal schemas.

    Args:
        schema: The schema.
        folder: Base of relative paths. Default: the current directory.

    Returns:
        A validator, created once.
    """
    return _made(dumps(schema), folder)


@lru_cache(maxsize=1024)
def _made(schema: str, folder: str | None) -> Validator:
    return Validator(loads(schema), folder=folder)


def validate(schema: Any, value: Any, what: str, *, folder: str | None = None) -> Any:
    """Validate a value against a JSON Schema, and return it. See `Validator.check`.

    Args:
        schema: The schema.
        value: Plain data.
        what: Description of the value, which begins the message: `input 'amount'`.
        folder: Base of relative paths (`format: path`). Default: the current directory.

    Returns:
        The value in the declared form.
    """
    return shared(schema, folder).check(as_plain(value, what), what)


def as_plain(value: Any, what: str) -> Any:
    """Return an external value as plain data, whose numbers can be stored and written as JSON.

    Values of Python, such as models, dates and tuples, get their plain form.

    Args:
        value: The value. Plain data is returned unchanged.
        what: Description of the value, which begins the message: `input 'amount'`.

    Raises:
        InputError: A part of it has no plain form: it is infinite, is not a number, is an integer
            beyond 64 bits, contains itself, or is an object of the program.
    """
    pending = [("", 0, value)]
    while pending:
        path, depth, part = pending.pop()
        kind = type(part)
        if kind is dict and depth < _DEEP and all(type(key) is str for key in part):
            pending += [(f"{path}.{key}", depth + 1, item) for key, item in part.items()]
        elif kind is list and depth < _DEEP:
            pending += [(f"{path}[{at}]", depth + 1, item) for at, item in enumerate(part)]
        elif kind is float and not isfinite(part):
            raise InputError(
                f"{what}{path} is {_INFINITE.get(part, 'not a number')}, which is not JSON",
                field=path.lstrip("."),
                hint="give null or text",
            )
        elif kind is int and not SMALLEST <= part <= LARGEST:
            raise InputError(
                f"{what}{path} is an integer {'below -2^63' if part < 0 else 'above 2^64-1'}",
                field=path.lstrip("."),
                hint="only integers from -2^63 to 2^64-1 can be stored. Pass a larger one as text",
            )
        elif kind not in _SCALARS:
            try:
                return to_plain(value, number_keys=True)
            except ValidationError as error:
                place = place_of_fault(value)
                fault = f"{what}{place} cannot be used: {error.message}"
                raise InputError(fault, field=place.lstrip(".")) from None
    return value


# Fast path


def proof_of(schema: Any) -> _Proof | None:
    """Return a function that proves that a value fits, or None if the schema is not simple."""
    if type(schema) is not dict:
        return (lambda value: True) if schema is True else None
    words, kind = schema.keys() - _SAYS_NOTHING, schema.get("type")
    if not words:
        return lambda value: True
    if kind == "object" and words <= {"type", "properties", "required", "additionalProperties"}:
        return _object_proof(schema)
    if kind == "array" and words == {"type", "items"}:
        item = proof_of(schema["items"])
        return item and (lambda value: type(value) is list and all(map(item, value)))
    kinds: list[Any] = kind if type(kind) is list else [kind]
    choices = schema.get("enum", [""])
    if (
        not words <= {"type", "enum"}
        or not all(type(each) is str and each in _TYPES for each in kinds if "type" in words)
        or not (type(choices) is list and choices and all(type(each) is str for each in choices))
    ):
        return None
    proofs = [_TYPES[each] for each in kinds if "type" in words]
    if "enum" in words:
        return lambda value: (
            type(value) is str
            and value in choices
            and (not proofs or any(proof(value) for proof in proofs))
        )
    return proofs[0] if len(proofs) == 1 else lambda value: any(proof(value) for proof in proofs)


def _object_proof(schema: dict[str, Any]) -> _Proof | None:
    fields, required = schema.get("properties", {}), schema.get("required", [])
    is_open = schema.get("additionalProperties", True)
    if type(fields) is not dict or type(required) is not list or type(is_open) is not bool:
        return None
    proofs: dict[str, _Proof] = {}
    for name, inner in fields.items():
        if (proof := proof_of(inner)) is None:
            return None
        proofs[name] = proof
    return lambda value: (
        type(value) is dict
        and all(name in value for name in required)
        and (is_open or value.keys() <= proofs.keys())
        and all(name not in value or proof(value[name]) for name, proof in proofs.items())
    )


# Messages


def _explain(error: jsonschema_rs.ValidationError, schema: Any) -> tuple[str, str | None]:
    """Return the error in a value, and how to fix it if that can be guessed."""
    kind, name = error.kind.as_dict(), error.kind.name
    if name in {"additionalProperties", "unevaluatedProperties"}:
        names = kind["unexpected"]
        text = f"has no {', '.join(repr(name) for name in names)}"
        # a path through `$ref` leads nowhere and gives no suggestion
        for step in list(error.schema_path)[:-1]:
            schema = schema.get(step, {}) if isinstance(schema, dict) else {}
        return text, did_you_mean(names[0], schema.get("properties", {})) if names else None
    if name in {"anyOf", "oneOf"}:
        return _no_form(error, kind["context"], schema), None
    if name == "pattern" and "pattern" not in kind:
        return f"takes more than {_BACKTRACKED:,} steps to match its pattern", None
    return _reason(name, kind, error), None


def _reason(name: str, kind: dict[str, Any], error: jsonschema_rs.ValidationError) -> str:
    shown = _shown(error.instance)
    if name == "format":
        return _no_such_format(kind["format"], str(error.instance), shown)
    if name in _MUST:
        return f"must {_MUST[name].format(**kind)}, not {shown}"
    if name in _SIZES:
        bound, noun = _SIZES[name]
        nouns = noun if kind["limit"] == 1 else f"{noun}s"
        size = error.instance
        assert isinstance(size, str | list | dict)
        return f"must have {bound} {kind['limit']} {nouns}, not {len(size)}"
    match name:
        case "type":
            return _of_type(kind["types"], error.instance)
        case "required":
            return f"is missing '{kind['property']}'"
        case "enum":
            options = [
                *map(_shown, kind["options"][:_SHOWN]),
                *["…"] * (len(kind["options"]) > _SHOWN),
            ]
            return f"must be one of {', '.join(options)}, not {shown}"
        case "const":
            return f"must be {_shown(kind['expected_value'])}, not {shown}"
        case "propertyNames":
            key = kind["error"]
            rule = _explain(key, {})[0].partition(", not ")[0]
            return f"has the key {_shown(key.instance)}, which {rule}"
        case "uniqueItems":
            return f"must not contain an item twice, as {shown} does"
        case "not":
            return f"must not be {shown}"
        case "falseSchema":
            return "is not allowed"
    message = error.message
    short = message if len(message) <= 2 * _SHOWN else f"{message[: 2 * _SHOWN]}…"
    return f"is wrong: {short}"


_FORMAT_WORDS = {
    "url": "a URL such as https://example.com/a",
    "naive-date-time": "a date-time without an offset, such as 2026-11-25T09:14:02",
    "ipvanyaddress": "an IP address",
    "ipvanyinterface": "an IP address, with or without the size of its network",
    "ipvanynetwork": "an IP network such as 192.0.2.0/24",
    **{f"uuid{version}": f"a UUID of version {version}" for version in (1, 3, 4, 5, 6, 7, 8)},
}
"""Formats → descriptions of valid texts."""


def _no_such_format(format: str, text: str, shown: str) -> str:
    if format == "path":
        return f"names {shown}, but this file or directory does not exist"
    if format in _FORMAT_WORDS:
        return f"must be {_FORMAT_WORDS[format]}, not {shown}"
    if format in {"date-time", "aware-date-time"}:
        if lacks_offset(text):
            return f"must be a date-time with an offset, as in {text}Z or {text}+01:00, not {shown}"
        return f"must be a date-time such as 2026-11-25T09:14:02Z, not {shown}"
    if format == "duration":
        try:
            parse_duration(text)
        except TooLong:
            return f"must not be longer than a hundred years, as {shown} is"
        except ValueError:
            return f"must be a duration such as 90s, 15m or 1h30m, not {shown}"
    return f"must be of the format {format}, not {shown}"


def _no_form(
    error: jsonschema_rs.ValidationError,
    context: list[list[jsonschema_rs.ValidationError]],
    schema: Any,
) -> str:
    """Return why a value has none of several forms, or more than the one allowed."""
    if not all(context):
        return f"must have exactly one of its forms, but {_shown(error.instance)} has several"
    depth = len(error.instance_path)
    # forms of the same type as the value are more useful than those of others
    firsts = [form[0] for form in context]
    alike = [first for first in firsts if first.kind.name != "type" or first.instance_path[depth:]]
    if not alike:
        types = [name for first in firsts for name in first.kind.as_dict()["types"]]
        return _of_type(types, error.instance)
    reasons = []
    for other in alike:
        field = ".".join(map(str, other.instance_path[depth:]))
        text = _explain(other, schema)[0]
        reasons.append(f"'{field}' in it {text}" if field else text)
    return ", or ".join(list(dict.fromkeys(reasons))[:_TOLD])


def _of_type(types: list[str], value: Any) -> str:
    ordered = sorted(dict.fromkeys(types), key=lambda name: name == "null")
    words = " or ".join(TYPE_WORDS.get(name, name) for name in ordered)
    return f"must be {words}, not {_shown(value)}"


def _shown(value: Any) -> str:
    import json

    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
