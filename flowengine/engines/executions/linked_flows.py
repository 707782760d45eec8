"""Compiled flows, linked with their evaluator of expressions and their runner of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property, partial
from typing import Any, NamedTuple

from flowengine.engines import attempts
from flowengine.engines.executions.growing_lists import grows
from flowengine.engines.executions.moments import Moment
from flowengine.engines.executions.reducers import reducer, reducers_of
from flowengine.engines.executions.subjects import address_of, subject_of, unit_of, why_of
from flowengine.errors import InputError
from flowengine.journal.encoding import pack
from flowengine.journal.reading import HistoryPort
from flowengine.journal.records import JournalEntry
from flowengine.journal.shapes import Sound, unpack_event, unpack_flow
from flowengine.journal.store import FlowPort
from flowengine.kernel import Graph, advance, new_state
from flowengine.kernel.commands import Observation
from flowengine.kernel.events import Event
from flowengine.kernel.graph.compiled import Evaluator
from flowengine.kernel.graph.specs import CompiledFlow, StepSpec
from flowengine.kernel.state.records import State
from flowengine.kernel.transition import added
from flowengine.sdk.python.imported_modules import check_importable
from flowengine.sdk.values.validation import Validator, shared
from flowengine.util.garbage import CollectedLater


class Language(NamedTuple):
    """What running needs from the language in which flows are written."""

    evaluator: Callable[[list[Any], str], Evaluator]
    """Makes the evaluator of the expressions of a flow, which is named in errors."""
    alone: Callable[[CompiledFlow, int], tuple[CompiledFlow, str]]
    """Returns one of the flows of a compiled flow as a main flow, with the hash by which a store
    identifies it."""


class LinkedFlow:
    """A compiled flow, ready to run. One instance serves all executions in a process.

    Args:
        compiled: The flow in plain form.
        hash: The hash by which a store identifies it.
        language: Evaluates its expressions.
        in_memory: Whether nothing of its executions outlives this process.
    """

    def __init__(
        self, compiled: CompiledFlow, hash: str, language: Language, *, in_memory: bool = False
    ) -> None:
        self.compiled = compiled
        self.hash = hash
        self._in_memory = in_memory
        evaluator = language.evaluator(compiled["expressions"], compiled["id"])
        self.graph = Graph(compiled, evaluator, why_not, reducer)

    @cached_property
    def runner(self) -> attempts.runner.TaskRunner:
        """Return the runner of its steps."""
        return attempts.runner.TaskRunner(self.compiled, in_memory=self._in_memory)

    @cached_property
    def ruled(self) -> frozenset[int]:
        """Return the steps that name no tool. Their rules are checked right before they run."""
        steps = enumerate(self.compiled["steps"])
        return frozenset(n for n, step in steps if "rules" in step and "approval" not in step)

    @cached_property
    def needing(self) -> bool:
        """Return whether a step runs only in a process with certain offers."""
        return any("needs" in step for step in self.compiled["steps"])

    @cached_property
    def grows(self) -> bool:
        """Return whether its state has append-only lists."""
        return grows(self.graph)

    def look_ahead(self, labels: Mapping[str, str], bodies: Set[int] | None = None) -> None:
        """Let step kinds preload the requirements of steps, on a separate thread.

        Args:
            labels: Labels of the execution.
            bodies: Only for steps in these bodies. None: for all.
        """
        steps = self._ahead
        if bodies is not None:
            steps = [step for step in steps if step.get("body", 0) in bodies]
        if steps:
            attempts.runner.load_ahead(steps, labels)

    @cached_property
    def _ahead(self) -> list[StepSpec]:
        return [step for step in self.compiled["steps"] if "ahead" in step]


class LinkedFlows:
    """Linked flows by hash, from the store, which keeps them with the executions.

    Args:
        store: Contains the compiled flows.
        language: Evaluates their expressions.
        in_memory: Whether nothing in it outlives this process.
    """

    def __init__(self, store: FlowPort, language: Language, *, in_memory: bool = False) -> None:
        self._store = store
        self._language = language
        self._in_memory = in_memory
        self._linked = partial(LinkedFlow, language=language, in_memory=in_memory)
        self._flows: dict[str, LinkedFlow] = {}

    def by_hash(self, hash: str) -> LinkedFlow:
        """Return the flow of an existing execution."""
        linked = self._flows.get(hash)
        if linked is None:
            compiled = unpack_flow(self._store.get_flow(hash), hash)
            with Sound(f"flow {hash}"):
                linked = self._linked(compiled, hash)
            self._flows[hash] = linked
        return linked

    def of(self, compiled: CompiledFlow, hash: str) -> LinkedFlow:
        """Link a flow that is about to run, and save it in the store."""
        linked = self._flows.get(hash)
        if linked is None:
            packed = pack(compiled)
            if not self._in_memory and b"__main__:" in packed:
                check_importable(functions_of(compiled))
            self._store.put_flow(hash, packed)
            linked = self._linked(compiled, hash)
            self._flows[hash] = linked
        return linked

    def part(self, whole: LinkedFlow, number: int) -> LinkedFlow:
        """Link one of the flows of a compiled flow, as the flow of an execution."""
        return self.of(*self._language.alone(whole.compiled, number))

    def forget(self) -> None:
        """Forget all flows, because the store may have deleted some."""
        self._flows.clear()


def functions_of(compiled: CompiledFlow) -> list[str]:
    """Return the Python functions of a flow's steps and reducers, as `module:function`."""
    steps = ((step.get("task"), step.get("preview")) for step in compiled["steps"])
    return [*reducers_of(compiled), *(name for parts in steps for name in _functions(parts))]


def _functions(spec: Any) -> Iterator[str]:
    """Yield the Python functions that a part of a step names, as `module:function`."""
    if isinstance(spec, dict):
        if "folder" in spec:
            names = (spec.get(key) for key in ("function", "name"))
            yield from (name for name in names if isinstance(name, str) and ":" in name)
        for part in spec.values():
            yield from _functions(part)
    elif isinstance(spec, list | tuple):
        for part in spec:
            yield from _functions(part)


_FOUND: dict[int, tuple[Any, Validator]] = {}
"""By the identity of a schema: the schema, which keeps it alive, and its validator."""
_MOST_FOUND = 1024


def why_not(schema: Any, value: Any) -> str | None:
    """Return why a value does not fit a schema of a compiled flow, or None if it fits."""
    if schema is True or schema == {}:
        return None
    identity = id(schema)
    linked = _FOUND.get(identity)
    if linked is None:
        if len(_FOUND) >= _MOST_FOUND:
            _FOUND.clear()
        linked = _FOUND[identity] = schema, shared(schema)
    validator = linked[1]
    if validator.proof is not None and validator.proof(value):
        return None

    try:
        validator.check(value, "it")
    except InputError as error:
        return error.message
    return None


# Replay of whole journals, for history, retries and forks.
#
# A journal is linear, except that a `retry` goes back. Of the earlier events, those before `back`
# and those listed in `kept` remain valid. The others stay in the journal as a record of the failed
# try. Events up to an `upgraded` are read with the previous form of the flow, later ones with the
# new form.


def read(store: HistoryPort, execution: str) -> list[Event]:
    return unpacked(execution, store.events(execution))


def unpacked(execution: str, entries: Iterable[JournalEntry]) -> list[Event]:
    with CollectedLater():  # all that is made here stays referenced
        return [
            unpack_event(entry.payload, f"entry {entry.seq} of execution {execution}")
            for entry in entries
        ]


def first_form(journal: Sequence[Event], hash: str) -> str:
    """Return the structural hash of the flow that an execution began with.

    Args:
        journal: All its events.
        hash: Hash of the flow that it runs now.
    """
    return next((event["before"] for event in journal if event["type"] == "upgraded"), hash)


def forms(journal: Sequence[Event]) -> list[str]:
    """Return the hashes of the flows that a journal refers to, except the last one."""
    return list(dict.fromkeys(e["before"] for e in journal if e["type"] == "upgraded"))


def walk(
    flows: LinkedFlows,
    hash: str,
    journal: Sequence[Event],
    observe: list[Observation] | None = None,
) -> Iterator[Moment]:
    """Walk through a journal, event by event.

    Args:
        flows: The flows under which it was written.
        hash: Hash of the flow that the execution runs now.
        journal: All events from the first on. It may grow during the walk.
        observe: Receives the observations of each activation.

    Yields:
        Each event with the state after it.
    """
    graph = flows.by_hash(first_form(journal, hash)).graph
    before = partial(state_before_retry, flows, hash, journal)
    yield from walk_on(flows, hash, graph, new_state(), 0, journal, before, observe)


def walk_on(
    flows: LinkedFlows,
    hash: str,
    graph: Graph,
    state: State,
    number: int,
    events: Sequence[Event],
    before: Callable[[int], tuple[Graph, State]] | None = None,
    observe: list[Observation] | None = None,
) -> Iterator[Moment]:
    """Walk through the events after a state, like `walk`.

    Args:
        flows: The flows under which they were written.
        hash: Hash of the flow of the execution, for errors.
        graph: The flow in that state.
        state: Changed in place.
        number: Number of the first event.
        events: The events from there on. They may grow during the walk.
        before: Returns the flow and the state from which the `retry` with a number continues.
            None: no event changes the past.
        observe: Receives the observations of each activation.
    """
    for at, event in enumerate(events, number):
        if before is not None and event["type"] == "retry" and "back" in event:
            graph, state = before(at)
        with Sound(f"entry {at} of a journal of flow {hash}"):
            unit, address = unit_of(state, event), address_of(graph, state, event)
            why, subject = why_of(state, event), subject_of(state, event)
            graph = apply(flows, graph, state, event, observe)
        yield Moment(at, event, address, unit, state, graph, why, subject)


def state_before_retry(
    flows: LinkedFlows, hash: str, journal: Sequence[Event], number: int
) -> tuple[Graph, State]:
    """Return the flow and the state from which the `retry` with this number continues."""
    graph = flows.by_hash(first_form(journal, hash)).graph
    return replayed(flows, graph, new_state(), line(journal, number)[:-1])


def replayed(
    flows: LinkedFlows, graph: Graph, state: State, events: Iterable[Event]
) -> tuple[Graph, State]:
    """Return the flow and the state after a linear sequence of events.

    Args:
        flows: The flows under which they were written.
        graph: The flow before them.
        state: The state before them, changed in place.
        events: As `line` returns them.
    """
    for event in events:
        graph = apply(flows, graph, state, event)
    return graph, state


def apply(
    flows: LinkedFlows,
    graph: Graph,
    state: State,
    event: Event,
    observe: list[Observation] | None = None,
) -> Graph:
    """Apply an event, and return the resulting flow."""
    after = flows.by_hash(event["after"]).graph if event["type"] == "upgraded" else None
    advance(graph, state, event, observe, after=after)
    return after or graph


def line(journal: Sequence[Event], last: int) -> list[Any]:
    """Return the events that lead to number `last`, without those discarded by retries.

    Args:
        journal: All events.
        last: Number of the last event to return.

    Returns:
        The events, to be applied one after the other. No `retry` goes back any more.
    """
    events: list[Any] = []
    for event in journal[: last + 1]:
        if event["type"] != "retry" or "back" not in event:
            events.append(event)
        else:
            # It no longer goes back: it continues from the preceding events.
            dropped = ("back", "kept")
            straight = {key: part for key, part in event.items() if key not in dropped}
            events = [*events[: event["back"]], *_kept(events, event), straight]
    return events


def _kept(events: Sequence[Any], event: Any) -> Iterator[Any]:
    """Yield the events that a `retry` applies again, the first one with its failures held back."""
    hold = event["hold"]
    for kept in event["kept"]:
        number, *others = kept if isinstance(kept, list) else (kept,)
        again = with_holds(events[number], hold)
        hold = None
        if others and again["type"] == "retry":
            again["late"] = others
        elif others:
            subject = next(key for key in ("timer", "wait", "unit") if key in again)
            again[subject] = others[0]
        yield again


def with_holds(event: Any, hold: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return an event with further failures to hold back when it is applied again."""
    return dict(event) if hold is None else {**event, "holds": added(event.get("holds"), hold)}
