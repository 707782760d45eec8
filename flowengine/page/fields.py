"""The fields of a form, made from a JSON Schema, and the value that they submit.

Objects are groups of fields, and lists of objects are rows of groups. Everything
else that has no kind of field is entered as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from flowengine.engines.typed_text import by_type
from flowengine.errors import FlowEngineError, InputError
from flowengine.page.looks import LONGEST_TEXT
from flowengine.page.sent_forms import MARK, SentFile, as_sent, restored, shown_text
from flowengine.sdk.files.file_names import SHA256, clean_name
from flowengine.sdk.texts.json_values import plain
from flowengine.sdk.values.schema_types import items_of, resolve
from flowengine.sdk.values.validation import SchemaError, validate
from flowengine.server.calls import ApiCall
from flowengine.server.models import UploadQuery
from flowengine.server.sent_values import is_file, upload

FILES = ("file", "files")
"""Kinds of fields: for one file, and for several."""
_SENT = ".file"
"""End of the name of a field in which a browser sends files."""
_FILE = {"path", "name", "size", "sha256"}
_NAMED = _FILE - {"path"}


def kept_files(call: ApiCall, files: Sequence[SentFile]) -> dict[str, str]:
    """Keep the files of a form as uploads of the user, and return field → its new text.

    Raises:
        FlowEngineError: The type of one is not accepted, or the user has uploaded too much.
    """
    names: dict[str, list[Any]] = {}
    for file in files:
        query = UploadQuery(name=clean_name(file.name))
        names.setdefault(file.field, []).append(upload(call._replace(query=query, body=file.path)))
    return {field: json.dumps(kept) for field, kept in names.items()}


def files_sent(kind: str, name: str, given: Mapping[str, str], value: Any) -> str:
    """Return the text of a field of files: JSON, empty without files.

    Args:
        kind: One of `FILES`.
        name: Name of the field.
        given: Name → text, as submitted. Empty: the form is shown for the first time.
        value: The value to show then.
    """
    if not given:
        values = value if isinstance(value, list) else [value]
        kept = [
            without_path(file) for file in values if isinstance(file, dict) and file.keys() == _FILE
        ]
    else:
        kept = files_of(given.get(name, ""))
    new = files_of(given.get(name + _SENT, ""))
    files = (new or kept)[-1:] if kind == "file" else kept + new
    return json.dumps(files) if files else ""


def files_of(text: str) -> list[dict[str, Any]]:
    """Return the files that the text of a field names.

    Raises:
        InputError: It is not of a form of this page.
    """
    if not text:
        return []
    try:
        names = json.loads(text)
        if all(item.keys() == _NAMED and SHA256.fullmatch(item["sha256"]) for item in names):
            return list(names)
    except (ValueError, TypeError, AttributeError, RecursionError):
        pass
    raise InputError("a file of the form cannot be read", hint="choose it again")


def with_file_names(value: Any) -> Any:
    """Return a value with a readable text in place of each file."""
    if isinstance(value, Mapping):
        if value.keys() >= _FILE:
            return f"{value['name']}, {value['size']} bytes"
        return {key: with_file_names(part) for key, part in value.items()}
    return [with_file_names(part) for part in value] if isinstance(value, list) else value


def without_path(value: Any) -> Any:
    """Return a file as a request names it, without its path on this machine, or another value."""
    if isinstance(value, Mapping) and value.keys() >= _FILE:
        return {key: part for key, part in value.items() if key != "path"}
    return value


Schema = Mapping[str, Any]

MORE = "more"
"""Name of the button that adds a row to a list, whose name is its value."""
MISSING: Any = object()
"""Nothing was entered."""
_DEEPEST = 4
"""Groups in groups. What is deeper is entered as JSON."""
_MOST_FIELDS = 200
"""Fields of one form. Further groups are entered as JSON."""
_MOST_ROWS = 50
_MARKS = "A mark such as ⟦U+00AD⟧ stands for one character that cannot be seen"
_LONGEST_LINE = 80
_TYPES = {"integer": "number", "number": "number", "boolean": "checkbox"}
_LIMITS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
}
"""Users cannot read a pattern. Without other help, the error message quotes it."""


class FormField(NamedTuple):
    """One field of a form, or a group of them."""

    name: str
    """Name in the form: `form.NAME`, `edit.PATH`, `input.NAME`, `form.NAME.ROW.NAME`."""
    key: str
    """Name of the property."""
    label: str
    help: str
    kind: str
    """`text`, `number`, `checkbox`, `select`, `boxes` for some of the options, `area`, `file`,
    `files`, `group`, `list` with a group as row, or `fixed`, which has no input."""
    value: str
    """Text to show. Of a list: its number of rows."""
    original: str
    """The text of the value, which `value` shows until another one is entered."""
    options: list[str]
    required: bool
    schema: Schema
    """With its references resolved."""
    fields: list[FormField]
    """Of a group or a list."""
    initial: list[str]
    """Texts of a group in an empty form."""

    @property
    def chosen(self) -> list[str]:
        """The options of `boxes` that are chosen."""
        return list(json.loads(self.value)) if self.value else []


class FormFaults(InputError):
    """Fields of a form are missing or not valid.

    Args:
        faults: Name of a field → why, in the order of the form.
    """

    def __init__(self, faults: Mapping[str, str]) -> None:
        [first, *others] = faults.values()
        super().__init__(first if not others else f"{len(faults)} fields need a change")
        self.faults = faults


class ShownForm(TypedDict):
    """Fields of a form, why it and some of them are refused, and the one with the focus."""

    refusal: str
    fields: Sequence[FormField]
    faults: dict[str, str]
    focus: str


def shown_form(
    fields: Sequence[FormField], error: FlowEngineError | None, given: Mapping[str, str]
) -> ShownForm:
    """Return a form as templates show it.

    Args:
        fields: Its fields.
        error: Why it was refused.
        given: The submitted fields.
    """
    faults: dict[str, str] = {}
    if isinstance(error, FormFaults):
        faults = dict(error.faults)
    elif error is not None and (path := getattr(error, "field", "")):
        # The engine names a field by its path, without the part of the form.
        names = [field.name for field in every(fields) if field.name.partition(".")[2] == path]
        faults = {(names or [path])[0]: error.message}
    labels = {"comment": "Comment", **{field.name: field.label for field in every(fields)}}
    refusal = error.message if error is not None else ""
    if faults and faults.keys() <= labels.keys():  # each field has its message beside it
        number = "One field needs" if len(faults) == 1 else f"{len(faults)} fields need"
        refusal = f"{number} a change: {', '.join(labels[name] for name in faults)}"
    # The first field with a fault has the focus, or that of a new row.
    more = next((field for field in every(fields) if field.name == given.get(MORE)), None)
    found = next((field for field in every(fields) if field.name in faults), None)
    found = found or (more and more.fields[-1])
    while found is not None and found.fields:
        found = found.fields[0]
    focus = found.name if found is not None else next(iter(faults), "")
    return {"refusal": refusal, "fields": fields, "faults": faults, "focus": focus}


class FormFields:
    """Makes the fields of one form.

    Args:
        given: Name → text, as submitted before. Empty: the form is shown for the first time.
    """

    def __init__(self, given: Mapping[str, str], *, is_fresh: bool = False) -> None:
        self._given = given
        self._is_fresh = is_fresh
        """Whether only the texts of an empty form are needed."""
        self._left = _MOST_FIELDS

    def field(
        self,
        name: str,
        key: str,
        schema: Any,
        value: Any,
        *,
        root: Schema | None = None,
        required: bool = False,
        depth: int = 0,
    ) -> FormField:
        """Return the field of a value.

        Args:
            name: Name in the form.
            key: Name of the property.
            schema: JSON Schema of the value.
            value: The value to show. None: the default of the schema.
            root: The schema into which references point. Default: `schema`.
            required: Whether it must be filled in.
            depth: Number of groups around it.
        """
        self._left -= 1
        given = schema if isinstance(schema, dict) else {}
        schema, root = resolve(given, dict(root if root is not None else given))
        schema = {**schema, **{word: given[word] for word in ("title", "default") if word in given}}
        if value is None:
            value = schema.get("default")
        field = _plain(name, key, schema, value, required=required)
        kind = _kind_of_files(schema, root)
        if kind:
            return field._replace(kind=kind, value=files_sent(kind, name, self._given, value))
        if field.kind == "boxes" and self._given:
            chosen = [text for n, text in enumerate(field.options) if f"{name}.{n}" in self._given]
            return field._replace(value=as_text(chosen) if chosen or field.original else "")
        if depth < _DEEPEST and self._left > 0:
            if _is_group(schema) and _fits(schema, value):
                return self._group(field, value, root, depth)
            items, below = items_of(schema, root) if schema.get("type") == "array" else ({}, root)
            rows = value if value is not None else []
            if _is_group(items) and isinstance(rows, list) and all(_fits(items, r) for r in rows):
                return self._list(field, items, rows, below, depth)
        if depth and field.kind == "checkbox" and value is None and not required:
            field = field._replace(kind="select", options=["true", "false"])
        if field.kind == "checkbox" and name not in self._given and self._given:
            return field._replace(value="false")
        return field._replace(value=self._given.get(name, field.value))

    def _group(self, field: FormField, value: Any, root: Schema, depth: int) -> FormField:
        fields = self._inside(field, value or {}, root, depth)
        initial: list[str] = []
        if not self._is_fresh:
            fresh = FormFields({}, is_fresh=True)
            fresh._left = self._left
            initial = [
                text for item in fresh._inside(field, {}, root, depth) for text in texts_of(item)
            ]
        return field._replace(kind="group", value="", fields=fields, initial=initial)

    def _inside(
        self, field: FormField, value: Mapping[str, Any], root: Schema, depth: int
    ) -> list[FormField]:
        required = field.schema.get("required", ())
        return [
            self.field(
                f"{field.name}.{key}",
                key,
                schema,
                value.get(key),
                root=root,
                required=key in required,
                depth=depth + 1,
            )
            for key, schema in field.schema["properties"].items()
        ]

    def _list(
        self, field: FormField, items: Schema, rows: list[Any], root: Schema, depth: int
    ) -> FormField:
        number = len(rows) or max(int(field.schema.get("minItems", 0)), 1)
        count = self._given.get(f"{field.name}.count", "")
        if count.isdecimal() and len(count) < 4:
            number = int(count) + (self._given.get(MORE) == field.name)
        number = min(number, _MOST_ROWS)
        fields = [
            self.field(
                f"{field.name}.{place}",
                str(place + 1),
                items,
                rows[place] if place < len(rows) else None,
                root=root,
                depth=depth + 1,
            )
            for place in range(number)
        ]
        return field._replace(kind="list", value=str(len(fields)), fields=fields)


def entered_value(field: FormField, given: Mapping[str, str], faults: dict[str, str]) -> Any:
    """Return the value of a field as submitted, or `MISSING`.

    Args:
        field: The field, made with the same texts.
        given: Name → text.
        faults: Receives why a part of it is missing or not valid, by the name of its field.
    """
    if field.kind == "group":
        is_untouched = [text for item in field.fields for text in texts_of(item)] == field.initial
        if is_untouched and not field.required:
            return MISSING
        values = {item.key: entered_value(item, given, faults) for item in field.fields}
        known = {key: value for key, value in values.items() if value is not MISSING}
        return known if known or field.required else MISSING
    if field.kind == "list":
        rows = [entered_value(item, given, faults) for item in field.fields]
        rows = [row for row in rows if row is not MISSING]
        return rows if rows or field.required else MISSING
    value = MISSING
    if field.kind in FILES:
        files = files_of(field.value)
        value = MISSING if not files else files if field.kind == "files" else files[0]
    elif field.kind == "boxes":
        value = field.chosen
        value = value if value or field.required or field.original else MISSING
    else:
        text = restored(field.original, as_sent(given.get(field.name, "")))
        if field.kind == "checkbox":
            text = "true" if text == "true" else "false"
        if text:
            what = f"'{field.label}'"
            value = note_fault(field, faults, lambda: by_type(field.schema, text, what, field.key))
    if value is MISSING and field.required and "default" not in field.schema:
        faults.setdefault(field.name, f"'{field.label}' is required")
    return value


def note_fault(field: FormField, faults: dict[str, str], read: Callable[[], Any]) -> Any:
    """Return the value that is read from a field, or `MISSING` if it is not valid, and note why.

    Args:
        field: The field.
        faults: Receives why.
        read: Returns its value, which is checked against its schema.
    """
    value = MISSING
    try:
        value = read()
        validate(field.schema, value, f"'{field.label}'")
    except SchemaError:  # it has references into the whole schema, which the engine checks
        return value
    except InputError as error:
        is_told = "pattern" in field.schema and field.schema.keys() & {"description", "examples"}
        message = f"'{field.label}' is not of the form that is described here"
        faults[field.name] = message if is_told else error.message
        return MISSING
    return value


def every(fields: Iterable[FormField]) -> Iterator[FormField]:
    """Yield fields and the fields in them, in the order of the form."""
    for field in fields:
        yield field
        yield from every(field.fields)


def leaves(field: FormField) -> Iterator[FormField]:
    """Yield the fields of a group, also those of groups inside it, without the groups."""
    if field.kind != "group":
        yield field
        return
    for item in field.fields:
        yield from leaves(item)


def as_text(value: Any) -> str:
    """Return a value as the text of a field."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, default=plain)


def texts_of(field: FormField) -> list[str]:
    if field.fields:
        return [text for item in field.fields for text in texts_of(item)]
    return [as_sent(field.value)]


def fits_in_a_form(value: Any) -> bool:
    """Return whether a value is short enough for a form."""
    return len(as_text(value)) <= LONGEST_TEXT


def _kind_of_files(schema: dict[str, Any], root: dict[str, Any]) -> str:
    """Return the kind of the field of a file or of several. Empty: the value is another one."""
    if is_file(schema):
        return "file"
    items = items_of(schema, root)[0] if schema.get("type") == "array" else {}
    return "files" if is_file(items) else ""


def _is_group(schema: Schema) -> bool:
    properties = schema.get("properties")
    if schema.get("type", "object") != "object" or not isinstance(properties, dict):
        return False
    return bool(properties) and not any("." in key for key in properties)


def _fits(schema: Schema, value: Any) -> bool:
    """Return whether a group of fields shows the whole value."""
    if value is None:
        return True
    return isinstance(value, dict) and value.keys() <= schema["properties"].keys()


def _choices_of(schema: Schema, value: Any) -> list[str]:
    """Return the texts that a list allows. Empty: it allows any, or is not a list."""
    items = schema.get("items") if schema.get("type") == "array" else None
    options = items.get("enum", []) if isinstance(items, dict) else []
    fits = all(isinstance(text, str) for text in options) and all(v in options for v in value or [])
    return options if fits else []


def _examples(schema: Schema) -> str:
    """Return examples of a value, where they are short. Empty: the schema has none."""
    given = schema.get("examples")
    texts = [as_text(value) for value in given] if isinstance(given, list) else []
    shown = [text for text in texts if text and len(text) <= _LONGEST_LINE][:2]
    return f"for example {' or '.join(shown)}" if shown else ""


def _plain(name: str, key: str, schema: Schema, value: Any, *, required: bool) -> FormField:
    """Return the field of a value that is not a group."""
    options = schema.get("enum") or []
    types = schema.get("type")
    if options and all(isinstance(option, str) for option in options):
        kind = "select"
    elif isinstance(types, str) and types in _TYPES:
        kind = _TYPES[types]
    elif choices := _choices_of(schema, value):
        kind, options = "boxes", choices
    else:
        is_text = types == "string" or (types is None and isinstance(value, str | None))
        text = shown_text(str(value or ""))
        is_line = is_text and len(text) <= _LONGEST_LINE and "\n" not in text
        kind = "text" if is_line else "area"
        if types is None and isinstance(value, int | float) and not isinstance(value, bool):
            kind = "number"
    original = as_text(value)
    text = shown_text(original)
    marks = _MARKS if MARK.search(text) else ""
    limits = ", ".join(words.format(schema[k]) for k, words in _LIMITS.items() if k in schema)
    texts = schema.get("description"), limits, _examples(schema), marks
    help = ". ".join(text[0].upper() + text[1:] for text in texts if text)
    shown = [str(option) for option in options] if kind in ("select", "boxes") else []
    label = str(schema.get("title") or key)
    return FormField(name, key, label, help, kind, text, original, shown, required, schema, [], [])
