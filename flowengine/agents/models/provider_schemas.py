"""Schemas of answers and of arguments, and names of tools, in the forms that providers accept.

Most providers require an object as the root of an answer and of a tool's arguments, without
alternatives at the top. Values are always checked against the original schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from json import dumps, loads
from typing import Any, Literal, NamedTuple

from flowengine.agents.models.failures import ModelError
from flowengine.agents.models.strict_schemas import OPENAI, Dialect, NotStrict, Schema, strict_form
from flowengine.errors import InputError
from flowengine.sdk.python.schema_forms import each_part
from flowengine.sdk.values.argument_schemas import described_arguments, required_arguments
from flowengine.sdk.values.validation import shared

_NOT_AT_THE_ROOT = frozenset({"allOf", "anyOf", "oneOf", "$ref", "enum", "const", "not"})
"""Keywords that providers refuse at the root of a schema."""
_ANSWER = "answer"
"""The key that contains an answer that is not an object."""
_BEGIN = re.compile(rf'\s*\{{\s*"{_ANSWER}"\s*:\s*')


class AnswerForm(NamedTuple):
    """The schema of an answer as sent to a provider."""

    schema: Schema
    strict: bool
    """Whether the provider can enforce it."""
    is_wrapped: bool
    """Whether the answer is the value of a key in the object that the provider returns."""


def answer_form(
    schema: Mapping[str, Any], dialect: Dialect = OPENAI, *, strict: bool = True
) -> AnswerForm | None:
    """Return the schema of an answer in the form for a provider, or None if it accepts none.

    Args:
        schema: The declared schema.
        dialect: The schemas that the provider enforces.
        strict: Whether the provider may enforce it.
    """
    is_wrapped = schema.get("type") != "object" or not _NOT_AT_THE_ROOT.isdisjoint(schema)
    sent = _wrapped(schema) if is_wrapped else dict(schema)
    if strict:
        with suppress(NotStrict):
            return AnswerForm(strict_form(sent, dialect), True, is_wrapped)
    return AnswerForm(sent, False, is_wrapped) if dialect.accepts_more else None


def _wrapped(schema: Mapping[str, Any]) -> Schema:
    """Return the schema of an object that contains a value of the given schema."""
    inner = _moved(schema, f"#/properties/{_ANSWER}")
    definitions = inner.pop("$defs", None)
    sent: Schema = {
        "type": "object",
        "properties": {_ANSWER: inner},
        "required": [_ANSWER],
        "additionalProperties": False,
    }
    return sent if definitions is None else {**sent, "$defs": definitions}


def _moved(schema: Mapping[str, Any], to: str) -> Schema:
    """Return a schema whose references follow its move. Definitions stay at the root."""
    moved = each_part(dict(schema), lambda part: _moved(part, to))
    reference = moved.get("$ref")
    if isinstance(reference, str) and re.match(r"#(?!/\$defs/)", reference):
        moved["$ref"] = to + reference[1:]
    return moved


def unwrapped(text: str, schema: Mapping[str, Any]) -> str:
    """Return the answer inside a wrapped one, or the text unchanged if it is not wrapped.

    A server that does not enforce a schema may return the answer itself.

    Args:
        text: The text of the reply.
        schema: The declared schema.
    """
    try:
        value = loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(value, dict) or value.keys() != {_ANSWER}:
        return text
    named = described_arguments(dict(schema))
    is_answer = _ANSWER in named or not named  # otherwise the key is not one of the answer
    if is_answer and _fits(value, schema) and not _fits(value[_ANSWER], schema):
        return text
    begin = _BEGIN.match(text)
    return text[begin.end() :].rstrip()[:-1].rstrip() if begin else dumps(value[_ANSWER])


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    try:
        shared(dict(schema)).check(value, "it")
    except InputError:
        return False
    return True


class WrappedText:
    """The text of a wrapped answer as it arrives, without its wrapper."""

    def __init__(self) -> None:
        self._held = ""
        self._state: Literal["before", "begins", "inside", "none"] = "before"

    def feed(self, piece: str) -> str:
        """Return the text of the answer that the next piece completes."""
        text, self._held = self._held + piece, ""
        if self._state == "before":
            begin = _BEGIN.match(text)
            wrapper = f'{{"{_ANSWER}":'
            if begin is None and wrapper.startswith("".join(text.split())):
                self._held = text
                return ""
            self._state = "none" if begin is None else "begins"
            text = text[begin.end() :] if begin else text
        if self._state == "begins":
            text = text.lstrip()
            self._state = "inside" if text else "begins"
        if self._state == "none":
            return text
        shown = text.rstrip().removesuffix("}").rstrip()
        self._held = text[len(shown) :]
        return shown

    def close(self) -> str:
        """Return the rest of the text, at its end."""
        held, self._held = self._held, ""
        return held if self._state == "before" else ""


# Arguments of tools


def arguments_form(schema: Schema) -> tuple[Schema, str]:
    """Return the schema of a tool's arguments in the form for providers.

    Args:
        schema: The declared schema.

    Returns:
        A schema with all properties at the top, and what its description must add, possibly
        nothing.
    """
    if _NOT_AT_THE_ROOT.isdisjoint(schema):
        return schema, ""
    rules = {key: part for key, part in schema.items() if key in _NOT_AT_THE_ROOT}
    form = {key: part for key, part in schema.items() if key not in _NOT_AT_THE_ROOT}
    properties, required = described_arguments(schema), required_arguments(schema)
    form["properties"] = {
        name: parts[0] if len(parts) == 1 else {"anyOf": parts}
        for name, parts in properties.items()
    }
    form.pop("unevaluatedProperties", None)
    form.pop("required", None)
    if required:
        form["required"] = sorted(required, key=[*properties, *required].index)
    return form, f"The arguments must also fit this JSON Schema: {dumps(rules, ensure_ascii=False)}"


# Wire names of tools: letters, digits, `_` and `-`, at most 64 characters.

LONGEST = 64
_TAKEN_AS_IT_IS = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OTHERS = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST = 8
"""Digits of the digest that distinguishes long names with the same beginning."""


def wire_name(name: str) -> str:
    """Return the wire name of a tool, which is the same in every process.

    A dot becomes `__`. Other invalid characters become `_`. After such a replacement, or if the
    name is too long, a digest of the name is appended.

    Args:
        name: Flow name of the tool.
    """
    if _TAKEN_AS_IT_IS.fullmatch(name):
        return name
    dotted = name.replace(".", "__")
    if _TAKEN_AS_IT_IS.fullmatch(dotted):
        return dotted
    from hashlib import sha256

    digest = sha256(name.encode(errors="surrogatepass")).hexdigest()[:_DIGEST]
    return f"{_OTHERS.sub('_', dotted)[: LONGEST - _DIGEST - 1]}_{digest}"


def clash(names: Iterable[str]) -> tuple[str, str, str] | None:
    """Return two names with the same wire name, and that wire name, if there are any.

    Args:
        names: Flow names of tools.
    """
    known: dict[str, str] = {}
    for name in names:
        called = wire_name(name)
        other = known.setdefault(called, name)
        if other != name:
            return other, name, called
    return None


class WireNames:
    """The names of the tools on offer, by their wire names.

    Args:
        names: Flow names of the tools.

    Raises:
        ModelError: Two of them have the same wire name.
    """

    def __init__(self, names: Iterable[str]) -> None:
        names = list(names)
        both = clash(names)
        if both is not None:
            one, other, called = both
            raise ModelError(
                f"the tools '{one}' and '{other}' would both be called '{called}' by models, which "
                "allow no dots in names: rename one of them",
                retryable=False,
            )
        self._known = {wire_name(name): name for name in names}

    def from_wire(self, name: str) -> str:
        """Return the flow name of a tool. A name that is not on offer is returned unchanged."""
        return self._known.get(name, name)
