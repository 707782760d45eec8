"""The invariants of every execution, stated in one place.

`ALWAYS` holds after every event, and the simulator checks it. `FINALLY` holds when nothing happens
by itself any more, and `check_over` checks it. Each invariant is a function that raises
`AssertionError`. Its name and the first line of its docstring state the claim.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from flowengine.journal.encoding import pack
from flowengine.kernel import ENDED, running
from flowengine.kernel.state.records import State
from flowengine.kernel.view import (
    View,
    begun,
    bounding,
    budget_of,
    is_shared,
    number_waiting,
    waiting_arrivals,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flowengine.kernel import Graph
    from flowengine.kernel.commands import Claim, Observation, Run
    from flowengine.kernel.events import Event
    from flowengine.kernel.graph.compiled import Plain

OVER = frozenset({"succeeded", "skipped", "failed", "cancelled"})
"""Statuses of a step that has ended."""


class Simulated(Protocol):
    """The interface that the invariants use. `flowengine.testing.Simulator` documents its parts."""

    graph: Graph
    state: State
    journal: list[Event]
    observations: list[Observation]
    running: dict[tuple[int, int], Run]
    claims: dict[str, list[Claim]]
    again: list[str]
    ends: int
    retries: int
    calls: int
    forward: int

    @property
    def status(self) -> str:
        """Status of the execution."""

    @property
    def upgraded(self) -> bool:
        """Whether it has been moved to another form of its flow."""

    def waits(self) -> list[dict[str, Plain]]:
        """Return the open waits."""

    def possible(self) -> Sequence[object]:
        """Return what may happen next."""

    def replayed(self) -> State:
        """Return the state that its journal gives."""


# After every event


def nothing_is_open_after_the_end(simulator: Simulated) -> None:
    """An ended execution has no token, wait, timer, lock or cleanup."""
    state = simulator.state
    if state["status"] not in ENDED:
        return
    for table in ("scopes", "acts", "units", "waits", "timers", "undos", "cuts", "layers",
                  "listening", "watching"):  # fmt: skip
        assert not state[table], f"{table} open after the end: {state[table]}"
    assert "cleanups" not in state, "nothing is being cleaned up after the end"
    assert "locks" not in state, "no lock is held after the end"
    assert "frames" not in state, "nothing of a subflow is left after the end"
    assert "reading" not in state, "no reader of state is left after the end"
    assert "answers" not in state, "no answer is kept after the end"
    assert not state["running"]


def nothing_is_held_back(simulator: Simulated) -> None:
    """Failures are held back only during a retry, and held places begin again with it."""
    state = simulator.state
    assert "hold" not in state
    assert not any("then" in place for place in state["acts"].values())
    assert not any("then" in place for place in state["scopes"].values())
    assert all(unit["phase"] != "held" for unit in state["units"].values())


def it_ends_once(simulator: Simulated) -> None:
    """The end is reported at most once, and once more for each retry."""
    assert simulator.ends <= 1 + simulator.retries, "an execution ends once"


def nothing_done_once_is_done_again(simulator: Simulated) -> None:
    """A step of effect `once` that has succeeded never runs again: not after a crash or a retry."""
    assert not simulator.again, f"done again: {simulator.again}"


def what_runs_is_what_the_state_says(simulator: Simulated) -> None:
    """Every attempt that runs is in the state, and every one in the state runs."""
    if simulator.journal[-1]["type"] != "cut":
        here, stated = set(simulator.running), set(running(simulator.state))
        assert here == stated, f"running: {sorted(here)}, in the state: {sorted(stated)}"


def no_path_is_lost_or_doubled(simulator: Simulated) -> None:
    """Every token is in one scope, every unit in one activation, with references both ways."""
    state = simulator.state
    for number, unit in state["units"].items():
        act = state["acts"][unit["act"]]
        assert number in act["units"], "a unit belongs to its activation"
        assert ("wait" in unit) == (unit["phase"] in ("wait", "ask"))
        assert ("scope" in unit) == (unit["phase"] == "scope")
    for number, act in state["acts"].items():
        scope = state["scopes"][act["scope"]]
        assert scope["live"][number] == act["step"]
        assert act["busy"] == sum(act["units"].values())
        assert all(n in state["units"] for n in act["units"])
    for scope in state["scopes"].values():
        assert all(number in state["acts"] for number in scope["live"])
        assert not scope["unit"] or state["units"][scope["unit"]]["scope"] == scope["id"]
        assert scope["at_joins"] == sum(map(number_waiting, scope["joins"].values()))
    working = [u for u in state["units"].values() if u["phase"] == "run"]
    settling = [c for c in state["cuts"].values() if c["phase"] == "run"]
    assert state["running"] == len(working) + len(settling)


def every_wait_can_end(simulator: Simulated) -> None:
    """A wait belongs to a unit that waits for it, and its timers are set."""
    state = simulator.state
    for wait in state["waits"].values():
        assert not wait["unit"] or state["units"][wait["unit"]]["wait"] == wait["id"]
        assert all(timer in state["timers"] for timer in wait["timers"])


def every_timer_has_an_owner(simulator: Simulated) -> None:
    """The owner of each timer exists, and has no other timer of that kind."""
    state = simulator.state
    tables: Any = {"timeout": "units", "pause": "units", "deadline": "acts", "duration": "scopes",
                   "idle": "scopes", "wait": "waits", "expire": "waits", "remind": "waits",
                   "escalate": "waits"}  # fmt: skip
    keys = {"timeout": "timer", "pause": "timer", "deadline": "deadline"}
    for number, timer in state["timers"].items():
        if timer["why"] in tables:  # that of a budget is among `budgets_are_kept`
            owner = state[tables[timer["why"]]].get(timer["ref"])  # type: ignore[literal-required]
            assert owner is not None, f"timer {number} is of nothing: {timer}"
            if timer["why"] in keys:
                assert owner[keys[timer["why"]]] == number, f"timer {number} is one too many"
            elif "timers" in owner:
                assert number in owner["timers"], f"timer {number} is one too many"


def questions_are_waited_for(simulator: Simulated) -> None:
    """A question asked before attempts has units that wait for it, and is the only one about it."""
    state = simulator.state
    answers = state.get("answers", {})
    for unit in state["units"].values():
        assert ("asks" in unit) == (unit["phase"] == "asked")
        assert all(unit["id"] in state["waits"][number]["units"] for number in unit.get("asks", ()))
    open_ = {
        number: wait for number, wait in state["waits"].items() if wait["owner"] == "permission"
    }
    for number, wait in open_.items():
        owner, digest = wait["asks"]
        assert answers[owner][digest] == number
        assert wait["units"], "no unit waits for it"
        assert all(number in state["units"][unit]["asks"] for unit in wait["units"])
    for owner, about in answers.items():
        assert about, "nothing is kept for an owner of nothing"
        assert not owner or owner in state["units"], "an answer stands as long as its owner"
        assert all(isinstance(target, dict) or target in open_ for target in about.values())


def calls_run_as_they_were_approved(simulator: Simulated) -> None:
    """A call that needs an approval runs only after it, and with the approved arguments."""
    state = simulator.state
    answers = state.get("answers", {})
    for unit in state["units"].values():
        kept = answers.get(unit["id"], {}).get("call")
        if unit["phase"] == "run" and kept is not None:
            assert kept["approved"]
            assert kept["args"] == unit["args"]


def what_is_cleaned_up_is_waited_for(simulator: Simulated) -> None:
    """A due cleanup has a waiter or the flow has not ended, and a running cleanup has an owner."""
    state = simulator.state
    cleanups = state.get("cleanups", {})
    for number, cleanup in cleanups.items():
        owners: Any = {"unit": state["units"], "act": state["acts"], "scope": state["scopes"]}
        if "kind" in cleanup:
            owner = owners[cleanup["kind"]][cleanup["of"]]
            assert cleanup["kind"] == "scope" or owner["cleanup"] == number
        assert not cleanup.get("over") or not cleanup["todo"]
    for act in state["acts"].values():
        assert "final" not in act or act["final"] in cleanups
    for number, scope in state["scopes"].items():
        waited = [c for c in cleanups.values() if c.get("kind") == "scope" and c["of"] == number]
        assert scope.get("cleaning", 0) == len(waited)


def locks_are_held_by_those_who_say_so(simulator: Simulated) -> None:
    """Units agree with the lock that they hold or queue for, and a free lock has no queue."""
    units = simulator.state["units"]
    locks = simulator.state.get("locks", {})
    for name, lock in locks.items():
        assert lock["holders"], "a lock without a holder is deleted"
        assert all(units[n]["lock"] == name and units[n]["has_lock"] for n in lock["holders"])
        sharing = {"shares" in units[n] for n in lock["holders"]}
        assert len(sharing) == 1, "either all holders share a lock, or none does"
        assert all(units[n]["lock"] == name for n in lock["queue"])
        ready = [n for n in lock["queue"] if units[n]["phase"] not in ("asked", "budget")]
        assert all(units[n]["phase"] == "lock" for n in ready)
    for number, unit in units.items():
        assert (unit["phase"] in ("lock", "budget")) == ("then" in unit)
        if is_shared(unit.get("lock", "0")):
            waits = simulator.state.get("claims", {}).get(number) == unit["lock"]
            assert waits != unit.get("has_lock", False), "a claim is waited for until it is granted"
        elif "lock" in unit:
            lock = locks[unit["lock"]]
            assert number in (lock["holders"] if unit.get("has_lock") else lock["queue"])


def shared_locks_are_those_claimed(simulator: Simulated) -> None:
    """The claims of shared locks are exactly those that units hold or wait for."""
    state = simulator.state
    stated = [(u["lock"], n) for n, u in state["units"].items() if is_shared(u.get("lock", "0"))]
    waited = state.get("claims", {})
    for number, reservations in state.get("reserved", {}).items():
        names = [name for name, of in reservations.items() if "granted" in of]
        if number in waited:
            names.append(waited[number])
        assert sorted(names) == sorted(reservations)[: len(names)], "claimed one after the other"
        assert number in waited or len(names) == len(reservations), "the next one is claimed"
        stated += [(name, number) for name in names]
    if "bound" in state and state["status"] not in ENDED:
        stated.append((state["bound"][0], 0))
    claimed = [(claim.lock, claim.unit) for queue in simulator.claims.values() for claim in queue]
    assert sorted(stated) == sorted(claimed), f"the state has {stated}; claimed is {claimed}"
    for queue in simulator.claims.values():
        if queue[0].needs is not None:
            continue  # a budget
        held = [claim for claim in queue if claim.unit not in waited]
        assert held == queue[: len(held)], "who came first has it first"
        assert len(held) <= queue[0].permits, "more have a lock than it permits"


def attempts_see_state_as_it_was(simulator: Simulated) -> None:
    """A new attempt would receive the same state as the one before."""
    state = simulator.state
    for key, readers in state.get("reading", {}).items():
        assert readers, f"no code reads {key}"
        assert all(number in state["units"] for number in readers), f"who reads {key} is there"
    for (number, attempt), run in simulator.running.items():
        unit = state["units"].get(number)
        if run.state is None or unit is None or unit["attempt"] != attempt:
            continue
        view = View(simulator.graph, state)
        cells = view.vars_of(view.frame_of(view.act_of(unit)))
        seen = {key: unit.get("replaced_reads", {}).get(key, cells[key][0]) for key in run.state}
        assert seen == run.state


def budgets_are_kept(simulator: Simulated) -> None:
    """No call exceeds a budget, running calls have reservations, and waiting ones a question."""
    state = simulator.state
    frames = state.get("frames", {})
    reserved: dict[int, set[int]] = {}
    for number, frame in _calls(state).items():
        for owner in bounding(state, frame):
            reserved.setdefault(owner, set()).add(number)
    waiting = {n: unit["budget"] for n, unit in state["units"].items() if "budget" in unit}
    assert all(state["units"][n]["phase"] == "budget" for n in waiting)
    for unit in state["units"].values():
        assert "needs" not in unit or unit["phase"] in ("run", "budget", "ready", "asked", "lock")
    for owner in (0, *frames):
        budget = budget_of(state, owner)
        if budget is None:
            assert owner not in waiting.values()
            continue
        assert set(budget["calls"]) == reserved.get(owner, set()), "what runs is reserved"
        amounts = budget.get("reserved", {})
        assert amounts.keys() <= budget["calls"].keys(), "reservations belong to running calls"
        assert "reserved" not in budget or amounts
        for meter, estimated in budget.get("estimated", {}).items():
            assert estimated <= budget["amounts"][meter], "estimates are counted"
        queue = budget.get("queue", {})
        assert {*budget["waiting"], *queue} == {n for n, of in waiting.items() if of == owner}
        assert not budget["waiting"].keys() & queue.keys()
        assert "queue" not in budget or queue
        assert not queue or budget["calls"], "a queue waits for running calls"
        if budget["waiting"]:
            assert state["waits"][budget["wait"]]["budget"] == owner, "who waits has been asked for"
        assert ("since" in budget) == bool("wall_time" in budget["limits"] and budget["calls"])
        assert "timer" not in budget or state["timers"][budget["timer"]]["ref"] == owner
    asked = [wait["budget"] for wait in state["waits"].values() if wait["owner"] == "budget"]
    assert sorted(asked) == sorted(n for n in (0, *frames) if "wait" in (budget_of(state, n) or ()))
    _count_calls(simulator)


def _calls(state: State) -> dict[int, int]:
    """Return the units whose attempts run and are calls, with the frame of each."""
    calls = {}
    for number, unit in state["units"].items():
        act = state["acts"][unit["act"]]
        if unit["phase"] == "run" and "opens" not in act:
            calls[number] = act.get("frame", state["scopes"][act["scope"]].get("frame", 0))
    settling = {n: c.get("frame", 0) for n, c in state["cuts"].items() if c["phase"] == "run"}
    return {**calls, **settling}


def _count_calls(simulator: Simulated) -> None:
    """Compare the budget of the main flow with the calls that the world has seen."""
    budget = simulator.state.get("budget")
    if budget is None or simulator.upgraded or simulator.retries:
        return  # a retry forgets the calls that cleaned up after the failure
    assert begun(budget) == simulator.calls, "every call counts, and nothing else does"
    limit = budget["limits"].get("tool_calls")
    assert limit is None or simulator.forward <= limit, "never more calls than the limit"


def every_past_is_kept_while_needed(simulator: Simulated) -> None:
    """Each layer of the past has as many references as it counts, and none has zero."""
    state = simulator.state
    counted: Counter[int] = Counter(layer for layer in _references(state) if layer)
    actual = {number: layer[2] for number, layer in state["layers"].items()}
    assert actual == counted, f"layers {actual} are referred to {dict(counted)}"


def subflows_have_what_is_theirs(simulator: Simulated) -> None:
    """The parts of a subflow share its frame, which exists as long as its lowest layer."""
    state = simulator.state
    frames = state.get("frames", {})
    for number, frame in frames.items():
        assert state["layers"][number][0] == 0, "a frame is under all pasts of its subflow"
        assert not frame["up"] or frame["up"] < number
    for holder in (*state["scopes"].values(), *state["acts"].values()):
        assert holder.get("frame", 0) in {0, *frames}
        assert _lowest(state, holder["past"]) in {0, *frames}
    for act in state["acts"].values():
        inside = act.get("frame", state["scopes"][act["scope"]].get("frame", 0))
        assert not inside or _lowest(state, act["past"]) == inside, "its past is its subflow's"


def _lowest(state: State, layer: int) -> int:
    """Return the lowest layer of a past that is that of a subflow, else 0."""
    frames = state.get("frames", {})
    while layer and state["layers"][layer][0]:
        layer = state["layers"][layer][0]
    return layer if layer in frames else 0


ALWAYS: list[Callable[[Simulated], None]] = [
    nothing_is_open_after_the_end,
    nothing_is_held_back,
    it_ends_once,
    nothing_done_once_is_done_again,
    what_runs_is_what_the_state_says,
    no_path_is_lost_or_doubled,
    every_wait_can_end,
    every_timer_has_an_owner,
    questions_are_waited_for,
    calls_run_as_they_were_approved,
    what_is_cleaned_up_is_waited_for,
    locks_are_held_by_those_who_say_so,
    shared_locks_are_those_claimed,
    every_past_is_kept_while_needed,
    subflows_have_what_is_theirs,
    attempts_see_state_as_it_was,
    budgets_are_kept,
]


# When it is over


def replay_gives_the_same_bytes(simulator: Simulated) -> None:
    """The journal, read back from bytes and applied from the start, gives the very same state."""
    assert pack(simulator.replayed()) == pack(simulator.state), "replay gives another state"


def what_began_is_told_how_it_ended(simulator: Simulated) -> None:
    """After the end of an execution, observers have received the end of each activation."""
    if simulator.status in ENDED:
        last = {seen.address: seen.status for seen in simulator.observations}
        left = {address: status for address, status in last.items() if status not in OVER}
        assert not left, f"not told how it ended: {left}"


def each_scope_is_cleaned_up_once(simulator: Simulated) -> None:
    """The `finally` of each ended group, and of the flow, began exactly once."""
    at_once = any(event["type"] == "cancel" and event["now"] for event in simulator.journal)
    if simulator.status not in ENDED or at_once or simulator.retries:
        return
    graph = simulator.graph
    begun = Counter(seen.address for seen in simulator.observations if seen.status == "running")
    due = Counter({"finally": 1} if graph.body(0).final >= 0 else {})
    for seen in simulator.observations:
        child = graph.node(seen.step).child
        if seen.status == "running" and child >= 0 and graph.body(child).final >= 0:
            due[f"{seen.address}/finally"] += 1
    cleaned = {address: times for address, times in begun.items() if address.endswith("finally")}
    assert cleaned == dict(due), f"cleaned up: {cleaned}; due: {dict(due)}"


def it_does_not_stall(simulator: Simulated) -> None:
    """An execution of a flow that the checker accepts has ended, or waits for an outside event."""
    assert not is_stuck(simulator), "nothing can ever move again"


def is_stuck(simulator: Simulated) -> bool:
    """Return whether nothing can ever move again, for all possible outside events.

    Outside events are decisions, messages, time, and the end of other executions, which release
    shared locks. A lock that this execution both holds and waits for is not outside.

    Args:
        simulator: An execution in which nothing happens by itself any more.
    """
    if simulator.status == "stalled":
        return all(wait["kind"] != "question" for wait in simulator.waits())
    state = simulator.state
    outside = state["waits"] or state["timers"] or simulator.possible()
    return simulator.status == "waiting" and "claims" in state and not outside


FINALLY: list[Callable[[Simulated], None]] = [
    replay_gives_the_same_bytes,
    what_began_is_told_how_it_ended,
    each_scope_is_cleaned_up_once,
]
"""`it_does_not_stall` is not among them: it is promised of checked flows only."""


def check_now(simulator: Simulated) -> None:
    """Check the invariants that hold after every event."""
    for holds in ALWAYS:
        holds(simulator)


def check_over(simulator: Simulated) -> None:
    """Check the invariants that hold when nothing happens by itself any more."""
    for holds in FINALLY:
        holds(simulator)


def _references(state: State) -> Iterator[int]:
    """Yield every reference to a layer of the past that a state holds."""
    yield from (layer[0] for layer in state["layers"].values())
    dones = [d for undo in state["undos"].values() for d in undo["todo"]]
    dones += [undo["current"] for undo in state["undos"].values() if "current" in undo]
    yield from (unit.get("seen", 0) for unit in state["units"].values())
    for act in state["acts"].values():
        yield act["past"]
        dones += act.get("done", [])
    for scope in state["scopes"].values():
        yield scope["past"]
        yield from (past for _line, past in scope["ended"])
        dones += scope["done"]
        for join in scope["joins"].values():
            yield from (arrival["past"] for arrival in waiting_arrivals(join))
    owners: list[Any] = [*state["units"].values(), *state["acts"].values()]
    finals = [f for owner in [*owners, *state["scopes"].values()] for f in owner.get("finals", ())]
    for cleanup in state.get("cleanups", {}).values():
        finals += cleanup["todo"]
        yield cleanup.get("past", 0)
    yield from (final["past"] for final in finals if "past" in final)
    yield from (done["past"] for done in dones)
    yield from (cut["past"] for cut in state["cuts"].values())
