"""Requests to models without function calling: tools, calls and results as text.

Each request is derived anew from the conversation, so nothing accumulates in it. All text is
inserted verbatim. Braces, percent signs and backslashes have no special meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from json import dumps, loads
from math import floor
from typing import Any

from jsonschema_rs import ValidationError

from flowengine.agents.call_answers import text_of
from flowengine.agents.text_calls.json_text import MAX_DEPTH, BrokenJson, read_json
from flowengine.agents.text_calls.marked_form import CallFault, MarkedForm, ToolOffer
from flowengine.errors import InputError
from flowengine.sdk.values.validation import Validator, as_plain, shared

_MOST_TRIED = 200
"""Maximum number of values that are validated in the search for one example."""
_MOST_APPLIED = 500
"""Maximum number of parts of a schema that apply to such a value."""
_MOST_CHOICES = 10
"""Maximum number of values tried of an `enum`, which can list thousands."""
_SHALLOW = 3
"""Depth of an example, if one is found. A type that contains itself would nest without end."""
_LONGEST = 200
"""Maximum length of a text in an example, and maximum number of items in a list."""
_BY_FORMAT: Mapping[str, str] = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T09:30:00Z",
    "time": "09:30:00Z",
    "iso-date-time": "2026-01-31T09:30:00",
    "iso-time": "09:30:00",
    "duration": "PT15M",
    "email": "name@example.com",
    "idn-email": "name@example.com",
    "hostname": "example.com",
    "idn-hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "url": "https://example.com/",
    "aware-date-time": "2026-01-31T09:30:00Z",
    "naive-date-time": "2026-01-31T09:30:00",
    "ipvanyaddress": "192.0.2.1",
    "ipvanyinterface": "192.0.2.1",
    "ipvanynetwork": "192.0.2.0/24",
    "uuid1": "9c2b0c1e-7d4a-11f0-9c55-0a6f1d2e3b4c",
    "uuid4": "3f2b8c1e-7d4a-4e0b-9c55-0a6f1d2e3b4c",
    "uuid7": "019bd8a0-7d4a-7e0b-9c55-0a6f1d2e3b4c",
    "uri-reference": "https://example.com/",
    "iri": "https://example.com/",
    "iri-reference": "https://example.com/",
    "uri-template": "https://example.com/{id}",
    "uuid": "3f2b8c1e-7d4a-4e0b-9c55-0a6f1d2e3b4c",
    "json-pointer": "/a",
    "relative-json-pointer": "0",
    "regex": "a+",
    "path": ".",
}
_TEXTS = (*dict.fromkeys(_BY_FORMAT.values()), "a", "A", "1", "12345", "ABC", "AB-123", "1.0.0")
"""Texts that are tried where a pattern must match."""


def example_of(schema: Any) -> Any:
    """Return an object that fits a schema, or None if the search finds none.

    `examples` and `default` in the schema are preferred, if they fit.

    Args:
        schema: The schema of an object, such as the arguments of a tool.
    """
    found = _found(dumps(schema))
    return None if found is None else loads(found)


@lru_cache(maxsize=256)
def _found(schema: str) -> str | None:
    search = _Search(loads(schema))
    value = search.first(_SHALLOW)
    if value is None and search.is_cut:
        value = search.first(MAX_DEPTH)
    return None if value is None else dumps(value)


class _Search:
    """A search for a value that fits."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._validator: Validator = shared(schema)
        self.is_cut = False
        """Whether values were left out because of their depth."""

    def first(self, depth: int) -> Any:
        """Return the first fitting value with at most a depth of nested parts, or None."""
        pending: list[Any] = [{}, *reversed(list(_declared(self._schema)))]
        tried = set[str]()
        while pending and len(tried) < _MOST_TRIED:
            value = pending.pop()
            key = dumps(value)
            if key in tried or not isinstance(value, dict):
                continue
            if _depth(value) > depth:
                self.is_cut = True
                continue
            tried.add(key)
            with suppress(InputError):
                errors = self._validator.misfits(value, _MOST_APPLIED)
                if errors:
                    pending += reversed(list(self._corrected(value, errors[0])))
                    continue
                return self._validator.check(as_plain(value, "it"), "it")
        return None

    def _corrected(self, value: Any, error: ValidationError) -> Iterator[Any]:
        """Yield values without an error, likely ones first."""
        kind = error.kind.as_dict()
        for form in kind.get("context", ()):
            for other in form[:1]:
                yield from self._corrected(value, other)
        path = list(error.instance_path)
        if error.kind.name == "falseSchema":
            yield _replaced(value, path, None, leave_out=True)
            return
        for part in self._parts(error, kind, place=_place(value, path)):
            yield _replaced(value, path, part)

    def _parts(self, error: ValidationError, kind: dict[str, Any], place: int) -> Iterator[Any]:
        """Yield replacements for the part of a value that has an error."""
        part: Any = error.instance
        schema = _inside(self._schema, *list(error.schema_path)[:-1]) or {}
        match error.kind.name:
            case "type":
                yield from _declared(schema)
                yield from _samples(kind["types"], schema, place)
            case "enum":
                yield from islice(kind["options"], _MOST_CHOICES)
            case "const":
                yield kind["expected_value"]
            case "not":
                yield from self._others(part, place, {})
            case keyword if isinstance(part, dict):
                yield from self._objects(part, keyword, kind, schema)
            case keyword if isinstance(part, list):
                yield from self._lists(part, keyword, schema)
            case keyword if isinstance(part, str):
                yield from _declared(schema)
                yield from _texts(part, keyword, kind)
            case _:
                yield from _declared(schema)
                yield from _numbers(schema, part)

    def _objects(
        self, part: dict[str, Any], keyword: str, kind: dict[str, Any], schema: dict[str, Any]
    ) -> Iterator[Any]:
        place = len(part) + 1
        match keyword:
            case "required":
                missing = kind["property"]
                for guess in self._guesses(_inside(schema, "properties", missing), place):
                    yield {**part, missing: guess}
            case "additionalProperties" | "unevaluatedProperties":
                yield {key: item for key, item in part.items() if key not in kind["unexpected"]}
            case "minProperties":
                names = [*schema.get("properties", ()), f"key{place}"]
                for key in islice((key for key in names if key not in part), _MOST_CHOICES):
                    known = _inside(schema, "properties", key)
                    known = schema.get("additionalProperties") if known is None else known
                    yield from ({**part, key: guess} for guess in self._guesses(known, place))
            case "propertyNames":
                wrong = kind["error"]
                for key in self._parts(wrong, wrong.kind.as_dict(), place):
                    if isinstance(key, str) and key not in part:
                        yield {key if old == wrong.instance else old: v for old, v in part.items()}

    def _lists(self, part: list[Any], keyword: str, schema: dict[str, Any]) -> Iterator[Any]:
        match keyword:
            case "minItems" | "contains":
                yield from self._longer(part, keyword, schema)
            case "maxItems" | "additionalItems" | "unevaluatedItems":
                yield part[:-1]
            case "uniqueItems":
                for other in self._others(part[-1], len(part), _inside(schema, "items")):
                    yield [*part[:-1], other]

    def _longer(self, part: list[Any], keyword: str, schema: Mapping[str, Any]) -> Iterator[Any]:
        """Yield a list with one more item."""
        if len(part) >= _LONGEST:
            return
        fixed = schema.get("prefixItems", ())
        item = fixed[len(part)] if len(part) < len(fixed) else schema.get("items")
        wanted = schema.get("contains") if keyword == "contains" else item
        for guess in self._guesses(wanted, len(part) + 1):
            yield [*part, guess]

    def _guesses(self, schema: Any, place: int) -> Iterator[Any]:
        """Yield values for a schema, without looking far into it."""
        schema = self._resolved(schema)
        yield from _declared(schema)
        if "const" in schema:
            yield schema["const"]
        yield from islice(schema.get("enum", ()), _MOST_CHOICES)
        forms = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
        guesses = (guess for form in forms for guess in self._guesses(form, place))
        yield from islice(guesses, _MOST_CHOICES)
        types = schema.get("type", ())
        yield from _samples([types] if isinstance(types, str) else types, schema, place)
        yield "text"

    def _others(self, item: Any, length: int, schema: Any) -> Iterator[Any]:
        """Yield other values in place of an item that a list already contains."""
        yield from islice(self._resolved(schema).get("enum", ()), _MOST_CHOICES)
        if isinstance(item, str):
            yield from (f"{item}{length}", *_TEXTS)
        elif isinstance(item, bool) or item is None:
            yield from (True, False, None)
        elif isinstance(item, int | float):
            yield from (item + step for step in range(1, _MOST_CHOICES))
        yield from ("text", length, True, [], {}, None)

    def _resolved(self, schema: Any) -> dict[str, Any]:
        for _ in range(_MOST_CHOICES):
            if not isinstance(schema, dict):
                return {}
            reference = schema.get("$ref")
            if not isinstance(reference, str) or not reference.startswith("#/"):
                return schema
            schema = _inside(self._schema, *reference[2:].split("/"))
        return {}


def _declared(schema: Any) -> Iterator[Any]:
    """Yield the examples and the default that a schema declares."""
    if isinstance(schema, dict):
        examples = schema.get("examples")
        yield from islice(examples if isinstance(examples, list) else (), _MOST_CHOICES)
        if "default" in schema:
            yield schema["default"]


def _samples(types: Iterable[str], schema: Mapping[str, Any], place: int) -> list[Any]:
    """Return a value of each type, null last.

    Args:
        types: Names of the types.
        schema: The schema of the value.
        place: Place of the value among others, so that numbers differ.
    """
    text = _BY_FORMAT.get(str(schema.get("format")), "text")
    samples = {"string": text, "integer": place, "number": place, "boolean": True}
    samples |= {"array": [], "object": {}, "null": None}
    ordered = sorted(types, key=lambda type: type == "null")
    return [samples[type] for type in ordered if type in samples]


def _texts(text: str, keyword: str, kind: Mapping[str, Any]) -> Iterator[str]:
    """Yield other texts in place of one that violates a keyword."""
    limit = kind.get("limit", 0)
    if keyword == "minLength" and limit <= _LONGEST:
        yield ((text or "text") * limit)[:limit]
    elif keyword == "maxLength":
        yield text[:limit]
    elif keyword == "format" and kind["format"] in _BY_FORMAT:
        yield _BY_FORMAT[kind["format"]]
    elif keyword in {"format", "pattern"}:
        yield from _TEXTS


def _numbers(schema: Mapping[str, Any], number: float) -> Iterator[float]:
    """Yield numbers within the bounds of a schema."""
    low = max(_bounds(schema, "minimum", "exclusiveMinimum"), default=None)
    high = min(_bounds(schema, "maximum", "exclusiveMaximum"), default=None)
    step = next(_bounds(schema, "multipleOf"), None)
    if step:
        first = floor((number if low is None else low) / step) * step
        yield from (first + step * count for count in range(3))
    if low is not None:
        yield from (low, low + 1)
    if high is not None:
        yield from (high, high - 1)
    if low is not None and high is not None:
        yield (low + high) // 2
        yield (low + high) / 2
    elif low is not None or high is not None:
        yield (low or 0) + (high or 0) + (0.5 if high is None else -0.5)


def _bounds(schema: Mapping[str, Any], *keywords: str) -> Iterator[float]:
    values = (schema.get(keyword) for keyword in keywords)
    return (value for value in values if isinstance(value, int | float))


def _depth(value: Any) -> int:
    """Return how many objects and lists are nested in a value."""
    parts = value.values() if isinstance(value, dict) else value
    return 1 + max(map(_depth, parts), default=0) if isinstance(value, dict | list) else 0


def _place(value: Any, path: list[Any]) -> int:
    """Return the place of a part among its neighbors, from 1."""
    if not path:
        return 1
    around = _inside(value, *path[:-1])
    return path[-1] + 1 if isinstance(around, list) else list(around).index(path[-1]) + 1


def _replaced(value: Any, path: list[Any], part: Any, *, leave_out: bool = False) -> Any:
    """Return a copy of a value with another part, or without that part."""
    if not path:
        return None if leave_out else part
    first, *rest = path
    copy = value.copy()
    if rest or not leave_out:
        copy[first] = _replaced(value[first], rest, part, leave_out=leave_out)
    else:
        del copy[first]
    return copy


def _inside(value: Any, *path: Any) -> Any:
    """Return the part of a value at a path, or None."""
    for step in path:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and str(step).isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


Message = dict[str, Any]
_SHOWN_FAULTS = 5
MUST_CALL = "Your reply must have a call."


def instructions(tools: Sequence[ToolOffer], form: MarkedForm, *, must_call: bool = False) -> str:
    """Return a description of tools and call syntax, for the start of the system message.

    Args:
        tools: Tools on offer. Without tools, the description is empty.
        form: The form in which the model writes calls.
        must_call: Whether each reply must contain a call.
    """
    if not tools:
        return ""
    parts = ["You can call these tools:"]
    parts += [_described(tool) for tool in tools]
    parts += [
        "Write a call exactly like this, on separate lines, outside of code fences:",
        next(
            filter(None, (_example(tool, form) for tool in tools)), form.placeholder(tools[0].name)
        ),
        (
            f"The mark {form.mark} makes it a call: keep it to yourself, and do not give it to a "
            "tool. You may say something before the calls. Write several calls one below the "
            "other, then stop: the next message brings their results. Never write a result "
            f"yourself. {MUST_CALL if must_call else 'Without a call, your reply is your answer.'}"
        ),
    ]
    return "\n\n".join(parts)


def _described(tool: ToolOffer) -> str:
    schema = dumps(tool.schema, ensure_ascii=False)
    heading = f"Tool: {tool.name}"
    return "\n".join(filter(None, [heading, tool.description, f"Parameters: {schema}"]))


def _example(tool: ToolOffer, form: MarkedForm) -> str:
    """Return a correct call, or the empty text if no fitting arguments are found."""
    example = example_of(tool.schema)
    return "" if example is None else form.write([(tool.name, example)])


def faults_told(faults: Sequence[CallFault], tools: Iterable[ToolOffer], form: MarkedForm) -> str:
    """Return a message about invalid calls, with a correct example for each tool, if one is found.

    Args:
        faults: Faults of one reply.
        tools: Tools on offer.
        form: The form in which the model writes calls.
    """
    by_name = {tool.name: tool for tool in tools}
    parts = []
    for fault in faults[:_SHOWN_FAULTS]:
        parts.append(fault.message)
        if fault.written:
            parts.append(f"You wrote:\n{fault.written}")
    if len(faults) > _SHOWN_FAULTS:
        parts.append(f"And {len(faults) - _SHOWN_FAULTS} more calls were wrong.")
    meant = dict.fromkeys(fault.name for fault in faults if fault.name in by_name)
    shown = [by_name[name] for name in meant] or list(by_name.values())[:1]
    examples = ((tool.name, _example(tool, form)) for tool in shown)
    parts += [f"A right call of {name}:\n{example}" for name, example in examples if example]
    return "\n\n".join(parts)


def request_messages(
    messages: Iterable[Mapping[str, Any]],
    tools: Sequence[ToolOffer],
    form: MarkedForm,
    *,
    must_call: bool = False,
) -> list[Message]:
    """Return the messages of a request that needs no function calling.

    Calls and results become text, and adjacent messages of one role are merged. The instructions
    are put at the start of the system message, which is created if missing.

    Args:
        messages: The conversation, with `tool_calls` and messages of the role `tool`.
        tools: Tools on offer.
        form: The form in which the model writes calls.
        must_call: Whether each reply must contain a call.
    """
    rules = instructions(tools, form, must_call=must_call)
    sent: list[Message] = [{"role": "system", "content": rules}]
    if not tools:
        sent.clear()
    names: dict[str, str] = {}
    for message in messages:
        _add(sent, _as_text(message, names, form))
    return sent


def _as_text(message: Mapping[str, Any], names: dict[str, str], form: MarkedForm) -> Message:
    role, content = message["role"], message.get("content")
    if role == "tool":
        name = message.get("name") or names.get(message.get("tool_call_id", ""), "tool")
        return {"role": "user", "content": form.write_result(name, text_of(content))}
    if role != "assistant":
        return {"role": role, "content": "" if content is None else content}
    calls = message.get("tool_calls") or ()
    for call in calls:
        names[call.get("id", "")] = call["function"]["name"]
    written = [_call_as_text(call["function"], form) for call in calls]
    text = text_of(content)
    return {"role": role, "content": "\n".join([*([text] if text else []), *written])}


def _call_as_text(function: Mapping[str, Any], form: MarkedForm) -> str:
    name, arguments = function["name"], function.get("arguments") or "{}"
    try:
        value = read_json(arguments).value if isinstance(arguments, str) else arguments
    except BrokenJson:
        value = None
    if not isinstance(value, Mapping):
        return f"{name}: {arguments}"
    return form.write([(name, dict(value))])


def _add(messages: list[Message], message: Message) -> None:
    """Append a message, merging it with the last one if both have the same role."""
    if not messages or messages[-1]["role"] != message["role"]:
        messages.append(message)
        return
    last = messages[-1]
    if isinstance(last["content"], str) and isinstance(message["content"], str):
        last["content"] = "\n\n".join(filter(None, [last["content"], message["content"]]))
    else:  # parts: text and images
        last["content"] = [*_parts(last["content"]), *_parts(message["content"])]


def _parts(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content)
