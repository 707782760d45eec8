"""Approvals, compiled: of a separate step, or required before a call or opening.

See docs/language.md: approval.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowengine.flow.compile.expressions import (
    Expressions,
    TypedValue,
    constant,
    list_of_values,
    together,
)
from flowengine.flow.compile.outcomes import counts_as
from flowengine.flow.compile.types import BOOLEAN, UNKNOWN, Schema, VisibleNames
from flowengine.flow.expressions.types import self_contained
from flowengine.flow.models import Approval, AskBeforeCall, AskFirst, Choice, Escalation
from flowengine.flow.models.actions import RESPOND
from flowengine.sdk.values.schema_types import resolve

_VALUES = ("title", "body", "subject", "edit", "assignees", "exclude", "need", "batch")
_CONSTANTS = ("claim", "delegate")


def asked(
    expressions: Expressions,
    given: Approval | AskFirst,
    view: VisibleNames,
    notifies: Sequence[str],
) -> dict[str, TypedValue]:
    """Return the fields of an approval, in the form that the kernel evaluates.

    Args:
        expressions: Compiles values.
        given: The approval in the file.
        view: The names that its expressions see.
        notifies: Ids of the flows that send its notifications.
    """
    parts = {
        key: expressions.value(getattr(given, key), (*given.loc, key), view)
        for key in _VALUES
        if given.has(key)
    }
    parts |= {key: constant(getattr(given, key)) for key in _CONSTANTS if given.has(key)}
    if given.expires is not None:
        loc = (*given.expires.loc, "after")
        parts["expires"] = expressions.value(given.expires.after, loc, view)
        if given.expires.then is not None:
            parts["on_expire"] = constant(given.expires.then)
    if given.files is not None:
        parts["attachments"] = expressions.value(given.files, (*given.loc, "files"), view)
    if given.remind is not None:
        loc = (*given.remind.loc, "every")
        parts["remind"] = together({"every": expressions.value(given.remind.every, loc, view)})
    if given.escalate:
        parts["escalate"] = list_of_values(
            [_escalation(expressions, escalation, view) for escalation in given.escalate]
        )
    choices = given.choices
    if given.need != 1 and not given.has("choices"):  # several people decide
        choices = [choice for choice in choices if choice.id != RESPOND]
    parts["choices"] = list_of_values([_choice(expressions, choice, view) for choice in choices])
    if given.form is not None:
        parts["form"] = constant(with_type(given.form))
    if notifies:
        parts["notify"] = constant([*notifies])
    return parts


def asked_first(
    expressions: Expressions, given: AskFirst, view: VisibleNames, notifies: Sequence[str] = ()
) -> dict[str, TypedValue] | None:
    """Return the approval required before an action, or None if it is never required.

    Args:
        expressions: Compiles values.
        given: The approval in the file.
        view: The names that its expressions see.
        notifies: See `asked`.

    Returns:
        The fields of an approval, `required`, and `when` if there is a condition.
    """
    if given.when is False:
        return None
    parts = asked(expressions, given, view, notifies)
    parts["required"] = constant(given.required)
    if isinstance(given.when, str):
        number = expressions.condition(given.when, (*given.loc, "when"), view)
        parts["when"] = TypedValue(["expr", number], BOOLEAN)
    return parts


def asked_before_call(
    expressions: Expressions, given: AskBeforeCall, view: VisibleNames, notifies: Sequence[str] = ()
) -> dict[str, TypedValue] | None:
    """Return the approval required before a tool is called, or None if it is never required.

    Returns:
        `fields` of an approval, `edit`, and `when` if there is a condition.
    """
    fields = asked_first(expressions, given, view, notifies)
    if fields is None:
        return None
    fields.pop("edit", None)
    parts = {"edit": constant(given.edit)}
    parts |= {key: fields.pop(key) for key in ("when", "required") if key in fields}
    return {**parts, "fields": together(fields)}


def editable_fields(given: Approval, subject: Schema) -> Schema | None:
    """Return the schema of the editable fields, or None if their types are unknown.

    The types are the declared ones: a field declared as a number accepts 75.50 even if the value
    shown is 80.
    """
    subject, _ = resolve(subject, subject)
    known = {
        name: {word: value for word, value in field.items() if word != "default"}
        for name, field in subject.get("properties", {}).items()
        if isinstance(field, dict) and field
    }
    if not given.edit:
        return None
    if isinstance(given.edit, list) and not any("${{" in name for name in given.edit):
        named = {name.partition(".")[0] for name in given.edit}
        known = {name: field for name, field in known.items() if name in named}
    return self_contained({"type": "object", "properties": known}, subject) if known else None


def with_type(form: Any) -> Schema:
    """Return a form as the schema of an object, whose type may be omitted."""
    return {"type": "object", **form} if isinstance(form, dict) else UNKNOWN


def _escalation(expressions: Expressions, given: Escalation, view: VisibleNames) -> TypedValue:
    key, people = ("to", given.to) if given.to is not None else ("assignees", given.assignees)
    return together(
        {
            "after": expressions.value(given.after, (*given.loc, "after"), view),
            "to": expressions.value(people, (*given.loc, key), view),
            "replace": constant(key == "assignees"),
        }
    )


def _choice(expressions: Expressions, given: Choice, view: VisibleNames) -> TypedValue:
    title = given.title if given.title is not None else given.id.replace("_", " ").capitalize()
    return together(
        {
            "id": constant(given.id),
            "label": expressions.value(title, (*given.loc, "title"), view),
            "counts_as": constant(counts_as(given)),
            "comment": constant(given.comment),
        }
    )
