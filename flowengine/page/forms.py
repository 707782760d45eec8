"""The forms of approvals, starts and forks: their fields, and the values they submit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from flowengine.engines.typed_text import editable_schema, edited_field
from flowengine.page.fields import (
    FILES,
    MISSING,
    FormFaults,
    FormField,
    FormFields,
    entered_value,
    files_of,
    fits_in_a_form,
    leaves,
    note_fault,
    texts_of,
)
from flowengine.page.looks import LONGEST_TEXT
from flowengine.page.sent_forms import as_sent, restored
from flowengine.sdk.values.schema_types import resolve
from flowengine.server.sent_values import FORMAT

GIVES_RESULT = ("respond", "result")
"""The choices that supply the result of a call, or of an interrupted attempt."""
_ELSEWHERE = f"Only the command line edits it: it has more than {LONGEST_TEXT:,} characters"
_SEVERAL = {"type": "array", "items": {"format": FORMAT}}


def fields_of(wait: Mapping[str, Any], given: Mapping[str, str] | None = None) -> list[FormField]:
    """Return the fields that an approver fills in or may change.

    Args:
        wait: The approval.
        given: Name → text, as submitted before.
    """
    maker = FormFields(given or {})
    form, root = resolve(wait.get("form") or {}, wait.get("form") or {})
    required = form.get("required", ())
    fields = [
        maker.field(f"form.{name}", name, schema, None, root=root, required=name in required)
        for name, schema in form.get("properties", {}).items()
    ]
    if form and not fields:  # the answer itself, of any schema
        fields = [maker.field("form", "answer", form, None, root=root, required=True)]
    subject = wait.get("subject")
    edit = wait.get("edit") or []
    paths = list(subject) if edit is True and isinstance(subject, dict) else edit
    for path in paths if isinstance(paths, list) else ():
        schema, root = editable_schema(wait, path)
        value = value_at(subject, path)
        if fits_in_a_form(value):
            fields.append(maker.field(f"edit.{path}", path, schema, value, root=root))
        else:
            field = maker.field(f"edit.{path}", path, {"description": _ELSEWHERE}, None)
            fields.append(field._replace(kind="fixed"))
    if any(choice["id"] in GIVES_RESULT for choice in wait.get("choices") or ()):
        schema = {**(wait.get("returns") or {}), "title": "Result"}
        fields.append(maker.field("value", "value", schema, None)._replace(required=False))
    return fields


def files_with(wait: Mapping[str, Any], given: Mapping[str, str] | None = None) -> list[FormField]:
    """Return the fields for files that come with a decision.

    Args:
        wait: The approval.
        given: Name → text, as submitted before.
    """
    if wait.get("kind") == "question":  # about an interrupted attempt
        return []
    maker, fields = (
        FormFields(given or {}),
        [("attach", "Files", "They are kept with the decision.")],
    )
    if wait.get("about"):  # an agent made the call
        fields.append(("images", "Images", "The model that made the call sees them."))
    return [
        maker.field(name, name, {**_SEVERAL, "title": title, "description": help}, None)
        for name, title, help in fields
    ]


def entered(wait: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Return the body of a decision from a submitted form.

    Unchanged fields are left out of the edits.

    Args:
        wait: The approval.
        given: Name in the form → text.

    Raises:
        FormFaults: Fields are missing or not valid.
    """
    body: dict[str, Any] = {"choice": given.get("choice", "")}
    if given.get("comment", "").strip():
        body["comment"] = given["comment"].strip()
    form: dict[str, Any] = {}
    edits: dict[str, Any] = {}
    faults: dict[str, str] = {}
    shown, sent = fields_of(wait), fields_of(wait, given)
    before = {leaf.name: leaf for field in shown for leaf in leaves(field)}
    needed = _needs_form(wait, body["choice"]) or _in_form(shown) != _in_form(sent)
    for field in sent:
        group, _, path = field.name.partition(".")
        if group == "edit":
            for leaf in leaves(field):
                edits |= _edit(wait, leaf, before.get(leaf.name), given, faults)
            continue
        if group == "value" and body["choice"] not in GIVES_RESULT:
            continue
        if group == "form" and not needed:
            continue
        value = entered_value(field, given, faults)
        if value is MISSING:
            continue  # an empty field is reported as missing, not by its pattern
        if path:
            form[path] = value
        else:
            body[group] = value
    for field in files_with(wait, given):
        files = files_of(field.value)
        if files:
            body[field.name] = [file["sha256"] for file in files]
    if faults:
        raise FormFaults(faults)
    return {**body, **({"form": form} if form else {}), **({"edit": edits} if edits else {})}


def _needs_form(wait: Mapping[str, Any], choice: str) -> bool:
    """Return whether a choice comes with the form. A rejection may leave it empty."""
    counts = {item["id"]: item.get("counts_as") for item in wait.get("choices") or ()}
    return wait.get("kind") == "ask" or counts.get(choice, "approve") == "approve"


def _in_form(fields: Iterable[FormField]) -> list[str]:
    """Return the texts in the form of an approval. An empty box counts as an empty text."""
    own = (field for field in fields if field.name.partition(".")[0] == "form")
    return ["" if text == "false" else text for field in own for text in texts_of(field)]


def inputs_of(
    schemas: Mapping[str, Any],
    known: Mapping[str, Any],
    given: Mapping[str, str] | None = None,
    *,
    group: str = "input",
    optional: bool = False,
) -> list[FormField]:
    """Return the fields for the inputs or the state of a flow, without paths on the server.

    Args:
        schemas: Name → JSON Schema.
        known: Name → value to show, instead of its default.
        given: Name in the form → text, as submitted before.
        group: Beginning of the fields' names in the form.
        optional: Whether no field has to be filled in.
    """
    fields, maker = [], FormFields(given or {})
    for name, schema in schemas.items():
        if isinstance(schema, dict) and schema.get("format") == "path":
            continue
        is_required = not optional and not (isinstance(schema, dict) and "default" in schema)
        field = maker.field(f"{group}.{name}", name, schema, known.get(name), required=is_required)
        if field.kind == "checkbox" and not field.required and not field.value:
            field = field._replace(kind="select", options=["true", "false"])
        fields.append(field)
    return fields


def entered_inputs(
    schemas: Mapping[str, Any], given: Mapping[str, str], *, group: str = "input"
) -> dict[str, Any]:
    """Return the inputs of a submitted form. Empty fields are left out, and get their defaults.

    Args:
        schemas: Input → JSON Schema.
        given: Name in the form → text.
        group: Beginning of the fields' names in the form.

    Raises:
        FormFaults: Inputs are missing or not valid.
    """
    shown = inputs_of(schemas, {}, group=group)
    sent = inputs_of(schemas, {}, given, group=group)
    cleared = {field.key for field in shown if field.value and given.get(field.name) == ""}
    return _entered(sent, given, cleared)


def _entered(
    fields: Iterable[FormField], given: Mapping[str, str], cleared: Collection[str]
) -> dict[str, Any]:
    """Return the values of fields by their keys. A text that was cleared is empty.

    Raises:
        FormFaults: Some are missing or not valid.
    """
    values: dict[str, Any] = {}
    faults: dict[str, str] = {}
    for field in fields:
        value = entered_value(field, given, faults)
        if value is MISSING and field.key in cleared and field.schema.get("type") == "string":
            value = ""
        if value is not MISSING:
            values[field.key] = value
    if faults:
        raise FormFaults(faults)
    return values


def changes_in(
    schemas: Mapping[str, Any], known: Mapping[str, Any], given: Mapping[str, str]
) -> dict[str, Any]:
    """Return the state that the form of a fork changes. Fields that are unchanged are left out.

    Args:
        schemas: Name → JSON Schema.
        known: Name → value that the form has shown.
        given: Name in the form → text.

    Raises:
        FormFaults: Fields are missing or not valid.
    """
    shown = inputs_of(schemas, known, group="set", optional=True)
    sent = inputs_of(schemas, known, given, group="set", optional=True)
    pairs = zip(shown, sent, strict=True)
    changed = [field for before, field in pairs if texts_of(before) != texts_of(field)]
    return _entered(changed, given, {field.key for field in changed})


def value_at(value: Any, path: str) -> Any:
    """Return a part of a value by its dotted path, or None."""
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _edit(
    wait: Mapping[str, Any],
    field: FormField,
    before: FormField | None,
    given: Mapping[str, str],
    faults: dict[str, str],
) -> dict[str, Any]:
    """Return the path of an edited field with its new value. Empty: it is unchanged."""
    path = field.name.partition(".")[2]
    if field.kind in ("list", "boxes"):
        value = entered_value(field, given, faults)
        value = [] if value is MISSING else value
        return {} if value == (value_at(wait.get("subject"), path) or []) else {path: value}
    if field.kind in FILES:
        value = entered_value(field, given, faults)
        is_same = before is not None and field.value == before.value
        return {} if is_same or value is MISSING else {path: value}
    text = as_sent(given.get(field.name, ""))
    is_same = before is not None and as_sent(before.value) == text
    if field.name not in given or is_same:
        return {}
    new = restored(field.original, text)
    value = note_fault(field, faults, lambda: edited_field(wait, path, new))
    return {} if value is MISSING else {path: value}
