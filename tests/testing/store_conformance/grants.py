"""Grants for all executions of a flow."""

from __future__ import annotations

from flowengine.errors import Conflict, NotFound
from flowengine.journal.records import ExecutionHead, NewGrant, Vote
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
    reject,
    same,
)


def _ask(store: JournalStore, execution: str, *waits: int) -> list[str]:
    """Begin an execution that asks, and return the ids of its waits."""
    new_execution(store, execution)
    append_event(store, execution, 1, opened=[approval(number) for number in waits])
    return [wait_id(execution, number) for number in waits]


def _give(
    store: JournalStore, execution: str, uses: int | None = None, until: int | None = None
) -> str:
    [wait] = _ask(store, execution, 0)
    gives = NewGrant("pay", "v1", b"body", uses, until)
    same(store.decide(wait, approve()._replace(gives=gives))[0], True, "the decision")
    return wait


def _by(grant: str, at: int = 30, by: str = "user:ana") -> Vote:
    return Vote(by, at, True, b"granted", uses=grant)


@checks
def check_a_grant_comes_with_the_decision_that_settles_a_wait(store: JournalStore) -> None:
    """It is kept with the decision, but not if another one was first or it is a rejection."""
    id = _give(store, "e1", uses=2, until=99)
    [grant] = store.grants()
    fields = grant.id, grant.flow, grant.tool, grant.version, grant.by, grant.at, grant.body
    same(fields, (id, "orders", "pay", "v1", "user:ana", 30, b"body"), "the grant")
    same((grant.uses, grant.until, grant.used, grant.revoked_by), (2, 99, 0, None), "its bounds")

    late = NewGrant("pay", "v2", b"late")
    store.decide(id, approve("user:cfo")._replace(gives=late))
    [other] = _ask(store, "e2", 0)
    store.decide(other, reject()._replace(gives=late))
    same(len(store.grants()), 1, "grants of decisions that do not count")
    same(store.grants("orders", "pay"), [grant], "of the flow and tool")
    same(store.grants("orders"), [grant], "of the flow")
    same(store.grants(tool="pay"), [grant], "of the tool")
    same([*store.grants("bills"), *store.grants("orders", "buy")], [], "of others")


@checks
def check_a_grant_is_used_once_by_each_decision_that_counts(store: JournalStore) -> None:
    """A use counts with the vote. A vote that is not accepted uses nothing. Then it is used up."""
    grant = _give(store, "e1", uses=2)
    first, second, third = _ask(store, "e2", 0, 1, 2)
    accepted, after = store.decide(first, _by(grant))
    same((accepted, after.decision), (True, b"granted"), "the first")
    same(store.decide(first, _by(grant, by="user:ben"))[0], False, "on a settled wait")
    same(store.grants()[0].used, 1, "uses")
    same(store.decide(second, _by(grant))[0], True, "the second")
    accepted, after = store.decide(third, _by(grant))
    same((accepted, after.decision, after.open), (False, None, True), "when it is used up")
    same(store.grants()[0].used, 2, "uses in the end")
    same(store.decide(third, approve())[0], True, "a person after that")
    same(len(store.inbox("e2")), 3, "decisions in the inbox")


@checks
def check_a_grant_holds_until_its_time_and_its_revocation(store: JournalStore) -> None:
    """From its time on, and from when `revoke` returns, no vote can use it."""
    timed, ended = _give(store, "e1", until=50), _give(store, "e2")
    first, second, third = _ask(store, "e3", 0, 1, 2)
    same(store.decide(first, _by(timed, at=49))[0], True, "before its time")
    same(store.decide(second, _by(timed, at=50))[0], False, "at its time")
    same(store.decide(second, _by("none"))[0], False, "of a grant that is not there")

    same(store.revoke(ended, "user:ben").revoked_by, "user:ben", "who ended it")
    same(store.decide(third, _by(ended))[0], False, "of one that was revoked")
    conflict = raises(Conflict, lambda: store.revoke(ended, "user:cfo"), "again")
    known = {grant.id: grant for grant in store.grants()}
    same(conflict.standing, known[ended], "the grant")
    raises(NotFound, lambda: store.revoke("none", "user:ben"), "no grant")


@checks
def check_a_grant_outlives_the_execution_that_asked(store: JournalStore) -> None:
    """Pruning removes the execution, not the grants for later ones."""
    grant = _give(store, "e1")
    append_event(store, "e1", 2, head=ExecutionHead("succeeded", 40))
    store.prune(40)
    store.put_flow(FLOW, b"compiled")
    raises(NotFound, lambda: store.execution("e1"), "the execution")
    [wait] = _ask(store, "e2", 0)
    same(store.decide(wait, _by(grant))[0], True, "a use after that")
