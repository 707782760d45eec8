"""Active subflows: their state, and the results so far of their running maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flowengine.kernel.view import View

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from flowengine.engines.executions.execution import Execution
    from flowengine.kernel.graph.compiled import Plain


class Subflow(NamedTuple):
    """An active subflow."""

    address: str
    """Address of the step that runs it."""
    state: Mapping[str, Plain]
    """Key → value."""
    items: Mapping[str, list[Plain]]
    """Step → outputs of the successful items of each running map, in item order. The state contains
    their writes once the map has ended."""


def subflows(execution: Execution) -> Iterator[Subflow]:
    """Yield the active subflows of an execution, outer ones first.

    Args:
        execution: The execution, as stored.
    """
    view = View(execution.linked.graph, execution.state)
    for scope in view.subflows():
        items: dict[str, list[Plain]] = {}
        for number in scope["live"]:
            act = execution.state["acts"][number]
            if "results" in act:
                ended = [result for result in act["results"] if result is not None]
                items[view.node(act).id] = [
                    result[1] for result in ended if result[0] == "succeeded"
                ]
        state = {key: cell[0] for key, cell in view.vars_of(scope["frame"]).items()}
        yield Subflow(scope["path"].rstrip("/"), state, items)
