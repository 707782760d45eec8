"""Which calls that people are asked about have a preview that is still to be computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.engines.executions.preview import Preview

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flowengine.engines.executions.execution import Execution


def has_preview(execution: Execution, step: int) -> bool:
    """Return whether the tool that a step calls may have a preview."""
    spec = execution.linked.compiled["steps"][step]
    if "preview" in spec:
        return True
    from flowengine.engines.executions.calls import kind_of

    kind = kind_of(spec)
    return kind is not None and kind.has_preview(spec.get("task", {}))


def missing(execution: Execution) -> Iterator[Preview]:
    """Yield what is still to be computed of an execution that was just loaded."""
    state = execution.state
    for number, record in execution.waits.items():
        if "digest" not in record or "preview" in record or "note" in record:
            continue
        unit = next(iter(state["waits"][number]["units"]))
        step = state["acts"][state["units"][unit]["act"]]["step"]
        if has_preview(execution, step):
            yield Preview(number, unit, step)
