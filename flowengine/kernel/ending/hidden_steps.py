"""Hidden steps: steps of a flow that no token enters.

| mark    | the step                                                   | started by     |
|---------|------------------------------------------------------------|----------------|
| `undo`  | undoes another one (`compensate`)                          | `compensation` |
| `final` | cleans up after a scope (`finally`)                        | `cleaning`     |
| `opens` | opens the initial environments of its flow (`start`)       | `steps.scopes` |

A hidden step has an activation like any other, with a mark that refers to the work that started it.
When the step has ended, that work continues (`steps.activation_outcomes`).
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
        mark: Its kind.
        of: Number of the compensation or cleanup that it belongs to.
        arrival: Its step and scope, and its past.
        address: Its address.
        about: The record of the work to undo or clean up, if any, with the names visible there.
        names: Additional names.
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
    """Remove a hidden step that has ended from the state."""
    tx.note(act, "succeeded" if error is None else "failed", error=error)
    routing.forget_activation(tx, act)
    provenance.drop(tx.state, act["past"])
