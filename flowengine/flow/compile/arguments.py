"""Arguments of a call, checked against what the callee takes (E402)."""

from __future__ import annotations

from typing import Any

from flowengine.errors import FlowEngineError
from flowengine.flow.compile.callee import Callee
from flowengine.flow.compile.expressions import Typed
from flowengine.flow.compile.types import differs, words
from flowengine.flow.models import Loc
from flowengine.flow.source.diagnostics import did_you_mean
from flowengine.flow.source.report import Report
from flowengine.validation import SchemaError, Validator


def check_arguments(
    report: Report, callee: Callee, given: dict[str, Typed], loc: Loc, name: str
) -> None:
    """Check what a caller gives against the schema of a tool.

    Args:
        report: Of the caller's file.
        callee: The tool.
        given: The arguments.
        loc: Where they stand.
        name: The tool's name, for messages.
    """
    schema = callee.args
    if schema is None:
        return
    bound = callee.bind or {}
    properties = schema.get("properties", {})
    free = [one for one in properties if one not in bound]
    for argument, typed in given.items():
        place = (*loc, "with", argument)
        if argument in bound:
            message = f"the flow fixes the argument {argument!r} of {name!r} by 'bind'"
            report.at("E402", message, place, "leave it out", key=True)
        elif argument in properties:
            _check_argument(report, properties[argument], typed, place, f"{name}.{argument}")
        elif schema.get("additionalProperties") is False:
            hint = did_you_mean(argument, free) or _takes(free)
            message = f"{name!r} takes no argument {argument!r}"
            report.at("E402", message, place, hint, key=True)
    missing = [one for one in schema.get("required", []) if one not in given and one not in bound]
    if missing:
        names = " and ".join(repr(one) for one in missing)
        place = (*loc, "with") if given else loc
        report.at("E402", f"{name!r} needs {names}", place, f"add {names} to 'with'", key=True)


def _check_argument(report: Report, schema: Any, typed: Typed, loc: Loc, name: str) -> None:
    if not isinstance(schema, dict) or "$ref" in schema:
        return
    if typed.constant:
        try:
            Validator(schema).check(typed.value[1], name)
        except SchemaError:
            return  # it leads outside of this part of the schema, or was reported
        except FlowEngineError as error:
            report.at("E402", error.message, loc, error.hint)
    elif differs(typed.schema, schema):
        message = f"{name} is {words(schema)}; this gives {words(typed.schema)}"
        report.at("E402", message, loc)


def _takes(names: list[str]) -> str:
    return f"it takes {', '.join(names)}" if names else "it takes none"
