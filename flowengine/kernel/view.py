"""Reading an execution: values derived from a flow and a state, which do not change.

Code outside the kernel must read state only through this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from typing import Any, NamedTuple

from flowengine.kernel.events import ErrorData
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.graph.linked import Graph, GraphFlow, Node
from flowengine.kernel.state.phases import Why
from flowengine.kernel.state.records import (
    Activation,
    Arrival,
    Budget,
    Cleanup,
    JoinState,
    Scope,
    State,
    Unit,
)

BOUNDS: frozenset[Why] = frozenset({"timeout", "deadline", "duration"})
"""Reasons of timers that limit running work."""
DECIDABLE = frozenset({"approval", "ask", "question", "session"})
"""Kinds of waits that a decision ends. Messages and timers end the others."""
STOPPABLE = frozenset({"run", "scope"})
"""Phases in which a user can stop a unit: its attempt runs, or its group or subflow."""


class View:
    """A flow and the state of one of its executions, for reading.

    Args:
        graph: The flow.
        state: The state.
    """

    __slots__ = ("graph", "now", "state")

    def __init__(self, graph: Graph, state: State) -> None:
        self.graph = graph
        self.state = state
        self.now = state["now"]

    def node(self, act: Activation) -> Node:
        """Return the step of an activation."""
        return self.graph.nodes[act["step"]]

    def act_of(self, unit: Unit) -> Activation:
        return self.state["acts"][unit["act"]]

    def scope_of(self, act: Activation) -> Scope:
        return self.state["scopes"][act["scope"]]

    def units_around(self, act: Activation) -> Iterator[Unit]:
        """Yield the units of the groups and subflows around an activation, innermost first."""
        units, number = self.state["units"], self.scope_of(act)["unit"]
        while number:
            unit = units[number]
            yield unit
            number = self.scope_of(self.act_of(unit))["unit"]

    def acts_around(self, act: Activation) -> Iterator[Activation]:
        """Yield an activation and those around it, innermost first. The last is in the flow."""
        yield act
        for unit in self.units_around(act):
            yield self.act_of(unit)

    def frame_of(self, act: Activation) -> int:
        """Return the frame of an activation's subflow, or 0 for the main flow."""
        if "frame" in act:
            return act["frame"]
        return self.state["scopes"][act["scope"]].get("frame", 0)

    def flow_of(self, frame: int) -> GraphFlow:
        """Return the declarations of a frame's flow."""
        return self.graph.flows[self.state["frames"][frame]["flow"] if frame else 0]

    def vars_of(self, frame: int) -> dict[str, list[Plain]]:
        """Return the state of a running flow: key → cell."""
        return self.state["frames"][frame]["vars"] if frame else self.state["vars"]

    def keys_of(self, frame: int) -> dict[str, str]:
        """Return the signal keys of a running flow: signal → key."""
        return self.state["frames"][frame]["keys"] if frame else self.state["keys"]

    def watched(self, act: Activation, keys: Iterable[str]) -> list[str]:
        """Return the names under which an activation's state keys are watched."""
        frame = self.frame_of(act)
        return [state_name(frame, key) for key in keys]

    def root(self) -> Scope:
        """Return the scope of the main flow."""
        return next(s for s in self.state["scopes"].values() if not s["unit"])

    def subflows(self) -> Iterator[Scope]:
        """Yield the scope of each running subflow, outer ones first."""
        for scope in self.state["scopes"].values():
            if scope.get("frame", 0) and self.graph.body(scope["body"]).kind == "flow":
                yield scope

    def step_address(self, act: Activation) -> str:
        """Return the address of an activation: scope path, step, and `#` if it is repeated."""
        if "address" in act:
            return act["address"]
        path = self.state["scopes"][act["scope"]]["path"]
        address = path + self.graph.nodes[act["step"]].id
        return f"{address}#{act['number']}" if act["number"] > 1 else address

    def address(self, unit: Unit) -> str:
        """Return the address of a unit: that of its activation, the item's key, the round."""
        act = self.state["acts"][unit["act"]]
        address = self.step_address(act)
        if unit["item"] >= 0:
            address = f"{address}[{act['keys'][unit['item']]}]"
        if unit["round"]:
            address = f"{address}@{unit['round']}"
        return address

    def enclosing(self, act: Activation) -> Iterator[Unit]:
        """Yield the units around an activation, innermost first.

        A `finally` counts as in its group.
        """
        units = self.state["units"]
        while True:
            number = self.scope_of(act)["unit"]
            if "final" in act:
                number = self._cleaned_up(self.state["cleanups"][act["final"]])
            if not number:
                return
            unit = units[number]
            yield unit
            act = self.act_of(unit)

    def _cleaned_up(self, cleanup: Cleanup) -> int:
        """Return the unit that waits for a cleanup, or is around the waiting place, or 0."""
        kind = cleanup.get("kind")
        if kind == "unit":
            return cleanup["of"]
        if kind == "act":
            return self.scope_of(self.state["acts"][cleanup["of"]])["unit"]
        return self.state["scopes"][cleanup["of"]]["unit"] if kind == "scope" else 0


def state_name(frame: int, key: str) -> str:
    """Return the name of a state key that is unique among the flows of an execution."""
    return f"{frame}/{key}" if frame else key


# Locks


def call_names(unit: Unit, args: Plain) -> dict[str, Plain]:
    """Return the names for rules and approvals of a call.

    Args:
        unit: The calling unit.
        args: The arguments.

    Returns:
        `args`, and `calls`: the `count` and `totals` up to and including this call. Empty if calls
        of its step are not counted.
    """
    return {"args": args, "calls": unit.get("counted", {}).get("seen", {})}


def is_shared(name: str) -> bool:
    """Return whether a lock is shared by executions."""
    return not name[0].isdigit()


# Lost environments


def is_for_operator(error: ErrorData) -> bool:
    """Return whether only an operator decides how to handle the loss of an environment."""
    data = error.get("data")
    return isinstance(data, dict) and data.get("decides") == "operator"


def is_tried_again(wait: Mapping[str, Any]) -> bool:
    """Return whether a wait is for an environment, and resuming the execution tries it again."""
    return wait.get("ran") == "no" and not is_for_operator(wait["error"])


# Budgets


def budget_of(state: State, frame: int) -> Budget | None:
    """Return the budget of a running flow. None: it has no budget, or has ended."""
    owner: Any = state.get("frames", {}).get(frame, {}) if frame else state
    budget: Budget | None = owner.get("budget")
    return budget


def bounding(state: State, frame: int) -> list[int]:
    """Return the frames whose budgets apply inside a running flow, innermost first."""
    if frame:
        return state["frames"][frame].get("bounds", [])
    return [0] if "budget" in state else []


def budgets_around(view: View, frame: int) -> Iterator[tuple[int, Budget]]:
    """Yield the budgets that apply inside a running flow, innermost first."""
    for number in bounding(view.state, frame):
        budget = budget_of(view.state, number)
        if budget is not None:
            yield number, budget


def unbound(view: View, act: Activation) -> set[int]:
    """Return the frames whose budgets do not limit a call.

    These are the frames in which the call is part of a compensation or cleanup.
    """
    inside = bounding(view.state, view.frame_of(act))
    free: dict[int, bool] = {}
    tidies = False
    for other in view.acts_around(act):
        tidies = tidies or "undo" in other or "final" in other
        # A compensation or cleanup may run outside its subflow.
        free[view.frame_of(other)] = free[view.scope_of(other).get("frame", 0)] = tidies
    return {number for number in inside if free.get(number, True)}


AMOUNTS = ("tokens", "cost_usd")
"""Meters with amounts. `tool_calls` are counted."""
DOLLAR = 10**9
"""The amount in which a budget counts one dollar."""
NEVER = 2**53
"""A limit that is never reached: compensation and cleanup are counted without a limit."""


def begun(budget: Budget) -> int:
    """Return the number of tool calls that have begun, both ended and running."""
    reserved = budget.get("reserved", {})
    among = sum(amounts.get("tool_calls", 0) for amounts in reserved.values())
    return budget["used"] + len(budget["calls"]) - len(reserved) + among


def taken(budget: Budget, meter: str) -> int:
    """Return how much of a meter ended calls have used and running calls have reserved."""
    running = sum(amounts.get(meter, 0) for amounts in budget.get("reserved", {}).values())
    return charged(budget, meter) + running


def total(budget: Budget) -> dict[str, int]:
    """Return the total of a budget by meter: ended calls and reservations."""
    amounts = budget["limits"].keys() - {"tool_calls", "wall_time"}
    return {
        "tool_calls": begun(budget),
        **{amount: taken(budget, amount) for amount in sorted(amounts)},
    }


class MeterRest(NamedTuple):
    """The remaining amount of a meter."""

    amount: int
    limit: int
    """The limit of the budget that has the least left."""
    flow: str
    """Id of the flow that declares it."""


def left_around(view: View, unit: Unit) -> dict[str, MeterRest] | None:
    """Return the remaining amounts for an execution that an attempt starts, by meter.

    The result is None if no budget applies to the attempt.

    Args:
        view: The execution.
        unit: The unit of the attempt.
    """
    act = view.act_of(unit)
    free, rests = unbound(view, act), dict[str, MeterRest]()
    around = list(budgets_around(view, view.frame_of(act)))
    for number, budget in around:
        used = total(budget)
        for meter in used.keys() & budget["limits"].keys():
            limit = NEVER if number in free else budget["limits"][meter]
            left = MeterRest(limit - used[meter], limit, view.flow_of(number).id)
            rests[meter] = min(left, rests.get(meter, left))
    return rests if around else None


def as_said(amounts: Mapping[str, int]) -> dict[str, float]:
    """Return amounts of meters in the units of users and step kinds: money in dollars."""
    return {amount: n / DOLLAR if amount == "cost_usd" else n for amount, n in amounts.items()}


def charged(budget: Budget, meter: str) -> int:
    """Return how much of a meter ended calls have used."""
    return budget.get("amounts", {}).get(meter, 0)


def worked(state: State, budget: Budget, now: int) -> int:
    """Return the time during which any call of a flow ran (ms), up to a given time.

    Args:
        budget: The budget of the flow.
        now: The time (ms).
    """
    spent = budget.get("spent", 0)
    if "since" in budget:
        spent += max(0, now - state.get("skipped", 0) - budget["since"])
    return spent


# Joins


def number_waiting(join: JoinState) -> int:
    """Return the number of tokens that wait at a join."""
    waiting = sum(len(arrivals) for arrivals in join["arrivals"].values())
    return waiting + len(join.get("counted", ())) + len(join.get("kept", ()))


def waiting_arrivals(join: JoinState) -> list[Arrival]:
    """Return the tokens that wait at a join."""
    waiting = [arrival for arrivals in join["arrivals"].values() for arrival in arrivals]
    return [*waiting, *join.get("counted", ()), *join.get("kept", ())]


# Waits and timers


RESPOND = "respond"
"""The choice that provides the result of a call in place of the call."""


def edited(subject: Plain, edits: dict[str, Plain]) -> Plain:
    """Return the subject with edited fields. A field is a dotted path into the subject."""
    for path, value in edits.items():
        subject = _replaced(subject, path.split("."), value)
    return subject


def _replaced(value: Plain, path: list[str], leaf: Plain) -> Plain:
    if not path:
        return leaf
    inner = value.get(path[0]) if isinstance(value, dict) else None
    return {**(value if isinstance(value, dict) else {}), path[0]: _replaced(inner, path[1:], leaf)}


def counting(record: dict[str, Plain], choice: str) -> str:
    """Return the category of a choice: `approve`, `reject` or `other`."""
    for entry in record.get("choices") or ():
        if entry["id"] == choice:
            counts_as: str = entry.get("counts_as", "other")
            return counts_as
    return "other"


def only_choice(record: Mapping[str, Any], counts_as: str) -> Mapping[str, Any] | None:
    """Return the only choice of a question that counts as `approve` or `reject`.

    None: it has several, or none.
    """
    choices = [each for each in record.get("choices") or () if each.get("counts_as") == counts_as]
    return choices[0] if len(choices) == 1 else None


def grant_status(grant: Mapping[str, Any], now: int) -> str:
    """Return the status of a grant: `open`, `revoked`, `used up` or `over`."""
    if "revoked" in grant:
        return "revoked"
    if "uses" in grant and grant["used"] >= grant["uses"]:
        return "used up"
    return "over" if "until" in grant and now >= grant["until"] else "open"


def overdue(state: State) -> list[int]:
    """Return the timers of limits that have expired but were not the first to end the execution."""
    return [
        number
        for number, timer in state["timers"].items()
        if timer["why"] in BOUNDS and timer["due"] <= state["now"]
    ]


def counted_as(meter: str, value: Plain) -> int:
    """Return an amount in counted units, or 0 if it is not valid."""
    amount = in_units(meter, value)
    return round(amount) if meter == "cost_usd" else int(amount)


def in_units(meter: str, value: Plain) -> float:
    """Return an amount in counted units before it is rounded, or 0 if it is not valid."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    if not isfinite(value) or value < 0:
        return 0
    return value * DOLLAR if meter == "cost_usd" else value


def used(node: Node, result: Plain) -> dict[str, int]:
    """Return the usage of an attempt as reported in its result or the data of its error."""
    return {
        meter: sum(counted_as(meter, amount_at(result, path)) for path in spec.get("used", ()))
        for meter, spec in (node.meters or {}).items()
        if meter in AMOUNTS
    }


def amount_at(data: Plain, path: list[str] | None) -> Plain:
    """Return the value at a path of keys. None: there is none."""
    if path is None:
        return None
    for key in path:
        if not isinstance(data, dict):
            return None
        data = data.get(key)
    return data
