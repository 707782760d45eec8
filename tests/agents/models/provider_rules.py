"""Servers that enforce what providers document about schemas of answers.

A request with a schema that its provider refuses is answered with status 400. Otherwise, the
provider writes the first of the given values that fits the schema it has received, as constrained
decoding does, in the form that the schema demands. A provider that has no schema follows the words
of the system message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from jsonschema_rs import validator_for

from tests.agents.models.wire import Answer, failed, replied, streamed

OPENAI_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6",
                  "uuid"}  # fmt: skip
AT_THE_ROOT = {"anyOf", "oneOf", "allOf", "enum", "const", "not", "$ref"}
NO_GRAMMAR = re.compile(r"\(\?[=!<P]|\\[bB1-9AZz]")
GEMINI_KEYWORDS = {"$id", "$defs", "$ref", "$anchor", "type", "format", "title", "description",
                   "enum", "items", "prefixItems", "minItems", "maxItems", "minimum", "maximum",
                   "anyOf", "oneOf", "properties", "additionalProperties", "required",
                   "propertyOrdering"}  # fmt: skip


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield a schema and all schemas in it."""
    if not isinstance(schema, dict):
        return
    yield schema
    for key in ("items", "additionalProperties"):
        yield from parts(schema.get(key))
    for key in ("anyOf", "allOf", "oneOf", "prefixItems"):
        for part in schema.get(key, ()):
            yield from parts(part)
    for key in ("properties", "$defs"):
        for part in schema.get(key, {}).values():
            yield from parts(part)


def of_openai(schema: Any, *, strict: bool) -> Iterator[str]:
    """Yield what OpenAI refuses about the schema of an answer."""
    if schema.get("type") != "object" or AT_THE_ROOT & schema.keys():
        yield "the root must be an object"
    for part in parts(schema) if strict else ():
        known = {"type", "enum", "const", "title", "description", "pattern", "format", "multipleOf",
                 "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "minItems",
                 "maxItems", "items", "anyOf", "properties", "required", "additionalProperties",
                 "$defs", "$ref"}  # fmt: skip
        yield from (f"{key} is not permitted" for key in part.keys() - known)
        if "$ref" in part and part.keys() != {"$ref"}:
            yield "$ref cannot have other keywords"
        if not {"type", "anyOf", "$ref", "enum", "const"} & part.keys():
            yield "a schema must have a 'type'"
        if part.get("format", "date") not in OPENAI_FORMATS:
            yield f"{part['format']!r} is not a supported format"
        if NO_GRAMMAR.search(part.get("pattern", "")):
            yield "look-around is not supported in patterns"
        if "object" in part.get("type", ()):
            if part.get("additionalProperties") is not False:
                yield "additionalProperties must be false"
            if {*part.get("required", ())} != {*part.get("properties", ())}:
                yield "every property must be required"
        if "array" in part.get("type", ()) and "items" not in part:
            yield "an array must have 'items'"


def of_anthropic(schema: Any) -> Iterator[str]:
    """Yield what Anthropic refuses about the schema of an answer."""
    refused = {"minItems", "maxItems", "uniqueItems", "contains", "prefixItems", "minimum",
               "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength",
               "maxLength", "minProperties", "maxProperties", "patternProperties", "propertyNames",
               "unevaluatedProperties", "if", "then", "else", "not", "oneOf"}  # fmt: skip
    for part in parts(schema):
        yield from (f"{key} is not supported" for key in refused & part.keys())
        if not {"type", "anyOf", "allOf", "$ref", "enum", "const"} & part.keys():
            yield "a schema must have a 'type'"
        if "object" in part.get("type", ()) and part.get("additionalProperties") is not False:
            yield "additionalProperties must be false"
        if part.get("format", "date") not in OPENAI_FORMATS | {"uri"}:
            yield f"the format {part['format']!r} is not supported"
        if NO_GRAMMAR.search(part.get("pattern", "")):
            yield "the pattern is not supported"
        if "$ref" in part:  # classes are inserted where they are named
            yield "recursive schemas are not supported"


def of_anthropic_tool(schema: Any) -> Iterator[str]:
    """Yield what Anthropic refuses about the schema of a tool."""
    if schema.get("type") != "object" or {"anyOf", "oneOf", "allOf"} & schema.keys():
        yield "input_schema must be an object, without oneOf, allOf or anyOf at the top level"
    for part in parts(schema):
        for key in part.get("properties", ()):
            if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", key):
                yield f"the property key {key!r} does not match its pattern"


def of_gemini(schema: Any) -> Iterator[str]:
    """Yield what Gemini refuses about the schema of an answer, or does not enforce."""
    for part in parts(schema):
        yield from (f"{key} is unknown" for key in part.keys() - GEMINI_KEYWORDS)
        if "$ref" in part and part.keys() != {"$ref"}:
            yield "no other properties may be set beside $ref"
        if part.get("format", "date") not in ("date-time", "date", "time"):
            yield f"the format {part['format']!r} is unknown"
        if isinstance(part.get("const", ""), dict):
            yield "const is unknown"
    for name, definition in schema.get("$defs", {}).items():
        for key in definition.get("required", ()):
            if any(
                one.get("$ref") == f"#/$defs/{name}" for one in parts(definition["properties"][key])
            ):
                yield "cyclic references must only be used within non-required properties"


class Provider:
    """A provider, with the values that its model would like to answer.

    Args:
        kind: `openai`, `anthropic`, `gemini`, or `words`, which refuses every schema.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.wanted: list[Any] = []
        """The values to answer with, each once if the schema permits it."""
        self.refused: list[str] = []
        """Faults of the schemas that were sent."""
        self.modes: list[str] = []
        """How answers were asked for: `strict`, `schema`, `tool`, `text`."""

    def __call__(self, body: Any) -> Answer:
        read: Callable[[Any], tuple[str, Any, list[str]]] = getattr(self, f"_read_{self.kind}")
        mode, schema, faults = read(body)
        self.modes.append(mode)
        if faults:
            self.refused += faults
            return failed(400, f"Invalid schema for response_format 'answer': {faults[0]}")
        text = json.dumps(self._written(schema, enforces=mode in ("strict", "schema")))
        write: Callable[..., Answer] = getattr(self, f"_write_{self.kind}")
        return write(text, mode, is_streamed=bool(body.get("stream")))

    def _written(self, schema: Any, *, enforces: bool) -> Any:
        """Return the next value in the form that a schema demands."""
        while True:
            value = self.wanted.pop(0)
            if schema is None:
                return value
            form = {"answer": value} if [*schema.get("properties", ())] == ["answer"] else value
            if not enforces or validator_for(schema, validate_formats=True).is_valid(form):
                return form
            assert self.wanted, f"{value!r} is the right answer, and does not fit {schema}"

    # The protocols

    def _read_openai(self, body: Any) -> tuple[str, Any, list[str]]:
        if "response_format" not in body:
            return "text", None, []
        form = body["response_format"]["json_schema"]
        strict = form["strict"]
        faults = [*of_openai(form["schema"], strict=strict)]
        return "strict" if strict else "loose", form["schema"], faults

    def _read_words(self, body: Any) -> tuple[str, Any, list[str]]:
        return "text", None, ["json_schema"] if "response_format" in body else []

    def _read_anthropic(self, body: Any) -> tuple[str, Any, list[str]]:
        form = body.get("output_format") or (body.get("output_config") or {}).get("format")
        if form:
            return "strict", form["schema"], [*of_anthropic(form["schema"])]
        for tool in body.get("tools", ()):
            if tool["name"] == "json_tool_call":
                schema = tool["input_schema"]
                return "tool", schema, [*of_anthropic_tool(schema)]
        return "text", None, []

    def _read_gemini(self, body: Any) -> tuple[str, Any, list[str]]:
        config = body.get("generationConfig", {})
        schema = config.get("responseJsonSchema") or config.get("response_json_schema")
        if schema is None:
            return "text", None, []
        return "schema", schema, [*of_gemini(schema)]

    def _write_openai(self, text: str, _mode: str, *, is_streamed: bool) -> Answer:
        if not is_streamed:
            return replied(text)
        return streamed(*({"content": text[at : at + 5]} for at in range(0, len(text), 5)))

    _write_words = _write_openai

    def _write_anthropic(self, text: str, mode: str, *, is_streamed: bool) -> Answer:
        assert not is_streamed
        content: Any = {"type": "text", "text": text}
        if mode == "tool":
            content = {"type": "tool_use", "id": "t1", "name": "json_tool_call",
                       "input": json.loads(text)}  # fmt: skip
        body = {"id": "1", "type": "message", "role": "assistant", "model": "m",
                "content": [content], "stop_reason": "tool_use" if mode == "tool" else "end_turn",
                "usage": {"input_tokens": 9, "output_tokens": 1}}  # fmt: skip
        return Answer((json.dumps(body).encode(),), 200, {"Content-Type": "application/json"})

    def _write_gemini(self, text: str, _mode: str, *, is_streamed: bool) -> Answer:
        assert not is_streamed
        candidate = {
            "content": {"role": "model", "parts": [{"text": text}]},
            "finishReason": "STOP",
        }
        body = {"candidates": [candidate], "usageMetadata": {"totalTokenCount": 0}}
        return Answer((json.dumps(body).encode(),), 200, {"Content-Type": "application/json"})
