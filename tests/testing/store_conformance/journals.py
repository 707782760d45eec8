"""Journals: commits are stored in order, and whole."""

from __future__ import annotations

from functools import partial

from flowengine.errors import Conflict, InputError, LeaseLost, NotFound, StoreError
from flowengine.journal.records import (
    Append,
    ClosedWait,
    ExecutionHead,
    JournalEntry,
    ListPart,
    NewExecution,
    Numbered,
)
from flowengine.journal.store import JournalStore
from flowengine.kernel.notation.addresses import wait_id
from tests.testing.store_conformance.making import (
    FLOW,
    append_event,
    approval,
    approve,
    checks,
    new_execution,
    raises,
    same,
)


@checks
def check_ids_are_taken_once(store: JournalStore) -> None:
    """A second execution of the same id is refused, and gets the first. Its neighbours are kept."""
    new_execution(store, "e1", started_by="first")
    new = NewExecution("other", None, FLOW, 99, owner="ben")
    appends = [Append(id, 1, 0, [(99, b"second")], new=new) for id in ("e0", "e1", "e2")]

    outcomes = store.commit(appends)

    same([type(outcome) for outcome in outcomes], [type(None), Conflict, type(None)], "outcomes")
    conflict = outcomes[1]
    assert conflict is not None
    same(conflict.standing, store.execution("e1"), "what stands")
    same(store.execution("e1").started_by, "first", "the execution")
    same(store.events("e1"), [JournalEntry(0, 10, b"started")], "its journal")
    same(store.events("e2"), [JournalEntry(0, 99, b"second")], "its neighbour's journal")


@checks
def check_flows_come_before_executions(store: JournalStore) -> None:
    """An execution whose flow is not there cannot be created."""
    new = NewExecution("orders", None, "unknown", 10, owner="ana")

    (outcome,) = store.commit([Append("e1", 1, 0, [(10, b"started")], new=new)])

    same(type(outcome), Conflict, "outcome")
    raises(NotFound, lambda: store.execution("e1"), "the execution")


@checks
def check_journals_keep_order_and_part(store: JournalStore) -> None:
    """Events come back as they were written, from any place on, of one execution only."""
    for id in ("e1", "e2", "e3"):
        new_execution(store, id)
    for seq in range(1, 6):
        for id in ("e3", "e1"):
            append_event(store, id, seq)
    three = [(7, b""), (6, b"\x00\xff"), (7, b"x" * 10_000)]
    same(store.commit([Append("e2", 1, 1, three)]), [None], "an append of three")

    same([entry.seq for entry in store.events("e1")], [0, 1, 2, 3, 4, 5], "numbers")
    same(
        store.events("e1", 4),
        [JournalEntry(4, 4, b"event 4"), JournalEntry(5, 5, b"event 5")],
        "the rest",
    )
    same(
        store.events("e1", 1, 2),
        [JournalEntry(1, 1, b"event 1"), JournalEntry(2, 2, b"event 2")],
        "a part",
    )
    same(store.events("e1", 6), [], "beyond the end")
    same(
        store.events("e2", 1),
        [JournalEntry(1 + i, *event) for i, event in enumerate(three)],
        "bytes",
    )
    raises(NotFound, lambda: store.events("e9"), "a journal of no execution")


@checks
def check_events_are_numbered_in_the_order_of_commits(store: JournalStore) -> None:
    """From the first call on, each event of any execution has a number, and keeps it."""
    new_execution(store, "e1")
    same(store.numbered(0, 9), [], "nothing was asked for")
    same(store.number_events(), 0, "the last number")
    new_execution(store, "e2")
    append_event(store, "e1", 1)
    store.commit([Append("e2", 1, 1, [(7, b"a"), (7, b"b")]), Append("e1", 1, 2, [(8, b"c")])])
    refused = [Append("e1", 9, 3, [(9, b"late")])]
    same([type(outcome) for outcome in store.commit(refused)], [LeaseLost], "a refused append")

    numbered = store.numbered(0, 9)
    places = [("e2", 0), ("e1", 1), ("e2", 1), ("e2", 2), ("e1", 2)]
    same([(event.execution, event.seq) for event in numbered], places, "the order")
    numbers = [event.number for event in numbered]
    same(numbers, sorted(set(numbers)), "the numbers")
    same(store.number_events(), numbers[-1], "the last number")
    same(store.numbered(numbers[1], 2), numbered[2:4], "a part")
    same(store.numbered(numbers[-1], 9), [], "beyond the end")

    append_event(store, "e1", 3, head=ExecutionHead("succeeded", 9))
    last = store.number_events()
    store.prune(9)
    of_e2 = [event for event in numbered if event.execution == "e2"]
    same(store.numbered(0, 9), of_e2, "after e1 was deleted")
    append_event(store, "e2", 3)
    same(store.numbered(last, 9), [Numbered(last + 1, "e2", 3)], "no number is given twice")


@checks
def check_loads_start_at_the_snapshot(store: JournalStore) -> None:
    """Loading gives the newest snapshot and only the events after it."""
    new_execution(store, "e1")
    same(store.load("e1").snapshot, None, "before the first snapshot")
    append_event(store, "e1", 1, snapshot=(1, b"before the event"))
    append_event(store, "e1", 2)
    loaded = store.load("e1")
    same(loaded.snapshot, (1, b"before the event"), "the snapshot")
    same([entry.seq for entry in loaded.tail], [1, 2], "the tail")

    same(store.commit([Append("e1", 1, 3, snapshot=(3, b"all"))]), [None], "a snapshot alone")

    loaded = store.load("e1")
    same((loaded.snapshot, loaded.tail), ((3, b"all"), []), "after a snapshot of all")
    same(loaded.record, store.execution("e1"), "the record")
    same(len(store.events("e1")), 3, "the journal itself")
    raises(NotFound, lambda: store.load("e9"), "a load of no execution")


@checks
def check_lists_belong_to_the_snapshot(store: JournalStore) -> None:
    """Lists left out of snapshots are kept in parts. A part of another beginning replaces one."""
    new_execution(store, "e1")
    new_execution(store, "e2")
    a, b, more = ListPart("a", 0, b"1"), ListPart("b", 0, b"2"), ListPart("a", 3, b"345")
    append_event(store, "e1", 1, snapshot=(1, b"one"), lists=[b, a])
    append_event(store, "e2", 1, snapshot=(1, b"other"), lists=[ListPart("a", 0, b"of e2")])
    append_event(store, "e1", 2, snapshot=(2, b"two"), lists=[more])
    append_event(store, "e1", 3)
    loaded = store.load("e1")
    same([*loaded.lists], [a, more, b], "all parts, by name and place")
    same(loaded.snapshot, (2, b"two"), "the snapshot")

    new = ListPart("a", 0, b"new")
    append_event(store, "e1", 4, snapshot=(4, b"four"), lists=[new, ListPart("b", 0, b"")])

    same([*store.load("e1").lists], [new], "one list replaced, the other gone")
    same([*store.load("e2").lists], [ListPart("a", 0, b"of e2")], "those of others")
    append_event(store, "e1", 5, head=ExecutionHead("succeeded", 9))
    store.prune(9)
    new_execution(store, "e1")
    append_event(store, "e1", 1, snapshot=(1, b"again"))
    same([*store.load("e1").lists], [], "lists of one that was pruned")


@checks
def check_entries_are_never_written_over(store: JournalStore) -> None:
    """A second event of the same number is an error, and nothing of its whole commit is kept."""
    new_execution(store, "e1")
    new_execution(store, "e2")
    for events in ([(1, b"again")], [(1, b"again"), (2, b"and more")]):
        appends = [Append("e2", 1, 1, [(1, b"beside")]), Append("e1", 1, 0, events)]
        raises(StoreError, partial(store.commit, appends), "an event in a taken place")

    same(store.events("e1"), [JournalEntry(0, 10, b"started")], "the journal")
    same(store.events("e2"), [JournalEntry(0, 10, b"started")], "the journal beside it")


@checks
def check_what_cannot_be_stored_leaves_no_trace(store: JournalStore) -> None:
    """A record that is not plain data is refused, with all of its commit."""
    new_execution(store, "e1")
    bad = Append("e1", 1, 1, [(1, b"event")], opened=[approval(0, subject=object())])
    new_execution(store, "e2")

    raises(InputError, lambda: store.commit([Append("e2", 1, 1, [(1, b"x")]), bad]), "commit")

    same(len(store.events("e1")), 1, "the journal")
    same(len(store.events("e2")), 1, "the journal beside it")
    same(store.waits().items, [], "waits")


@checks
def check_decisions_come_before_expiry(store: JournalStore) -> None:
    """A wait cannot expire once a decision is recorded. The append is refused whole and alone."""
    for id in ("e1", "e2"):
        new_execution(store, id)
        append_event(store, id, 1, opened=[approval(0), approval(1)])
    store.decide(wait_id("e1", 0), approve())
    expiry = [ClosedWait(1, "expired", 50), ClosedWait(0, "expired", 50)]

    one, two = store.commit(
        [Append(id, 1, 2, [(50, b"timer")], closed=expiry) for id in ("e1", "e2")]
    )

    same((type(one), two), (Conflict, None), "outcomes")
    assert one is not None
    same((one.standing.id, one.standing.decision), (wait_id("e1", 0), b"yes"), "what stands")
    same(len(store.events("e1")), 2, "the journal")
    same(store.wait(wait_id("e1", 1)).how, None, "the other wait")
    closing = [ClosedWait(0, "decided", 51), ClosedWait(1, "withdrawn", 51)]
    append_event(store, "e1", 2, closed=closing)
    closed = store.wait(wait_id("e1", 0))
    same((closed.how, closed.decision, closed.votes), ("decided", b"yes", [b"yes"]), "the wait")


@checks
def check_executions_move_to_another_flow(store: JournalStore) -> None:
    """A moved execution is shown with its new flow. The one before is kept with it."""
    for hash in ("before", "after"):
        store.put_flow(hash, b"compiled")
    new_execution(store, "e1", hash="before")
    snapshot = (2, b"state")

    def moved(epoch: int) -> Append:
        events, forms = [(1, b"upgraded")], ("before",)
        return Append("e1", epoch, 1, events, snapshot=snapshot, moved=("after", "2"), forms=forms)

    same(store.commit([moved(7)])[0] is None, False, "a stale writer moves it")
    same(store.execution("e1").hash, "before", "hash after a refused move")
    same(store.commit([moved(1)]), [None], "the move")

    record = store.execution("e1")
    same((record.hash, record.version), ("after", "2"), "hash and version")
    same(store.load("e1").snapshot, snapshot, "snapshot")
    store.prune(0)
    same(store.get_flow("before"), b"compiled", "the flow before, while it is needed")
    append_event(store, "e1", 2, head=ExecutionHead("succeeded", 5))
    store.prune(5)
    raises(NotFound, lambda: store.get_flow("before"), "the flow before, when nothing needs it")
    raises(NotFound, lambda: store.get_flow("after"), "the flow, when nothing needs it")
