"""Generation of example arguments from a schema, to show a model a correct call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from flowengine.agents.text_calls.arguments import misfits, validator_of
from flowengine.agents.text_calls.records import ToolOffer

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError


def example_arguments(tool: ToolOffer) -> dict[str, Any]:
    """Return fitting values for all required parameters of a tool, as far as they are found.

    Args:
        tool: The tool.
    """
    names = [name for name in tool.schema.get("required", ()) if name in tool.schema["properties"]]
    return {name: _example(tool, name, place) for place, name in enumerate(names, start=1)}


def _example(tool: ToolOffer, name: str, place: int) -> Any:
    schema = tool.schema["properties"][name]
    if isinstance(schema, Mapping):
        if schema.get("examples"):
            return schema["examples"][0]
        if "default" in schema:
            return schema["default"]
    validator = validator_of(tool)
    of_type = []
    values: list[Any] = ["text", place, True, [], {}, None]
    for value in values:  # grows during the loop
        errors = misfits(validator, name, value)
        if not errors:
            return value
        if all(error.kind.name != "type" for error in errors):
            of_type.append(value)
        values += [choice for choice in _choices(errors) if choice not in values]
    return next(iter(of_type), None)


def _choices(errors: Iterable[ValidationError]) -> Iterator[Any]:
    """Yield the values that errors name as valid."""
    for error in errors:
        kind = error.kind.as_dict()
        yield from kind.get("options", ())
        yield from (kind[name] for name in ("expected_value", "limit") if name in kind)
        for form in kind.get("context", ()):
            yield from _choices(form)
