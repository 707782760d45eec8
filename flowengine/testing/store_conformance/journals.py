"""Flows and journals: committed data is there, complete and in order."""

from __future__ import annotations

from functools import partial

from flowengine.errors import Conflict, InputError, NotFound, StoreError
from flowengine.journal.records import Append, Entry, Head, ListPart, NewExecution
from flowengine.journal.store import Store
from flowengine.testing.store_conformance.making import (
    FLOW,
    append_event,
    approval,
    checks,
    new_execution,
    raises,
    same,
)


@checks
def check_flows_are_kept_by_hash(store: Store) -> None:
    """A flow is there once it was put, and putting it again changes nothing."""
    store.put_flow("a", b"one")
    store.put_flow("a", b"one")

    same(store.get_flow("a"), b"one", "the flow")
    raises(NotFound, lambda: store.get_flow("b"), "a flow that was never put")


@checks
def check_sources_are_remembered(store: Store) -> None:
    """The compiled form of a file is found by its key, the newest one only."""
    same(store.find_source("x"), None, "an unknown source")

    store.remember_source("x", FLOW, [("a.yaml", "1"), ("b.py", "2")], b"warnings")
    store.remember_source("x", FLOW, [("a.yaml", "3")])

    same(store.find_source("x"), (FLOW, [("a.yaml", "3")], b""), "the source")


@checks
def check_new_executions_are_found(store: Store) -> None:
    """An execution is created with its first append, as running, with all given fields."""
    new_execution(
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
    same(said, ("orders", None, FLOW, 10, {"team": "a"}), "the given fields")
    more = record.started_by, record.parent, record.forked_from
    same(more, ("user:ana", "p", "o at x"), "further given fields")
    became = record.status, record.changed_at, record.due, record.ended_at
    same(became, ("running", 10, None, None), "its status and times")
    same((record.outputs, record.error), (None, None), "its results")
    raises(NotFound, lambda: store.execution("e"), "the beginning of an id")


@checks
def check_ids_are_taken_once(store: Store) -> None:
    """A second execution with the same id is refused alone, and its caller receives the first."""
    new_execution(store, "e1", started_by="first")
    new = NewExecution("other", None, FLOW, 99, owner="ben")
    appends = [Append(id, 1, 0, [(99, b"second")], new=new) for id in ("e0", "e1", "e2")]

    outcomes = store.commit(appends)

    same([type(outcome) for outcome in outcomes], [type(None), Conflict, type(None)], "outcomes")
    conflict = outcomes[1]
    assert conflict is not None
    same(conflict.standing, store.execution("e1"), "the first execution")
    same(store.execution("e1").started_by, "first", "the execution")
    same(store.events("e1"), [Entry(0, 10, b"started")], "its journal")
    same(store.events("e2"), [Entry(0, 99, b"second")], "its neighbour's journal")


@checks
def check_flows_come_before_executions(store: Store) -> None:
    """An execution whose flow is not there cannot be created."""
    new = NewExecution("orders", None, "unknown", 10, owner="ana")

    (outcome,) = store.commit([Append("e1", 1, 0, [(10, b"started")], new=new)])

    same(type(outcome), Conflict, "outcome")
    raises(NotFound, lambda: store.execution("e1"), "the execution")


@checks
def check_journals_keep_order_and_part(store: Store) -> None:
    """Events are returned as written, from any position, of one execution only."""
    for id in ("e1", "e2", "e3"):
        new_execution(store, id)
    for seq in range(1, 6):
        for id in ("e3", "e1"):
            append_event(store, id, seq)
    three = [(7, b""), (6, b"\x00\xff"), (7, b"x" * 10_000)]
    same(store.commit([Append("e2", 1, 1, three)]), [None], "an append of three")

    same([entry.seq for entry in store.events("e1")], [0, 1, 2, 3, 4, 5], "numbers")
    same(store.events("e1", 4), [Entry(4, 4, b"event 4"), Entry(5, 5, b"event 5")], "the rest")
    same(store.events("e1", 1, 2), [Entry(1, 1, b"event 1"), Entry(2, 2, b"event 2")], "a part")
    same(store.events("e1", 6), [], "beyond the end")
    same(store.events("e2", 1), [Entry(1 + i, *event) for i, event in enumerate(three)], "bytes")
    raises(NotFound, lambda: store.events("e9"), "a journal of no execution")


@checks
def check_loads_start_at_the_snapshot(store: Store) -> None:
    """Loading returns the newest snapshot and only the events after it."""
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
def check_lists_belong_to_the_snapshot(store: Store) -> None:
    """Growing lists are kept in parts. A part with another beginning replaces the list."""
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
    append_event(store, "e1", 5, head=Head("succeeded", 9))
    store.prune(9)
    new_execution(store, "e1")
    append_event(store, "e1", 1, snapshot=(1, b"again"))
    same([*store.load("e1").lists], [], "lists of one that was pruned")


@checks
def check_entries_are_never_written_over(store: Store) -> None:
    """A second event of the same number is an error, and its whole commit is discarded."""
    new_execution(store, "e1")
    new_execution(store, "e2")
    for events in ([(1, b"again")], [(1, b"again"), (2, b"and more")]):
        appends = [Append("e2", 1, 1, [(1, b"beside")]), Append("e1", 1, 0, events)]
        raises(StoreError, partial(store.commit, appends), "an event in a taken place")

    same(store.events("e1"), [Entry(0, 10, b"started")], "the journal")
    same(store.events("e2"), [Entry(0, 10, b"started")], "the journal beside it")


@checks
def check_what_cannot_be_stored_leaves_no_trace(store: Store) -> None:
    """A record that is not plain data is refused, with its whole commit."""
    new_execution(store, "e1")
    bad = Append("e1", 1, 1, [(1, b"event")], opened=[approval(0, subject=object())])
    new_execution(store, "e2")

    raises(InputError, lambda: store.commit([Append("e2", 1, 1, [(1, b"x")]), bad]), "commit")

    same(len(store.events("e1")), 1, "the journal")
    same(len(store.events("e2")), 1, "the journal beside it")
    same(store.waits().items, [], "waits")


@checks
def check_heads_show_how_it_stands(store: Store) -> None:
    """Status, due time and results are listed. An ended execution is not due, and can continue."""
    new_execution(store, "e1")
    append_event(store, "e1", 1, head=Head("waiting", 50, due=70))
    record = store.execution("e1")
    same((record.status, record.changed_at, record.due), ("waiting", 50, 70), "waiting")

    append_event(store, "e1", 2, head=Head("failed", 60, due=70, outputs=b"out", error=b"err"))
    record = store.execution("e1")
    same((record.status, record.due, record.ended_at), ("failed", None, 60), "failed")
    same((record.outputs, record.error), (b"out", b"err"), "results")
    listed = store.executions().items[0]
    same((listed.outputs, listed.error), (None, None), "results in a list")

    append_event(store, "e1", 3, head=Head("running", 80))
    record = store.execution("e1")
    same((record.status, record.ended_at, record.error), ("running", None, None), "going on")


@checks
def check_executions_move_to_another_flow(store: Store) -> None:
    """A moved execution is listed with its new flow, and the flow before is kept with it."""
    for hash in ("before", "after"):
        store.put_flow(hash, b"compiled")
    new_execution(store, "e1", hash="before")
    snapshot = (2, b"state")
    moved = Append(
        "e1", 1, 1, [(1, b"upgraded")], snapshot=snapshot, moved=("after", "2"), forms=("before",)
    )

    same(store.commit([moved._replace(epoch=7)])[0] is None, False, "a stale writer moves it")
    same(store.execution("e1").hash, "before", "hash after a refused move")
    same(store.commit([moved]), [None], "the move")

    record = store.execution("e1")
    same((record.hash, record.version), ("after", "2"), "hash and version")
    same(store.load("e1").snapshot, snapshot, "snapshot")
    store.prune(0)
    same(store.get_flow("before"), b"compiled", "the flow before, while it is needed")
    append_event(store, "e1", 2, head=Head("succeeded", 5))
    store.prune(5)
    raises(NotFound, lambda: store.get_flow("before"), "the flow before, when nothing needs it")
    raises(NotFound, lambda: store.get_flow("after"), "the flow, when nothing needs it")
