"""Moves the state of an execution to another graph, and says what stands against it.

`obstacles` walks the state and compares all that it refers to with its counterparts; `move` makes
the state with the numbers and names of the new graph. Where there is no obstacle, moving succeeds.
Both are pure, so a journal that tells of the move is replayed to the same bytes: by the old graph
up to there, by the new one from there on.

A step at work keeps its address, whatever it is called now: idempotency keys and what people were
shown follow from it. Times and keys that were evaluated stay as they are; conditions and
expressions are those of the new graph from now on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.kernel.counterparts import KEPT, misfit, not_kept
from flowengine.kernel.graph import EvaluationError
from flowengine.kernel.joins import held_arrivals, number_held
from flowengine.kernel.pairing import Pairing
from flowengine.kernel.variables import from_outside, replaces
from flowengine.kernel.walking import Walker

if TYPE_CHECKING:
    from flowengine.kernel.linked import Graph
    from flowengine.kernel.state import State


USED = {
    "live": "it is running",
    "held": "its join holds a token",
    "join": "its join holds tokens",
    "done": "it has acted and can be undone",
    "cut": "it is not known whether it acted",
    "final": "its cleanup is still to run",
}
"""What a step is needed for."""


class Obstacle(NamedTuple):
    """Something that a state refers to and that the other graph does not have."""

    what: str
    """`step`, `state`, `signal`, `input`, `subflow`."""
    name: str
    why: str
    write: dict[str, Any] | None
    """What to write into the mapping, with `NEW` or `VALUE` in place of what only its author
    knows; None: no mapping helps."""
    fits: list[str]
    """Names that may stand there."""


def obstacles(
    old: Graph,
    new: Graph,
    state: State,
    mapping: Mapping[str, Any],
    ran: Collection[str] = (),
) -> list[Obstacle]:
    """Return what stands against moving a state to another graph.

    Args:
        old: The graph that the state was made with.
        new: The other one.
        state: Of an open execution; it is not changed.
        mapping: See `flowengine.kernel.pairing`.
        ran: Names of the steps that have ended, which the state tells only of some.

    Returns:
        One for each thing; empty: it can be moved.
    """
    looker = _Looker(Pairing(old, new, mapping), state)
    Walker(state, looker).copy()
    looker.look_at_inputs()
    looker.look_at_pasts(ran)
    if not looker.found:
        looker.look_at_keys(move(old, new, state, mapping))
    return list(looker.found.values())


class _Looker:
    """Visits all that a state names, and notes what has no counterpart.

    Args:
        pairing: The two graphs.
        state: What is walked through.

    Attributes:
        found: By what it is about, the first obstacle for each.
    """

    def __init__(self, pairing: Pairing, state: State) -> None:
        self.found: dict[tuple[str, str], Obstacle] = {}
        self._p = pairing
        self._state = state
        self._taken: dict[int, int] = {}

    def step(self, number: int, use: str, record: Any) -> int | None:
        p = self._p
        new = p.steps.get(number)
        if use not in USED and use != "past":
            return number
        if use == "join" and not number_held(record) and not record.get("open"):
            return number
        if new is None:
            if use != "past":
                self._no_step(
                    number, use, record, f"{USED[use]}, and the new flow has no such step"
                )
            return number
        if use == "join":
            self._look_at_sources(number, new, record)
        fault = misfit(p, self._state, number, new, use, record)
        if fault is not None:
            self._no_step(number, use, record, fault)
        elif use != "past" and self._taken.setdefault(new, number) != number:
            other = p.step_name(self._taken[new])
            self._no_step(number, use, record, f"'{other}' has the same counterpart")
        return number

    def _no_step(self, number: int, use: str, record: Any, why: str) -> None:
        p = self._p
        blamed = p.blamed(number)
        if blamed != number:
            why = f"'{p.step_name(number)}' belongs to it, and {why}"
            use = "held"  # whatever it does, it has to be of the same type
        name = p.step_name(blamed)
        fits = [
            p.new_name(step)
            for step in p.beside(blamed)
            if step not in p.steps.values()
            and misfit(p, self._state, blamed, step, use, record) is None
        ]
        if p.old.node(blamed).body < 0:  # the flow's own `finally`: nothing to be renamed
            fits = []
        self._add("step", name, why, {"steps": {name: "NEW"}} if fits else None, fits)

    def _look_at_sources(self, join: int, new: int, held: Any) -> None:
        """See that the steps from which held tokens came have counterparts."""
        p = self._p
        for arrival in held_arrivals(held):
            source = arrival["source"]
            if source < 0 or source in p.steps:
                continue
            name = p.step_name(source)
            sources = [step for step in p.new.node(new).sources if step >= 0]
            fits = [p.new_name(step) for step in sources if step not in p.steps.values()]
            why = f"the join of '{p.step_name(join)}' holds a token that came from it"
            self._add("step", name, why, {"steps": {name: "NEW"}} if fits else None, fits)

    def body(self, number: int) -> int:
        return number  # its step has been looked at

    def flow(self, number: int) -> int:
        if number not in self._p.flows:
            name = self._p.old.flows[number].id
            self._add("subflow", name, "what it started is not finished, and it was removed", None)
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
            free = [one for one in declared if one not in p.old.flows[flow].state]
            why = "the new flow has no such state; null drops its value"
            self._add("state", own, why, {"state": {own: "NEW"}}, [*free, "null"])
            return key
        self._look_at_value(flow, key, own, name, declared[name].get("schema") or {})
        return key

    def _look_at_value(self, flow: int, key: str, own: str, name: str, schema: Any) -> None:
        """See that the values of a state key fit what is declared now."""
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
        declared = {key: spec for one in p.new.flows for key, spec in one.signals.items()}
        if new not in declared or not p.new.stores(new):
            count = f"{len(messages)} message{'s' * (len(messages) != 1)} of it wait"
            why = f"{count}{'s' * (len(messages) == 1)} to be taken, and nothing takes them"
            self._add("signal", name, f"{why}; null drops them", {"signals": {name: "NEW"}},
                      [*(one for one in declared if p.new.stores(one)), "null"])  # fmt: skip
            return name
        for message in messages:
            fault = p.new.validate(declared[new].get("data", {}), message["data"])
            if fault is not None:
                why = f"a pending message does not match: {fault}; null drops them"
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
        one, other = before[index], after[index] if index < len(after) else None
        same = other is not None and all(
            one.get(word) == other.get(word) for word in ("types", "do", "compensate")
        )
        if not same:
            why = "its 'on_error' is being followed, and changed"
            self._add("step", name, why, None)

    def step_name(self, name: str) -> str:
        return name

    def look_at_inputs(self) -> None:
        """See that each input of the new flow has a value that fits."""
        p = self._p
        given = self._state["inputs"]
        for name, schema in p.new.flows[0].inputs.items():
            values = [
                one[key]
                for one, key in (
                    (p.values["inputs"], name), (given, p.input_of(name)), (schema, "default"),
                )
                if key in one
            ]  # fmt: skip
            write = {"values": {"inputs": {name: "VALUE"}}}
            if not values or (values[0] is schema.get("default") and _is_computed(p.new, name)):
                free = [old for old in given if old not in p.new.flows[0].inputs]
                self._add("input", name, "the execution has none with this name", write, free)
                continue
            fault = p.new.validate(_without_default(schema), values[0])
            if fault is not None:
                self._add("input", name, f"its value does not match: {fault}", write)

        for frame in self._state.get("frames", {}).values():
            self._look_at_subflow(p.old.flows[frame["flow"]].id, frame)

    def _look_at_subflow(self, id: str, frame: Any) -> None:
        """See that each input of a subflow at work has a value that fits; nobody can give one."""
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
        """See that the keys of signals have values."""
        from flowengine.kernel.machine import Machine
        from flowengine.kernel.upgrading import set_keys

        try:
            set_keys(Machine(self._p.new, moved, None))
        except EvaluationError as error:
            self._add("signal", "key", f"a key has no value: {error.message}", None)

    def look_at_pasts(self, ran: Collection[str]) -> None:
        """See that what the new flow names of steps that are over was kept."""
        p = self._p
        for old, new in p.steps.items():
            before, after = p.old.node(old), p.new.node(new)
            missing = sorted(KEPT.intersection(after.named or ()) - set(before.named or ()))
            if missing and p.step_name(old) in ran:
                self._add("step", p.step_name(old), not_kept(after, missing[0]), None)

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


def _is_computed(graph: Graph, name: str) -> bool:
    return any(name == one for one, _ in graph.flows[0].defaults)


def _without_default(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    return {key: one for key, one in schema.items() if key != "default"}


def move(old: Graph, new: Graph, state: State, mapping: Mapping[str, Any]) -> State:
    """Return a state with the numbers and names of another graph.

    What is made anew by the kernel - who watches what - is left empty; see `upgrading.upgrade`.

    Args:
        old: The graph that the state was made with.
        new: The other one; `obstacles` finds none.
        state: It is not changed.
        mapping: See `flowengine.kernel.pairing`.
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
    """Gives each thing that a state names the number or name that it has now.

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
        return new if any(new in one.signals for one in self._p.new.flows) else None

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
    """Put state keys into the order of the new flow; new ones have their default."""
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
    """Return the state keys of a flow that had another reducer: no write to them is counted."""
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
    """Count where the tokens of a scope are, for the joins of its new body.

    A step that may have been activated before must not be taken for one that was not: its address
    would be the same, and with it its idempotency key.
    """
    before, after = p.old.body(old), p.new.body(scope["body"])
    if after.repeats and not before.repeats:
        scope["counts"] = {p.steps[step]: 1 for step in before.steps if step in p.steps}
    at: dict[int, int] = {}
    if after.watched:
        for act, step in scope["live"].items():
            if not moved["acts"][act].get("gone"):
                at[step] = at.get(step, 0) + 1
        for step, held in scope["joins"].items():
            at[step] = at.get(step, 0) + number_held(held)
    scope["at"] = {step: count for step, count in at.items() if count}
    for step, held in scope["joins"].items():
        if "hot" in held:
            own = number_held(held) if after.reaches(step, step) else 0
            held["hot"] = sum(n for place, n in at.items() if after.reaches(place, step)) - own
