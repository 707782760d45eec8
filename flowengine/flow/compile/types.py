"""JSON Schemas of values in expressions: steps, executions, errors, signals, constants.

`{}` is a value of unknown shape. Schemas created here are never changed, and may share parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flowengine.flow.expressions import types
from flowengine.sdk.declared_forms import integers

Schema = dict[str, Any]

UNKNOWN: Schema = {}
TEXT: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
BOOLEAN: Schema = {"type": "boolean"}
NOTHING: Schema = {"type": "null"}

STATUSES = ["none", "ready", "running", "waiting", "uncertain", "succeeded", "skipped", "failed",
            "cancelled"]  # fmt: skip
"""The statuses of a step (docs/language.md: Crashes)."""


def closed(properties: Mapping[str, Schema]) -> Schema:
    """Return the schema of an object with these properties and no others."""
    return {"type": "object", "properties": dict(properties), "additionalProperties": False}


def list_of(items: Schema) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": items} if items else {"type": "array"}


ERROR = closed(
    {
        "type": TEXT,
        "message": TEXT,
        "data": UNKNOWN,
        "step": TEXT,
        "attempt": INTEGER,
        "cause": UNKNOWN,
        "source": TEXT,
    }
)
CALLS: Schema = closed({"count": {"type": "integer"}, "totals": {"type": "object"}})
"""Usage of a tool so far, as rules see it."""
EXECUTION = closed(
    {
        "id": TEXT,
        "flow": TEXT,
        "version": TEXT,
        "started_at": TEXT,
        "scheduled_at": UNKNOWN,
        "started_by": UNKNOWN,
        "parent": UNKNOWN,
        "labels": {"type": "object", "additionalProperties": TEXT},
    }
)
CANCELLED = closed({"cancelled": list_of(TEXT)})
FILE = closed({"path": TEXT, "name": TEXT, "size": INTEGER, "sha256": TEXT})


def step_schema(output: Schema, outcomes: Iterable[str] | None, mapped: bool) -> Schema:
    """Return the schema of `steps.x`.

    Args:
        output: Schema of its output.
        outcomes: Its possible outcomes, besides null. None means unknown.
        mapped: Whether it has a `map`, and so `items`.

    Returns:
        A closed object.
    """
    item = {"key": TEXT, "index": INTEGER, "status": TEXT, "output": UNKNOWN, "error": UNKNOWN}
    outcome = {"enum": [*outcomes, None]} if outcomes is not None else UNKNOWN
    return closed(
        {
            "output": output,
            "status": {"type": "string", "enum": STATUSES},
            "outcome": outcome,
            "error": UNKNOWN,
            "activations": INTEGER,
            "rounds": INTEGER,
            "attempts": INTEGER,
            "items": list_of(closed(item)) if mapped else UNKNOWN,
            "agent": UNKNOWN,
            "started_at": UNKNOWN,
            "ended_at": UNKNOWN,
        }
    )


def signal_schema(data: Schema) -> Schema:
    """Return the schema of `signal`, with that of its data."""
    return closed(
        {
            "name": TEXT,
            "key": UNKNOWN,
            "data": data,
            "id": TEXT,
            "sent_at": TEXT,
            "sent_by": UNKNOWN,
        }
    )


def decision_schema(subject: Schema, form: Schema, choices: list[str], expires: bool) -> Schema:
    """Return the schema of the output of an approval (docs/language.md: approval).

    Args:
        subject: Schema of the data to decide on.
        form: Schema of the form.
        choices: Ids of the choices.
        expires: Whether it may end without a choice.

    Returns:
        A closed object.
    """
    choice: Schema = UNKNOWN if expires else {"type": "string", "enum": choices}
    return closed(
        {
            "id": UNKNOWN,
            "choice": choice,
            "counts_as": UNKNOWN,
            "approved": BOOLEAN,
            "subject": subject,
            "original": subject,
            "edited": BOOLEAN,
            "form": form,
            "comment": UNKNOWN,
            "attachments": list_of(FILE),
            "by": UNKNOWN,
            "at": TEXT,
            "via": UNKNOWN,
            "entered_by": UNKNOWN,
            "votes": list_of(UNKNOWN),
        }
    )


def of_constant(data: Any) -> Schema:
    """Return the schema of a constant."""
    if isinstance(data, dict):
        return closed({key: of_constant(value) for key, value in data.items()})
    if isinstance(data, list):
        return list_of(common([of_constant(item) for item in data]))
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string")):
        if isinstance(data, kind):
            return {"type": name}
    return NOTHING if data is None else UNKNOWN


def as_declared(data: Any, schema: Any) -> Any:
    """Return a constant with the integers that a schema declares: 2 for 2.0."""
    convert = integers(schema)
    return data if convert is None else convert(data)


def common(schemas: list[Schema]) -> Schema:
    """Return the common schema of all values, as in expressions, or `{}` if there are none."""
    return types.common(schemas) if schemas else UNKNOWN


def items_of(schema: Schema) -> Schema:
    """Return the schema of the items of a list, or of the numbers below an integer."""
    if schema.get("type") == "integer":
        return INTEGER
    items = schema.get("items")
    return items if isinstance(items, dict) else UNKNOWN


def differs(given: Schema, wanted: Schema) -> bool:
    """Return whether two types are disjoint. False if one of them is open."""
    have, want = given.get("type"), wanted.get("type")
    if have is None or want is None:
        return False
    has = set(have) if isinstance(have, list) else {have}
    takes = set(want) if isinstance(want, list) else {want}
    if "number" in takes:
        takes.add("integer")
    if "integer" in takes and "number" in has:
        return False
    return not has & takes


def words(schema: Schema) -> str:
    """Return a type in the words of messages."""
    kinds = schema.get("type")
    names = {
        "string": "text",
        "integer": "a whole number",
        "number": "a number",
        "boolean": "true or false",
        "object": "a map",
        "array": "a list",
        "null": "null",
    }
    kinds = kinds if isinstance(kinds, list) else [kinds]
    return " or ".join(names.get(str(kind), str(kind)) for kind in kinds)
