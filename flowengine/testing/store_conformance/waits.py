"""Waits, and the decisions about them."""

from __future__ import annotations

from flowengine.errors import Conflict, NotFound
from flowengine.journal.encoding import pack
from flowengine.journal.records import Append, ClosedWait, Vote, WaitFilter
from flowengine.journal.store import Store
from flowengine.kernel.notation.ids import wait_id
from flowengine.testing.store_conformance.making import (
    append_event,
    approval,
    approve,
    checks,
    listed_waits,
    new_execution,
    raises,
    reject,
    same,
)


@checks
def check_waits_are_shown_as_given(store: Store) -> None:
    """A wait has an id, its newest record, and its end."""
    new_execution(store, "e1")
    append_event(store, "e1", 1, opened=[approval(0, title="Sign?", need=2)])
    id = wait_id("e1", 0)
    wait = store.wait(id)
    same(wait.record, approval(0, title="Sign?", need=2), "the record")
    same((wait.id, wait.execution, wait.flow, wait.number), (id, "e1", "orders", 0), "its place")
    same((wait.open, wait.votes, wait.how), (True, [], None), "its state")
    wait.record["title"] = "changed by a caller"

    append_event(store, "e1", 2, opened=[approval(0, title="Sign now!", assignees=["user:cfo"])])
    same(store.wait(id).record["title"], "Sign now!", "the newer record")
    same(listed_waits(store, WaitFilter(assignees=["user:cfo"])), [("e1", 0)], "the new assignee's")
    same(listed_waits(store, WaitFilter(assignees=["user:ana"])), [], "somebody else's")
    append_event(store, "e1", 3, closed=[ClosedWait(0, "withdrawn", 50, b"result")])

    wait = store.wait(id)
    same((wait.open, wait.how, wait.closed_at), (False, "withdrawn", 50), "its end")
    same(wait.result, b"result", "its result")
    raises(NotFound, lambda: store.wait("0" * 16), "no wait")


@checks
def check_long_texts_come_back(store: Store) -> None:
    """Long texts of waits, votes and messages are returned, even if the journal repeats them."""
    question, answer, other = ("why " * 100, "because " * 100, "else " * 100)
    new_execution(store, "e1")
    record = approval(0, title=question, body=other, need=2)
    append_event(store, "e1", 1, pack({"asks": [question]}), opened=[record])
    id = wait_id("e1", 0)
    same(store.wait(id).record, record, "the record")
    event = pack({"form": answer, "note": other})
    decided = store.decide(id, Vote("user:ana", 5, True, event))
    same(decided.wait.record, record, "the record for approvers")
    said = pack({"says": answer})
    sent = store.send("e1", said, 6, "m")
    taken = [message.number for message in store.inbox("e1")]
    both = pack({"form": answer, "at": 7})
    record = {**record, "votes": [{"by": "user:ana"}]}
    append_event(store, "e1", 2, both, opened=[record], taken=taken)
    result = pack([answer, other])
    append_event(store, "e1", 3, both, closed=[ClosedWait(0, "decided", 8, result)])

    wait = store.wait(id)
    same((wait.record, wait.votes, wait.result), (record, [event], result), "its texts")
    same(store.waits(WaitFilter(state="all")).items[0].record, record, "the record in lists")
    again = store.send("e1", b"x", 9, "m")
    same((again.first, again.number, again.event), (False, sent.number, said), "the message")


@checks
def check_the_first_decision_wins(store: Store) -> None:
    """One decision is accepted and sent to the execution. Every later one receives the first."""
    new_execution(store, "e1")
    append_event(store, "e1", 1, opened=[approval(0)])
    id = wait_id("e1", 0)

    first = store.decide(id, approve())
    later = [store.decide(id, vote) for vote in (approve(), reject(), reject("user:ana"))]

    same((first.accepted, first.settled, first.event), (True, True, b"yes"), "the first")
    same((first.wait.decision, first.wait.votes), (b"yes", [b"yes"]), "the wait")
    for standing in later:
        told = standing.accepted, standing.settled, standing.event
        same(told, (False, True, b"yes"), "a later one")
    same([m.event for m in store.inbox("e1")], [b"yes"], "the inbox")
    same(store.wait(id), first.wait, "the wait afterwards")
    raises(NotFound, lambda: store.decide("0" * 16, approve()), "a decision on no wait")


@checks
def check_votes_are_counted(store: Store) -> None:
    """A wait that needs two approvals is settled by two approvers, or by the first rejection."""
    new_execution(store, "e1")
    append_event(store, "e1", 1, opened=[approval(0, need=2), approval(1, need=2)])
    two, one = wait_id("e1", 0), wait_id("e1", 1)

    first = store.decide(two, approve("user:ana", b"a"))
    same((first.accepted, first.settled), (True, False), "the first approval")
    again = store.decide(two, reject("user:ana", b"a2"))
    same((again.accepted, again.settled, again.event), (False, False, b"a"), "the same person")
    same(len(listed_waits(store, WaitFilter())), 2, "pending waits")
    last = store.decide(two, approve("user:ben", b"b"))
    same((last.accepted, last.settled, last.event), (True, True, b"b"), "the second approval")
    same(last.wait.votes, [b"a", b"b"], "all votes")

    store.decide(one, approve("user:ana", b"c"))
    rejected = store.decide(one, reject("user:ben", b"d"))
    same((rejected.accepted, rejected.settled), (True, True), "the first rejection")
    same([m.event for m in store.inbox("e1")], [b"a", b"b", b"c", b"d"], "the inbox")


@checks
def check_votes_of_the_record_count(store: Store) -> None:
    """A wait may open with votes, after a fork, and their voters do not vote again."""
    new_execution(store, "e1")
    votes = [{"by": "user:ana", "at": "2026-01-01T00:00:00Z"}]
    append_event(store, "e1", 1, opened=[approval(0, need=3, votes=votes)])
    id = wait_id("e1", 0)

    for vote in (approve("user:ana"), reject("user:ana")):
        again = store.decide(id, vote)
        same((again.accepted, again.settled, again.event), (False, False, None), "the same person")
    second = store.decide(id, approve("user:ben", b"b"))
    same((second.accepted, second.settled), (True, False), "the second vote")
    # It is journaled now, and counts once.
    votes.append({"by": "user:ben", "at": "2026-01-01T00:00:00Z"})
    append_event(store, "e1", 2, opened=[approval(0, need=3, votes=votes)])
    third = store.decide(id, approve("user:cleo", b"c"))
    same((third.accepted, third.settled, third.event), (True, True, b"c"), "the third vote")


@checks
def check_closed_waits_take_no_decision(store: Store) -> None:
    """A wait that expired or was withdrawn is not changed by a decision."""
    new_execution(store, "e1")
    append_event(store, "e1", 1, opened=[approval(0)])
    append_event(store, "e1", 2, closed=[ClosedWait(0, "expired", 50, b"result")])

    standing = store.decide(wait_id("e1", 0), approve())

    told = standing.accepted, standing.settled, standing.event, standing.wait.how
    same(told, (False, True, None, "expired"), "what stands")
    same(store.inbox("e1"), [], "the inbox")


@checks
def check_decisions_come_before_expiry(store: Store) -> None:
    """A wait cannot expire once a decision is recorded. The whole append is refused, alone."""
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
def check_waits_that_open_again_are_new(store: Store) -> None:
    """After its execution went back, a closed wait opens again, for the same approvers too."""
    new_execution(store, "e1")
    append_event(store, "e1", 1, opened=[approval(0)])
    id = wait_id("e1", 0)
    store.decide(id, approve())
    append_event(store, "e1", 2, closed=[ClosedWait(0, "decided", 40)])

    append_event(
        store, "e1", 3, opened=[approval(0, since=50, kind="question", assignees=["user:ana"])]
    )

    wait = store.wait(id)
    same((wait.open, wait.decision, wait.votes, wait.how), (True, None, [], None), "the wait")
    same(listed_waits(store, WaitFilter(kinds=["question"], since=50)), [("e1", 0)], "pending ones")
    same(store.inbox("e1"), [], "the inbox")
    again = store.decide(id, approve(event=b"once more"))
    same((again.accepted, again.event), (True, b"once more"), "the same approver's decision")
    same([m.event for m in store.inbox("e1")], [b"once more"], "the inbox")


@checks
def check_decided_waits_are_not_pending(store: Store) -> None:
    """Lists show a wait as pending until it is decided or closed, and as closed from then on."""
    new_execution(store, "e1")
    records = [approval(n, assignees=["user:ana"], batch="b") for n in range(3)]
    append_event(store, "e1", 1, opened=records)
    store.decide(wait_id("e1", 0), approve())
    append_event(store, "e1", 2, closed=[ClosedWait(1, "withdrawn", 50)])
    # A change of the record must not bring it back.
    append_event(store, "e1", 3, opened=[records[0]])

    for given in ({}, {"execution": "e1"}, {"assignees": ["user:ana"]}, {"batch": "b"}):
        pending = listed_waits(store, WaitFilter(**given))
        closed = listed_waits(store, WaitFilter("closed", **given))
        both = listed_waits(store, WaitFilter("all", **given))
        same((pending, closed), ([("e1", 2)], [("e1", 0), ("e1", 1)]), f"waits by {given}")
        same(both, [("e1", 0), ("e1", 1), ("e1", 2)], f"all waits by {given}")
