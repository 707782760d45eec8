"""JSON Schemas of values in expressions: steps, executions, errors, signals, constants.

`{}` is a value of unknown shape. Schemas created here are never changed, and may share parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from flowengine.flow.expressions import types
from flowengine.flow.expressions.types import DeclaredNames, Note
from flowengine.sdk.values.declared_forms import declared_form
from flowengine.sdk.values.validation import TYPE_WORDS

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
    convert = declared_form(schema)
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
    kinds = kinds if isinstance(kinds, list) else [kinds]
    return " or ".join(TYPE_WORDS.get(str(kind), str(kind)) for kind in kinds)


# Reasons why the output of a successful step, or a part of it, may be null (W305, W417).
#
# A group returns the output of its last step, which may have been skipped. If several steps lead
# out of it, it returns nothing. Parts of the output of a `parallel` or a flow may be missing, too.

Doubts = Mapping[str, Note]
"""Part of an output → why it may be null: `""` for the whole, `.x` for the value of the key x."""
NONE: Doubts = MappingProxyType({})


def missing(why: str, path: str) -> Note:
    """Return the warning about access to a value that may be null.

    Args:
        why: The possible cause, such as `'a' may have been skipped`.
        path: The value.
    """
    hint = f"write default({path}.…, …), or test {path} != null"
    return Note("W305", f"{why}: '{path}' is then null", hint, reason=why)


def under(path: str, doubts: Doubts) -> dict[str, Note]:
    """Return the doubts about an output by path.

    Args:
        path: Path of the output.
        doubts: Doubts about it.
    """
    return {path + part: note for part, note in doubts.items()}


def passed_on(doubts: Doubts, path: str) -> Doubts:
    """Return the doubts about a value that another output contains.

    Args:
        doubts: Doubts about the value and its parts.
        path: The output that contains it.
    """
    return {
        part: note if note.always else missing(note.reason, path + part)
        for part, note in doubts.items()
    }


def of_items(doubts: Doubts) -> Doubts:
    """Return the doubts about a list of outputs, whose parts are unknown.

    Args:
        doubts: Doubts about each output.
    """
    return {part: note for part, note in doubts.items() if note.always and not part}


def several_ways_out(group: str, lasts: Iterable[str], giving: Iterable[str]) -> Note:
    """Return the warning that a group has no output because several steps lead out of it.

    Args:
        group: The group.
        lasts: These steps, in file order.
        giving: Those of them that have an output.

    Returns:
        The warning about the use of its output.
    """
    names = [repr(one) for one in lasts]
    listed = f"{', '.join(names[:-1])} and {names[-1]}"
    message = f"{group!r} has no output, because {listed} lead out of it: it is null, whichever ran"
    outputs = [f"steps.{source}.output" for source in giving]
    expression = (
        f"default({', '.join(reversed(outputs))})" if len(outputs) > 1 else "".join(outputs)
    )
    meant = f"'output: ${{{{ {expression} }}}}'" if expression else "an 'output'"
    return Note("W417", message, f"give {group!r} {meant}", always=True)


# The names that an expression sees at its place (docs/language.md: Expressions).

_CONSTANT = r"""\[\s*(?:"([^"\\]*)"|'([^'\\]*)')\s*\]"""
_STEP = re.compile(rf"\bsteps\s*(?:\.\s*([A-Za-z_][A-Za-z0-9_]*)|{_CONSTANT})")
_COMPUTED = re.compile(rf"\bsteps\s*(?!{_CONSTANT})\[")

ELSEWHERE = {
    "item": "it is the item of a 'map'. on_error and next of the mapped step are outside of it",
    "index": "it is the index of an item of a 'map'",
    "key": "it is the key of an item of a 'map'",
    "round": "it is the round of a 'loop'",
    "join": "it is available in steps with several incoming edges, or with a 'join'",
    "signal": "it is available in 'match', in a step with a 'trigger' and in those after it",
    "result": "it is available in the step's own 'output'. For another step, use steps.x.output",
    "output": "it is available in the step's own set, emit, next, loop and compensate. For another "
    "step, use steps.x.output",
    "outcome": "it is available in the step's own set, emit, next and loop. For another step, use "
    "steps.x.outcome",
    "error": "it is available in on_error, retry.when, compensate and finally. For another step, "
    "use steps.x.error",
    "args": "it is available in the declaration of a tool",
    "idempotency_key": "it is available in the configuration of http, shell, run and "
    "other kinds of steps and tools. A Python function takes a "
    "StepContext, which has it",
    "steps": "steps are visible to steps and outputs",
    "state": "state is visible to steps and outputs",
}
"""Roots that exist, and the places where they are available."""
NO_SECRETS = Note(
    "E403",
    "a secret cannot be used here",
    "secrets may be used, alone or in a text, in run.env, tools.*.with, shell.env, and url, "
    "headers, query and auth of http",
)


def named_steps(source: str) -> dict[str, None]:
    """Return the steps that an expression names, as `steps.x` or `steps["x"]`."""
    return dict.fromkeys("".join(forms) for forms in _STEP.findall(source))


class StepFacts(NamedTuple):
    """The known facts about a step at a place."""

    schema: Schema
    hidden: Note | None = None
    """Why it cannot be used."""
    uncertain: Doubts = NONE
    """Why its output, or a part of it, may be null."""


@dataclass(eq=False)
class VisibleNames:
    """The names visible at one place."""

    roots: dict[str, Schema]
    """Root name → schema."""
    step: int = -1
    """The step that contains the expression, or -1."""
    look: Callable[[str], StepFacts | None] | None = None
    """Returns the known facts about a step by its id, or None for an unknown id."""
    all_steps: Callable[[], Iterable[str]] = tuple
    """Returns the ids of all steps of the flow, for suggestions."""
    hidden: dict[str, Note] = field(default_factory=dict)
    uncertain: dict[str, Note] = field(default_factory=dict)

    def having(
        self,
        roots: dict[str, Schema],
        hidden: dict[str, Note] | None = None,
        uncertain: dict[str, Note] | None = None,
    ) -> VisibleNames:
        """Return the view with more roots."""
        kept = {path: note for path, note in self.uncertain.items() if path not in roots}
        return replace(
            self,
            roots={**self.roots, **roots},
            hidden={**self.hidden, **(hidden or {})},
            uncertain={**kept, **(uncertain or {})},
        )

    def names(self, source: str) -> DeclaredNames:
        """Return the names for the check of an expression, including the steps that it names.

        Args:
            source: The expression.

        Returns:
            The names.
        """
        roots = dict(self.roots)
        hidden = dict(self.hidden)
        uncertain = dict(self.uncertain)
        if self.look is not None:
            roots["steps"] = self._seen(source, hidden, uncertain)
        for root, where in ELSEWHERE.items():
            if root not in roots and root in source:
                hidden.setdefault(root, Note("E301", f"'{root}' is not visible here", where))
        if "secrets" in source:
            hidden["secrets"] = NO_SECRETS
        schema = {"type": "object", "properties": roots, "additionalProperties": False}
        return DeclaredNames(schema, hidden, uncertain)

    def _seen(self, source: str, hidden: dict[str, Note], uncertain: dict[str, Note]) -> Schema:
        """Return the schema of `steps`: of the named ones, or of all if one is unknown."""
        assert self.look is not None
        by_name = {name: self.look(name) for name in named_steps(source)}
        is_open = _COMPUTED.search(source) or ("steps" in source and not by_name)
        if is_open or None in by_name.values():
            by_name = {name: self.look(name) for name in self.all_steps()}
        properties = {}
        for name, seen in by_name.items():
            if seen is None:
                continue
            if seen.hidden is not None:
                hidden[f"steps.{name}"] = seen.hidden
                continue
            properties[name] = seen.schema
            uncertain.update(under(f"steps.{name}.output", seen.uncertain))
        return {"type": "object", "properties": properties, "additionalProperties": False}
