"""Validation of a flow handler's output by the names and types of the flow's outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowengine.flow.compile.arguments import check_argument
from flowengine.flow.compile.expressions import TypedValue, parts_of
from flowengine.flow.compile.types import UNKNOWN, Schema, differs, words
from flowengine.flow.models import Loc
from flowengine.flow.source.report import DiagnosticReporter
from flowengine.sdk.near_words import did_you_mean


def check_handled(
    report: DiagnosticReporter, declared: Mapping[str, Any], given: TypedValue, loc: Loc
) -> dict[str, Schema]:
    """Check the output of a handler of a flow, which replaces the outputs of the flow.

    Args:
        report: Of the file.
        declared: The outputs of the flow: name → declaration.
        given: The output of the handler.
        loc: Its place.

    Returns:
        Name → type, for all outputs.
    """
    if differs(given.schema, {"type": "object"}):
        message = (
            f"this 'output' is the outputs of the flow: expected a map, got {words(given.schema)}"
        )
        report.at("E103", message, loc, _hint(declared))
        return dict.fromkeys(declared, UNKNOWN)
    parts = parts_of(given)
    types: dict[str, Schema] = given.schema.get("properties", {})
    for name in parts or ():
        if name not in declared:
            hint = did_you_mean(name, declared) or _hint(declared)
            report.at("E102", f"the flow has no output {name!r}", (*loc, name), hint, key=True)
    if given.schema.get("additionalProperties") is False:
        missing = [name for name in declared if name not in types]
        if missing:
            names = " and ".join(repr(name) for name in missing)
            message = f"this 'output' replaces the outputs of the flow, but {names} is missing"
            report.at("E104", message, loc, _hint(declared))
    for name, model in declared.items():
        if name in types:
            typed = TypedValue(given.value, types[name]) if parts is None else parts[name]
            place = loc if parts is None else (*loc, name)
            check_argument(report, model.json_schema, typed, place, f"outputs.{name}", "E311")
    return {name: types.get(name, UNKNOWN) for name in declared}


def _hint(declared: Mapping[str, Any]) -> str:
    if not declared:
        return "the flow declares no outputs: write {}"
    return "write {" + ", ".join(f"{name}: ..." for name in declared) + "}"
