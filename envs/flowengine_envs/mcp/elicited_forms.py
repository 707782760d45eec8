"""What a server requests from a person, bounded so that it can be shown and recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from flowengine.sdk import Plain, ToolError
from flowengine.sdk.texts.visible_text import printable_lines
from flowengine.sdk.values.validation import SchemaError, Validator
from flowengine.sdk.web.urls import UrlRefused, read_url, scheme_of
from flowengine_envs.mcp import library
from flowengine_envs.mcp.messages import brief
from flowengine_envs.mcp.oauth_requests import is_protected

_MESSAGE, _NAME, _TEXT, _URL = 4_000, 100, 1_000, 2_000
"""Maximum characters of a message, a field's name, another text of a field, and an address."""
_FIELDS, _OPTIONS = 50, 200
_NO_SECRETS = (
    "Do not enter a password, code or key: it would be recorded in the journal. A server has to "
    "request secrets on its web page, by a link."
)
_LIMITS: Mapping[str, tuple[str, ...]] = {
    "string": ("minLength", "maxLength"),
    "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum"),
    "boolean": (),
}
"""Type of a field → its limits, which are numbers."""
_FORMATS = frozenset({"email", "uri", "date", "date-time"})


class RequestedInput(NamedTuple):
    """A request of a server for input."""

    message: str
    form: dict[str, Plain] | None
    """JSON Schema of the values. None: there is nothing to fill in."""
    url: str = ""
    """An address to open."""
    host: str = ""
    note: str = ""
    """A warning to the person who answers."""


def requested(params: library.ElicitRequestParams) -> RequestedInput:
    """Return a request of a server, bounded.

    Args:
        params: The request.

    Raises:
        ToolError: It cannot be shown to a person.
    """
    message = printable_lines(params.message[: _MESSAGE + 1]).strip()
    if len(message) > _MESSAGE:
        raise _invalid(f"its message has more than {_MESSAGE} characters")
    if params.mode == "url":
        url, host = _address(params.url)
        return RequestedInput(message, None, url, host)
    form = _form(params.requested_schema)
    fields: Mapping[str, Any] = form["properties"]
    # A person could enter a secret into any of these, whatever the server names it.
    is_typed = any(
        field["type"] in ("string", "integer", "number") and "enum" not in field
        for field in fields.values()
    )
    return RequestedInput(message, form, note=_NO_SECRETS if is_typed else "")


def _address(text: str) -> tuple[str, str]:
    """Return an address that a person may open, and its host.

    Raises:
        ToolError: It is neither https nor on this machine, or not plain.
    """
    try:
        url = read_url(text, longest=_URL)
    except UrlRefused as error:
        raise _invalid(f"its address is not plain: {brief(error.message)}") from None
    is_plain = text.isascii() and text.isprintable() and {*text}.isdisjoint(' \\"<>`{}')
    if not is_plain or url.credentials or not scheme_of(text):
        raise _invalid("its address is not plain")
    if not is_protected(url):
        raise _invalid(f"its address is not https: {brief(url.host)}")
    return text, url.origin.partition("//")[2]


def _form(schema: Mapping[str, Any]) -> dict[str, Plain]:
    """Return the form of a request, with only the parts that forms of the protocol have.

    Raises:
        ToolError: A field is not of a simple type, or a text or list is too long.
    """
    given = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(given, dict):
        raise _invalid("its form is no object with fields")
    if len(given) > _FIELDS:
        raise _invalid(f"its form has more than {_FIELDS} fields")
    fields: dict[str, Plain] = {}
    for name, field in given.items():
        if not 0 < len(name) <= _NAME or not name.isprintable():
            raise _invalid("its form has a field without a readable name")
        fields[name] = _field(name, field)
    required = schema.get("required")
    names = required if isinstance(required, list) else []
    return {
        "type": "object",
        "properties": fields,
        "required": [name for name in fields if name in names],
        "additionalProperties": False,
    }


def _field(name: str, given: Any) -> dict[str, Plain]:
    if not isinstance(given, dict):
        raise _invalid(f"its field {name!r} is not described")
    kind = str(given.get("type"))
    field: dict[str, Plain] = {"type": kind}
    options: dict[str, str] | None = None
    if kind == "array":
        items = given.get("items")
        options = _options(items if isinstance(items, dict) else {}, "anyOf")
        if options is None:
            raise _invalid(f"its field {name!r} is a list without options")
        field["items"] = {"type": "string", "enum": [*options]}
        field["uniqueItems"] = True
        limits: Sequence[str] = ("minItems", "maxItems")
    elif kind in _LIMITS:
        limits = _LIMITS[kind]
        options = _options(given, "oneOf") if kind == "string" else None
        if options is not None:
            field["enum"], limits = [*options], ()
        elif given.get("format") in _FORMATS:
            field["format"] = given["format"]
    else:
        raise _invalid(f"its field {name!r} is of type {brief(kind)}, which no form can have")
    field |= {key: given[key] for key in limits if given.get(key) is not None}
    titles = ", ".join(f"{id}: {label}" for id, label in (options or {}).items() if label != id)
    texts = {"title": given.get("title"), "description": given.get("description")}
    if titles:
        texts["description"] = f"{texts['description'] or ''}\n{titles}".strip()
    for key, text in texts.items():
        if isinstance(text, str) and text:
            field[key] = _short(text, _TEXT if key == "title" else _MESSAGE)
    try:
        validator = Validator(field)
    except SchemaError as error:
        raise _invalid(f"its field {name!r} has invalid limits: {brief(str(error))}") from None
    default = given.get("default")
    if default is not None and len(str(default)) <= _MESSAGE and not validator.misfits(default):
        field["default"] = default
    return field


def _options(given: Mapping[str, Any], key: str) -> dict[str, str] | None:
    """Return the options of a field: value → label. None: it has none."""
    listed, labels = given.get("enum"), given.get("enumNames")
    if listed is None and isinstance(given.get(key), list):
        parts = [part if isinstance(part, dict) else {} for part in given[key]]
        listed = [part.get("const") for part in parts]
        labels = [part.get("title") for part in parts]
    if listed is None:
        return None
    if not isinstance(listed, list) or not 0 < len(listed) <= _OPTIONS:
        raise _invalid(f"a field has no option, or more than {_OPTIONS}")
    if not all(isinstance(option, str) and len(option) <= _TEXT for option in listed):
        raise _invalid("an option of a field is no short text")
    labels = labels if isinstance(labels, list) and len(labels) == len(listed) else listed
    return {
        option: _short(label, _NAME) if isinstance(label, str) else option
        for option, label in zip(listed, labels, strict=True)
    }


def _short(text: str, most: int) -> str:
    shown = printable_lines(text[:most]).strip()
    return f"{shown}…" if len(text) > most else shown


def _invalid(why: str) -> ToolError:
    return ToolError(f"the server requests input that cannot be shown: {why}", retryable=False)
