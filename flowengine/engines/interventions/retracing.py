"""Failures of an execution, traced to their causes, and the state without these failures.

The events are replayed twice. The first replay finds the errors that ended the execution and where
they were raised. The second one holds these failures back (`flowengine.kernel.held_failures`), from
the first failure on. Parallel steps proceed as before, even after the failure. The subject of an
event may then have another number, which `counterparts` finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from flowengine.engines.attempts.serialization import copy
from flowengine.engines.executions.linked_flows import (
    LinkedFlows,
    apply,
    first_form,
    line,
    with_holds,
)
from flowengine.engines.interventions.counterparts import EventSubject, about, counterpart, running
from flowengine.engines.interventions.upgrading import move_obstacles
from flowengine.errors import Conflict, NotFound
from flowengine.kernel import ENDED, Graph, advance, new_state
from flowengine.kernel.commands import Command, Observation, Run, Stop
from flowengine.kernel.events import Event
from flowengine.kernel.state.records import State
from flowengine.kernel.transition import Blame, FailurePlace
from flowengine.kernel.view import View, overdue

MOST_ROUNDS = 20
"""Maximum number of replays, if holding back failures exposes others."""
TABLES = {"unit": "units", "act": "acts", "scope": "scopes"}


class Failure(NamedTuple):
    """A place where an error was raised that ended the execution."""

    place: FailurePlace
    number: int
    """Number of the event of the failure."""
    address: str


class Line(NamedTuple):
    """Events that lead on from a state. None of them goes back."""

    flows: LinkedFlows
    graph: Graph
    state: State
    """Not to be changed."""
    events: list[Any]

    def replayed(self, count: int) -> tuple[Graph, State]:
        """Return the flow and the state after the first `count` events, to be changed."""
        graph, state = self.graph, copy(self.state)
        for event in self.events[:count]:
            graph = apply(self.flows, graph, state, event)
        return graph, state


def past_of_all(flows: LinkedFlows, hash: str, journal: Sequence[Event]) -> RetracedPast:
    """Return the past of an execution from its beginning, without what retries have discarded.

    Args:
        flows: The flows under which the journal was written.
        hash: Hash of the flow that the execution runs now.
        journal: All its events.
    """
    graph = flows.by_hash(first_form(journal, hash)).graph
    return look_back(Line(flows, graph, new_state(), line(journal, len(journal) - 1)))


class RetracedPast(NamedTuple):
    """The past of an execution."""

    line: Line
    about: list[EventSubject | None]
    failures: list[Failure]
    ran: dict[tuple[int, int], str]
    """Unit and attempt of all attempts → address."""
    at_work: dict[int, set[tuple[str, int]]]
    """Number of a `retry` → address and attempt of all attempts that ran before it."""
    undone: list[tuple[int, set[str]]]
    """Events after which steps were being undone, with their addresses."""


class Held(NamedTuple):
    """The state from which the failed steps start again, and how it is derived."""

    graph: Graph
    state: State
    back: int
    kept: list[Any]
    hold: dict[str, list[int]]
    unit: int | None
    fresh: list[int]
    late: list[Event]
    """Results that arrived after the failure, to be applied after the `retry`."""
    addresses: list[str]
    """Addresses of the restarted steps."""


def retrace(past: RetracedPast, steps: Sequence[str] = ()) -> Held:
    """Return the state of a failed execution without the failures to retry.

    Args:
        past: Its past, with all its failures.
        steps: Addresses of the steps to restart. Empty: everything that failed.

    Returns:
        The state, and the content of a `retry` event.

    Raises:
        NotFound: No step exists at the address.
        Conflict: It cannot be restarted. The hint is the address at which a fork can start.
    """
    failures, unit = past.failures, None
    ended, dropped = len(past.line.events), set[int]()
    if steps:
        inside = [f for f in failures if any(within(f.address, step) for step in steps)]
        if inside:
            failures = inside
        else:
            unit, ended, own = _ended(past, steps[0])
            dropped = {ended} if own else dropped
    back = min(ended, *(failure.number for failure in failures))
    where = steps[0] if steps else failures[0].address
    if undone := [addresses for number, addresses in past.undone if number >= back]:
        first = _first_begun(past.line, set().union({where}, *undone))
        raise Conflict("it was compensated before it failed", hint=first)
    later = past.line.events[back:]
    if unit is not None and any(event["type"] == "upgraded" for event in later):
        raise Conflict("it was upgraded to another version of its flow after that", hint=where)
    return _hold(past, failures, back, unit, dropped, where)


def _first_begun(whole: Line, addresses: set[str]) -> str:
    """Return where the first of these steps began. A fork there has no undone results.

    That is the step itself, or an enclosing step that began together with it. A fork inside the
    enclosing step would interrupt steps that began beside the step.
    """
    (graph, state), seen = whole.replayed(0), list[Observation]()
    before: set[str] = set()
    for event in whole.events:
        graph = apply(whole.flows, graph, state, event, seen)
        view = View(graph, state)
        acts = [view.step_address(act) for act in state["acts"].values()]
        begun = [*(observation.address for observation in seen), *acts]
        if first := next((address for address in begun if address in addresses), ""):
            around = (
                address for address in begun if address not in before and within(first, address)
            )
            return min(around, key=len, default=first)
        before = set(acts)
        seen.clear()
    return ""


def event_of(held: Held, now: int, last: int, by: str) -> Any:
    """Return the event that restarts the held steps.

    Args:
        held: The state from which it starts again.
        now: The time (ms).
        last: The last number that the failed execution has assigned.
        by: The user who retries it.
    """
    event: dict[str, Any] = {
        "type": "retry", "at": now, "back": held.back, "kept": held.kept, "hold": held.hold,
        "unit": held.unit, "last": last, "by": by,
    }  # fmt: skip
    if held.fresh:
        event["fresh"] = held.fresh
    if over := overdue(held.state):
        event["overdue"] = over
    if held.late:
        late: list[Any] = held.late
        event["late"] = [result["unit"] for result in late]
    return event


def within(address: str, step: str) -> bool:
    """Return whether an address is that of a step, or of something in it."""
    return address == step or (address.startswith(step) and address[len(step)] in "/[@#")


def look_back(line: Line) -> RetracedPast:
    """Replay events, and return the past and its failures."""
    (graph, state), blame = line.replayed(0), Blame()
    past = RetracedPast(line, [], [], {}, {}, [])
    root = next(iter(state["scopes"]), 0)
    for number, event in enumerate(line.events):
        past.about.append(about(graph, state, event))
        blame.number = number
        if event["type"] == "retry":
            past.at_work[number] = set(running(graph, state).values())
        if event["type"] == "upgraded":
            graph = apply(line.flows, graph, state, event)
        else:
            note_runs(past.ran, advance(graph, state, event, None, blame))
        root = root or next(iter(state["scopes"]), 0)
        if state["undos"]:
            past.undone.append((number, being_undone(state)))
    for place in blame.raised(("scope", root)):
        past.failures.append(Failure(place, *blame.seen(place)))
    return past


def being_undone(state: State) -> set[str]:
    """Return the addresses of the steps that are being undone, or are about to be."""
    addresses: set[str] = set()
    for undo in state["undos"].values():
        addresses |= {state["cuts"][number]["address"] for number in undo["cut"]}
        addresses |= {done["address"] for done in undo["todo"]}
        if "current" in undo:
            addresses.add(undo["current"]["address"])
    return addresses


def note_runs(ran: dict[tuple[int, int], str], commands: Iterable[Command]) -> None:
    """Record the attempts that commands begin, except those stopped by the same commands."""
    began: dict[tuple[int, int], str] = {}
    for command in commands:
        if isinstance(command, Run):
            began[command.unit, command.attempt] = command.address
        elif isinstance(command, Stop):
            began.pop((command.unit, command.attempt), None)
    ran.update(began)


def _ended(past: RetracedPast, step: str) -> tuple[int, int, bool]:
    """Return the last unit at an address that ended, its event, and whether it ended by itself."""
    place: tuple[int, int, bool] | None = None
    graph, state = past.line.replayed(0)
    for number, event in enumerate(past.line.events):
        m = View(graph, state)
        subject = past.about[number]
        unit = next((n for n, u in state["units"].items() if m.address(u) == step), None)
        graph = apply(past.line.flows, graph, state, event)
        if unit is not None and unit not in state["units"]:
            mine = subject is not None and within(subject.address, step)
            place = unit, number, mine
    if place is None:
        raise NotFound(f"no step '{step}' has ended", hint=step)
    return place


def _hold(
    past: RetracedPast,
    failures: list[Failure],
    back: int,
    unit: int | None,
    dropped: set[int],
    where: str,
) -> Held:
    """Replay the past from an event on, with failures held back.

    Args:
        past: The past.
        failures: The failures to hold back.
        back: The first event to apply again.
        unit: A further unit to restart.
        dropped: Events to leave out.
        where: Address at which a fork can start instead.

    Returns:
        See `retrace`.

    Raises:
        Conflict: The failures cannot be held back.
    """
    hold: dict[str, list[int]] = {kind: [] for kind in TABLES}
    for failure in failures:
        hold[failure.place[0]].append(failure.place[1])
    for _ in range(MOST_ROUNDS):
        graph, state = past.line.replayed(back)
        blame = Blame()
        root = next(iter(state["scopes"]), 0)
        again = _Again(past.line.flows, graph, state, blame, where)
        kept, lost = again.apply(past, back, hold, dropped)
        graph = again.graph
        if unit is None and lost:
            raise Conflict(f"what {lost} did would be done again", hint=where)
        if state["status"] not in ENDED:
            break
        more = [
            place for place in blame.raised(("scope", root or 1)) if place[1] not in hold[place[0]]
        ]
        if state["status"] != "failed" or not more:
            raise Conflict("what failed cannot start again in its place", hint=where)
        for kind, number in more:
            hold[kind].append(number)
    if unit is not None and unit not in state["units"]:
        raise Conflict(f"'{where}' did not fail: something else ended it", hint=where)
    begins = [_held_at(graph, state, kind, number) for kind in TABLES for number in hold[kind]]
    addresses = [address for address in begins if address is not None]
    if unit is None and not addresses:
        raise Conflict("what failed cannot start again in its place", hint=where)
    if unit is not None:
        addresses.append(where)
    fresh, late = _left_running(graph, state, past, unit)
    return Held(graph, state, back, kept, hold, unit, fresh, late, addresses)


class _Again:
    """Applies events again to a state in which failures are held back."""

    def __init__(
        self, flows: LinkedFlows, graph: Graph, state: State, blame: Blame, where: str
    ) -> None:
        self._flows = flows
        self.graph = graph
        self._state = state
        self._blame = blame
        self._where = where

    def apply(
        self, past: RetracedPast, back: int, hold: dict[str, list[int]], dropped: set[int]
    ) -> tuple[list[Any], str | None]:
        """Apply events again, and return them and the step whose success has no counterpart."""
        kept: list[Any] = []
        lost: str | None = None
        for number in range(back, len(past.line.events)):
            subject, event = past.about[number], past.line.events[number]
            if number in dropped or (subject is not None and self._is_gone(subject, event)):
                continue
            again = with_holds(event, None if kept else hold)
            entry: Any = number
            if subject is not None and subject.kind != "late":
                other = counterpart(self.graph, self._state, subject, event)
                if other is None:
                    if subject.once and not tidies(subject.address):
                        lost = subject.address
                    continue
                if other != subject.number:
                    again["unit" if subject.kind == "cut" else subject.kind] = other
                    entry = [number, other]
            if event["type"] == "retry":
                # An attempt that did not run then was not stopped by that failure. Its result
                # depends on the attempts that run now.
                now = running(self.graph, self._state).items()
                if others := [n for n, attempt in now if attempt not in past.at_work[number]]:
                    again["late"] = [*event.get("late", ()), *others]
                    entry = [number, *again["late"]]
            kept.append(entry)
            if again["type"] == "upgraded":
                self._move(again)
            else:
                advance(self.graph, self._state, again, None, self._blame)  # type: ignore[arg-type]
            if self._state["status"] in ENDED:
                break
        return kept, lost

    def _is_gone(self, subject: EventSubject, event: Any) -> bool:
        """Return whether an event came too late and no longer has any effect.

        A result still counts, because its step may be active again in a later retry.
        """
        if subject.kind != "late":
            return False
        here = subject.number in self._state["units"] or subject.number in self._state["cuts"]
        return here or event["type"] != "succeeded"

    def _move(self, event: Any) -> None:
        """Move the state to another version of the flow, if the held steps fit into it."""
        after = self._flows.by_hash(event["after"]).graph

        if move_obstacles(self.graph, after, self._state, event["mapping"]):
            message = "it was moved to a version of its flow in which that has no place"
            raise Conflict(message, hint=self._where)
        self.graph = apply(self._flows, self.graph, self._state, event)


def tidies(address: str) -> bool:
    """Return whether a step at an address cleans up after a failure. It then runs once more."""
    return "finally" in address.split("/")


def _held_at(graph: Graph, state: State, kind: str, number: int) -> str | None:
    """Return the address of a held unit or scope. None: it does not exist or is not held."""
    table: Any = state[TABLES[kind]]  # type: ignore[literal-required]
    owner = table.get(number)
    if owner is None or "then" not in owner:
        return None
    m = View(graph, state)
    if kind == "scope":
        return str(owner["path"]).rstrip("/")
    return m.address(owner) if kind == "unit" else m.step_address(owner)


def _left_running(
    graph: Graph, state: State, past: RetracedPast, unit: int | None
) -> tuple[list[int], list[Event]]:
    """Return active attempts that never began outside, and results that arrived late."""
    m = View(graph, state)
    began = {(address, attempt) for (_, attempt), address in past.ran.items()}
    results: dict[tuple[str, int], Any] = {}
    for subject, event in zip(past.about, past.line.events, strict=True):
        if subject is not None and subject.kind == "late" and event["type"] == "succeeded":
            address = past.ran.get((event["unit"], event["attempt"]))
            if address is not None:
                results[address, event["attempt"]] = event
    fresh: list[int] = []
    late: list[Event] = []
    for number, record in state["units"].items():
        stopped = record.get("then", [""])[0] in ("attempt", "uncertain")
        if number == unit or (record["phase"] != "run" and not stopped):
            continue
        attempt = m.address(record), record["attempt"]
        if attempt in results:
            result: Any = {**results[attempt], "unit": number}
            late.append(result)
        elif not stopped and attempt not in began:
            fresh.append(number)
    return fresh, late
