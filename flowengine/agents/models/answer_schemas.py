"""JSON Schemas of answers in the forms that providers accept.

Most providers require an object as the root of an answer. A schema that they enforce (`strict`)
contains only some keywords, which differ by provider. Values are always checked against the
original schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from json import dumps, loads
from typing import Any, Literal, NamedTuple

from flowengine.agents.models.provider_schemas import NOT_AT_THE_ROOT, Schema
from flowengine.agents.models.strict_schemas import OPENAI, Dialect, NotStrict, strict_form
from flowengine.errors import InputError
from flowengine.sdk.argument_schemas import described_arguments
from flowengine.sdk.python_functions.schema_forms import each_part
from flowengine.sdk.validation import shared

_ANSWER = "answer"
"""The key that contains an answer that is no object."""
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
    is_wrapped = schema.get("type") != "object" or not NOT_AT_THE_ROOT.isdisjoint(schema)
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
            if begin is None and _may_begin(text):
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


def _may_begin(text: str) -> bool:
    """Return whether a text can be the beginning of a wrapper."""
    wanted = f'{{"{_ANSWER}":'
    return wanted.startswith("".join(text.split()))
