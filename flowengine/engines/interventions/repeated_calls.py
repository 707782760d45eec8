"""The calls that a retry makes again, because it begins a flow or an agent anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.engines.executions.linked_flows import unit_at, walk
from flowengine.kernel.view import View

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flowengine.engines.host import Host
    from flowengine.engines.interventions.retracing import Held
    from flowengine.kernel.commands import Observation
    from flowengine.kernel.graph.linked import Node


class RepeatedCalls(NamedTuple):
    """What a retry repeats because it begins a flow or an agent anew.

    One begins anew that has ended with an outcome which its step does not route, such as an agent
    whose turns are used up. Otherwise, all that has succeeded is kept.
    """

    succeeded: Mapping[str, str]
    """Address of a step that has succeeded in one of them → the effect of its call."""
    refused: str | None
    """The last call in one of them that an exhausted budget refused."""


def repeated_calls(host: Host, hash: str, journal: Sequence[Any], held: Held) -> RepeatedCalls:
    """Return what a retry would repeat.

    Args:
        host: Provides the flows.
        hash: Of the flow at the beginning of the execution.
        journal: Of the execution.
        held: The state in which the retry begins.
    """
    view = View(held.graph, held.state)
    anew, succeeded, refused = [], dict[str, str](), None
    for address in held.addresses:
        number = unit_at(held.graph, held.state, address)
        unit = {} if number is None else held.state["units"][number]
        begins = unit.get("then", [""])[0] == "attempt"
        if begins and view.node(view.act_of(unit)).child >= 0:
            anew.append(f"{address}/")
    seen: list[Observation] = []
    for moment in walk(host.flows, hash, journal, seen) if anew else ():
        for step in seen:
            if not step.address.startswith(tuple(anew)):
                continue
            node = moment.graph.node(step.step)
            if step.error is not None and step.error["type"] == "BudgetExceeded":
                refused = step.address
            elif step.status == "succeeded" and acts(node):
                succeeded[step.address] = effect_of(node)
        seen.clear()
    return RepeatedCalls(succeeded, refused)


def acts(node: Node) -> bool:
    """Return whether a step calls something, asks a person or waits."""
    return not node.plumbing and node.action in ("task", "approval", "wait")


def effect_of(node: Node) -> str:
    """Return the effect of a step's call. Empty: it calls nothing."""
    return node.effect if node.action == "task" else ""
