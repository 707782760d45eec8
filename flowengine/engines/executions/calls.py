"""Tool calls as shown to approvers: the calling step, the tool and its arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flowengine import registry
from flowengine.errors import FlowEngineError
from flowengine.kernel.graph.compiled import OPENING, Plain, join_secrets, masked
from flowengine.kernel.graph.specs import CompiledFlow, StepSpec
from flowengine.kernel.state.records import State
from flowengine.sdk.steps.step_kind import StepKind


def uncertain_call(
    flow: CompiledFlow, state: State, record: Mapping[str, Plain]
) -> dict[str, Plain]:
    """Return the tool and arguments to show with a question about an interrupted attempt.

    Args:
        flow: The flow that the execution runs.
        state: The state that contains the question.
        record: The record of the question.

    Returns:
        `tool` and `subject`. Empty for a step that calls no tool.
    """
    wait = state["waits"].get(record["id"])
    if wait is None:
        return {}
    attempt: Any = state["units"].get(wait["unit"])
    if attempt is None:
        attempt = state["cuts"].get(wait.get("cut", 0), {})
    place = state["acts"][attempt["act"]]["step"] if "act" in attempt else attempt.get("step")
    if place is None:
        return {}
    step = flow["steps"][place]
    given = join_secrets(attempt.get("input"), attempt.get("secrets", []))
    if step.get("environments") and isinstance(given, dict):
        given = given["input"]
    try:
        if not is_call(step):
            return {}
        tool = tool_of(step, offer_of(step, given))
        return {"tool": tool, "subject": subject_of(step, attempt.get("args"), given)}
    except FlowEngineError:  # the package of the kind is not installed
        return {}


def is_call(step: StepSpec) -> bool:
    """Return whether a step calls a tool, declared or inline, and not a part of the engine.

    A step whose kind this process does not have calls none, since its attempts fail.
    """
    kind = step.get("kind", "")
    if "tool" in step:
        return kind != "flow"
    try:
        return kind not in (OPENING, "flow") and "step" in registry.kind_class(kind).places
    except registry.UnknownKind:
        return False


def kind_of(step: StepSpec) -> type[StepKind] | None:
    """Return the kind of a step's task. None: a part of the engine, or no task."""
    kind = step.get("kind", OPENING)
    if step.get("action") != "task" or kind in (OPENING, "flow"):
        return None
    return registry.kind_class(kind)


def environments_of(step: StepSpec) -> Iterable[str]:
    """Return the names of the environments that a step uses."""
    if not step.get("environments"):
        return ()
    uses: dict[str, Plain] = step["input"][1]["environments"][1]
    return uses


def offer_of(step: StepSpec, given: Plain) -> Mapping[str, str]:
    """Return the description of a server's tool as offered by the server, if any."""
    if registry.kind_class(step["kind"]).session is None:
        return {}
    offered: Mapping[str, str] = (given.get("offered") if isinstance(given, dict) else None) or {}
    return offered


def tool_of(step: StepSpec, offered: Mapping[str, str]) -> str:
    """Return the name of the tool that a step calls, or the label of an inline task.

    Args:
        offered: The description of the tool, if the step may call any tool of a server.
    """
    kind = step["kind"]
    if "tool" in step and "tool" in offered:
        return step["tool"].removesuffix("*") + offered["tool"]
    return step.get("tool") or registry.kind_class(kind).label(step.get("task", {})) or kind


def names_of(step: StepSpec) -> list[str]:
    """Return the fixed names of a step's call, which no flow chooses."""
    kind = kind_of(step)
    return [] if kind is None else kind.names(step["task"])


def subject_of(step: StepSpec, args: Plain, given: Plain) -> dict[str, Plain]:
    """Return the input of a call, as shown to approvers.

    Args:
        args: Its arguments, if known separately.
        given: The input of its attempt.
    """
    given = given if isinstance(given, dict) else {}
    if "tool" in step or registry.kind_class(step["kind"]).takes_arguments:
        args = args if args is not None else given.get("args", {})
        shown = {**args, **given.get("bind", {})}
    else:
        shown = {**step.get("task", {}), **given}
    return {name: masked(value) for name, value in shown.items()}


def has_preview(spec: StepSpec) -> bool:
    """Return whether the tool that a step calls may have a preview."""
    if "preview" in spec:
        return True
    kind = kind_of(spec)
    return kind is not None and kind.has_preview(spec.get("task", {}))
