"""Handlers that can never run (E210), and those with a wider effect than it seems (W411)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flowengine.flow.check.released_environments import Finding
from flowengine.flow.compile.arguments import check_argument
from flowengine.flow.compile.expressions import TypedValue, parts_of
from flowengine.flow.compile.outcomes import outcomes
from flowengine.flow.compile.plan import Info, Plan
from flowengine.flow.compile.types import UNKNOWN, Schema, differs, words
from flowengine.flow.loading.files import Definition
from flowengine.flow.models import Fail, Loc, Wait
from flowengine.flow.source.diagnostics import DiagnosticReporter
from flowengine.kernel.errors import matches
from flowengine.sdk.texts.near_words import did_you_mean

ANYWHERE = frozenset({"ExpressionError", "ValidationError", "LimitExceeded", "Cancelled"})
"""Errors that can occur at every step."""
OUTSIDE = frozenset({"MapFailed", "TooFew", "Deadline", *ANYWHERE})
"""Errors that leave a map."""


Plans = Callable[[Definition], Plan]
"""Returns the steps of another flow, compiled."""


def check_handlers(plan: Plan, plans: Plans) -> Iterator[Finding]:
    """Yield errors and warnings about the handlers of all steps.

    Args:
        plan: The steps, compiled.
        plans: Returns the steps of the flows that they run.

    Yields:
        Findings, in file order.
    """
    for info in plan.steps:
        handlers = info.model.on_error
        if not isinstance(handlers, list):
            continue
        yield from _covered(info)
        # A generated flow handles any error of its tools, even for tools that cannot fail.
        can = possible(info, plans) if plan.model.generated is None else None
        if can is not None and info.number not in plan.gaps.outcomes:
            yield from _never(info, can)
        if info.model.loop is not None:
            yield from _ends_loop(info)


def _covered(info: Info) -> Iterator[Finding]:
    """Find handlers after one that already handles all their errors."""
    taken: list[str] = []
    everything = False
    for index, spec in enumerate(info.spec.get("on_error", [])):
        types = spec.get("types")
        if types is None:
            rest = [] if everything else ["*"]
        else:
            rest = [t for t in types if not (everything and t != "Cancelled")]
            rest = [t for t in rest if not matches(t.removesuffix(".*"), taken)]
        if not rest:
            message = "this handler is never used: an earlier one catches everything that it could"
            yield Finding("E210", info.number, message, "put it first", ("on_error", index))
        if "when" not in spec:
            everything = everything or types is None
            taken += types or []


def _never(info: Info, can: frozenset[str]) -> Iterator[Finding]:
    mapped = info.model.map is not None
    for index, spec in enumerate(info.spec.get("on_error", [])):
        types = spec.get("types")
        if types is None or any(matches(error, types) for error in can):
            continue
        names = " and ".join(repr(error) for error in types)
        message = f"{names} cannot occur at {info.id!r}"
        if mapped:
            hint = "errors of an item stay in the map: put the step into a group with the map"
        else:
            hint = f"possible errors: {', '.join(sorted(can))}"
        where = ("on_error", index, "type")
        yield Finding("E210", info.number, message, hint, where)


def possible(info: Info, plans: Plans) -> frozenset[str] | None:
    """Return the types of error that can occur at a step, or None if any can.

    Args:
        info: The step.
        plans: Returns the steps of the flow that it runs.

    Returns:
        Names of types.
    """
    model = info.model
    if model.map is None and info.spec.get("action") in {"task", "group"}:
        return None
    if model.map is None and isinstance(info.given, Fail) and info.given.error is not None:
        return None
    own = _at(info)
    if model.map is not None or info.flow is None:
        return own
    inside = _of_flow(info.flow, plans, set())
    return None if inside is None else own | inside


def _of_flow(flow: Definition, plans: Plans, seen: set[Definition]) -> frozenset[str] | None:
    """Return the types of error that can leave a flow, or None if any can."""
    if flow in seen:
        return frozenset()  # a recursive call adds no further types
    seen.add(flow)
    errors: frozenset[str] = frozenset({"CompensationFailed"})
    plan = plans(flow)
    if plan.gaps or plan.gaps.outcomes:
        return None
    for info in plan.steps:
        if info.spec.get("action") == "task" or info.model.compensate is not None:
            return None
        if _raises_anything(info):
            return None
        inside = None if info.flow is None else _of_flow(info.flow, plans, seen)
        if info.flow is not None and inside is None:
            return None
        errors |= _at(info) | (inside or frozenset()) | _raised(info.model.on_error)
    return errors | _raised(flow.on_error)


def _raises_anything(info: Info) -> bool:
    """Return whether a step raises an error again whose type is known only at run time.

    An error that a handler raises again from its own step is among the possible errors anyway.
    """
    handlers = info.model.on_error if isinstance(info.model.on_error, list) else []
    again = [handler.fail.error for handler in handlers if handler.fail is not None]
    others = [raised for raised in again if raised is not None and raised.strip("${} ") != "error"]
    return bool(others) or (isinstance(info.given, Fail) and info.given.error is not None)


def _raised(handlers: object) -> set[str]:
    """Return the types that handlers raise in place of the handled error."""
    some = handlers if isinstance(handlers, list) else []
    return {
        handler.fail.type
        for handler in some
        if handler.fail is not None and handler.fail.error is None
    }


def _at(info: Info) -> frozenset[str]:
    """Return the types of error that a step adds to those from inside it."""
    model = info.model
    present = {
        "Deadline": model.deadline is not None,
        "TooFew": info.spec.get("join", {}).get("kind") == "count",
        "NoBranch": "entries" in info.spec.get("split", {}),
    }
    can = {error for error, is_there in present.items() if is_there}
    if model.map is not None:
        return frozenset(can | OUTSIDE)
    return frozenset(can | ANYWHERE | _own(info))


def _own(info: Info) -> set[str]:
    """Return the types that a step without a call raises by its own action and modifiers."""
    model = info.model
    present = {
        "LoopLimit": model.loop is not None,
        "StateConflict": bool(model.set),
        "Timeout": model.timeout is not None and not isinstance(info.given, Wait),
    }
    own = {error for error, is_there in present.items() if is_there}
    if isinstance(info.given, Fail) and info.given.error is None:
        own.add(info.given.type)
    routed = (model.next.outcome if model.next is not None else None) or {}
    raising = outcomes(info).raising.items()
    return own | {error for name, error in raising if name not in routed and "else" not in routed}


def _ends_loop(info: Info) -> Iterator[Finding]:
    for index, spec in enumerate(info.spec.get("on_error", [])):
        types = spec.get("types")
        if spec.get("do") != "output" or (
            types is not None and set(types) <= {"LoopLimit", "Deadline"}
        ):
            continue
        message = f"for an error of a round this 'output' ends the loop of {info.id!r}"
        hint = "put the step into a group that carries the loop, with the handler on the step"
        yield Finding("W411", info.number, message, hint, ("on_error", index, "output"))


# Validation of a flow handler's output by the names and types of the flow's outputs.


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
