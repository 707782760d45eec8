"""The SQLite store behaves like the in-memory store, for any sequence of operations."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from flowengine.engines.memory.store import MemoryStore
from flowengine.errors import FlowEngineError
from flowengine.journal.lease_holders import this_process
from flowengine.journal.records import (
    ENDED,
    Append,
    Beginning,
    ClosedWait,
    ExecutionFilter,
    ExecutionHead,
    ListPart,
    LockOperation,
    NewExecution,
    Owner,
    SendResult,
    Vote,
    WaitFilter,
)
from flowengine.journal.sqlite.store import SqliteStore
from flowengine.journal.store import JournalStore
from flowengine.kernel.notation.addresses import wait_id

ids = st.sampled_from(["e1", "e2", "e3"])
owners = st.sampled_from(["ana", "ben"])
people = st.sampled_from(["user:x", "user:y", "group:z"])
numbers = st.integers(0, 2)
signals = st.sampled_from([("paid", "7"), ("paid", "8"), ("sold", "7")])
statuses = st.sampled_from(["running", "waiting", "failed", "succeeded"])
maybe = st.none() | st.booleans()
STARTED = 1000


class StoresAgree(RuleBasedStateMachine):
    """Runs every operation on both stores, and compares results and errors."""

    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.dead: set[str] = set()
        self.now = STARTED
        self.epochs: dict[str, int] = {}
        self.lengths: dict[str, int] = {}
        self.ended: set[str] = set()

        def is_dead(owner: Owner) -> bool:
            return owner.id in self.dead

        file = Path(self.folder.name, "s.db")
        self.stores: list[JournalStore] = [
            SqliteStore(file, "none", is_dead=is_dead),
            MemoryStore(is_dead=is_dead),
        ]
        for store in self.stores:
            store.put_flow("f", b"compiled")
        for owner in ("ana", "ben"):
            self.renew(owner, 1)
        asked = [
            {"id": number, "kind": "approval", "since": STARTED + number, "need": need}
            for number, need in enumerate((1, 2, 2))
        ]
        new = NewExecution("a", None, "f", STARTED, owner="ana")
        self.commit([Append("e1", 1, 0, [(STARTED, b"new")], new=new, opened=asked)])

    def both(self, call: Callable[[JournalStore], Any]) -> Any:
        """Run an operation on both stores, and return the common result."""
        answers = []
        for store in self.stores:
            try:
                answers.append(call(store))
            except FlowEngineError as error:
                answers.append((type(error), getattr(error, "standing", None)))
        assert answers[0] == answers[1]
        return answers[0]

    def commit(self, appends: list[Append]) -> None:
        def told(store: JournalStore) -> list[Any]:
            outcomes = store.commit(appends)
            return [outcome and (type(outcome), outcome.standing) for outcome in outcomes]

        outcomes = self.both(told)
        for append, outcome in zip(appends, outcomes, strict=True):
            if outcome is None:
                length = 0 if append.new else self.lengths[append.execution]
                self.lengths[append.execution] = length + len(append.events)
                if append.new:
                    self.epochs[append.execution] = append.epoch
                if append.head is not None and append.head.status in ENDED:
                    self.ended.add(append.execution)

    @rule(id=ids, owner=st.none() | owners, flow=st.sampled_from(["a", "b"]), label=maybe)
    def create(self, id: str, owner: str | None, flow: str, label: bool | None) -> None:
        self.now += 1
        labels = {} if label is None else {"team": str(label)}
        new = NewExecution(flow, None, "f", self.now, labels, owner=owner)
        self.commit([Append(id, 1 if owner else 0, 0, [(self.now, b"new")], new=new)])

    @rule(chosen=st.sets(ids), stale=maybe, data=st.data())
    def append(self, chosen: set[str], stale: bool | None, data: st.DataObject) -> None:
        self.now += 1
        appends = []
        for id in sorted(chosen & self.epochs.keys()):
            epoch = self.epochs[id] - (1 if stale else 0)
            length = self.lengths[id]
            appends.append(Append(id, epoch, length, **self.draw_fields(length, data)))
        self.commit(appends)

    def draw_fields(self, length: int, data: st.DataObject) -> dict[str, Any]:
        def some(strategy: st.SearchStrategy[Any]) -> Any:
            return data.draw(st.lists(strategy, max_size=2))

        record = st.builds(
            lambda number, assignees, batch, need, signal: {
                "id": number,
                "kind": "approval",
                "since": STARTED + number,
                "assignees": sorted(assignees),
                "batch": batch,
                "need": need,
                "signals": [{"signal": signal[0], "key": signal[1]}],
            },
            numbers,
            st.sets(people),
            st.sampled_from(["b", "c"]),
            st.integers(1, 2),
            signals,
        )
        how = st.sampled_from(["decided", "expired", "withdrawn"])
        heads = st.none() | st.builds(
            lambda status: ExecutionHead(status, self.now, self.now), statuses
        )
        return {
            "events": some(st.just((self.now, b"event"))),
            "head": data.draw(heads),
            "opened": some(record),
            "closed": some(st.builds(lambda n, how: ClosedWait(n, how, self.now), numbers, how)),
            "keys": some(signals),
            "taken": some(st.integers(1, 9)),
            "release": data.draw(st.integers(0, 9)) == 0,
            **self.draw_snapshot(length, data),
        }

    def draw_snapshot(self, length: int, data: st.DataObject) -> dict[str, Any]:
        if data.draw(st.booleans()):
            return {}
        part = st.builds(
            ListPart,
            st.sampled_from(["a", "b"]),
            st.sampled_from([0, 3, 5]),
            st.sampled_from([b"", b"items"]),
        )
        lists = st.lists(part, max_size=2)
        return {"snapshot": (length, b"state"), "lists": data.draw(lists)}

    @rule(owner=owners, more=st.sampled_from([0, 1, 2, 50]))
    def renew(self, owner: str, more: int) -> None:
        known = this_process()._replace(id=owner)
        self.both(lambda store: store.renew(known, self.now + more))

    @rule(id=ids, owner=owners)
    def acquire(self, id: str, owner: str) -> None:
        epoch = self.both(lambda store: store.acquire(id, owner, self.now))
        if isinstance(epoch, int):
            self.epochs[id] = epoch

    @rule(id=ids)
    def release(self, id: str) -> None:
        self.both(lambda store: store.release([(id, self.epochs.get(id, 1))]))

    @rule(owner=owners)
    def retire(self, owner: str) -> None:
        self.both(lambda store: store.retire(owner))

    @rule(owner=owners, dies=st.booleans())
    def die(self, owner: str, dies: bool) -> None:
        (self.dead.add if dies else self.dead.discard)(owner)

    @rule(id=ids, message=st.sampled_from(["m1", "m2"]))
    def send(self, id: str, message: str) -> None:
        self.both(lambda store: store.send(id, b"sent", self.now, message))

    @rule(signal=signals, message=st.sampled_from(["m1", "m2"]))
    def send_keyed(self, signal: tuple[str, str], message: str) -> None:
        self.both(lambda store: store.send_keyed(*signal, b"keyed", self.now, message))

    @rule(
        id=ids,
        unit=st.integers(0, 1),
        permits=st.integers(1, 2),
        then=st.sampled_from(["queue", "queue", "reject", "cancel", "give"]),
    )
    def claim(self, id: str, unit: int, permits: int, then: Any) -> None:
        if id in self.lengths.keys() - self.ended:  # ended executions make no claims
            claim = LockOperation("lock", unit, permits, then, b"granted", b"cancel")
            epoch = self.epochs.get(id, 1)
            self.commit([Append(id, epoch, self.lengths[id], claims=[claim])])
            self.both(lambda store: store.claims("lock"))
            self.both(lambda store: store.inbox(id))

    @rule(signal=signals, id=ids, message=st.sampled_from(["m1", "m2"]))
    def begin(self, signal: tuple[str, str], id: str, message: str) -> None:
        begin = Beginning(id, NewExecution("f", "1", "f", self.now), [signal], b"started")
        sent = self.both(
            lambda store: store.send_keyed(*signal, b"keyed", self.now, message, begin)
        )
        if isinstance(sent, SendResult) and sent.began:
            self.lengths[id] = self.epochs[id] = 0

    @rule(id=ids, number=numbers, by=people, approves=st.booleans())
    def decide(self, id: str, number: int, by: str, approves: bool) -> None:
        vote = Vote(by, self.now, approves, f"{by} {approves}".encode())
        self.both(lambda store: store.decide(wait_id(id, number), vote))

    @rule(age=st.integers(0, 5))
    def prune(self, age: int) -> None:
        def pruned(store: JournalStore) -> Any:
            result = store.prune(self.now - age)
            store.put_flow("f", b"compiled")
            return result

        self.both(pruned)

    @rule(
        state=st.sampled_from(["pending", "closed", "all"]),
        execution=st.none() | ids,
        batch=st.none() | st.just("b"),
        assignees=st.none() | st.lists(people),
        flow=st.none() | st.just("a"),
        limit=st.integers(1, 4),
    )
    def list_waits(self, limit: int, **given: Any) -> None:
        self.walk(lambda store, after: store.waits(WaitFilter(**given), after, limit))

    @rule(
        flow=st.none() | st.just("a"),
        status=st.none() | statuses,
        labels=st.sampled_from([{}, {"team": "True"}]),
        since=st.none() | st.integers(STARTED, STARTED + 20),
        due=st.none() | st.integers(STARTED, STARTED + 20),
        limit=st.integers(1, 2),
    )
    def list_executions(self, limit: int, **given: Any) -> None:
        self.walk(lambda store, after: store.executions(ExecutionFilter(**given), after, limit))

    def walk(self, page: Callable[[JournalStore, str | None], Any]) -> None:
        """Page through both lists, each with the cursors of its store."""
        ends: list[str | None] = [None, None]
        while True:
            pages = [page(store, end) for store, end in zip(self.stores, ends, strict=True)]
            assert pages[0].items == pages[1].items
            ends = [got.next for got in pages]
            assert (ends[0] is None) == (ends[1] is None)
            if ends[0] is None:
                return

    @rule(id=ids)
    def read(self, id: str) -> None:
        self.both(lambda store: store.load(id))
        self.both(lambda store: store.inbox(id))
        self.both(lambda store: store.holder(id, self.now))
        self.both(lambda store: store.short_execution(id))
        for number in range(3):
            self.both(methodcaller("wait", wait_id(id, number)))

    @rule()
    def read_all(self) -> None:
        self.both(lambda store: store.arrived(0))

    def teardown(self) -> None:
        for store in getattr(self, "stores", []):
            store.close()
        if hasattr(self, "folder"):
            self.folder.cleanup()


@pytest.mark.endurance
@pytest.mark.parametrize("case", range(10))
def test_stores_agree(case: int) -> None:
    bounds = settings(
        max_examples=20,
        stateful_step_count=40,
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
    )
    machine = seed(case)(StoresAgree) if bounds.derandomize else StoresAgree
    run_state_machine_as_test(machine, settings=bounds)


def test_what_was_told_already_takes_no_number() -> None:
    """Found by the state machine: message numbers differed after two requests to end."""
    machine = StoresAgree()
    machine.open()
    try:
        machine.begin(signal=("sold", "7"), id="e2", message="m1")
        machine.claim(id="e1", unit=1, permits=1, then="queue")
        machine.claim(id="e2", unit=1, permits=1, then="cancel")
        machine.claim(id="e2", unit=0, permits=1, then="cancel")
        machine.send(id="e2", message="m2")
    finally:
        machine.teardown()
