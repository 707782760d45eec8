"""Parts of checks: a store, executions, waits, and the report of a broken rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from flowengine.journal.lease_holders import IsDead
from flowengine.journal.records import (
    Append,
    ExecutionFilter,
    NewExecution,
    Owner,
    Vote,
    WaitFilter,
)
from flowengine.journal.store import JournalStore, every_item

MakeStore = Callable[[IsDead], JournalStore]
"""Makes an empty store that asks the function given whether an owner is certainly dead."""
Check = Callable[[MakeStore], None]

FLOW = "f" * 64
ANA = Owner("ana", 11, 1, "here", "boot-1")
BEN = Owner("ben", 22, 2, "here", "boot-1")
T = TypeVar("T")


def checks(function: Callable[[JournalStore], None]) -> Check:
    """Make a check of a function that takes an empty store in which no process is dead."""

    def check(make: MakeStore) -> None:
        with opened(make, lambda owner: False) as store:
            function(store)

    check.__name__ = function.__name__
    check.__doc__ = function.__doc__
    return check


@contextmanager
def opened(make: MakeStore, is_dead: IsDead) -> Iterator[JournalStore]:
    """Make an empty store with a flow and two owners. It is closed in the end."""
    store = make(is_dead)
    try:
        store.put_flow(FLOW, b"compiled")
        store.renew(ANA, 1000)
        store.renew(BEN, 1000)
        yield store
    finally:
        store.close()


def same(actual: T, expected: T, what: str) -> None:
    """Say what is not as expected."""
    if actual != expected:
        raise AssertionError(f"{what}: expected {expected!r}, got {actual!r}")


def raises(kind: type[T], call: Callable[[], Any], what: str) -> T:
    """Return the error that a call raises, and fail if it is not of this kind."""
    try:
        result = call()
    except Exception as error:
        if isinstance(error, kind):
            return error
        raise AssertionError(f"{what}: raised {error!r}, not {kind.__name__}") from error
    raise AssertionError(f"{what}: no {kind.__name__} but {result!r}")


def new_execution(store: JournalStore, id: str, owner: str | None = "ana", **fields: Any) -> None:
    """Create an execution with one event."""
    new = NewExecution("orders", "1", FLOW, 10, owner=owner)._replace(**fields)
    append = Append(id, 1 if owner else 0, 0, [(10, b"started")], new=new)
    same(store.commit([append]), [None], f"creation of {id}")


def append_event(
    store: JournalStore, id: str, seq: int, event: bytes | None = None, **fields: Any
) -> None:
    """Append one event, under the first lease, with something to the index.

    One that ends it takes its messages.
    """
    if (head := fields.get("head")) is not None and head.status == "succeeded":
        fields.setdefault("taken", [message.number for message in store.inbox(id)])
    events = [(seq, b"event %d" % seq if event is None else event)]
    outcome = store.commit([Append(id, 1, seq, events, **fields)])
    same(outcome, [None], f"append {seq} to {id}")


def approval(number: int, since: int = 20, **fields: Any) -> dict[str, Any]:
    """Return the record of an approval."""
    return {"id": number, "kind": "approval", "since": since, "step": "sign"} | fields


def listed_ids(store: JournalStore, filter: ExecutionFilter, limit: int = 3) -> list[str]:
    """Return the ids of all pages of executions."""
    return [e.id for e in every_item(lambda after: store.executions(filter, after, limit))]


def listed_waits(store: JournalStore, filter: WaitFilter, limit: int = 3) -> list[tuple[str, int]]:
    """Return execution and number of the waits of all pages."""
    waits = every_item(lambda after: store.waits(filter, after, limit))
    return [(wait.execution, wait.number) for wait in waits]


def approve(by: str = "user:ana", event: bytes = b"yes") -> Vote:
    """Return a vote for it."""
    return Vote(by, 30, True, event)


def reject(by: str = "user:ben", event: bytes = b"no") -> Vote:
    """Return a vote against it."""
    return Vote(by, 31, False, event)
