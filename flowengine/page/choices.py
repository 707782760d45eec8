"""What each choice of an approval leads to, from the graph of the flow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.drawing.picture import step_name
from flowengine.kernel.graph.compiled import END

if TYPE_CHECKING:
    from flowengine.kernel.graph.specs import CompiledFlow, HandlerSpec, StepSpec

_OF_CALL = {
    "approve": "makes the call",
    "reject": "does not make the call",
    "respond": "uses the result that you enter, without a call",
}


class ChoiceEffect(NamedTuple):
    """What follows from a choice."""

    label: str
    needs_comment: bool
    follows: str
    """In words: `continues with Book the trip`. Empty: unknown."""


def effects(flow: CompiledFlow, wait: Mapping[str, Any]) -> list[ChoiceEffect]:
    """Return what follows from each choice, without those of which nothing can be said.

    Args:
        flow: The flow of the execution.
        wait: The approval.
    """
    steps = [step for step in flow["steps"] if step["id"] == wait["step"]]
    asks = steps[0] if len(steps) == 1 and steps[0]["action"] == "approval" else None
    found = []
    for choice in wait.get("choices") or ():
        follows = "" if asks is None else _follows(flow, asks, choice["id"])
        if wait.get("tool") and wait["kind"] == "approval":
            follows = _OF_CALL.get(choice["id"], "")
        needs_comment = choice.get("comment") == "required"
        if follows or needs_comment:
            label = str(choice.get("label") or choice["id"])
            found.append(ChoiceEffect(label, needs_comment, follows))
    return found


def _follows(flow: CompiledFlow, step: StepSpec, outcome: str) -> str:
    """Return where an outcome of a step leads, in words."""
    split: Any = step.get("split", {"kind": "one", "to": END})
    routes: Mapping[str, int] = split.get("outcomes", {})
    if outcome in routes or "otherwise" in split:
        return _leads_to(flow, step, routes.get(outcome, split.get("otherwise")))
    error = step.get("raises", {}).get(outcome)
    if error is not None:
        return _handled(flow, step, error)
    if split["kind"] == "one":
        return _leads_to(flow, step, split["to"])
    names = [
        step_name(flow["steps"][entry["to"]]) for entry in split["entries"] if entry["to"] >= 0
    ]
    is_all = split["kind"] == "all" and all("when" not in entry for entry in split["entries"])
    return f"continues with {(' and ' if is_all else ' or ').join(names)}" if names else ""


def _handled(flow: CompiledFlow, step: StepSpec, error: str) -> str:
    """Return what follows from an error of a step, in words."""
    for handler in _handlers(flow, step):
        if error not in handler.get("types", [error]):
            continue
        if "when" in handler:
            return ""  # only the kernel knows
        do, follows = handler.get("do", "raise"), f"fails with {error}"
        if do == "next":
            follows = _leads_to(flow, step, handler["to"])
        elif do in ("output", "continue"):
            follows = _leads_to(flow, step, step.get("split", {}).get("to", END))
        return f"{follows} after compensation" if handler.get("compensate") else follows
    return f"fails with {error}"


def _handlers(flow: CompiledFlow, step: StepSpec) -> Iterator[HandlerSpec]:
    yield from step.get("on_error", ())
    if step["body"] == 0:
        yield from flow.get("on_error", ())


def _leads_to(flow: CompiledFlow, step: StepSpec, target: int) -> str:
    if target >= 0:
        return f"continues with {step_name(flow['steps'][target])}"
    owner = flow["bodies"][step["body"]]["owner"]
    if target == END and owner >= 0:
        return f"leads to the end of {step_name(flow['steps'][owner])}"
    return "leads to the end"
