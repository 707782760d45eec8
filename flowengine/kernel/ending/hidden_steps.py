"""Hidden steps: what a flow does beside its tokens.

| mark    | the step                                                   | begun by       |
|---------|------------------------------------------------------------|----------------|
| `undo`  | undoes another one (`compensate`)                          | `compensation` |
| `final` | cleans up after a scope (`finally`)                        | `cleaning`     |
| `opens` | opens what is open from the start of its flow (`start`)    | `steps.scopes` |

A hidden step has an activation like any other, marked with what it is part of. No token leads to it
and none leaves: when it has ended, what it is part of goes on (`steps.activation_outcomes`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from flowengine.kernel.expressions import provenance
from flowengine.kernel.tokens import routing
from flowengine.kernel.tokens.activations import new_activation
from flowengine.kernel.tokens.units import begin_unit
from flowengine.kernel.transition import Transition

if TYPE_CHECKING:
    from flowengine.kernel.events import ErrorData
    from flowengine.kernel.graph.compiled import Plain
    from flowengine.kernel.state.records import Activation, Arrival, Left

Mark = Literal["undo", "final", "opens"]


def begin_hidden(
    tx: Transition,
    mark: Mark,
    of: int,
    arrival: Arrival,
    address: str,
    about: Left | None = None,
    names: dict[str, Plain] | None = None,
) -> None:
    """Begin a hidden step.

    Args:
        tx: The transition.
        mark: What kind it is.
        of: Which compensation or cleanup it is part of.
        arrival: Its step and scope, and the past that it sees.
        address: Its address.
        about: What was left, if it is about that: it sees what was seen there.
        names: What it sees besides.
    """
    act = new_activation(tx, tx.graph.node(arrival["step"]), [arrival])
    marked: dict[str, Any] = act  # type: ignore[assignment]
    marked[mark] = of
    if about is not None and about.get("frame", 0) != tx.scope_of(act).get("frame", 0):
        act["frame"] = about.get("frame", 0)
    act["address"] = address
    if about is not None:
        act["local"] = {**about["local"], **(names or {})}
    begin_unit(tx, act, -1)


def end_hidden(tx: Transition, act: Activation, error: ErrorData | None) -> None:
    """Take a hidden step that has ended out of the state."""
    tx.note(act, "succeeded" if error is None else "failed", error=error)
    routing.forget_activation(tx, act)
    provenance.drop(tx.state, act["past"])
