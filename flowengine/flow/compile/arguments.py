"""Validation of the arguments of a call against the callee's schema (E402)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from flowengine.errors import FlowEngineError
from flowengine.flow.compile.callee import Callee
from flowengine.flow.compile.expressions import TypedValue, together
from flowengine.flow.compile.types import differs, words
from flowengine.flow.models import Loc
from flowengine.flow.source.diagnostics import DiagnosticReporter
from flowengine.sdk.texts.near_words import did_you_mean
from flowengine.sdk.values.validation import SchemaError, Validator


class Arguments(NamedTuple):
    """The compiled value of `with`."""

    named: dict[str, TypedValue]
    whole: TypedValue | None = None
    """The one expression for all arguments. Then none is named."""

    def having(self, fixed: dict[str, TypedValue], refused: Iterable[str]) -> TypedValue:
        """Return the arguments as one value, including those that the flow fixes.

        Args:
            fixed: The fixed arguments.
            refused: Names of all fixed arguments, which callers must not pass.
        """
        if self.whole is None:
            return together({**self.named, **fixed})
        parts = [self.whole.value, together(fixed).value, ["const", list(refused)]]
        return TypedValue(["arguments", parts], {"type": "object"})


def check_arguments(
    report: DiagnosticReporter, callee: Callee, arguments: Arguments, loc: Loc, name: str
) -> None:
    """Check the arguments of a call against the schema of a tool.

    Args:
        report: Of the caller's file.
        callee: The tool, or an environment or flow in its form.
        arguments: The arguments.
        loc: Their place, such as `with` of a step.
        name: The tool's name, for messages.
    """
    schema = callee.args
    if arguments.whole is not None:
        _check_whole(report, callee, arguments.whole, loc, name)
        return
    if schema is None:
        return
    given = arguments.named
    bound = callee.bind or {}
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    free = [one for one in properties if one not in bound]
    for argument, typed in given.items():
        place = (*loc, argument)
        if argument in bound:
            message = f"{name!r} fixes the argument {argument!r} by its own 'with'"
            report.at("E402", message, place, "leave it out", key=True)
        elif argument in properties or others is not False:
            wanted = properties.get(argument, others)
            check_argument(report, wanted, typed, place, f"{name}.{argument}")
        else:
            foreign = callee.step_kind.synonym(argument)
            hint = foreign.hint if foreign else did_you_mean(argument, free) or _takes(free)
            message = f"{name!r} takes no argument {argument!r}"
            report.at("E402", message, place, hint, key=True)
    missing = [
        name for name in schema.get("required", []) if name not in given and name not in bound
    ]
    if missing:
        names = " and ".join(repr(name) for name in missing)
        hint = f"add {names} to {loc[-1]!r}"
        report.at("E402", f"{name!r} needs {names}", loc if given else loc[:-1], hint, key=True)


def _check_whole(
    report: DiagnosticReporter, callee: Callee, given: TypedValue, loc: Loc, name: str
) -> None:
    """Check the one expression for all arguments, as far as its type is known."""
    wanted = {"type": "object"}
    if differs(given.schema, wanted):
        message = f"the arguments of {name!r} must be a map, not {words(given.schema)}"
        report.at("E402", message, loc)
        return
    schema, bound = callee.args or {}, callee.bind or {}
    takes, has = schema.get("properties", {}), given.schema.get("properties", {})
    others = schema.get("additionalProperties")
    sure = given.schema.get("required", ())
    for argument, part in has.items():
        if argument in bound and argument in sure:
            message = f"{name!r} fixes the argument {argument!r} by its own 'with'"
            report.at("E402", message, loc)
        elif argument in bound:
            continue
        elif argument in takes or others is not False:
            typed = TypedValue(given.value, part)
            check_argument(report, takes.get(argument, others), typed, loc, f"{name}.{argument}")
        elif argument in sure:
            free = [one for one in takes if one not in bound]
            report.at("E402", f"{name!r} takes no argument {argument!r}", loc, _takes(free))
    if given.schema.get("additionalProperties") is False:
        needs = [
            name for name in schema.get("required", ()) if name not in has and name not in bound
        ]
        if needs:
            names = " and ".join(repr(need) for need in needs)
            report.at("E402", f"{name!r} needs {names}, which this does not give", loc)


def check_argument(
    report: DiagnosticReporter,
    schema: Any,
    typed: TypedValue,
    loc: Loc,
    name: str,
    code: str = "E402",
) -> None:
    """Check the known parts of one value against its declared schema.

    Args:
        report: Of the file with the value.
        schema: The declared schema.
        typed: The value.
        loc: Its place.
        name: The name of the argument or field, for messages.
        code: The code of the diagnostic.
    """
    if not isinstance(schema, dict) or "$ref" in schema:
        return
    if typed.constant:
        try:
            Validator(schema).check(typed.value[1], name)
        except SchemaError:
            return  # the reference leads outside of this part of the schema, or was reported
        except FlowEngineError as error:
            report.at(code, error.message, loc, error.hint)
    elif differs(typed.schema, schema):
        message = f"{name} must be {words(schema)}, not {words(typed.schema)}"
        report.at(code, message, loc)


def _takes(names: list[str]) -> str:
    return f"it takes {', '.join(names)}" if names else "it takes none"
