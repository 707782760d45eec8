"""Locks that executions share."""

from __future__ import annotations

from flowengine.errors import Conflict, NotFound
from flowengine.journal.records import Append, Beginning, Claim, Head, NewExecution
from flowengine.journal.store import JournalStore
from flowengine.testing.store_conformance.making import (
    FLOW,
    append_event,
    checks,
    new_execution,
    raises,
    same,
)


@checks
def check_locks_are_granted_in_the_order_of_the_claims(store: JournalStore) -> None:
    """As many hold it as it permits. When a claim ends, the next one is notified in its inbox."""
    for id in ("e1", "e2", "e3", "e4"):
        new_execution(store, id)

    def claim(id: str, seq: int, *claims: Claim, head: Head | None = None) -> None:
        append_event(store, id, seq, claims=claims, head=head)

    def standing() -> list[tuple[str, int, bool]]:
        return [(one.execution, one.unit, one.held) for one in store.claims("l")]

    for id in ("e1", "e2", "e3"):
        claim(id, 1, Claim("l", 7, 2, granted=b"granted " + id.encode()), Claim("other", 7))
    claim("e1", 2, Claim("l", 7, 2, granted=b"again"), Claim("l", 8, 2, granted=b"second"))
    held = [("e1", 7, True), ("e2", 7, True), ("e3", 7, False), ("e1", 8, False)]
    same(standing(), held, "after four claims on two permits")
    same([m.event for m in store.inbox("e1")], [b"granted e1", b""], "the inbox of the first")
    same(store.inbox("e3"), [], "the inbox of the third")

    claim("e2", 2, Claim("l", 7, then="give"))
    same(standing()[1], ("e3", 7, True), "who is next")
    same([m.event for m in store.inbox("e3")], [b"granted e3"], "its inbox")
    claim("e3", 2, head=Head("failed", 60))
    same(standing(), [("e1", 7, True), ("e1", 8, True)], "after one has ended")
    claim("e1", 3, Claim("l", 8, then="give"), Claim("l", 9, 1), Claim("l", 9, then="give"))
    same(standing(), [("e1", 7, True)], "what was given back unheld")
    claim("e1", 4, head=Head("cancelled", 60))
    same([store.claims("l"), store.claims("none")], [[], []], "when all have ended")
    same([one.execution for one in store.claims("other")], ["e2"], "another lock")


@checks
def check_a_claim_may_be_rejected_or_cancel_others(store: JournalStore) -> None:
    """A rejected one leaves the whole append out; the oldest are asked to end."""
    for id in ("e1", "e2"):
        new_execution(store, id)
        append_event(store, id, 1, claims=[Claim("l", 0, 2)])
    rejected = Append("e3", 1, 0, [(1, b"x")], claims=[Claim("l", 0, 2, "reject")])
    new = NewExecution("f", "1", FLOW, 40, owner="ana")
    [conflict] = store.commit([rejected._replace(new=new)])
    same(type(conflict), Conflict, "one too many")
    same(conflict and conflict.standing, store.execution("e1"), "who holds it")
    raises(NotFound, lambda: store.execution("e3"), "what was refused")

    again = Append("e1", 1, 2, [(2, b"x")], claims=[Claim("l", 0, 1, "reject")])
    same(store.commit([again]), [None], "a claim that it has already")
    new_execution(store, "e5")
    append_event(store, "e5", 1, claims=[Claim("two", 0, 2)])
    both = [Claim("two", unit, 2, "reject") for unit in (1, 2)]
    [conflict] = store.commit([Append("e1", 1, 3, [(3, b"x")], claims=both)])
    same(type(conflict), Conflict, "two claims on one permit")

    cancelling = Claim("l", 0, 2, "cancel", b"granted", b"cancel")
    new_execution(store, "e3")
    for _ in range(2):
        store.commit([Append("e3", 1, 1, claims=[cancelling])])
    same([m.event for m in store.inbox("e1")], [b"", b"cancel"], "the oldest")
    same([m.event for m in store.inbox("e2")], [b""], "the other one")
    append_event(store, "e1", 3, head=Head("cancelled", 60))
    same([m.event for m in store.inbox("e3")], [b"granted"], "who took its place")

    new_execution(store, "e4")
    append_event(store, "e4", 1, claims=[cancelling])
    append_event(store, "e3", 1, claims=[cancelling])
    same([m.event for m in store.inbox("e2")], [b"", b"cancel"], "the next oldest")
    same(store.inbox("e4"), [], "a later one, when an earlier claim is made again")


@checks
def check_a_message_claims_when_it_begins_an_execution(store: JournalStore) -> None:
    """The place that the execution is given is older in its inbox, but not in time."""
    new = NewExecution("f", "1", FLOW, 40)
    claim = Claim("l", 0, 1, granted=b"granted")
    begin = Beginning("e1", new, [("placed", "7")], b"started", [claim])
    store.send_keyed("placed", "7", b"sent", 40, "m1", begin)
    inbox = [(message.at, message.event) for message in store.inbox("e1")]
    same(inbox, [(40, b"granted"), (40, b"started")], "its inbox")
    same([(one.execution, one.at) for one in store.claims("l")], [("e1", 40)], "its claim")
