"""Messages by key, messages to others, and what begins on them."""

from __future__ import annotations

from flowengine.errors import Conflict, LeaseLost, NotFound
from flowengine.journal.records import (
    Append,
    Beginning,
    ClosedWait,
    ExecutionHead,
    NewExecution,
    Outgoing,
    SendResult,
)
from flowengine.journal.store import JournalStore
from tests.testing.store_conformance.making import (
    FLOW,
    append_event,
    approval,
    checks,
    new_execution,
    raises,
    same,
)


@checks
def check_keys_find_the_oldest_open_execution(store: JournalStore) -> None:
    """A keyed signal goes to the oldest open execution that has the key. Others do not see it."""
    for number, id in enumerate(("e2", "e1", "e3"), 1):
        new_execution(store, id)
        append_event(store, id, 1, keys=[("paid", "7"), ("paid", id), ("left", "7")])
        sent = SendResult(number, id, True, event=b"own")
        same(store.send_keyed("paid", id, b"own", 40, "m"), sent, f"to {id}")

    sent = store.send_keyed("paid", "7", b"one", 40, "m")
    same((sent.execution, sent.first), ("e2", True), "the oldest")
    append_event(store, "e2", 2, head=ExecutionHead("succeeded", 60))
    sent = store.send_keyed("paid", "7", b"two", 41, "m2")
    same(sent.execution, "e1", "the oldest that is open")

    again = store.send_keyed("paid", "7", b"one", 42, "m")
    same((again.execution, again.first), ("e2", False), "the same message again")
    again = store.send_keyed("paid", "7", b"other", 42, "m")
    same((again.first, again.event), (False, b"one"), "another message of its id")
    same(store.find_key("paid", "7"), "e1", "who would get it")
    raises(NotFound, lambda: store.find_key("paid", "8"), "who would get another key")
    raises(NotFound, lambda: store.send_keyed("paid", "8", b"", 1, "m3"), "another key")
    raises(NotFound, lambda: store.send_keyed("sold", "7", b"", 1, "m3"), "another signal")
    raises(NotFound, lambda: store.send_keyed("paid", "e2", b"", 1, "m3"), "an ended one's key")


@checks
def check_an_execution_ends_after_its_messages(store: JournalStore) -> None:
    """It does not succeed before it has taken them, because their senders know it as open."""
    new_execution(store, "e1")
    store.send("e1", b"x", 40, "m")
    [message] = store.inbox("e1")
    for release in (False, True):
        end = Append(
            "e1", 1, 1, [(1, b"end")], head=ExecutionHead("succeeded", 60), release=release
        )
        [outcome] = store.commit([end])
        same(type(outcome), Conflict, "an end without the message")
        same(outcome and outcome.standing, message, "the message")
        same(len(store.events("e1")), 1, "its journal")
    same(store.commit([end._replace(taken=[message.number])]), [None], "an end with it")
    raises(Conflict, lambda: store.send("e1", b"y", 41, "m2"), "a message after it")


@checks
def check_a_message_begins_an_execution_where_none_is_open(store: JournalStore) -> None:
    """One execution begins, with the message in its inbox. A second message goes to it."""
    new = NewExecution("f", "1", FLOW, 40)

    def send(id: str, message: str) -> SendResult:
        begin = Beginning(id, new, [("placed", "7"), ("paid", "7")], b"started " + id.encode())
        return store.send_keyed("placed", "7", b"sent", 40, message, begin)

    began = send("e1", "m1")
    same((began.execution, began.first, began.began), ("e1", True, True), "the first one")
    second = send("e2", "m2")
    same((second.execution, second.first, second.began), ("e1", True, False), "the second one")
    again = send("e3", "m1")
    same((again.execution, again.first, again.began), ("e1", False, False), "the first again")
    same(
        [beginning.event for beginning in (began, again)],
        [b"started e1"] * 2,
        "what it was stored as",
    )
    events = [message.event for message in store.inbox("e1")]
    same(events, [b"started e1", b"sent"], "its inbox")
    same(store.execution("e1").status, "running", "its status")
    same(store.find_key("paid", "7"), "e1", "who has its other key")
    raises(NotFound, lambda: store.execution("e2"), "the one that was not needed")

    left = [message.number for message in store.inbox("e1")]
    head = ExecutionHead("succeeded", 60)
    ended = Append("e1", 0, 0, [(1, b"started e1")], head=head, taken=left)
    same(store.commit([ended]), [None], "its end")
    same(send("e4", "m4")[1:4], ("e4", True, True), "after it has ended")
    conflict = raises(Conflict, lambda: send_other(store, new), "an id that is taken")
    same(conflict.standing, store.execution("e4"), "what stands")
    raises(NotFound, lambda: store.find_key("placed", "8"), "what was refused")


def send_other(store: JournalStore, new: NewExecution) -> None:
    """Begin an execution under an id that is taken."""
    begin = Beginning("e4", new, [("placed", "8")], b"")
    store.send_keyed("placed", "8", b"", 70, "m5", begin)


@checks
def check_what_is_sent_to_others_stays_until_it_is_settled(store: JournalStore) -> None:
    """It is in the outbox with the commit. A message without a receiver stays with its sender."""
    new_execution(store, "e1")
    sent = [Outgoing(0, "", to, 40, event) for to, event in (("e2", b"a"), ("all", b"b"))]
    append_event(store, "e1", 1, sent=sent)
    (first, second) = store.outbox()
    same((first.sender, first.to, first.at, first.event), ("e1", "e2", 40, b"a"), "the first")
    same((second.to, second.event, second.why), ("all", b"b", None), "the second")
    refused = store.commit([Append("e1", 9, 2, [(1, b"late")], sent=sent)])
    same([type(error) for error in refused], [LeaseLost], "a late writer")
    same(store.outbox(), [first, second], "after a commit that was refused")

    store.acknowledge(first.number, "no execution has it")
    store.acknowledge(second.number, None)
    same(store.outbox(), [], "all settled")
    same(
        store.undelivered("e1"),
        [Outgoing(first.number, "e1", "e2", 40, b"a", why="no execution has it")],
        "what is left",
    )
    same(store.undelivered("e2"), [], "of another")

    append_event(store, "e1", 2, sent=sent[:1], head=ExecutionHead("succeeded", 60))
    store.prune(60)
    same(
        [message.sender for message in store.outbox()],
        ["e1"],
        "what was on its way outlives its sender",
    )
    same(store.undelivered("e1"), [], "of one that was removed")


@checks
def check_waits_give_keys_while_they_are_open(store: JournalStore) -> None:
    """A wait for a keyed signal is found until it closes."""
    new_execution(store, "e1")
    signals = [{"signal": "paid", "key": "7"}, {"signal": "stop", "key": None}]
    append_event(store, "e1", 1, opened=[approval(0, kind="signal", signals=signals)])
    same(store.send_keyed("paid", "7", b"", 40, "m1").execution, "e1", "while it is open")

    append_event(store, "e1", 2, closed=[ClosedWait(0, "occurred", 50)])

    raises(NotFound, lambda: store.send_keyed("paid", "7", b"", 51, "m2"), "after it closed")


@checks
def check_a_message_may_begin_what_was_pruned_anew(store: JournalStore) -> None:
    """Writes to an id reach the execution that has it now, not the one that was pruned."""
    new_execution(store, "e1")
    append_event(store, "e1", 1, head=ExecutionHead("succeeded", 100))
    store.prune(100)
    store.put_flow(FLOW, b"compiled")
    begin = Beginning("e1", NewExecution(FLOW, "1", FLOW, 200), [("paid", "7")], b"started")
    store.send_keyed("paid", "7", b"x", 200, "m", begin)

    same(
        store.commit([Append("e1", 0, 0, [(201, b"a")], head=ExecutionHead("running", 201))]),
        [None],
        "it",
    )
