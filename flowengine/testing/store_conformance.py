"""What every store must do: one suite for the built-in ones and for yours.

Each check takes a function that makes an empty store, and raises `AssertionError` if the store
breaks the rule that the check's docstring states. With pytest:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_my_store_conforms(check, tmp_path):
        check(lambda is_dead: MyStore(tmp_path / "store", is_dead=is_dead))
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from flowengine.errors import Conflict, InputError, LeaseLost, NotFound, StoreError, UsageError
from flowengine.journal.leases import IsDead
from flowengine.journal.store import (
    Append,
    Beginning,
    Claim,
    ClosedWait,
    Entry,
    ExecutionFilter,
    Head,
    NewExecution,
    Outgoing,
    Owner,
    Sent,
    Start,
    Store,
    Vote,
    WaitFilter,
)
from flowengine.kernel.ids import wait_id

MakeStore = Callable[[IsDead], Store]
"""Makes an empty store that asks the function given whether an owner is certainly dead."""
Check = Callable[[MakeStore], None]

CHECKS: list[Check] = []
"""All checks, in the order of this file."""

FLOW = "f" * 64
ANA = Owner("ana", 11, 1, "here", "boot-1")
BEN = Owner("ben", 22, 2, "here", "boot-1")
T = TypeVar("T")


def check_store(make: MakeStore) -> None:
    """Run all checks.

    Args:
        make: Makes an empty store; called once for each check.
    """
    for check in CHECKS:
        check(make)


# -- what the checks are made of


def _checks(function: Callable[[Store], None]) -> Check:
    """Make a check of a function that takes an empty store in which nobody is dead."""

    def check(make: MakeStore) -> None:
        with _opened(make, lambda owner: False) as store:
            function(store)

    check.__name__ = function.__name__
    check.__doc__ = function.__doc__
    CHECKS.append(check)
    return check


@contextmanager
def _opened(make: MakeStore, is_dead: IsDead) -> Iterator[Store]:
    store = make(is_dead)
    try:
        store.put_flow(FLOW, b"compiled")
        store.renew(ANA, 1000)
        store.renew(BEN, 1000)
        yield store
    finally:
        store.close()


def _same(actual: T, expected: T, what: str) -> None:
    if actual != expected:
        raise AssertionError(f"{what}: expected {expected!r}, got {actual!r}")


def _raises(kind: type[T], call: Callable[[], Any], what: str) -> T:
    try:
        result = call()
    except Exception as error:
        if isinstance(error, kind):
            return error
        raise AssertionError(f"{what}: raised {error!r}, not {kind.__name__}") from error
    raise AssertionError(f"{what}: no {kind.__name__} but {result!r}")


def _new(store: Store, id: str, owner: str | None = "ana", **fields: Any) -> None:
    """Create an execution with one event."""
    new = NewExecution("orders", "1", FLOW, 10, owner=owner)._replace(**fields)
    append = Append(id, 1 if owner else 0, 0, [(10, b"started")], new=new)
    _same(store.commit([append]), [None], f"creation of {id}")


def _append(store: Store, id: str, seq: int, **fields: Any) -> None:
    """Append one event, under the first lease, with something to the index."""
    outcome = store.commit([Append(id, 1, seq, [(seq, b"event %d" % seq)], **fields)])
    _same(outcome, [None], f"append {seq} to {id}")


def _ask(number: int, since: int = 20, **fields: Any) -> dict[str, Any]:
    """Return the record of an approval."""
    return {"id": number, "kind": "approval", "since": since, "step": "sign"} | fields


def _walk(page: Callable[[str | None], Any]) -> list[Any]:
    """Return the items of all pages."""
    items: list[Any] = []
    after = None
    while True:
        items += (got := page(after)).items
        after = got.next
        if after is None:
            return items


def _ids(store: Store, filter: ExecutionFilter, limit: int = 3) -> list[str]:
    return [e.id for e in _walk(lambda after: store.executions(filter, after, limit))]


def _waiting(store: Store, filter: WaitFilter, limit: int = 3) -> list[tuple[str, int]]:
    waits = _walk(lambda after: store.waits(filter, after, limit))
    return [(wait.execution, wait.number) for wait in waits]


def _approve(by: str = "user:ana", event: bytes = b"yes") -> Vote:
    return Vote(by, 30, True, event)


def _reject(by: str = "user:ben", event: bytes = b"no") -> Vote:
    return Vote(by, 31, False, event)


# -- flows


@_checks
def check_flows_are_kept_by_hash(store: Store) -> None:
    """A flow is there once it was put; putting it again changes nothing."""
    store.put_flow("a", b"one")
    store.put_flow("a", b"one")

    _same(store.get_flow("a"), b"one", "the flow")
    _raises(NotFound, lambda: store.get_flow("b"), "a flow that was never put")


@_checks
def check_sources_are_remembered(store: Store) -> None:
    """What a file compiled to is found by its key, the newest answer only."""
    _same(store.find_source("x"), None, "an unknown source")

    store.remember_source("x", FLOW, [("a.yaml", "1"), ("b.py", "2")], b"warnings")
    store.remember_source("x", FLOW, [("a.yaml", "3")])

    _same(store.find_source("x"), (FLOW, [("a.yaml", "3")], b""), "the source")


# -- journals


@_checks
def check_new_executions_are_found(store: Store) -> None:
    """An execution is created with its first append, running, with all that was said of it."""
    _new(
        store,
        "e1",
        labels={"team": "a"},
        started_by="user:ana",
        parent="p",
        forked_from="o at x",
        version=None,
    )

    record = store.execution("e1")
    said = record.flow, record.version, record.hash, record.created_at, record.labels
    _same(said, ("orders", None, FLOW, 10, {"team": "a"}), "what was said")
    more = record.started_by, record.parent, record.forked_from
    _same(more, ("user:ana", "p", "o at x"), "what more was said")
    became = record.status, record.changed_at, record.due, record.ended_at
    _same(became, ("running", 10, None, None), "what it became")
    _same((record.outputs, record.error), (None, None), "its results")
    _raises(NotFound, lambda: store.execution("e"), "the beginning of an id")


@_checks
def check_ids_are_taken_once(store: Store) -> None:
    """A second execution of the same id is refused, and gets the first; its neighbours are kept."""
    _new(store, "e1", started_by="first")
    new = NewExecution("other", None, FLOW, 99, owner="ben")
    appends = [Append(id, 1, 0, [(99, b"second")], new=new) for id in ("e0", "e1", "e2")]

    outcomes = store.commit(appends)

    _same([type(outcome) for outcome in outcomes], [type(None), Conflict, type(None)], "outcomes")
    conflict = outcomes[1]
    assert conflict is not None
    _same(conflict.standing, store.execution("e1"), "what stands")
    _same(store.execution("e1").started_by, "first", "the execution")
    _same(store.events("e1"), [Entry(0, 10, b"started")], "its journal")
    _same(store.events("e2"), [Entry(0, 99, b"second")], "its neighbour's journal")


@_checks
def check_flows_come_before_executions(store: Store) -> None:
    """An execution whose flow is not there cannot be created."""
    new = NewExecution("orders", None, "unknown", 10, owner="ana")

    (outcome,) = store.commit([Append("e1", 1, 0, [(10, b"started")], new=new)])

    _same(type(outcome), Conflict, "outcome")
    _raises(NotFound, lambda: store.execution("e1"), "the execution")


@_checks
def check_journals_keep_order_and_part(store: Store) -> None:
    """Events come back as they were written, from any place on, of one execution only."""
    for id in ("e1", "e2", "e3"):
        _new(store, id)
    for seq in range(1, 6):
        for id in ("e3", "e1"):
            _append(store, id, seq)
    three = [(7, b""), (6, b"\x00\xff"), (7, b"x" * 10_000)]
    _same(store.commit([Append("e2", 1, 1, three)]), [None], "an append of three")

    _same([entry.seq for entry in store.events("e1")], [0, 1, 2, 3, 4, 5], "numbers")
    _same(store.events("e1", 4), [Entry(4, 4, b"event 4"), Entry(5, 5, b"event 5")], "the rest")
    _same(store.events("e1", 1, 2), [Entry(1, 1, b"event 1"), Entry(2, 2, b"event 2")], "a part")
    _same(store.events("e1", 6), [], "beyond the end")
    _same(store.events("e2", 1), [Entry(1 + i, *event) for i, event in enumerate(three)], "bytes")
    _raises(NotFound, lambda: store.events("e9"), "a journal of no execution")


@_checks
def check_loads_start_at_the_snapshot(store: Store) -> None:
    """Loading gives the newest snapshot and only the events after it."""
    _new(store, "e1")
    _same(store.load("e1").snapshot, None, "before the first snapshot")
    _append(store, "e1", 1, snapshot=(1, b"before the event"))
    _append(store, "e1", 2)
    loaded = store.load("e1")
    _same(loaded.snapshot, (1, b"before the event"), "the snapshot")
    _same([entry.seq for entry in loaded.tail], [1, 2], "the tail")

    _same(store.commit([Append("e1", 1, 3, snapshot=(3, b"all"))]), [None], "a snapshot alone")

    loaded = store.load("e1")
    _same((loaded.snapshot, loaded.tail), ((3, b"all"), []), "after a snapshot of all")
    _same(loaded.record, store.execution("e1"), "the record")
    _same(len(store.events("e1")), 3, "the journal itself")
    _raises(NotFound, lambda: store.load("e9"), "a load of no execution")


@_checks
def check_entries_are_never_written_over(store: Store) -> None:
    """A second event of the same number is an error, and nothing of its whole commit is kept."""
    _new(store, "e1")
    _new(store, "e2")
    for events in ([(1, b"again")], [(1, b"again"), (2, b"and more")]):
        appends = [Append("e2", 1, 1, [(1, b"beside")]), Append("e1", 1, 0, events)]
        _raises(StoreError, partial(store.commit, appends), "an event in a taken place")

    _same(store.events("e1"), [Entry(0, 10, b"started")], "the journal")
    _same(store.events("e2"), [Entry(0, 10, b"started")], "the journal beside it")


@_checks
def check_what_cannot_be_stored_leaves_no_trace(store: Store) -> None:
    """A record that is no plain data is refused, with all of its commit."""
    _new(store, "e1")
    bad = Append("e1", 1, 1, [(1, b"event")], opened=[_ask(0, subject=object())])
    _new(store, "e2")

    _raises(InputError, lambda: store.commit([Append("e2", 1, 1, [(1, b"x")]), bad]), "commit")

    _same(len(store.events("e1")), 1, "the journal")
    _same(len(store.events("e2")), 1, "the journal beside it")
    _same(store.waits().items, [], "waits")


@_checks
def check_heads_show_how_it_stands(store: Store) -> None:
    """Status, due time and results are shown; an ended execution is due no more and can go on."""
    _new(store, "e1")
    _append(store, "e1", 1, head=Head("waiting", 50, due=70))
    record = store.execution("e1")
    _same((record.status, record.changed_at, record.due), ("waiting", 50, 70), "waiting")

    _append(store, "e1", 2, head=Head("failed", 60, due=70, outputs=b"out", error=b"err"))
    record = store.execution("e1")
    _same((record.status, record.due, record.ended_at), ("failed", None, 60), "failed")
    _same((record.outputs, record.error), (b"out", b"err"), "results")
    listed = store.executions().items[0]
    _same((listed.outputs, listed.error), (None, None), "results in a list")

    _append(store, "e1", 3, head=Head("running", 80))
    record = store.execution("e1")
    _same((record.status, record.ended_at, record.error), ("running", None, None), "going on")


# -- leases


@_checks
def check_stale_writers_are_refused_alone(store: Store) -> None:
    """An append under an old epoch writes nothing at all; those beside it are kept."""
    for id in ("e1", "e2", "e3"):
        _new(store, id)
    epoch = store.acquire("e2", "ben", now=2000)
    late = Append(
        "e2",
        1,
        1,
        [(1, b"late"), (2, b"later")],
        head=Head("failed", 1),
        opened=[_ask(0)],
        snapshot=(1, b"late"),
        keys=[("paid", "7")],
        release=True,
    )

    one, two, three = store.commit(
        [Append("e1", 1, 1, [(1, b"x")]), late, Append("e3", 1, 1, [(1, b"x")])]
    )
    (alone,) = store.commit([Append("e2", 1, 1, [(1, b"late")])])

    _same((one, three), (None, None), "the appends beside it")
    _same((type(two), type(alone)), (LeaseLost, LeaseLost), "the late ones")
    _same(len(store.events("e3")), 2, "the journal beside it")
    _same(len(store.events("e2")), 1, "the journal")
    _same(store.execution("e2").status, "running", "the status")
    _same(store.load("e2").snapshot, None, "the snapshot")
    _same(store.waits().items, [], "waits")
    _raises(NotFound, lambda: store.send_keyed("paid", "7", b"", 1, "m"), "the key")
    _same(store.commit([Append("e2", epoch, 1, [(1, b"ben")])]), [None], "the new holder")


@_checks
def check_writers_that_guess_are_refused(store: Store) -> None:
    """An epoch that was never granted, and an execution that does not exist, are refused."""
    _new(store, "e1")

    outcomes = store.commit([Append("e1", 2, 1, [(1, b"x")]), Append("e9", 1, 1, [(1, b"x")])])

    _same([type(outcome) for outcome in outcomes], [LeaseLost, LeaseLost], "outcomes")


@_checks
def check_leases_are_held_until_their_time(store: Store) -> None:
    """A holder keeps others out until it is overdue, and is named to them; renewing prolongs."""
    _new(store, "e1")
    conflict = _raises(Conflict, lambda: store.acquire("e1", "ben", now=999), "held")
    _same(conflict.standing, ANA, "who holds it")
    _same((store.holder("e1", 999), store.holder("e1", 1000)), (ANA, None), "who is told")
    store.renew(ANA, 3000)
    _raises(Conflict, lambda: store.acquire("e1", "ben", now=2999), "held for longer")

    epoch = store.acquire("e1", "ben", now=3000)

    assert epoch > 1, f"epochs must rise: {epoch}"
    _raises(NotFound, lambda: store.acquire("e9", "ben", now=0), "no execution")


@_checks
def check_leases_of_the_same_owner_begin_anew(store: Store) -> None:
    """An owner may acquire again what it holds; what it held under the old epoch is void."""
    _new(store, "e1")

    epoch = store.acquire("e1", "ana", now=0)

    (outcome,) = store.commit([Append("e1", 1, 1, [(1, b"old")])])
    _same(type(outcome), LeaseLost, "the old epoch")
    _same(store.commit([Append("e1", epoch, 1, [(1, b"new")])]), [None], "the new one")


def check_leases_of_the_dead_are_free(make: MakeStore) -> None:
    """A holder that is certainly dead holds nothing, whatever its time."""
    dead: set[str] = set()
    with _opened(make, lambda owner: owner.id in dead) as store:
        _new(store, "e1")
        _raises(Conflict, lambda: store.acquire("e1", "ben", now=0), "held by the living")
        dead.add("ana")
        _same(store.holder("e1", 0), None, "who holds it")

        epoch = store.acquire("e1", "ben", now=0)

        assert epoch > 1, f"epochs must rise: {epoch}"


CHECKS.append(check_leases_of_the_dead_are_free)


@_checks
def check_leases_are_given_back(store: Store) -> None:
    """A lease can be given back alone, with an append, or with all of an owner; then it is void."""
    for id in ("e1", "e2", "e3"):
        _new(store, id)

    store.release([("e1", 1), ("e3", 7), ("e9", 1)])
    _append(store, "e2", 1, release=True)

    for id in ("e1", "e2"):
        (outcome,) = store.commit([Append(id, 1, 2, [(2, b"straggler")])])
        _same(type(outcome), LeaseLost, f"a straggler of {id}")
        store.acquire(id, "ben", now=0)
    _raises(Conflict, lambda: store.acquire("e3", "ben", now=0), "given back under no epoch")
    store.retire("ana")
    store.acquire("e3", "ben", now=0)
    _same(len(store.events("e2")), 2, "the journal")


@_checks
def check_executions_can_begin_without_holder(store: Store) -> None:
    """An execution that nobody holds is free to be acquired by the first."""
    _new(store, "e1", owner=None)

    epoch = store.acquire("e1", "ben", now=0)

    _same(store.commit([Append("e1", epoch, 1, [(1, b"x")])]), [None], "the first holder")


# -- inbox


@_checks
def check_messages_are_kept_until_taken(store: Store) -> None:
    """Messages wait in order for their execution, each until an append takes it."""
    _new(store, "e1")
    _new(store, "e2")
    first = store.send("e1", b"one", 40, "m1")
    other = store.send("e2", b"two", 41, "m1")
    third = store.send("e1", b"three", 42, "m3")

    _same((first.first, first.execution, other.first), (True, "e1", True), "what was sent")
    inbox = [(m.execution, m.at, m.event) for m in store.inbox("e1")]
    _same(inbox, [("e1", 40, b"one"), ("e1", 42, b"three")], "the inbox")
    _same([m.event for m in store.arrived(0)], [b"one", b"two", b"three"], "all that arrived")
    _same([m.event for m in store.arrived(first.number)], [b"two", b"three"], "since the first")

    _append(store, "e1", 1, taken=[first.number])

    _same([m.number for m in store.inbox("e1")], [third.number], "after one was taken")
    _same([m.event for m in store.arrived(0)], [b"two", b"three"], "all, after one was taken")
    _raises(NotFound, lambda: store.inbox("e9"), "the inbox of no execution")


@_checks
def check_messages_are_stored_once(store: Store) -> None:
    """A second message of the same id to one execution is the first one, taken or not, for ever."""
    _new(store, "e1")
    sent = store.send("e1", b"one", 40, "m1")
    _same(store.send("e1", b"other", 50, "m1"), sent._replace(first=False), "sent again")
    _append(store, "e1", 1, taken=[sent.number])

    _same(
        store.send("e1", b"other", 50, "m1"), sent._replace(first=False), "sent after it was taken"
    )
    _same(store.inbox("e1"), [], "the inbox")
    _append(store, "e1", 2, head=Head("succeeded", 60))
    _same(store.send("e1", b"other", 50, "m1"), sent._replace(first=False), "sent after the end")


@_checks
def check_ended_executions_take_no_messages(store: Store) -> None:
    """A message to an execution that has ended, or to none, is refused and told so."""
    _new(store, "e1")
    _append(store, "e1", 1, head=Head("cancelled", 60))

    conflict = _raises(Conflict, lambda: store.send("e1", b"x", 70, "m"), "sent to an ended one")
    _same(conflict.standing, store.execution("e1"), "what stands")
    _raises(NotFound, lambda: store.send("e9", b"x", 70, "m"), "sent to none")


@_checks
def check_keys_find_the_oldest_open_execution(store: Store) -> None:
    """A keyed signal goes to the oldest open execution that has the key; others do not see it."""
    for number, id in enumerate(("e2", "e1", "e3"), 1):
        _new(store, id)
        _append(store, id, 1, keys=[("paid", "7"), ("paid", id), ("left", "7")])
        _same(store.send_keyed("paid", id, b"own", 40, "m"), Sent(number, id, True), f"to {id}")

    sent = store.send_keyed("paid", "7", b"one", 40, "m")
    _same((sent.execution, sent.first), ("e2", True), "the oldest")
    _append(store, "e2", 2, head=Head("succeeded", 60))
    sent = store.send_keyed("paid", "7", b"two", 41, "m2")
    _same(sent.execution, "e1", "the oldest that is open")

    again = store.send_keyed("paid", "7", b"one", 42, "m")
    _same((again.execution, again.first), ("e2", False), "the same message again")
    _same(store.find_key("paid", "7"), "e1", "who would get it")
    _raises(NotFound, lambda: store.find_key("paid", "8"), "who would get another key")
    _raises(NotFound, lambda: store.send_keyed("paid", "8", b"", 1, "m3"), "another key")
    _raises(NotFound, lambda: store.send_keyed("sold", "7", b"", 1, "m3"), "another signal")
    _raises(NotFound, lambda: store.send_keyed("paid", "e2", b"", 1, "m3"), "an ended one's key")


@_checks
def check_a_message_begins_an_execution_where_none_is_open(store: Store) -> None:
    """One execution begins, with the message in its inbox; a second message goes to it."""
    new = NewExecution("f", "1", FLOW, 40)

    def send(id: str, message: str) -> Sent:
        begin = Beginning(id, new, [("placed", "7"), ("paid", "7")], b"started " + id.encode())
        return store.send_keyed("placed", "7", b"sent", 40, message, begin)

    began = send("e1", "m1")
    _same((began.execution, began.first, began.began), ("e1", True, True), "the first one")
    second = send("e2", "m2")
    _same((second.execution, second.first, second.began), ("e1", True, False), "the second one")
    again = send("e3", "m1")
    _same((again.execution, again.first, again.began), ("e1", False, False), "the first again")
    events = [message.event for message in store.inbox("e1")]
    _same(events, [b"started e1", b"sent"], "its inbox")
    _same(store.execution("e1").status, "running", "its status")
    _same(store.find_key("paid", "7"), "e1", "who has its other key")
    _raises(NotFound, lambda: store.execution("e2"), "the one that was not needed")

    ended = Append("e1", 0, 0, [(1, b"started e1")], head=Head("succeeded", 60))
    _same(store.commit([ended]), [None], "its end")
    _same(send("e4", "m4")[1:], ("e4", True, True), "after it has ended")
    conflict = _raises(Conflict, lambda: send_other(store, new), "an id that is taken")
    _same(conflict.standing, store.execution("e4"), "what stands")
    _raises(NotFound, lambda: store.find_key("placed", "8"), "what was refused")


def send_other(store: Store, new: NewExecution) -> None:
    """Begin an execution under an id that is taken."""
    begin = Beginning("e4", new, [("placed", "8")], b"")
    store.send_keyed("placed", "8", b"", 70, "m5", begin)


@_checks
def check_what_is_sent_to_others_stays_until_it_is_settled(store: Store) -> None:
    """It is in the outbox with the commit; what nobody could take stays with its sender."""
    _new(store, "e1")
    sent = [Outgoing(0, "", to, 40, event) for to, event in (("e2", b"a"), ("all", b"b"))]
    _append(store, "e1", 1, sent=sent)
    (first, second) = store.outbox()
    _same((first.sender, first.to, first.at, first.event), ("e1", "e2", 40, b"a"), "the first")
    _same((second.to, second.event, second.why), ("all", b"b", None), "the second")
    refused = store.commit([Append("e1", 9, 2, [(1, b"late")], sent=sent)])
    _same([type(one) for one in refused], [LeaseLost], "a late writer")
    _same(store.outbox(), [first, second], "after a commit that was refused")

    store.settle(first.number, "nobody has it")
    store.settle(second.number, None)
    _same(store.outbox(), [], "all settled")
    _same(store.undelivered("e1"), [first._replace(why="nobody has it")], "what is left")
    _same(store.undelivered("e2"), [], "of another")

    _append(store, "e1", 2, sent=sent[:1], head=Head("succeeded", 60))
    store.prune(60)
    _same([one.sender for one in store.outbox()], ["e1"], "what was on its way outlives its sender")
    _same(store.undelivered("e1"), [], "of one that was removed")


@_checks
def check_locks_are_granted_in_the_order_of_the_claims(store: Store) -> None:
    """To as many as it permits; with every end of a claim the next one is told in its inbox."""
    for id in ("e1", "e2", "e3", "e4"):
        _new(store, id)

    def claim(id: str, seq: int, *claims: Claim, head: Head | None = None) -> None:
        _append(store, id, seq, claims=claims, head=head)

    def standing() -> list[tuple[str, int, bool]]:
        return [(one.execution, one.unit, one.held) for one in store.claims("l")]

    for id in ("e1", "e2", "e3"):
        claim(id, 1, Claim("l", 7, 2, granted=b"granted " + id.encode()), Claim("other", 7))
    claim("e1", 2, Claim("l", 7, 2, granted=b"again"), Claim("l", 8, 2, granted=b"second"))
    held = [("e1", 7, True), ("e2", 7, True), ("e3", 7, False), ("e1", 8, False)]
    _same(standing(), held, "after four claims on two permits")
    _same([m.event for m in store.inbox("e1")], [b"granted e1", b""], "what the first was told")
    _same(store.inbox("e3"), [], "what the third was told")

    claim("e2", 2, Claim("l", 7, then="give"))
    _same(standing()[1], ("e3", 7, True), "who is next")
    _same([m.event for m in store.inbox("e3")], [b"granted e3"], "what it is told")
    claim("e3", 2, head=Head("failed", 60))
    _same(standing(), [("e1", 7, True), ("e1", 8, True)], "after one has ended")
    claim("e1", 3, Claim("l", 8, then="give"), Claim("l", 9, 1), Claim("l", 9, then="give"))
    _same(standing(), [("e1", 7, True)], "what was given back unheld")
    claim("e1", 4, head=Head("cancelled", 60))
    _same([store.claims("l"), store.claims("none")], [[], []], "when all have ended")
    _same([one.execution for one in store.claims("other")], ["e2"], "another lock")


@_checks
def check_a_claim_may_be_rejected_or_cancel_others(store: Store) -> None:
    """A rejected one leaves the whole append out; the oldest are asked to end."""
    for id in ("e1", "e2"):
        _new(store, id)
        _append(store, id, 1, claims=[Claim("l", 0, 2)])
    rejected = Append("e3", 1, 0, [(1, b"x")], claims=[Claim("l", 0, 2, "reject")])
    new = NewExecution("f", "1", FLOW, 40, owner="ana")
    [conflict] = store.commit([rejected._replace(new=new)])
    _same(type(conflict), Conflict, "one too many")
    _same(conflict and conflict.standing, store.execution("e1"), "who holds it")
    _raises(NotFound, lambda: store.execution("e3"), "what was refused")

    again = Append("e1", 1, 2, [(2, b"x")], claims=[Claim("l", 0, 1, "reject")])
    _same(store.commit([again]), [None], "a claim that it has already")

    cancelling = Claim("l", 0, 2, "cancel", b"granted", b"cancel")
    _new(store, "e3")
    for _ in range(2):
        store.commit([Append("e3", 1, 1, claims=[cancelling])])
    _same([m.event for m in store.inbox("e1")], [b"", b"cancel"], "the oldest")
    _same([m.event for m in store.inbox("e2")], [b""], "the other one")
    _append(store, "e1", 3, head=Head("cancelled", 60))
    _same([m.event for m in store.inbox("e3")], [b"granted"], "who took its place")


@_checks
def check_flows_begin_on_the_signals_they_said_last(store: Store) -> None:
    """What a flow begins on is replaced as a whole, and keeps the flow."""
    other = "e" * 64
    store.put_flow(other, b"other")
    store.put_starts("orders", FLOW, ["placed", "moved", "placed"])
    store.put_starts("audit", FLOW, ["placed"])
    store.put_starts("orders", other, ["placed"])

    _same(store.starts("placed"), [Start("audit", FLOW), Start("orders", other)], "of placed")
    _same(store.starts("moved"), [], "of moved")
    store.prune(10**15)
    _same(store.get_flow(other), b"other", "its flow")
    store.put_starts("orders", other, [])
    _same(store.starts("placed"), [Start("audit", FLOW)], "when it begins on none")


@_checks
def check_waits_give_keys_while_they_are_open(store: Store) -> None:
    """A wait for a keyed signal is found until it closes."""
    _new(store, "e1")
    signals = [{"signal": "paid", "key": "7"}, {"signal": "stop", "key": None}]
    _append(store, "e1", 1, opened=[_ask(0, kind="signal", signals=signals)])
    _same(store.send_keyed("paid", "7", b"", 40, "m1").execution, "e1", "while it is open")

    _append(store, "e1", 2, closed=[ClosedWait(0, "occurred", 50)])

    _raises(NotFound, lambda: store.send_keyed("paid", "7", b"", 51, "m2"), "after it closed")


# -- waits


@_checks
def check_waits_are_shown_as_given(store: Store) -> None:
    """A wait has an id of its own, its newest record, and how it ended."""
    _new(store, "e1")
    _append(store, "e1", 1, opened=[_ask(0, title="Sign?", need=2)])
    id = wait_id("e1", 0)
    wait = store.wait(id)
    _same(wait.record, _ask(0, title="Sign?", need=2), "the record")
    _same((wait.id, wait.execution, wait.flow, wait.number), (id, "e1", "orders", 0), "its place")
    _same((wait.open, wait.votes, wait.how), (True, [], None), "its state")
    wait.record["title"] = "changed by a caller"

    _append(store, "e1", 2, opened=[_ask(0, title="Sign now!", assignees=["user:cfo"])])
    _same(store.wait(id).record["title"], "Sign now!", "the newer record")
    _same(_waiting(store, WaitFilter(assignees=["user:cfo"])), [("e1", 0)], "the new assignee's")
    _same(_waiting(store, WaitFilter(assignees=["user:ana"])), [], "somebody else's")
    _append(store, "e1", 3, closed=[ClosedWait(0, "withdrawn", 50, b"result")])

    wait = store.wait(id)
    _same((wait.open, wait.how, wait.closed_at), (False, "withdrawn", 50), "its end")
    _same(wait.result, b"result", "its result")
    _raises(NotFound, lambda: store.wait("0" * 16), "no wait")


@_checks
def check_the_first_decision_wins(store: Store) -> None:
    """One decision is accepted; every later one is told which stands; the execution gets one."""
    _new(store, "e1")
    _append(store, "e1", 1, opened=[_ask(0)])
    id = wait_id("e1", 0)

    first = store.decide(id, _approve())
    later = [store.decide(id, vote) for vote in (_approve(), _reject(), _reject("user:ana"))]

    _same((first.accepted, first.settled, first.event), (True, True, b"yes"), "the first")
    _same((first.wait.decision, first.wait.votes), (b"yes", [b"yes"]), "the wait")
    for standing in later:
        told = standing.accepted, standing.settled, standing.event
        _same(told, (False, True, b"yes"), "a later one")
    _same([m.event for m in store.inbox("e1")], [b"yes"], "the inbox")
    _same(store.wait(id), first.wait, "the wait afterwards")
    _raises(NotFound, lambda: store.decide("0" * 16, _approve()), "a decision on no wait")


@_checks
def check_votes_are_counted(store: Store) -> None:
    """A wait that needs two approvals is settled by two people, or by the first who does not."""
    _new(store, "e1")
    _append(store, "e1", 1, opened=[_ask(0, need=2), _ask(1, need=2)])
    two, one = wait_id("e1", 0), wait_id("e1", 1)

    first = store.decide(two, _approve("user:ana", b"a"))
    _same((first.accepted, first.settled), (True, False), "the first approval")
    again = store.decide(two, _reject("user:ana", b"a2"))
    _same((again.accepted, again.settled, again.event), (False, False, b"a"), "the same person")
    _same(len(_waiting(store, WaitFilter())), 2, "pending waits")
    last = store.decide(two, _approve("user:ben", b"b"))
    _same((last.accepted, last.settled, last.event), (True, True, b"b"), "the second approval")
    _same(last.wait.votes, [b"a", b"b"], "all votes")

    store.decide(one, _approve("user:ana", b"c"))
    rejected = store.decide(one, _reject("user:ben", b"d"))
    _same((rejected.accepted, rejected.settled), (True, True), "the first rejection")
    _same([m.event for m in store.inbox("e1")], [b"a", b"b", b"c", b"d"], "the inbox")


@_checks
def check_closed_waits_take_no_decision(store: Store) -> None:
    """A wait that expired or was withdrawn stands as it is."""
    _new(store, "e1")
    _append(store, "e1", 1, opened=[_ask(0)])
    _append(store, "e1", 2, closed=[ClosedWait(0, "expired", 50, b"result")])

    standing = store.decide(wait_id("e1", 0), _approve())

    told = standing.accepted, standing.settled, standing.event, standing.wait.how
    _same(told, (False, True, None, "expired"), "what stands")
    _same(store.inbox("e1"), [], "the inbox")


@_checks
def check_decisions_come_before_expiry(store: Store) -> None:
    """A wait cannot expire once a decision is recorded; the append is refused whole and alone."""
    for id in ("e1", "e2"):
        _new(store, id)
        _append(store, id, 1, opened=[_ask(0), _ask(1)])
    store.decide(wait_id("e1", 0), _approve())
    expiry = [ClosedWait(1, "expired", 50), ClosedWait(0, "expired", 50)]

    one, two = store.commit(
        [Append(id, 1, 2, [(50, b"timer")], closed=expiry) for id in ("e1", "e2")]
    )

    _same((type(one), two), (Conflict, None), "outcomes")
    assert one is not None
    _same((one.standing.id, one.standing.decision), (wait_id("e1", 0), b"yes"), "what stands")
    _same(len(store.events("e1")), 2, "the journal")
    _same(store.wait(wait_id("e1", 1)).how, None, "the other wait")
    closing = [ClosedWait(0, "decided", 51), ClosedWait(1, "withdrawn", 51)]
    _append(store, "e1", 2, closed=closing)
    closed = store.wait(wait_id("e1", 0))
    _same((closed.how, closed.decision, closed.votes), ("decided", b"yes", [b"yes"]), "the wait")


@_checks
def check_waits_that_open_again_are_new(store: Store) -> None:
    """After its execution went back, a closed wait asks anew, of the same people too."""
    _new(store, "e1")
    _append(store, "e1", 1, opened=[_ask(0)])
    id = wait_id("e1", 0)
    store.decide(id, _approve())
    _append(store, "e1", 2, closed=[ClosedWait(0, "decided", 40)])

    _append(store, "e1", 3, opened=[_ask(0, since=50, kind="question", assignees=["user:ana"])])

    wait = store.wait(id)
    _same((wait.open, wait.decision, wait.votes, wait.how), (True, None, [], None), "the wait")
    _same(_waiting(store, WaitFilter(kinds=["question"], since=50)), [("e1", 0)], "pending ones")
    _same(store.inbox("e1"), [], "the inbox")
    again = store.decide(id, _approve(event=b"once more"))
    _same((again.accepted, again.event), (True, b"once more"), "the same person's answer")
    _same([m.event for m in store.inbox("e1")], [b"once more"], "the inbox")


@_checks
def check_decided_waits_are_not_pending(store: Store) -> None:
    """Lists show a wait as pending until it is decided or closed, and as closed from then on."""
    _new(store, "e1")
    records = [_ask(n, assignees=["user:ana"], batch="b") for n in range(3)]
    _append(store, "e1", 1, opened=records)
    store.decide(wait_id("e1", 0), _approve())
    _append(store, "e1", 2, closed=[ClosedWait(1, "withdrawn", 50)])
    # A change of the record must not bring it back.
    _append(store, "e1", 3, opened=[records[0]])

    for given in ({}, {"execution": "e1"}, {"assignees": ["user:ana"]}, {"batch": "b"}):
        pending = _waiting(store, WaitFilter(**given))
        closed = _waiting(store, WaitFilter("closed", **given))
        both = _waiting(store, WaitFilter("all", **given))
        _same((pending, closed), ([("e1", 2)], [("e1", 0), ("e1", 1)]), f"waits by {given}")
        _same(both, [("e1", 0), ("e1", 1), ("e1", 2)], f"all waits by {given}")


# -- lists


@_checks
def check_executions_are_listed_newest_first(store: Store) -> None:
    """Pages of any size hold what fits the filter, newest first, each once."""
    for n in range(12):
        labels = {"team": "ab"[n % 2], "n": str(n % 3)}
        # Times are those of a clock that jumps; what is of one time goes by order of creation.
        _new(store, f"e{n}", flow=f"flow{n % 2}", labels=labels, created_at=100 - n // 4)
        head = Head(("waiting", "failed")[n // 6], 200, due=None if n % 4 else 300 + n)
        _append(store, f"e{n}", 1, head=head)
    order = [f"e{n}" for n in (3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8)]

    def expected(fits: Callable[[int], bool]) -> list[str]:
        return [id for id in order if fits(int(id[1:]))]

    for filter, fits in (
        (ExecutionFilter(), lambda n: True),
        (ExecutionFilter(flow="flow1"), lambda n: n % 2 == 1),
        (ExecutionFilter(status="failed"), lambda n: n >= 6),
        (ExecutionFilter("flow0", "waiting"), lambda n: n % 2 == 0 and n < 6),
        (ExecutionFilter(labels={"team": "a"}), lambda n: n % 2 == 0),
        (ExecutionFilter(labels={"team": "a", "n": "1"}), lambda n: n % 2 == 0 and n % 3 == 1),
        (ExecutionFilter("flow0", labels={"n": "1"}), lambda n: n % 2 == 0 and n % 3 == 1),
        (ExecutionFilter(since=99), lambda n: n < 8),
        (ExecutionFilter(status="waiting", since=100), lambda n: n < 4),
        (ExecutionFilter(due=304), lambda n: n in {0, 4}),
        (ExecutionFilter(due=399, flow="flow1"), lambda n: False),
        (ExecutionFilter(flow="none"), lambda n: False),
    ):
        for limit in (1, 3, 50):
            _same(_ids(store, filter, limit), expected(fits), f"{filter} by {limit}")
    _raises(UsageError, lambda: store.executions(after="page 2"), "a page that never was")


@_checks
def check_pages_hold_while_others_write(store: Store) -> None:
    """What is created or decided between two pages makes no other row appear twice or never."""
    for n in range(6):
        _new(store, f"e{n}", created_at=n)
        _append(store, f"e{n}", 1, opened=[_ask(0, since=n)])
    first = store.executions(limit=2)
    first_waits = store.waits(limit=2)
    _new(store, "e9", created_at=9)
    store.decide(wait_id("e0", 0), _approve())

    second = store.executions(after=first.next, limit=2)
    second_waits = store.waits(after=first_waits.next, limit=2)

    _same([e.id for e in (*first.items, *second.items)], ["e5", "e4", "e3", "e2"], "executions")
    waits = [wait.execution for wait in (*first_waits.items, *second_waits.items)]
    _same(waits, ["e0", "e1", "e2", "e3"], "waits")


@_checks
def check_waits_are_listed_oldest_first(store: Store) -> None:
    """Pages of any size hold what fits the filter, oldest first, each once."""
    teams: list[list[str]] = [
        [],
        ["user:ana"],
        ["group:ops", "user:ben"],
        ["group:ops", "user:ana"],
    ]
    all_waits: dict[tuple[str, int], dict[str, Any]] = {}
    for n in range(8):
        _new(store, f"e{n}", flow=f"flow{n % 2}")
        records = [
            _ask(
                i,
                since=100 - n // 2 + i,
                kind=("approval", "question", "timer")[i],
                assignees=teams[(n + i) % 4],
                batch=f"b{i % 2}",
            )
            for i in range(3)
        ]
        _append(store, f"e{n}", 1, opened=records)
        all_waits |= {(f"e{n}", i): record for i, record in enumerate(records)}

    def expected(fits: Callable[[str, dict[str, Any]], bool]) -> list[tuple[str, int]]:
        found = [place for place, record in all_waits.items() if fits(place[0], record)]
        return sorted(found, key=lambda place: (all_waits[place]["since"], place))

    def for_ana(record: dict[str, Any]) -> bool:
        return not record["assignees"] or "user:ana" in record["assignees"]

    filters: list[tuple[WaitFilter, Callable[[str, dict[str, Any]], bool]]] = [
        (WaitFilter(), lambda id, r: True),
        (WaitFilter(kinds=["question"]), lambda id, r: r["kind"] == "question"),
        (WaitFilter(kinds=["timer", "approval"]), lambda id, r: r["kind"] != "question"),
        (WaitFilter(flow="flow1"), lambda id, r: int(id[1:]) % 2 == 1),
        (WaitFilter(execution="e3"), lambda id, r: id == "e3"),
        (WaitFilter(execution="e3", kinds=["timer"]), lambda id, r: (id, r["id"]) == ("e3", 2)),
        (
            WaitFilter(execution="e3", assignees=["user:ana"]),
            lambda id, r: id == "e3" and for_ana(r),
        ),
        (WaitFilter(batch="b1"), lambda id, r: r["batch"] == "b1"),
        (WaitFilter(batch="b1", assignees=["user:ana"]), lambda id, r: r["id"] == 1 and for_ana(r)),
        (WaitFilter(assignees=["user:ana"]), lambda id, r: for_ana(r)),
        (WaitFilter(assignees=[]), lambda id, r: not r["assignees"]),
        (
            WaitFilter(assignees=["user:ana", "group:ops"], flow="flow0"),
            lambda id, r: int(id[1:]) % 2 == 0,
        ),
        (WaitFilter(since=100), lambda id, r: r["since"] >= 100),
        (WaitFilter(before=99), lambda id, r: r["since"] <= 99),
        (
            WaitFilter(kinds=["timer"], since=99, before=100),
            lambda id, r: r["kind"] == "timer" and 99 <= r["since"] <= 100,
        ),
        (WaitFilter("all", flow="flow0"), lambda id, r: int(id[1:]) % 2 == 0),
        (WaitFilter("closed"), lambda id, r: False),
        (WaitFilter(flow="none"), lambda id, r: False),
    ]
    for filter, fits in filters:
        for limit in (1, 5, 50):
            _same(_waiting(store, filter, limit), expected(fits), f"{filter} by {limit}")
    _raises(UsageError, lambda: store.waits(after="page 2"), "a page that never was")


@_checks
def check_ids_are_found_by_their_beginning(store: Store) -> None:
    """A beginning that only one id has finds it; short forms are such beginnings."""
    for id in ("01abcdefgh1", "01abcdefgh2", "01abcdzz", "01abcdefgh"):
        _new(store, id)
    _append(store, "01abcdzz", 1, opened=[_ask(n) for n in range(40)])

    _same(store.find_execution("01abcdz"), "01abcdzz", "a beginning")
    _same(store.find_execution("01abcdefgh"), "01abcdefgh", "an id that begins others")
    _raises(UsageError, lambda: store.find_execution("01abcdefg"), "a beginning of several")
    for nothing in ("01abd", "01abcdzzz", "", "%", "_1abcdzz"):
        _raises(NotFound, partial(store.find_execution, nothing), f"the beginning {nothing!r}")
    _same(store.short_execution("01abcdefgh2"), "01abcdefgh2", "an id with close neighbours")
    _same(store.short_execution("01abcdzz"), "01abcdzz", "an id of the shortest form")

    shorts = set()
    for number in range(40):
        short = store.short_wait(wait_id("01abcdzz", number))
        assert len(short) >= 4, f"{short!r} is too short"
        _same(store.find_wait(short), wait_id("01abcdzz", number), f"the wait {short!r}")
        shorts.add(short)
    _same(len(shorts), 40, "different short forms")
    _raises(NotFound, lambda: store.find_wait("xyz"), "no wait")


# -- artifacts and care


@_checks
def check_artifacts_are_kept_by_content(store: Store) -> None:
    """Bytes and files are kept, once for each content, under names that are safe."""
    _new(store, "e1")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.txt")
        report.write_bytes(b"content")
        one = store.put_artifact("e1", report, "report.txt")
    two = store.put_artifact("e1", b"content", "../../etc/a\x00b\nc.txt")
    empty = store.put_artifact("e1", b"", "")

    _same((one.name, two.name, empty.name), ("report.txt", "abc.txt", "file"), "names")
    _same((one.size, one.sha256), (7, two.sha256), "size and digest")
    _same(store.artifact(one.sha256).read_bytes(), b"content", "the bytes")
    _same(store.artifact(empty.sha256).read_bytes(), b"", "no bytes")
    for nothing in ("0" * 64, "", "../" * 20, "/etc/passwd", one.sha256.upper()):
        _raises(NotFound, partial(store.artifact, nothing), f"artifact {nothing!r}")
    _raises(NotFound, lambda: store.put_artifact("e9", b"x", "x"), "an artifact of no execution")
    _raises(InputError, lambda: store.put_artifact("e1", Path("/no/such/file"), "x"), "no file")


@_checks
def check_prune_removes_what_ended_long_ago(store: Store) -> None:
    """Pruned are executions that ended by a time with a status, never open ones."""
    for id, status, at in (
        ("old", "succeeded", 100),
        ("young", "succeeded", 101),
        ("failed", "failed", 100),
        ("open", "waiting", 50),
    ):
        _new(store, id, labels={"a": "b"})
        _append(store, id, 1, opened=[_ask(0)], keys=[("paid", id)])
        store.send(id, b"x", 1, "m")
        store.decide(wait_id(id, 0), _approve())
        _append(store, id, 2, head=Head(status, at), snapshot=(2, b"state"))

    pruned = store.prune(100, ["succeeded", "cancelled"])

    _same(pruned.executions, 1, "pruned")
    _same(_ids(store, ExecutionFilter(labels={"a": "b"})), ["open", "failed", "young"], "left")
    _same(len(_waiting(store, WaitFilter("all"))), 3, "their waits")
    _raises(NotFound, lambda: store.load("old"), "the pruned one")
    _raises(NotFound, lambda: store.wait(wait_id("old", 0)), "its wait")
    (outcome,) = store.commit([Append("old", 1, 3, [(3, b"late")])])
    _same(type(outcome), LeaseLost, "a late writer")
    _raises(UsageError, lambda: store.prune(100, ["waiting"]), "pruning what is open")
    _same(store.prune(1000).executions, 2, "all that ended")
    _same(_ids(store, ExecutionFilter()), ["open"], "left in the end")
    _same(len(store.events("open")), 3, "its journal")


@_checks
def check_pruned_ids_are_free(store: Store) -> None:
    """An id can be used again after its execution was pruned; nothing of the old one is left."""
    _new(store, "e1")
    store.send("e1", b"x", 1, "m")
    _append(store, "e1", 1, head=Head("succeeded", 100), opened=[_ask(0)])
    store.prune(100)
    store.put_flow(FLOW, b"compiled")

    _new(store, "e1", owner="ben")

    _same(len(store.events("e1")), 1, "the journal")
    _same(store.send("e1", b"y", 1, "m").first, True, "its first message")
    _same(store.waits(WaitFilter("all")).items, [], "waits")


@_checks
def check_prune_collects_what_nothing_refers_to(store: Store) -> None:
    """Artifacts and flows go with the last execution that refers to them."""
    store.put_flow("other", b"compiled")
    store.put_flow("cached", b"compiled")
    store.remember_source("x", "cached", [])
    _new(store, "e1", hash="other")
    _new(store, "e2")
    shared = store.put_artifact("e1", b"shared", "a")
    store.put_artifact("e2", b"shared", "a")
    own = store.put_artifact("e1", b"own", "a")
    _append(store, "e1", 1, head=Head("cancelled", 100))

    pruned = store.prune(100)

    _same(tuple(pruned), (1, 1, 3), "pruned")
    _same(store.artifact(shared.sha256).read_bytes(), b"shared", "the shared artifact")
    _raises(NotFound, lambda: store.artifact(own.sha256), "the artifact of the pruned one")
    _raises(NotFound, lambda: store.get_flow("other"), "the flow of the pruned one")
    _same((store.get_flow(FLOW), store.get_flow("cached")), (b"compiled", b"compiled"), "flows")


@_checks
def check_executions_move_to_another_flow(store: Store) -> None:
    """A moved execution is shown with its new flow; the one before is kept as long as it is."""
    for hash in ("before", "after"):
        store.put_flow(hash, b"compiled")
    _new(store, "e1", hash="before")
    snapshot = (2, b"state")
    moved = Append(
        "e1", 1, 1, [(1, b"upgraded")], snapshot=snapshot, moved=("after", "2"), forms=("before",)
    )

    _same(store.commit([moved._replace(epoch=7)])[0] is None, False, "a stale writer moves it")
    _same(store.execution("e1").hash, "before", "hash after a refused move")
    _same(store.commit([moved]), [None], "the move")

    record = store.execution("e1")
    _same((record.hash, record.version), ("after", "2"), "hash and version")
    _same(store.load("e1").snapshot, snapshot, "snapshot")
    store.prune(0)
    _same(store.get_flow("before"), b"compiled", "the flow before, while it is needed")
    _append(store, "e1", 2, head=Head("succeeded", 5))
    store.prune(5)
    _raises(NotFound, lambda: store.get_flow("before"), "the flow before, when nothing needs it")
    _raises(NotFound, lambda: store.get_flow("after"), "the flow, when nothing needs it")
