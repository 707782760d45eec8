"""Obstacles to moving an execution to another form of its flow.

`obstacles` walks the state and compares all references with their counterparts. If there is no
obstacle, `move` succeeds. Both are pure, so a journal that contains the move is replayed to the
same bytes, with the old graph before the move and the new one after it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from flowengine.engines.interventions.misfits import misfit
from flowengine.kernel.graph.compiled import EvaluationError
from flowengine.kernel.graph.linked import Graph
from flowengine.kernel.moving.counterparts import Pairing
from flowengine.kernel.moving.fields import Walker
from flowengine.kernel.moving.move import move, set_keys
from flowengine.kernel.state.records import State
from flowengine.kernel.transition import Transition
from flowengine.kernel.view import number_waiting, waiting_arrivals

USED = {
    "live": "it is running",
    "arrival": "its join holds a branch",
    "join": "its join holds branches",
    "done": "it has acted and can be undone",
    "cut": "it is not known whether it acted",
    "final": "its cleanup has not run yet",
}
"""Purposes for which a step is needed."""


class Obstacle(NamedTuple):
    """A reference of a state that the other graph cannot satisfy."""

    what: str
    """`step`, `state`, `signal`, `input`, `subflow`."""
    name: str
    why: str
    write: dict[str, Any] | None
    """The entry to add to the mapping, with `NEW` or `VALUE` as placeholders for the operator's
    choice. None: no mapping helps."""
    fits: list[str]
    """Names that can replace the placeholder."""


def obstacles(
    old: Graph,
    new: Graph,
    state: State,
    mapping: Mapping[str, Any],
) -> list[Obstacle]:
    """Return the obstacles to moving a state to another graph, except for missing results.

    Args:
        old: The graph of the state.
        new: The other graph.
        state: State of an open execution. It is not changed.
        mapping: See `flowengine.kernel.moving.counterparts`.

    Returns:
        One obstacle per named thing. Empty: the state can be moved.
    """
    looker = _Looker(Pairing(old, new, mapping), state)
    Walker(state, looker).copy()
    looker.look_at_inputs()
    if not looker.found:
        looker.look_at_keys(move(old, new, state, mapping))
    return list(looker.found.values())


class _Looker:
    """Visits everything that a state names, and records references without a counterpart.

    Args:
        pairing: The two graphs.
        state: The state.

    Attributes:
        found: The first obstacle for each named thing.
    """

    def __init__(self, pairing: Pairing, state: State) -> None:
        self.found: dict[tuple[str, str], Obstacle] = {}
        self._p = pairing
        self._state = state
        self._taken: dict[int, int] = {}

    def step(self, number: int, use: str, record: Any) -> int | None:
        p = self._p
        new = p.steps.get(number)
        if use not in USED:
            return number
        if use == "join" and not number_waiting(record) and record["phase"] == "waiting":
            return number
        if new is None:
            self._no_step(number, use, record, f"{USED[use]}, and the new flow has no such step")
            return number
        if use == "join":
            self._look_at_sources(number, new, record)
        fault = misfit(p, self._state, number, new, use, record)
        if fault is not None:
            self._no_step(number, use, record, fault)
        elif self._taken.setdefault(new, number) != number:
            other = p.step_name(self._taken[new])
            self._no_step(number, use, record, f"'{other}' has the same counterpart")
        return number

    def _no_step(self, number: int, use: str, record: Any, why: str) -> None:
        p = self._p
        blamed = p.blamed(number)
        if blamed != number:
            why = f"'{p.step_name(number)}' belongs to it, and {why}"
            use = "arrival"  # its type must match in any case
        name = p.step_name(blamed)
        fits = [
            p.new_name(step)
            for step in p.beside(blamed)
            if step not in p.steps.values()
            and misfit(p, self._state, blamed, step, use, record) is None
        ]
        if p.old.node(blamed).body < 0:  # the flow's own `finally` has no name to map
            fits = []
        self._add("step", name, why, {"steps": {name: "NEW"}} if fits else None, fits)

    def _look_at_sources(self, join: int, new: int, held: Any) -> None:
        """Check that the steps that sent held tokens have counterparts."""
        p = self._p
        for arrival in waiting_arrivals(held):
            source = arrival["source"]
            if source < 0 or source in p.steps:
                continue
            name = p.step_name(source)
            sources = [step for step in p.new.node(new).sources if step >= 0]
            fits = [p.new_name(step) for step in sources if step not in p.steps.values()]
            why = f"the join of '{p.step_name(join)}' holds a branch that came from it"
            self._add("step", name, why, {"steps": {name: "NEW"}} if fits else None, fits)

    def callee(self, caller: int, name: str) -> str:
        return name

    def body(self, number: int) -> int:
        return number  # its step has been checked

    def flow(self, number: int) -> int:
        if number not in self._p.flows:
            name = self._p.old.flows[number].id
            self._add("subflow", name, "its executions have not ended, and it was removed", None)
        return number

    def state_key(self, flow: int, key: str) -> str | None:
        p = self._p
        new = p.flows.get(flow)
        if new is None:
            return key
        declared = p.new.flows[new].state
        name = p.state_key(flow, key)
        if name is None:
            return key
        own = key if not flow else f"{p.old.flows[flow].id}:{key}"
        if name not in declared:
            free = [new_key for new_key in declared if new_key not in p.old.flows[flow].state]
            why = "the new flow has no such state: null drops its value"
            self._add("state", own, why, {"state": {own: "NEW"}}, [*free, "null"])
            return key
        self._look_at_value(flow, key, own, name, declared[name].get("schema") or {})
        return key

    def _look_at_value(self, flow: int, key: str, own: str, name: str, schema: Any) -> None:
        """Check that the values of a state key fit the new declaration."""
        if flow == 0 and name in self._p.values["state"]:
            values = [self._p.values["state"][name]]
        elif flow == 0:
            values = [self._state["vars"][key][0]]
        else:
            frames = self._state["frames"].values()
            values = [frame["vars"][key][0] for frame in frames if frame["flow"] == flow]
        for value in values:
            fault = self._p.new.validate(schema, value)
            if fault is not None:
                write = None if flow else {"values": {"state": {name: "VALUE"}}}
                self._add("state", own, f"its value does not match the declaration: {fault}", write)

    def signal(self, flow: int, name: str) -> str | None:
        p = self._p
        messages = self._state["kept"].get(name)
        new = p.signal(name)
        if not messages or new is None:
            return name
        declared = {key: spec for new_flow in p.new.flows for key, spec in new_flow.signals.items()}
        if new not in declared or not p.new.stores(new):
            count = f"{len(messages)} message{'s' * (len(messages) != 1)} of it wait"
            why = f"{count}{'s' * (len(messages) == 1)} to be taken, and nothing takes them"
            self._add("signal", name, f"{why}: null drops them", {"signals": {name: "NEW"}},
                      [*filter(p.new.stores, declared), "null"])  # fmt: skip
            return name
        for message in messages:
            fault = p.new.validate(declared[new].get("data", {}), message["data"])
            if fault is not None:
                why = f"a pending message does not match: {fault}: null drops them"
                self._add("signal", name, why, {"signals": {name: "NEW"}}, ["null"])
        return name

    def handler(self, index: int, owner: int, flow: int) -> None:
        p = self._p
        if owner < 0:
            before = p.old.flows[flow].on_error
            after = p.new.flows[p.flows.get(flow, 0)].on_error
            name = "on_error of the flow"
        else:
            new = p.steps.get(owner)
            before = p.old.node(owner).on_error
            after = [] if new is None else p.new.node(new).on_error
            name = p.step_name(owner)
        first, other = before[index], after[index] if index < len(after) else None
        same = other is not None and all(
            first.get(word) == other.get(word) for word in ("types", "do", "compensate")
        )
        if not same:
            why = "its 'on_error' is being followed, and changed"
            self._add("step", name, why, None)

    def step_name(self, name: str) -> str:
        return name

    def look_at_inputs(self) -> None:
        """Check that each input of the new flow has a value that fits."""
        p = self._p
        given = self._state["inputs"]
        computed = {default for default, _ in p.new.flows[0].defaults}
        for name, schema in p.new.flows[0].inputs.items():
            values = [
                one[key]
                for one, key in (
                    (p.values["inputs"], name), (given, p.input_of(name)), (schema, "default"),
                )
                if key in one
            ]  # fmt: skip
            write = {"values": {"inputs": {name: "VALUE"}}}
            if not values or (values[0] is schema.get("default") and name in computed):
                free = [old for old in given if old not in p.new.flows[0].inputs]
                self._add("input", name, "the execution has none with this name", write, free)
                continue
            fault = p.new.validate(_without_default(schema), values[0])
            if fault is not None:
                self._add("input", name, f"its value does not match: {fault}", write)

        for frame in self._state.get("frames", {}).values():
            self._look_at_subflow(p.old.flows[frame["flow"]].id, frame)

    def _look_at_subflow(self, id: str, frame: Any) -> None:
        """Check that each input of a running subflow has a value that fits.

        A mapping cannot provide it.
        """
        if frame["flow"] not in self._p.flows:
            return
        for name, schema in self._p.new.flows[self._p.flows[frame["flow"]]].inputs.items():
            if name not in frame["inputs"] and "default" not in schema:
                why = "the running subflow has none with this name"
                self._add("input", f"{id}:{name}", why, None)
                continue
            value = frame["inputs"].get(name, schema.get("default"))
            fault = self._p.new.validate(_without_default(schema), value)
            if fault is not None:
                self._add("input", f"{id}:{name}", f"its value does not match: {fault}", None)

    def look_at_keys(self, moved: State) -> None:
        """Check that the keys of signals have values."""
        try:
            set_keys(Transition(self._p.new, moved, None))
        except EvaluationError as error:
            self._add("signal", "key", f"a key has no value: {error.message}", None)

    def _add(
        self,
        what: str,
        name: str,
        why: str,
        write: dict[str, Any] | None,
        fits: Collection[str] = (),
    ) -> None:
        before = self.found.get((what, name))
        if before is None or (before.write is not None and write is None):
            self.found[what, name] = Obstacle(what, name, why, write, list(fits))


def _without_default(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    return {key: value for key, value in schema.items() if key != "default"}
