"""Records: what a past keeps of a step that has ended - the fields that some expression names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.kernel.expressions import provenance
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.graph.linked import Node
from flowengine.kernel.machine import Machine, has_items
from flowengine.kernel.notation.times import format_time

if TYPE_CHECKING:
    from flowengine.kernel.events import ErrorData
    from flowengine.kernel.state.records import Activation


_OUTPUT = ["output"]


def record(
    m: Machine,
    act: Activation,
    node: Node,
    status: str,
    outcome: str | None,
    output: Plain,
    error: ErrorData | None,
) -> None:
    """Put what expressions name of a step into the past of its token."""
    kept = known(m, act, node, status, outcome, output, error)
    act["past"] = provenance.remember(m.state, act["past"], act["step"], kept)


def known(
    m: Machine,
    act: Activation,
    node: Node,
    status: str,
    outcome: str | None,
    output: Plain,
    error: ErrorData | None,
) -> dict[str, Any]:
    """Return what expressions name of a step that has ended, or of an item that goes on alone."""
    named = node.named or ()
    if named == _OUTPUT:  # most of all
        return {"output": output}
    fields: dict[str, Any] = {
        "status": status,
        "outcome": outcome,
        "output": output,
        "error": error,
        "rounds": act.get("rounds", 0),
        "attempts": act.get("attempts", 0),
        "agent": None,
        **act.get("facts", {}),
    }
    if "items" in named:
        fields["items"] = _items(m, act) if has_items(act) and not node.each else None
    if "started_at" in named:
        fields["started_at"] = format_time(act["at"])
    if "ended_at" in named:
        fields["ended_at"] = format_time(m.now)
    return {field: fields[field] for field in named if field in fields}


def _items(m: Machine, act: Activation) -> list[Plain]:
    """Return `steps.x.items`: how each item ended; those still running say so for good."""
    at_work = {m.state["units"][number]["item"] for number in act["units"]}
    rows = []
    for index, key in enumerate(act["keys"]):
        status, output, error = act["results"][index] or [
            "running" if index in at_work else "none", None, None,
        ]  # fmt: skip
        rows.append(
            {"key": key, "index": index, "status": status, "output": output, "error": error}
        )
    return rows
