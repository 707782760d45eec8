"""Two forms of a flow side by side: which step, body and flow of one stands for which of the other.

A mapping contains the names that differ: `steps`, `state`, `signals` and `inputs`, each old name →
new name, where None drops a value of the state or the messages of a signal. `values` has values for
`inputs` and `state`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowengine.kernel.graph.linked import Graph, GraphFlow

Renames = dict[str, Any]


class Pairing:
    """Two graphs side by side.

    Args:
        old: The graph of a state.
        new: The other graph.
        mapping: See above. Absent sections rename nothing.

    Attributes:
        steps: Step of the old graph → its counterpart, if there is one.
        bodies: The same for bodies.
        flows: The same for flows. 0 is the main flow.
    """

    def __init__(self, old: Graph, new: Graph, mapping: Mapping[str, Any]) -> None:
        self.old = old
        self.new = new
        self.steps: dict[int, int] = {}
        self.bodies: dict[int, int] = {}
        self.flows: dict[int, int] = {}
        self.renamed: Renames = mapping.get("steps") or {}
        self.state_keys: Renames = mapping.get("state") or {}
        self.signals: Renames = mapping.get("signals") or {}
        self.inputs: Renames = mapping.get("inputs") or {}
        values = mapping.get("values") or {}
        self.values: dict[str, dict[str, Any]] = {
            "inputs": values.get("inputs") or {},
            "state": values.get("state") or {},
        }
        self._owners = _owners_of_hidden(old)
        self._pair_flow(0, 0, 0, 0)

    def step_name(self, number: int) -> str:
        """Return the name of a step of the old graph as used in mappings."""
        return _qualified(self.old, number)

    def new_name(self, number: int) -> str:
        """Return the name of a step of the new graph."""
        return self.new.node(number).id

    def state_key(self, flow: int, key: str) -> str | None:
        """Return the new name of a flow's state key, or None if its value is dropped."""
        renamed: str | None = _renamed(self.state_keys, self.old.flows[flow] if flow else None, key)
        return renamed

    def signal(self, name: str) -> str | None:
        """Return the new name of a signal, or None if its messages are dropped."""
        renamed: str | None = self.signals.get(name, name)
        return renamed

    def input_of(self, name: str) -> str:
        """Return the old name of an input of the new flow."""
        return next((old for old, new in self.inputs.items() if new == name), name)

    def blamed(self, number: int) -> int:
        """Return the outermost step without a counterpart around a step, or the step itself.

        Steps inside a step without a counterpart have none either. The same applies to hidden
        steps, which undo another step or clean up after it.
        """
        blamed = number
        while number >= 0:
            body = self.old.node(number).body
            number = self._owners.get(number, -1) if body < 0 else self.old.body(body).owner
            if number >= 0 and number not in self.steps:
                blamed = number
        return blamed

    def beside(self, number: int) -> list[int]:
        """Return the steps of the new graph that could be counterparts, because of their place."""
        body = self.bodies.get(self.old.node(number).body)
        return [] if body is None else list(self.new.body(body).steps)

    def _pair_flow(self, old: int, new: int, old_body: int, new_body: int) -> None:
        if old not in self.flows:
            self.flows[old] = new
            self._pair_body(old_body, new_body)

    def _pair_body(self, old: int, new: int) -> None:
        self.bodies[old] = new
        before, after = self.old.body(old), self.new.body(new)
        there = {self.new.node(step).id: step for step in after.steps}
        for step in before.steps:
            name = _renamed(
                self.renamed, self.old.flows[before.flow] if before.flow else None,
                self.old.node(step).id,
            )  # fmt: skip
            if name in there:
                self._pair(step, there[name])
        if before.final >= 0 and after.final >= 0:
            self._pair(before.final, after.final)
        if before.opens >= 0 and after.opens >= 0:
            self._pair(before.opens, after.opens)

    def _pair(self, old: int, new: int) -> None:
        self.steps[old] = new
        before, after = self.old.node(old), self.new.node(new)
        if before.compensate >= 0 and after.compensate >= 0:
            self._pair(before.compensate, after.compensate)
        if before.child < 0 or after.child < 0 or before.action != after.action:
            return
        if before.action == "flow":
            flows = self.old.body(before.child).flow, self.new.body(after.child).flow
            self._pair_flow(*flows, before.child, after.child)
        else:
            self._pair_body(before.child, after.child)


def _renamed(names: Renames, flow: GraphFlow | None, name: str) -> Any:
    """Return a name of a flow after renaming. In a subflow, only entries with its id apply."""
    if flow is not None and f"{flow.id}:{name}" in names:
        return names[f"{flow.id}:{name}"]
    return names.get(name, name) if flow is None else name


def _qualified(graph: Graph, number: int) -> str:
    """Return the id of a step, or `subflow:id` in a subflow."""
    node = graph.node(number)
    flow = graph.body(node.body).flow if node.body >= 0 else 0
    return f"{graph.flows[flow].id}:{node.id}" if flow else node.id


def _owners_of_hidden(graph: Graph) -> dict[int, int]:
    """Return hidden step → the step that it undoes, or whose scopes it cleans up after."""
    owners = {
        spec["compensate"]: number
        for number, spec in enumerate(graph.flow["steps"])
        if "compensate" in spec
    }
    finals = {
        body["final"]: body.get("owner", -1) for body in graph.flow["bodies"] if "final" in body
    }
    return {**owners, **finals}
