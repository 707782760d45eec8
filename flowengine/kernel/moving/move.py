"""Converts the state of an execution to the numbers and names of another graph.

A running step keeps its address even if it was renamed, because idempotency keys and displayed data
depend on it. Evaluated times and keys stay unchanged. Conditions and expressions are those of the
new graph from now on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flowengine.kernel.expressions.names import Names, evaluate
from flowengine.kernel.flow_state.variables import from_outside, replaces
from flowengine.kernel.moving.pairing import Pairing
from flowengine.kernel.moving.walking import Walker
from flowengine.kernel.transition import Transition
from flowengine.kernel.view import number_waiting

if TYPE_CHECKING:
    from flowengine.kernel.graph.linked import Graph
    from flowengine.kernel.state.records import State


def move(old: Graph, new: Graph, state: State, mapping: Mapping[str, Any]) -> State:
    """Return a state with the numbers and names of another graph.

    Derived fields, such as the watchers of state keys, are left empty. See `upgrading`.

    Args:
        old: The graph of the state.
        new: The other graph. `obstacles` has found no obstacle to it.
        state: The state. It is not changed.
        mapping: See `flowengine.kernel.moving.pairing`.
    """
    pairing = Pairing(old, new, mapping)
    moved: State = Walker(state, _Mover(pairing)).copy()
    moved["watching"] = {}
    _move_inputs(pairing, moved)
    _move_vars(pairing, moved)
    _keep_addresses(pairing, state, moved)
    for number, scope in moved["scopes"].items():
        _count_anew(pairing, state["scopes"][number]["body"], moved, scope)
    moved["execution"] = {**state["execution"], "version": new.flow.get("version", "")}
    if "triggered" in new.flow:
        moved.setdefault("triggered", 0)
    else:
        moved.pop("triggered", None)
    return moved


class _Mover:
    """Returns the new numbers and names of everything that a state names.

    Args:
        pairing: The two graphs.
    """

    def __init__(self, pairing: Pairing) -> None:
        self._p = pairing
        old, new = pairing.old, pairing.new
        self._names = {old.node(a).id: new.node(b).id for a, b in pairing.steps.items()}

    def step(self, number: int, use: str, record: Any) -> int | None:
        step = self._p.steps.get(number)
        if step is not None and use in ("mark", "join"):
            join = self._p.new.node(step).join or {}
            if join.get("kind") != (self._p.old.node(number).join or {}).get("kind"):
                return None
        return step

    def body(self, number: int) -> int:
        return self._p.bodies[number]

    def flow(self, number: int) -> int:
        return self._p.flows[number]

    def state_key(self, flow: int, key: str) -> str | None:
        name = self._p.state_key(flow, key)
        return name if name in self._p.new.flows[self._p.flows[flow]].state else None

    def signal(self, flow: int, name: str) -> str | None:
        new = self._p.signal(name)
        return new if any(new in flow.signals for flow in self._p.new.flows) else None

    def handler(self, index: int, owner: int, flow: int) -> None:
        pass

    def step_name(self, name: str) -> str:
        return self._names.get(name, name)


def _move_inputs(p: Pairing, moved: State) -> None:
    given, inputs = moved["inputs"], {}
    for name, schema in p.new.flows[0].inputs.items():
        if name in p.values["inputs"]:
            inputs[name] = p.values["inputs"][name]
        elif p.input_of(name) in given:
            inputs[name] = given[p.input_of(name)]
        else:
            inputs[name] = schema.get("default")
    moved["inputs"] = inputs
    for frame in moved.get("frames", {}).values():
        declared = p.new.flows[frame["flow"]].inputs
        frame["inputs"] = {
            name: frame["inputs"].get(name, schema.get("default"))
            for name, schema in declared.items()
        }


def _move_vars(p: Pairing, moved: State) -> None:
    """Put state keys into the order of the new flow. New keys have their default."""
    tables = [(0, moved), *((frame["flow"], frame) for frame in moved.get("frames", {}).values())]
    for flow, table in tables:
        before: dict[str, list[Any]] = table["vars"]
        declared = p.new.flows[flow].state
        cells = {key: before.get(key, [spec.get("default"), 0]) for key, spec in declared.items()}
        for key in _replaced_from_now_on(p, flow):
            cells[key] = [cells[key][0], 0]
        if flow == 0:
            for key, value in p.values["state"].items():
                if key in cells:
                    cells[key] = from_outside(value, cells[key])
        table["vars"] = cells


def _replaced_from_now_on(p: Pairing, flow: int) -> list[str]:
    """Return the state keys whose reducer became `replace`, which have no counted writes yet."""
    old = next(number for number, new in p.flows.items() if new == flow)
    had = {p.state_key(old, key): spec for key, spec in p.old.flows[old].state.items()}
    return [
        key
        for key, spec in p.new.flows[flow].state.items()
        if replaces(spec) and key in had and not replaces(had[key])
    ]


def _keep_addresses(p: Pairing, state: State, moved: State) -> None:
    """Keep the addresses of running steps that were renamed."""
    for number, act in state["acts"].items():
        before, after = p.old.node(act["step"]), p.new.node(moved["acts"][number]["step"])
        if before.id != after.id and "address" not in act:
            address = state["scopes"][act["scope"]]["path"] + before.id
            address += f"#{act['number']}" if act["number"] > 1 else ""
            moved["acts"][number]["address"] = address


def _count_anew(p: Pairing, old: int, moved: State, scope: Any) -> None:
    """Count the tokens of a scope by step, for the joins of its new body.

    A step that may have been activated before must not count as a new one. Otherwise its address,
    and therefore its idempotency key, would be repeated.
    """
    before, after = p.old.body(old), p.new.body(scope["body"])
    if after.repeats and not before.repeats:
        scope["counts"] = {p.steps[step]: 1 for step in before.steps if step in p.steps}
    at: dict[int, int] = {}
    if after.watched:
        for act, step in scope["live"].items():
            if not moved["acts"][act].get("left_early"):
                at[step] = at.get(step, 0) + 1
        for step, join in scope["joins"].items():
            at[step] = at.get(step, 0) + number_waiting(join)
    scope["at"] = {step: count for step, count in at.items() if count}
    for step, join in scope["joins"].items():
        if "upstream" in join:
            own = number_waiting(join) if after.reaches(step, step) else 0
            join["upstream"] = sum(n for place, n in at.items() if after.reaches(place, step)) - own


def set_keys(tx: Transition) -> None:
    """Evaluate the signal keys that address an execution, for signals that are new in its flows.

    Args:
        tx: Of an execution whose state is moved.
    """
    for frame in (0, *tx.state.get("frames", ())):
        keys, names = tx.keys_of(frame), Names(tx, None, frame=frame)
        for signal, spec in tx.flow_of(frame).signals.items():
            if spec.get("key") is not None and signal not in keys:
                keys[signal] = str(evaluate(names, spec["key"]))
