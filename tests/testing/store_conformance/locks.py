"""Locks that executions share."""

from __future__ import annotations

from flowengine.errors import Conflict, NotFound
from flowengine.journal.records import Append, Beginning, ExecutionHead, LockOperation, NewExecution
from flowengine.journal.store import JournalStore
from tests.testing.store_conformance.making import (
    ANA,
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

    def claim(id: str, seq: int, *claims: LockOperation, head: ExecutionHead | None = None) -> None:
        append_event(store, id, seq, claims=claims, head=head)

    def standing() -> list[tuple[str, int, bool]]:
        return [(claim.execution, claim.unit, claim.held) for claim in store.claims("l")]

    for id in ("e1", "e2", "e3"):
        claim(
            id,
            1,
            LockOperation("l", 7, 2, granted=b"granted " + id.encode()),
            LockOperation("other", 7),
        )
    claim(
        "e1",
        2,
        LockOperation("l", 7, 2, granted=b"again"),
        LockOperation("l", 8, 2, granted=b"second"),
    )
    held = [("e1", 7, True), ("e2", 7, True), ("e3", 7, False), ("e1", 8, False)]
    same(standing(), held, "after four claims on two permits")
    same([m.event for m in store.inbox("e1")], [b"granted e1", b""], "the inbox of the first")
    same(store.inbox("e3"), [], "the inbox of the third")

    claim("e2", 2, LockOperation("l", 7, then="give"))
    same(standing()[1], ("e3", 7, True), "who is next")
    same([m.event for m in store.inbox("e3")], [b"granted e3"], "its inbox")
    claim("e3", 2, head=ExecutionHead("failed", 60))
    same(standing()[1], ("e3", 7, True), "one that has ended, whose attempts may still be at work")
    store.commit([Append("e3", 1, 2, release=True)])
    same(standing(), [("e1", 7, True), ("e1", 8, True)], "after it was released")
    claim(
        "e1",
        3,
        LockOperation("l", 8, then="give"),
        LockOperation("l", 9, 1),
        LockOperation("l", 9, then="give"),
    )
    same(standing(), [("e1", 7, True)], "what was given back unheld")
    store.commit([Append("e1", 1, 4, head=ExecutionHead("cancelled", 60), release=True)])
    same([store.claims("l"), store.claims("none")], [[], []], "when all have ended")
    same([claim.execution for claim in store.claims("other")], ["e2"], "another lock")


@checks
def check_a_claim_may_be_rejected_or_cancel_others(store: JournalStore) -> None:
    """A rejected one leaves the whole append out. The oldest are asked to end."""
    for id in ("e1", "e2"):
        new_execution(store, id)
        append_event(store, id, 1, claims=[LockOperation("l", 0, 2)])
    rejecting = [LockOperation("l", 0, 2, "reject")]
    new = NewExecution("f", "1", FLOW, 40, owner="ana")
    [conflict] = store.commit([Append("e3", 1, 0, [(1, b"x")], new=new, claims=rejecting)])
    same(type(conflict), Conflict, "one too many")
    same(conflict and conflict.standing, store.execution("e1"), "who holds it")
    raises(NotFound, lambda: store.execution("e3"), "what was refused")

    again = Append("e1", 1, 2, [(2, b"x")], claims=[LockOperation("l", 0, 1, "reject")])
    same(store.commit([again]), [None], "a claim that it has already")
    new_execution(store, "e5")
    append_event(store, "e5", 1, claims=[LockOperation("two", 0, 2)])
    both = [LockOperation("two", unit, 2, "reject") for unit in (1, 2)]
    [conflict] = store.commit([Append("e1", 1, 3, [(3, b"x")], claims=both)])
    same(type(conflict), Conflict, "two claims on one permit")

    cancelling = LockOperation("l", 0, 2, "cancel", b"granted", b"cancel")
    new_execution(store, "e3")
    for _ in range(2):
        store.commit([Append("e3", 1, 1, claims=[cancelling])])
    same([m.event for m in store.inbox("e1")], [b"", b"cancel"], "the oldest")
    same([m.event for m in store.inbox("e2")], [b""], "the other one")
    append_event(store, "e1", 3, head=ExecutionHead("cancelled", 60))
    store.release([("e1", 1)])
    same([m.event for m in store.inbox("e3")], [b"granted"], "who took its place")

    new_execution(store, "e4")
    append_event(store, "e4", 1, claims=[cancelling])
    append_event(store, "e3", 1, claims=[cancelling])
    same([m.event for m in store.inbox("e2")], [b"", b"cancel"], "the next oldest")
    same(store.inbox("e4"), [], "a later one, when an earlier claim is made again")


@checks
def check_what_has_ended_but_was_not_released_is_taken_over(store: JournalStore) -> None:
    """If its process dies then, another one gives its locks back. Until then it is not pruned."""
    store.renew(ANA, 100)
    for id in ("e1", "e2", "e3", "e4"):
        new_execution(store, id, owner="ana")
        append_event(
            store, id, 1, claims=[LockOperation("l", 0, 2, "queue", b"granted", b"cancel")]
        )
    for id in ("e1", "e4"):
        append_event(store, id, 2, head=ExecutionHead("cancelled", 60))
    standing = [(claim.execution, claim.held) for claim in store.claims("l")]
    same(standing, [("e1", True), ("e2", True), ("e3", False)], "what waited is withdrawn")
    new_execution(store, "e5", owner="ben")
    append_event(store, "e5", 1, claims=[LockOperation("l", 0, 2, "cancel", b"granted", b"cancel")])
    same([store.inbox(id)[1:] for id in ("e1", "e5")], [[], []], "who is not asked to end")
    same([m.event for m in store.inbox("e2")], [b"granted", b"cancel"], "who is")

    same([due.execution for due in store.due(70, 50)], [], "what is due while it is held")
    same((store.prune(70).executions, store.execution("e1").status), (1, "cancelled"), "pruned")
    [due] = [one for one in store.due(70, 200) if one.execution == "e1"]
    same((due.why, due.since, store.due(70, 200, "e1")), ("left", 60, [due]), "after its death")
    epoch = store.acquire("e1", "ben", 200)
    store.commit([Append("e1", epoch, 3, release=True)])
    same([m.event for m in store.inbox("e3")], [b"granted"], "who takes its place")
    same(store.due(70, 200, "e1"), [], "what is due then")
    same(store.prune(70).executions, 1, "what is pruned then")


@checks
def check_a_retired_owner_releases_the_locks_of_what_has_ended(store: JournalStore) -> None:
    """As when its engine is closed while attempts are being stopped."""
    new_execution(store, "e0")  # so that claims have other numbers than their executions
    for id in ("e1", "e2"):
        new_execution(store, id, owner="ana")
        append_event(store, id, 1, claims=[LockOperation("l", 0, 1, granted=b"granted")])
    append_event(store, "e1", 2, head=ExecutionHead("cancelled", 60))
    same(store.inbox("e2"), [], "before")
    store.retire("ana")
    same([m.event for m in store.inbox("e2")], [b"granted"], "after")


@checks
def check_a_message_claims_when_it_begins_an_execution(store: JournalStore) -> None:
    """The place that the execution is given is older in its inbox, but not in time."""
    new = NewExecution("f", "1", FLOW, 40)
    claim = LockOperation("l", 0, 1, granted=b"granted")
    begin = Beginning("e1", new, [("placed", "7")], b"started", [claim])
    store.send_keyed("placed", "7", b"sent", 40, "m1", begin)
    inbox = [(message.at, message.event) for message in store.inbox("e1")]
    same(inbox, [(40, b"granted"), (40, b"started")], "its inbox")
    same([(claim.execution, claim.at) for claim in store.claims("l")], [("e1", 40)], "its claim")
