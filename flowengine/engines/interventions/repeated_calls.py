"""The calls that a retry makes again, because it begins a flow or an agent anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from flowengine.engines.executions.linked_flows import walk
from flowengine.engines.host import Host
from flowengine.engines.interventions.retracing import Held
from flowengine.engines.snapshots import unit_at
from flowengine.kernel.commands import Observation
from flowengine.kernel.graph.linked import Node
from flowengine.kernel.view import View


class PastCalls(NamedTuple):
    """The calls of an execution that a retry may make again."""

    succeeded: dict[str, str]
    """Address of a step that has succeeded → the effect of its call."""
    refused: list[str]
    """Calls that an exhausted budget refused."""

    def within(self, addresses: Sequence[str]) -> PastCalls:
        """Return the calls of the flows and agents at these addresses."""
        inside = tuple(f"{address}/" for address in addresses)
        return PastCalls(
            {at: effect for at, effect in self.succeeded.items() if at.startswith(inside)},
            [at for at in self.refused if at.startswith(inside)],
        )


def past_calls(host: Host, hash: str, journal: Sequence[Any]) -> PastCalls:
    """Return the calls that an execution has made.

    Args:
        host: Provides the flows.
        hash: Of the flow at the beginning of the execution.
        journal: Of the execution.
    """
    calls = PastCalls({}, [])
    seen: list[Observation] = []
    for moment in walk(host.flows, hash, journal, seen):
        for step in seen:
            node = moment.graph.node(step.step)
            if step.error is not None and step.error["type"] == "BudgetExceeded":
                calls.refused.append(step.address)
            elif step.status == "succeeded" and acts(node):
                calls.succeeded[step.address] = effect_of(node)
        seen.clear()
    return calls


def begun_anew(held: Held) -> list[str]:
    """Return the flows and agents that a retry begins anew, so that it repeats their calls.

    One begins anew that has ended with an outcome which its step does not route, such as an agent
    whose turns are used up. Otherwise, all that has succeeded is kept.

    Args:
        held: The state in which the retry begins.
    """
    view, anew = View(held.graph, held.state), []
    for address in held.addresses:
        number = unit_at(held.graph, held.state, address)
        unit = {} if number is None else held.state["units"][number]
        begins = unit.get("then", [""])[0] == "attempt"
        if begins and view.node(view.act_of(unit)).child >= 0:
            anew.append(address)
    return anew


def acts(node: Node) -> bool:
    """Return whether a step calls something, asks a person or waits."""
    return node.action in ("task", "approval", "wait")


def effect_of(node: Node) -> str:
    """Return the effect of a step's call. Empty: it calls nothing."""
    return node.effect if node.action == "task" else ""
