"""Validation of an environment's configuration by the models of its kind (E402).

The value of an expression is known only at run time. Until then, its type is checked, and all other
parts: unknown keys, missing keys, and constants.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from pydantic import BaseModel

from flowengine import registry
from flowengine.flow.compile.expressions import TypedValue
from flowengine.flow.compile.types import differs, words
from flowengine.flow.models import Environment, Loc
from flowengine.flow.models.types import holds_expression, is_expression
from flowengine.flow.source.diagnostics import DiagnosticReporter, Fault
from flowengine.sdk.environments import Provider, Sandbox
from flowengine.sdk.environments.models import ResourceLimits
from flowengine.sdk.environments.sandboxes import with_sandboxes
from flowengine.sdk.texts.near_words import did_you_mean
from flowengine.sdk.texts.validation_messages import ModelFault, model_faults
from flowengine.sdk.values.schema_types import kinds, resolve


def report_configuration(
    report: DiagnosticReporter,
    provider: Provider[Any],
    model: Environment,
    default: str | None,
    data: Mapping[str, Any],
    at: Loc,
    computed: Mapping[str, TypedValue],
) -> None:
    """Report values of a declaration that do not fit the models of its kind.

    Args:
        report: Of the file.
        provider: The provider of its kind.
        model: The declaration.
        default: The sandbox that is used if none is named. None if it needs none.
        data: Its configuration, with expressions as text.
        at: The place of the configuration.
        computed: The entries with expressions, compiled.
    """
    _report_faults(report, _config_model(provider, model, default), data, at, computed)
    _report_faults(report, provider.policy_model(), model.policy, (*model.loc, "policy"))
    _report_faults(report, ResourceLimits, model.limits, (*model.loc, "limits"))


def _config_model(
    provider: Provider[Any], model: Environment, default: str | None
) -> type[BaseModel]:
    """Return the model of the kind combined with those of the named sandboxes."""
    if default is None:
        return _model_of(provider, ())
    given = model.provider or default
    names = [given] if isinstance(given, str) else given
    known = [registry.sandbox_class(name) for name in names if name in registry.sandbox_names()]
    return _model_of(provider, tuple(known))


@lru_cache  # building a model takes milliseconds
def _model_of(provider: Provider[Any], sandboxes: tuple[type[Sandbox], ...]) -> type[BaseModel]:
    return with_sandboxes(provider.config_model(), sandboxes)


def _report_faults(
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
        place = (*loc, *fault.loc) if fault.loc or not fault.key else loc[:-1]
        report.at(fault.code, fault.message, place, fault.hint, key=fault.key)


def _faults(cls: type[BaseModel], data: Mapping[str, Any], name: str) -> Iterator[Fault]:
    from pydantic import ValidationError

    try:
        cls.model_validate(dict(data))
    except ValidationError as error:
        for fault in model_faults(error, cls, dict(data), holds_expression):
            yield _told(fault, name)


def _told(fault: ModelFault, name: str) -> Fault:
    """Return a fault in the words of the file, whose configuration has a name."""
    path, value, kind, meant, said = fault
    if kind == "extra_forbidden":
        within = str(path[-2]) if len(path) > 1 else name
        near = did_you_mean(str(path[-1]), meant) or f"known are {', '.join(meant)}"
        return Fault(path, "E402", f"unknown key {path[-1]!r} in {within!r}", near, key=True)
    if kind == "missing":
        within = str(path[-2]) if len(path) > 1 else name
        return Fault(path[:-1], "E402", f"{within!r} needs {path[-1]!r}", key=True)
    if kind == "secret":
        how = "declare it under 'secrets', and name it: ${{ secrets.NAME }}"
        return Fault(path, "E402", "this must name a secret, not contain its value", how)
    field = next((item for item in reversed(path) if isinstance(item, str)), name)
    what = f"an entry of {field!r}" if path and isinstance(path[-1], int) else repr(field)
    of_itself = said.startswith(("is ", "must ", "needs "))
    hint = did_you_mean(value, meant) if isinstance(value, str) else None
    return Fault(path, "E402", f"{what} {said}" if of_itself else f"{what}: {said}", hint)


def _mistyped(
    cls: type[BaseModel], data: Mapping[str, Any], computed: Mapping[str, TypedValue]
) -> Iterator[Fault]:
    """Yield the expressions whose type can never fit. A text may be parsed as a number."""
    whole = cls.model_json_schema() if computed else {}
    for key, typed in computed.items():
        if not is_expression(data[key]) or key not in cls.model_fields:
            continue
        field = whole["properties"][key]
        arms = [kinds(resolve(arm, whole)[0]) for arm in field.get("anyOf", [field])]
        takes = sorted({kind for arm in arms for kind in arm or ()} - {"null"})
        parsed = ["string"] if {"integer", "number", "boolean"} & {*takes} else []
        if None not in arms and differs(typed.schema, {"type": [*takes, *parsed]}):
            message = f"{key} must be {words({'type': takes})}, not {words(typed.schema)}"
            yield Fault((key,), "E402", message)
