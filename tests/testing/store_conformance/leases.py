"""Leases: one owner at a time, and only the last one writes."""

from __future__ import annotations

from flowengine.errors import Conflict, LeaseLost, NotFound
from flowengine.journal.records import Append, ExecutionHead, Owner
from flowengine.journal.store import JournalStore
from tests.testing.store_conformance.making import (
    ANA,
    BEN,
    MakeStore,
    append_event,
    approval,
    checks,
    new_execution,
    opened,
    raises,
    same,
)


@checks
def check_stale_writers_are_refused_alone(store: JournalStore) -> None:
    """An append under an old epoch writes nothing at all. Those beside it are kept."""
    for id in ("e1", "e2", "e3"):
        new_execution(store, id)
    epoch = store.acquire("e2", "ben", now=2000)
    late = Append(
        "e2",
        1,
        1,
        [(1, b"late"), (2, b"later")],
        head=ExecutionHead("failed", 1),
        opened=[approval(0)],
        snapshot=(1, b"late"),
        keys=[("paid", "7")],
        release=True,
    )

    one, two, three = store.commit(
        [Append("e1", 1, 1, [(1, b"x")]), late, Append("e3", 1, 1, [(1, b"x")])]
    )
    (alone,) = store.commit([Append("e2", 1, 1, [(1, b"late")])])

    same((one, three), (None, None), "the appends beside it")
    same((type(two), type(alone)), (LeaseLost, LeaseLost), "the late ones")
    same(len(store.events("e3")), 2, "the journal beside it")
    same(len(store.events("e2")), 1, "the journal")
    same(store.execution("e2").status, "running", "the status")
    same(store.load("e2").snapshot, None, "the snapshot")
    same(store.waits().items, [], "waits")
    raises(NotFound, lambda: store.send_keyed("paid", "7", b"", 1, "m"), "the key")
    same(store.commit([Append("e2", epoch, 1, [(1, b"ben")])]), [None], "the new holder")


@checks
def check_writers_that_guess_are_refused(store: JournalStore) -> None:
    """An epoch that was never granted, and an execution that does not exist, are refused."""
    new_execution(store, "e1")

    outcomes = store.commit([Append("e1", 2, 1, [(1, b"x")]), Append("e9", 1, 1, [(1, b"x")])])

    same([type(outcome) for outcome in outcomes], [LeaseLost, LeaseLost], "outcomes")


@checks
def check_leases_are_held_until_their_time(store: JournalStore) -> None:
    """A holder keeps others out until it is overdue, and is named to them. Renewing prolongs."""
    new_execution(store, "e1")
    conflict = raises(Conflict, lambda: store.acquire("e1", "ben", now=999), "held")
    same(conflict.standing, ANA, "who holds it")
    same((store.holder("e1", 999), store.holder("e1", 1000)), (ANA, None), "the reported holder")
    store.renew(ANA, 3000)
    raises(Conflict, lambda: store.acquire("e1", "ben", now=2999), "held for longer")

    epoch = store.acquire("e1", "ben", now=3000)

    assert epoch > 1, f"epochs must rise: {epoch}"
    raises(NotFound, lambda: store.acquire("e9", "ben", now=0), "no execution")


@checks
def check_leases_of_the_same_owner_begin_anew(store: JournalStore) -> None:
    """An owner may acquire its lease again. The old epoch is then void."""
    new_execution(store, "e1")

    epoch = store.acquire("e1", "ana", now=0)

    (outcome,) = store.commit([Append("e1", 1, 1, [(1, b"old")])])
    same(type(outcome), LeaseLost, "the old epoch")
    same(store.commit([Append("e1", epoch, 1, [(1, b"new")])]), [None], "the new one")


def check_leases_of_the_dead_are_free(make: MakeStore) -> None:
    """A holder that is certainly dead holds nothing, at any time."""
    dead: set[str] = set()
    with opened(make, lambda owner: owner.id in dead) as store:
        new_execution(store, "e1")
        raises(Conflict, lambda: store.acquire("e1", "ben", now=0), "held by the living")
        dead.add("ana")
        same(store.holder("e1", 0), None, "who holds it")

        epoch = store.acquire("e1", "ben", now=0)

        assert epoch > 1, f"epochs must rise: {epoch}"


@checks
def check_leases_are_given_back(store: JournalStore) -> None:
    """A lease can be given back alone, with an append, or with all of an owner. Then it is void."""
    for id in ("e1", "e2", "e3"):
        new_execution(store, id)

    store.release([("e1", 1), ("e3", 7), ("e9", 1)])
    append_event(store, "e2", 1, release=True)

    for id in ("e1", "e2"):
        (outcome,) = store.commit([Append(id, 1, 2, [(2, b"straggler")])])
        same(type(outcome), LeaseLost, f"a straggler of {id}")
        store.acquire(id, "ben", now=0)
    raises(Conflict, lambda: store.acquire("e3", "ben", now=0), "given back under no epoch")
    store.retire("ana")
    store.acquire("e3", "ben", now=0)
    same(len(store.events("e2")), 2, "the journal")


def check_deaths_in_a_row_are_counted(make: MakeStore) -> None:
    """Each holder that died counts, until one gives the lease back or gets further."""
    dead = {"ana", "ben"}
    with opened(make, lambda owner: owner.id in dead) as store:
        for name in ("ben", "eve"):
            store.renew(Owner(name, 11, 1, "here", "boot-1"), 5000)
        new_execution(store, "e1")
        same(store.deaths("e1", 0), 1, "the first holder is dead")
        store.acquire("e1", "ben", now=0)
        same(store.deaths("e1", 0), 2, "so is the second")
        epoch = store.acquire("e1", "eve", now=0)
        same(store.deaths("e1", 0), 2, "the third lives")
        same(store.acquire("e1", "eve", now=0), epoch + 1, "the same owner")
        same(store.deaths("e1", 0), 2, "it has not died")
        store.calm("e1", epoch)
        same(store.deaths("e1", 0), 2, "deaths after a lost lease")
        store.calm("e1", epoch + 1)
        same(store.deaths("e1", 0), 0, "it got further")
        store.release([("e1", epoch + 1)])
        same(store.deaths("e1", 0), 0, "it was given back")
        raises(NotFound, lambda: store.deaths("e9", 0), "no execution")


def check_due_are_those_without_a_living_holder(make: MakeStore) -> None:
    """Timers, messages and executions left running are due. Those of a living holder are not."""
    with opened(make, lambda owner: owner.id == "ben") as store:
        store.renew(BEN, 5000)
        for id in ("timer", "later", "message", "ended"):
            new_execution(store, id)
        for id, status, due in (
            ("timer", "waiting", 100),
            ("later", "waiting", 300),
            ("message", "stalled", None),
            ("ended", "failed", None),
        ):
            store.commit([Append(id, 1, 1, head=ExecutionHead(status, 50, due), release=True)])
        new_execution(store, "held")
        new_execution(store, "left", owner="ben")
        new_execution(store, "begun", owner=None)
        store.send("message", b"x", 200, "m")
        store.send("held", b"x", 200, "m")

        found = store.due(200, 0)

        same({due.execution: (due.why, due.deaths) for due in found}, {
            "timer": ("timer", 0), "message": ("message", 0), "left": ("left", 1),
            "begun": ("left", 0),
        }, "what is due")  # fmt: skip
        same([due.since for due in found], sorted(due.since for due in found), "the order")
        for item in found:
            same(store.due(200, 0, item.execution), [item], "one of them")
        for id in ("later", "ended", "held"):
            same(store.due(200, 0, id), [], id)
        same((store.next_due(100), store.next_due(300)), (300, None), "the next timer")


@checks
def check_executions_can_begin_without_holder(store: JournalStore) -> None:
    """An execution without a holder can be acquired."""
    new_execution(store, "e1", owner=None)

    epoch = store.acquire("e1", "ben", now=0)

    same(store.commit([Append("e1", epoch, 1, [(1, b"x")])]), [None], "the first holder")
