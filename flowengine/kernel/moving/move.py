"""Converts the state of an execution to the numbers and names of another graph.

A running step keeps its address even if it was renamed, because idempotency keys and displayed data
depend on it. Evaluated times and keys stay unchanged. Conditions and expressions are those of the
new graph from now on.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from flowengine.kernel.commands import OpenWait
from flowengine.kernel.errors import StepFailure
from flowengine.kernel.expressions.names import Names, evaluate
from flowengine.kernel.flow_state import from_outside, replaces
from flowengine.kernel.graph.compiled import EvaluationError
from flowengine.kernel.graph.linked import Graph
from flowengine.kernel.graph.specs import BudgetSpec
from flowengine.kernel.limits import budgets, meters, shared_budgets
from flowengine.kernel.moving.counterparts import Pairing
from flowengine.kernel.moving.fields import Walker
from flowengine.kernel.notation.times import parse_duration, parse_time
from flowengine.kernel.state.records import Budget, State
from flowengine.kernel.transition import Transition
from flowengine.kernel.view import bounding, budget_of, number_waiting
from flowengine.kernel.waiting import (
    budget_questions,
    call_questions,
    input_questions,
    permissions,
    waits,
)
from flowengine.kernel.waiting import waits as listeners


def move(old: Graph, new: Graph, state: State, mapping: Mapping[str, Any]) -> State:
    """Return a state with the numbers and names of another graph.

    Derived fields, such as the watchers of state keys, are left empty. See `upgrading`.

    Args:
        old: The graph of the state.
        new: The other graph, to which there is no obstacle.
        state: The state. It is not changed.
        mapping: See `flowengine.kernel.moving.counterparts`.
    """
    pairing = Pairing(old, new, mapping)
    moved: State = Walker(state, _Mover(pairing)).copy()
    moved["watching"] = {}
    _move_inputs(pairing, moved)
    _move_vars(pairing, moved)
    _keep_addresses(pairing, state, moved)
    for number, scope in moved["scopes"].items():
        _count_anew(pairing, state["scopes"][number]["body"], moved, scope)
    moved["execution"] = {**state["execution"], "version": new.flow["version"]}
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

    def callee(self, caller: int, name: str) -> str:
        exchange = self._p.old.node(caller).exchange
        step = None if exchange is None else self._p.steps.get(exchange["callees"].get(name, -1))
        return name if step is None else self._p.new_name(step)


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


# The effects of an upgrade: an execution continues under another form of its flow.
#
# See docs/upgrading.md.
#
# The state is moved, and then checked as a whole. Joins that no token can reach under the new
# graph fire or fail, conditions that hold under it take effect, and its time limits apply.


def upgrade(tx: Transition, before: Graph, mapping: Mapping[str, Any]) -> None:
    """Continue an execution under another form of its flow.

    Args:
        tx: The transition, with the new flow of the execution. There is no obstacle to it.
        before: The old flow.
        mapping: The renamed parts.
    """
    state = tx.state
    records = {number: wait["record"] for number, wait in state["waits"].items()}
    duration = before.flows[0].limits.get("duration")
    bounds = _declared_budgets(before, state)
    moved: Any = move(before, tx.graph, state, mapping)
    whole: Any = state
    whole.clear()
    whole.update(moved)
    if tx.graph.timed:
        budgets.skip(state, tx.now - tx.stood)  # no process was driving the execution
    _set_duration(tx, duration)
    _declare_budgets_anew(tx, bounds)
    set_keys(tx)
    for number, wait in state["waits"].items():
        if wait["shown"] and wait["record"] != records[number]:
            tx.commands.append(OpenWait(dict(wait["record"])))
        if wait["unit"] in state["units"]:
            waits.watch_again(tx, wait)
    for number, act in state["acts"].items():
        spec = tx.node(act).map
        if spec is not None and "need" in act:
            listeners.watch(tx, number, tx.watched(act, spec.get("watches", ())))
    for unit in list(state["units"].values()):
        if unit["phase"] == "asked":
            permissions.check_again(tx, unit)
        elif "shown" in unit:
            call_questions.forget_question(tx, unit)  # its input may differ from now on
            input_questions.forget(tx, unit)
    listeners.wake_all(tx)
    for number in state["scopes"]:
        tx.touch(number)


def _set_duration(tx: Transition, before: str | None) -> None:
    """Set the time limit of the whole execution to that of the new flow."""
    limit = tx.graph.flows[0].limits.get("duration")
    if limit == before:
        return
    root = tx.root()["id"]
    for number, timer in list(tx.state["timers"].items()):
        if timer["why"] == "duration" and timer["ref"] == root:
            tx.clear_timer(number)
    if limit is not None:
        due = parse_time(tx.state["execution"]["started_at"]) + parse_duration(limit)
        tx.set_timer_at(due, "duration", root)


# Budgets


def _declared_budgets(graph: Graph, state: State) -> dict[int, BudgetSpec | None]:
    """Return the declared budgets of all running flows, by frame, with 0 for the main flow."""
    frames = state.get("frames", {}).items()
    flows = {0: graph.flows[0], **{n: graph.flows[frame["flow"]] for n, frame in frames}}
    return {number: flow.budget for number, flow in flows.items()}


def _declare_budgets_anew(tx: Transition, before: dict[int, BudgetSpec | None]) -> None:
    """Set the budgets to those that the flow now declares.

    A changed limit applies at once, and past usage still counts. An unchanged limit keeps its
    current value, which approvals may have raised. A new budget counts from now on.

    Args:
        tx: Of an execution whose state was moved.
        before: The declared budgets of the old flow.
    """
    after = _declared_budgets(tx.graph, tx.state)
    for number, spec in after.items():
        if spec != before[number]:
            _change_budget(tx, number, before[number], spec)
    for number in after:
        with suppress(StepFailure, EvaluationError):  # its budgets stay as they were
            shared_budgets.declare(tx, Names(tx, None, frame=number), number)
    for number, frame in tx.state.get("frames", {}).items():
        held = [bound for bound in frame.get("bounds", ()) if bound not in (0, number)]
        above = bounding(tx.state, frame["up"]) if frame["up"] in after else [*held, 0]
        bounds = [bound for bound in dict.fromkeys((number, *above)) if budget_of(tx.state, bound)]
        frame.pop("bounds", None)
        if bounds:
            frame["bounds"] = bounds
    for number, unit in tx.state["units"].items():
        if unit["phase"] == "run":
            budgets.count_in(tx, number, tx.frame_of(tx.act_of(unit)), tx.act_of(unit))
    for number, cut in tx.state["cuts"].items():
        if cut["phase"] == "run":
            budgets.count_in(tx, number, cut.get("frame", 0), None)


def _change_budget(
    tx: Transition, number: int, before: BudgetSpec | None, after: BudgetSpec | None
) -> None:
    owner: Any = tx.state["frames"][number] if number else tx.state
    budget: Budget | None = owner.get("budget")
    if budget is None:
        owner["budget"] = budgets.new_budget(after)
        return
    old, new = (
        meters.declared_limits(before) if before else {},
        meters.declared_limits(after) if after else {},
    )
    kept = {what: budget["limits"][what] for what in new if new[what] == old.get(what)}
    budget["limits"] = {**new, **kept}
    budget.pop("refused", None)
    if "timer" in budget:
        tx.clear_timer(budget.pop("timer"))
    if "wall_time" not in new:
        budget.pop("since", None)
        budget.pop("spent", None)
    elif budget["calls"]:
        budget.setdefault("since", tx.now - tx.state.get("skipped", 0))
    budget_questions.release_waiting(tx, number, budget, "withdrawn")
    if after is None:
        del owner["budget"]
