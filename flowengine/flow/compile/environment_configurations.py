"""Validation of an environment's configuration by the models of its kind (E402).

The value of an expression is known only at run time. Until then, its type is checked, and all other
parts: unknown keys, missing keys, and constants.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from flowengine.flow.compile.expressions import TypedValue
from flowengine.flow.compile.types import differs, words
from flowengine.flow.models import Loc
from flowengine.flow.models.types import has_expression, is_expression
from flowengine.flow.source.diagnostics import DiagnosticReporter
from flowengine.sdk.near_words import did_you_mean
from flowengine.sdk.validation_messages import predicate

if TYPE_CHECKING:
    from pydantic import BaseModel

_WORD = re.compile(r"'([^']*)'")


class _Fault(NamedTuple):
    path: Loc
    """Its place, as far as it exists."""
    message: str
    hint: str | None = None
    key: bool = False
    """Whether it is about the key, not its value."""


def report_faults(
    report: DiagnosticReporter,
    cls: type[BaseModel],
    data: Mapping[str, Any],
    loc: Loc,
    computed: Mapping[str, TypedValue] | None = None,
) -> None:
    """Report values that do not fit a model of a kind.

    Args:
        report: Of the file.
        cls: The model.
        data: The configuration in the file, with expressions as text.
        loc: Its place.
        computed: The entries with expressions, compiled.
    """
    for fault in [*_faults(cls, data, str(loc[-1])), *_mistyped(cls, data, computed or {})]:
        # A missing entry is reported at the place where it would be.
        place = (*loc, *fault.path) if fault.path or not fault.key else loc[:-1]
        report.at("E402", fault.message, place, fault.hint, key=fault.key)


def _faults(cls: type[BaseModel], data: Mapping[str, Any], name: str) -> list[_Fault]:
    from pydantic import ValidationError

    try:
        cls.model_validate(dict(data))
    except ValidationError as error:
        # For a secret or a text, the error that it is not text is more useful.
        each_one = sorted(error.errors(), key=lambda problem: problem["type"] == "secret")
        faults = [fault for each in each_one for fault in _fault(cls, each, data, name)]
    else:
        return []
    # For a union, only the errors of the best fitting member are reported, one for each place.
    paths = {fault.path for fault in faults}
    return [
        fault
        for number, fault in enumerate(faults)
        if fault.key
        or (
            not any(len(other) > len(fault.path) and _begins(other, fault.path) for other in paths)
            and fault.path not in {other.path for other in faults[:number]}
        )
    ]


def _fault(
    cls: type[BaseModel], error: Any, data: Mapping[str, Any], name: str
) -> Iterator[_Fault]:
    """Yield the errors of pydantic, unless the value of an expression may fit."""
    path, value = _walk(error["loc"], data)
    within = str(path[-1]) if path else name
    if error["type"] == "extra_forbidden":
        known = list(_model_at(cls, path[:-1]).model_fields)
        within = str(path[-2]) if len(path) > 1 else name
        near = did_you_mean(str(path[-1]), known) or f"known are {', '.join(known)}"
        yield _Fault(path, f"unknown key {path[-1]!r} in {within!r}", near, key=True)
    elif error["type"] == "missing":
        yield _Fault(path, f"{within!r} needs {error['loc'][-1]!r}", key=True)
    elif error["type"] == "secret":
        if not _holds_expression(value):
            how = "declare it under 'secrets', and name it: ${{ secrets.NAME }}"
            yield _Fault(path, "this must name a secret, not contain its value", how)
    elif not _holds_expression(value):
        field = next((item for item in reversed(path) if isinstance(item, str)), name)
        what = f"an entry of {field!r}" if path and isinstance(path[-1], int) else repr(field)
        wrong = predicate(error)
        of_itself = wrong.startswith(("is ", "must ", "needs "))
        message = f"{what} {wrong}" if of_itself else f"{what}: {wrong}"
        meant = _WORD.findall(str(error.get("ctx", {}).get("expected", "")))
        hint = did_you_mean(value, meant) if isinstance(value, str) else None
        yield _Fault(path, message, hint)


def _mistyped(
    cls: type[BaseModel], data: Mapping[str, Any], computed: Mapping[str, TypedValue]
) -> Iterator[_Fault]:
    """Yield the expressions whose type can never fit."""
    wanted: dict[str, Any] | None = None
    for key, typed in computed.items():
        if not is_expression(data[key]) or key not in cls.model_fields:
            continue
        wanted = wanted or cls.model_json_schema()
        field = wanted["properties"][key]
        arms = [_resolved(arm, wanted) for arm in field.get("anyOf", [field])]
        arms = [arm for arm in arms if arm.get("type") != "null"]
        if not any(_may_be(typed, arm) for arm in arms):
            expected = " or ".join(dict.fromkeys(words(arm) for arm in arms))
            yield _Fault((key,), f"{key} must be {expected}, not {words(typed.schema)}")


def _may_be(typed: TypedValue, wanted: dict[str, Any]) -> bool:
    """Return whether a value may fit. A text may be parsed as a number."""
    text = not differs(typed.schema, {"type": "string"})
    as_text = text and not differs({"type": ["integer", "number", "boolean"]}, wanted)
    return as_text or not differs(typed.schema, wanted)


def _resolved(schema: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref")
    if reference is None:
        return schema
    definition: dict[str, Any] = whole["$defs"][str(reference).rpartition("/")[2]]
    return definition


def _walk(loc: tuple[str | int, ...], data: Any) -> tuple[Loc, Any]:
    """Return the existing part of a place, without pydantic's tags for unions."""
    path: list[str | int] = []
    for item in loc:
        items = dict(enumerate(data)) if isinstance(data, list) else data
        if isinstance(items, Mapping) and item in items:
            data = items[item]
            path.append(item)
    return tuple(path), data


def _model_at(cls: type[BaseModel], path: Loc) -> type[BaseModel]:
    """Return the model of the value at a place."""
    for item in path:
        info = cls.model_fields.get(str(item))
        cls = next(_models(info.annotation), cls) if info is not None else cls
    return cls


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    from pydantic import BaseModel

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


def _holds_expression(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_expression, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_expression, value))
    return has_expression(value)


def _begins(path: Loc, with_: Loc) -> bool:
    return path[: len(with_)] == with_
