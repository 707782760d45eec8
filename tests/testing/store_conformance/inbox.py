"""What is sent to one execution: its start, messages, decisions on its waits."""

from __future__ import annotations

from hashlib import sha256

from flowengine.errors import Conflict, NotFound
from flowengine.journal.records import (
    Beginning,
    ClosedWait,
    ExecutionHead,
    ListedWait,
    NewExecution,
    SendResult,
    WaitFilter,
)
from flowengine.journal.store import JournalStore
from flowengine.kernel.notation.addresses import wait_id
from tests.testing.store_conformance.making import (
    FLOW,
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


def _stands(decided: tuple[bool, ListedWait]) -> tuple[bool, bytes | None, list[bytes]]:
    return decided[0], decided[1].decision, decided[1].votes


@checks
def check_messages_are_kept_until_taken(store: JournalStore) -> None:
    """Messages wait in order for their execution, each until an append takes it."""
    new_execution(store, "e1")
    new_execution(store, "e2")
    first = store.send("e1", b"one", 40, "m1")
    other = store.send("e2", b"two", 41, "m1")
    third = store.send("e1", b"three", 42, "m3")

    same((first.first, first.execution, other.first), (True, "e1", True), "what was sent")
    inbox = [(m.execution, m.at, m.event) for m in store.inbox("e1")]
    same(inbox, [("e1", 40, b"one"), ("e1", 42, b"three")], "the inbox")
    same([m.event for m in store.arrived(0)], [b"one", b"two", b"three"], "all that arrived")
    same([m.event for m in store.arrived(first.number)], [b"two", b"three"], "since the first")

    append_event(store, "e1", 1, taken=[first.number])

    same([m.number for m in store.inbox("e1")], [third.number], "after one was taken")
    same([m.event for m in store.arrived(0)], [b"two", b"three"], "all, after one was taken")
    raises(NotFound, lambda: store.inbox("e9"), "the inbox of no execution")


@checks
def check_messages_are_stored_once(store: JournalStore) -> None:
    """A second message of the same id to one execution is the first one, taken or not, for ever."""
    new_execution(store, "e1")
    sent = store.send("e1", b"one", 40, "m1")
    known = SendResult(sent.number, "e1", first=False, event=b"one")
    same(store.send("e1", b"other", 50, "m1"), known, "sent again")
    append_event(store, "e1", 1, taken=[sent.number])

    same(store.send("e1", b"other", 50, "m1"), known, "sent after it was taken")
    same(store.inbox("e1"), [], "the inbox")
    append_event(store, "e1", 2, head=ExecutionHead("succeeded", 60))
    same(store.send("e1", b"other", 50, "m1"), known, "sent after the end")


@checks
def check_ended_executions_take_no_messages(store: JournalStore) -> None:
    """A message to an execution that has ended, or to none, is refused and told so."""
    new_execution(store, "e1")
    append_event(store, "e1", 1, head=ExecutionHead("cancelled", 60))

    conflict = raises(Conflict, lambda: store.send("e1", b"x", 70, "m"), "sent to an ended one")
    same(conflict.standing, store.execution("e1"), "what stands")
    raises(NotFound, lambda: store.send("e9", b"x", 70, "m"), "sent to none")


@checks
def check_the_first_decision_wins(store: JournalStore) -> None:
    """One decision is accepted and delivered. Later ones receive it as an error."""
    new_execution(store, "e1")
    append_event(store, "e1", 1, opened=[approval(0)])
    id = wait_id("e1", 0)

    first = store.decide(id, approve())
    later = [store.decide(id, vote) for vote in (approve(), reject(), reject("user:ana"))]

    same(_stands(first), (True, b"yes", [b"yes"]), "the first")
    same([*map(_stands, later)], [(False, b"yes", [b"yes"])] * 3, "later ones")
    same([m.event for m in store.inbox("e1")], [b"yes"], "the inbox")
    same(store.wait(id), first[1], "the wait afterwards")
    raises(NotFound, lambda: store.decide("0" * 16, approve()), "a decision on no wait")


@checks
def check_votes_are_counted(store: JournalStore) -> None:
    """A wait that needs two approvals is settled by two approvers, or by the first who rejects."""
    new_execution(store, "e1")
    append_event(store, "e1", 1, opened=[approval(0, need=2), approval(1, need=2)])
    two, one = wait_id("e1", 0), wait_id("e1", 1)

    votes = [approve("user:ana", b"a"), reject("user:ana", b"a2")]
    found = [_stands(store.decide(two, vote)) for vote in votes]
    same(found, [(True, None, [b"a"]), (False, None, [b"a"])], "an approval, then the same person")
    same(len(listed_waits(store, WaitFilter())), 2, "pending waits")
    last = store.decide(two, approve("user:ben", b"b"))
    same(_stands(last), (True, b"b", [b"a", b"b"]), "the second approval")

    store.decide(one, approve("user:ana", b"c"))
    no = store.decide(one, reject("user:ben", b"d"))
    same(_stands(no), (True, b"d", [b"c", b"d"]), "the first rejection")
    same([m.event for m in store.inbox("e1")], [b"a", b"b", b"c", b"d"], "the inbox")


@checks
def check_votes_of_the_record_count(store: JournalStore) -> None:
    """A wait may open with votes, after a fork. Who has voted so does not vote again."""
    new_execution(store, "e1")
    votes = [{"by": "user:ana", "at": "2026-01-01T00:00:00Z"}]
    append_event(store, "e1", 1, opened=[approval(0, need=3, votes=votes)])
    id = wait_id("e1", 0)

    for vote in (approve("user:ana"), reject("user:ana")):
        same(_stands(store.decide(id, vote)), (False, None, []), "the same person")
    second = store.decide(id, approve("user:ben", b"b"))
    same(_stands(second), (True, None, [b"b"]), "the second vote")
    # It is journaled now, and counts once.
    votes.append({"by": "user:ben", "at": "2026-01-01T00:00:00Z"})
    append_event(store, "e1", 2, opened=[approval(0, need=3, votes=votes)])
    third = store.decide(id, approve("user:cleo", b"c"))
    same(_stands(third), (True, b"c", [b"b", b"c"]), "the third vote")


@checks
def check_closed_waits_take_no_decision(store: JournalStore) -> None:
    """A wait that expired or was withdrawn stands as it is."""
    new_execution(store, "e1")
    append_event(store, "e1", 1, opened=[approval(0)])
    append_event(store, "e1", 2, closed=[ClosedWait(0, "expired", 50, b"result")])

    decided = store.decide(wait_id("e1", 0), approve())

    same(_stands(decided), (False, None, []), "a late vote")
    same((decided[1].open, decided[1].how), (False, "expired"), "what stands")
    same(store.inbox("e1"), [], "the inbox")


@checks
def check_an_execution_begins_once_with_what_it_was_given(store: JournalStore) -> None:
    """`begin` creates an execution with its files and first event. Again, it changes nothing."""
    new = NewExecution("orders", "1", FLOW, 10)
    beginning = Beginning("e1", new, [("paid", "7")], b"started")

    store.begin(beginning, [(b"content", "a.txt")])
    store.begin(Beginning("e1", new, [("paid", "7")], b"other"), [(b"other", "b.txt")])

    same(
        [(message.at, message.event) for message in store.inbox("e1")],
        [(10, b"started")],
        "the inbox",
    )
    same((store.execution("e1").status, store.find_key("paid", "7")), ("running", "e1"), "it")
    kept = sha256(b"content").hexdigest()
    with store.open_artifact(kept, "e1") as file:
        same(file.read(), b"content", "the file")
    refused = Beginning("e2", NewExecution("orders", "1", "unknown", 10), [], b"started")
    raises(Conflict, lambda: store.begin(refused), "one whose flow is not there")
    raises(NotFound, lambda: store.execution("e2"), "it was not created")
