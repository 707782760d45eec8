"""Conversion of the long forms of the language to the short forms that an author would write."""

from __future__ import annotations

from typing import Any

from flowengine.flow.loading.long_form import shapes
from flowengine.flow.models import FlowModel, Part, Pluggable, Step
from flowengine.flow.models.kinds import configuration

LEAD = ("id", "when", "type", "to")
"""Keys that come first in other mappings."""
TOOL = ("description", "args", "returns", "<action>")
"""Keys of a tool that come first."""
ORDER = (
    "id", "title", "trigger", "join", "when", "map", "loop", "lock",
    "<action>", "with", "in", "environments", "detach",
    "effect", "on_crash", "retry", "timeout", "deadline",
    "output", "set", "emit", "compensate", "finally", "on_error", "next",
)  # fmt: skip
"""The keys of a step in reading order: condition, action, modifiers, next steps."""


def shortened(model: FlowModel) -> dict[str, Any]:
    """Return a flow as plain data in short forms.

    Args:
        model: The flow.

    Returns:
        The data of a flow file, with keys in the order of the reference.
    """
    short = _part(FlowModel, model.model_dump(by_alias=True, exclude_unset=True))
    last = {
        key: short.pop(key) for key in ("steps", "on_error", "finally", "outputs") if key in short
    }
    for section in ("inputs", "state"):
        for name, schema in short.get(section, {}).items():
            ends = {key: schema[key] for key in ("default", "reducer") if key in schema}
            short[section][name] = {k: value for k, value in schema.items() if k not in ends} | ends
    return {**short, **last}


def _part(cls: type[Part], data: Any) -> Any:
    if not isinstance(data, dict):
        return data
    known = shapes(cls)
    short: dict[str, Any] = {}
    for key, value in data.items():
        shape = known.get(key)
        if shape is not None and shape.part is not None:
            short[key] = _within(shape.part, shape.within, value)
        elif shape is None and issubclass(cls, Pluggable):
            short[key] = _configuration(key, value)
        else:
            short[key] = _alone(value) if key in ERRORS else value
    if cls is not FlowModel:
        short = dict(sorted(short.items(), key=lambda entry: _place(cls, entry[0])))
    main = short.get(cls.MAIN) if cls.MAIN else None
    bare = main is not None and short.keys() == {cls.MAIN} and not isinstance(main, dict)
    return main if bare and cls.short_form(main) == short else short


ERRORS = frozenset({"type", "only", "except"})
"""Keys that take one name or a list of them."""


def _within(cls: type[Part], within: str | None, value: Any) -> Any:
    if within == "dict" and isinstance(value, dict):
        return {key: _part(cls, entry) for key, entry in value.items()}
    if within == "list" and isinstance(value, list):
        inner = [_part(cls, item) for item in value]
        return _alone(inner) if cls.SINGLE else inner
    return _part(cls, value) if not isinstance(value, list) else value


def _alone(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _configuration(kind: str, value: Any) -> Any:
    """Return the configuration of a step kind as a bare value, if possible."""
    main = configuration(kind).get("x-main") if isinstance(value, dict) else None
    return value[main] if main and value.keys() == {main} and value[main] is not None else value


def _place(cls: type[Part], key: str) -> int:
    """Return the position of a key among those of its mapping."""
    order = ORDER if issubclass(cls, Step) else TOOL if issubclass(cls, Pluggable) else LEAD
    if key in order:
        return order.index(key)
    is_action = issubclass(cls, Pluggable) and cls.is_action(key)
    return order.index("<action>") if is_action else len(order)
