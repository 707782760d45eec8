"""Executions and waits: how each stands, filters, pages, short ids, and what `prune` removes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from flowengine.errors import LeaseLost, NotFound, UsageError
from flowengine.journal.encoding import pack
from flowengine.journal.records import (
    ENDED,
    OPEN,
    Append,
    ClosedWait,
    ExecutionFilter,
    ExecutionHead,
    Vote,
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
    listed_ids,
    listed_waits,
    new_execution,
    raises,
    same,
)


@checks
def check_new_executions_are_found(store: JournalStore) -> None:
    """An execution is created with its first append, running, with all its data."""
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
    recorded = record.flow, record.version, record.hash, record.created_at, record.labels
    same(recorded, ("orders", None, FLOW, 10, {"team": "a"}), "what was said")
    more = record.started_by, record.parent, record.forked_from
    same(more, ("user:ana", "p", "o at x"), "what more was said")
    became = record.status, record.changed_at, record.due, record.ended_at
    same(became, ("running", 10, None, None), "what it became")
    same((record.outputs, record.error), (None, None), "its results")
    raises(NotFound, lambda: store.execution("e"), "the beginning of an id")


@checks
def check_heads_show_how_it_stands(store: JournalStore) -> None:
    """Status, due time and results are shown. An ended one is not due, and can be continued."""
    new_execution(store, "e1")
    append_event(store, "e1", 1, head=ExecutionHead("waiting", 50, due=70))
    record = store.execution("e1")
    same((record.status, record.changed_at, record.due), ("waiting", 50, 70), "waiting")

    append_event(
        store, "e1", 2, head=ExecutionHead("failed", 60, due=70, outputs=b"out", error=b"err")
    )
    record = store.execution("e1")
    same((record.status, record.due, record.ended_at), ("failed", None, 60), "failed")
    same((record.outputs, record.error), (b"out", b"err"), "results")
    listed = store.executions().items[0]
    same((listed.outputs, listed.error), (None, None), "results in a list")

    append_event(store, "e1", 3, head=ExecutionHead("running", 80))
    record = store.execution("e1")
    same((record.status, record.ended_at, record.error), ("running", None, None), "going on")


@checks
def check_executions_are_counted_by_status(store: JournalStore) -> None:
    """Each status has a count, also 0, of all flows or some."""

    def counted(*counts: int) -> dict[str, int]:
        return dict(zip((*OPEN, *ENDED), counts, strict=True))

    same(store.counts(), counted(0, 0, 0, 0, 0, 0), "an empty store")
    statuses = ("running", "waiting", "waiting", "stalled", "failed", "succeeded", "cancelled")
    for n, status in enumerate(statuses):
        new_execution(store, f"e{n}", flow=f"flow{n % 2}")
        append_event(store, f"e{n}", 1, head=ExecutionHead(status, 50))
    same(store.counts(), counted(1, 2, 1, 1, 1, 1), "the counts")
    same(store.counts(["flow0"]), counted(1, 1, 0, 0, 1, 1), "of one flow")
    same(store.counts(["flow0", "flow1", "none"]), store.counts(), "of all flows")
    same(store.counts([]), counted(0, 0, 0, 0, 0, 0), "of no flow")

    append_event(store, "e1", 2, head=ExecutionHead("succeeded", 60))
    append_event(store, "e4", 2, head=ExecutionHead("running", 60))
    same(store.counts(), counted(2, 1, 1, 2, 0, 1), "after changes")


@checks
def check_executions_are_listed_newest_first(store: JournalStore) -> None:
    """Pages of any size hold what fits the filter, newest first, each once."""
    for n in range(12):
        labels = {"team": "ab"[n % 2], "n": str(n % 3)}
        # Times are those of a clock that jumps. What is of one time goes by order of creation.
        forked = f"e{n % 2} at a step" if n in (7, 11) else None
        more: Any = {"flow": f"flow{n % 2}", "labels": labels, "created_at": 100 - n // 4}
        new_execution(store, f"e{n}", forked_from=forked, **more)
        head = ExecutionHead(("waiting", "failed")[n // 6], 200, due=None if n % 4 else 300 + n)
        append_event(store, f"e{n}", 1, head=head)
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
        (ExecutionFilter(forked_from="e1"), lambda n: n in {7, 11}),
        (ExecutionFilter(forked_from="e"), lambda n: False),
    ):
        for limit in (1, 3, 50):
            same(listed_ids(store, filter, limit), expected(fits), f"{filter} by {limit}")
    raises(UsageError, lambda: store.executions(after="page 2"), "a page that never was")


@checks
def check_executions_are_found_by_text(store: JournalStore) -> None:
    """Words in any order, case and accents find what is shown of an execution, and its id."""
    told: list[dict[str, Any]] = [
        {"title": "Invoice 4711 of Ångström & Søn", "key_inputs": {"sum": 12.5, "paid": False}},
        {"title": "Release_of the shop", "key_inputs": {"version": "4.18"}, "flow": "release"},
        {"title": '\x00 \u202e OR NOT ("*" NEAR ^:', "labels": {"team": "Ärzte"}},
        {"title": "データの移行 42", "key_inputs": {}},
        {},
    ]
    same(listed_ids(store, ExecutionFilter(search="invoice")), [], "what an empty store has")
    for n, fields in enumerate(told):
        new_execution(store, f"e{n}-01k8", **{"created_at": 100 - n, "flow": "f", **fields})
    error = pack({"type": "HttpError", "message": "the API\nanswered 503: 'too_many'" + "x" * 999})
    append_event(store, "e3-01k8", 1, head=ExecutionHead("failed", 60, error=error))
    append_event(store, "e4-01k8", 1, head=ExecutionHead("failed", 60, error=b"\xc1 no error"))
    record = store.executions(ExecutionFilter(search="e3-01k8")).items[0]
    assert record.failure is not None
    same(record.failure[:36], "the API answered 503: 'too_many'xxxx", "the message")
    same(len(record.failure), 300, "its length")

    every = [*range(5)]
    for search, found in (
        ("invoice", [0]), ("INVOICE 4711", [0]), ("4711 inv", [0]), ("angstrom", [0]),
        ("ÅNGSTRÖM søn", [0]), ("sum 12.5", [0]), ("sum: 12,5!", [0]), ("false", [0]),
        ("ngstrom", []), ("invoice 4712", []), ("shop", [1]), ("release of", [1]),
        ("version=4.18", [1]), ("4.18", [1]), ("rel", [1]), ("f", [0, 2, 3, 4]),
        ("or", [2]), ("NOT near", [2]), ("arzte", [2]), ("team=ärzte", [2]), ("データ", [3]),
        ("42", [3]), ("503", [3]), ("too many", [3]), ("httperror", []), ("e3", [3]),
        ("e3-01k8", [3]), ("e", every), ("  e4-  ", [4]), ("01k8", []), ("-01k8", []),
        ('"', []), ("*", []), ("invoice OR shop", []), ("NOT invoice", []), ("title:invoice", []),
        ("invoice*", [0]), ('"invoice', [0]), ("^invoice", [0]), ("invoice NEAR shop", []),
        ("(", []), ("'; DROP TABLE texts; --", []), ("\x00", []), ("\x00invoice", [0]),
        ("\ud800", []), ("%", []), ("_", []), ("invoice " * 20, [0]),
    ):  # fmt: skip
        ids = listed_ids(store, ExecutionFilter(search=search))
        same(ids, [f"e{n}-01k8" for n in found], f"what {search!r} finds")
    for filter, found in (
        (ExecutionFilter("f", search="e"), [0, 2, 3, 4]),
        (ExecutionFilter(status="failed", search="e"), [3, 4]),
        (ExecutionFilter(status="failed", search="invoice"), []),
        (ExecutionFilter(labels={"team": "Ärzte"}, search="e"), [2]),
        (ExecutionFilter(since=98, search="e"), [0, 1, 2]),
    ):
        ids = listed_ids(store, filter, 1)
        same(ids, [f"e{n}-01k8" for n in found], f"what {filter} finds")

    append_event(store, "e3-01k8", 2, head=ExecutionHead("running", 70))
    same(listed_ids(store, ExecutionFilter(search="503")), [], "what failed and goes on")
    append_event(store, "e0-01k8", 1, head=ExecutionHead("cancelled", 80))
    store.prune(90)
    same(listed_ids(store, ExecutionFilter(search="invoice")), [], "what is gone")


@checks
def check_pages_hold_while_others_write(store: JournalStore) -> None:
    """What is created or decided between two pages makes no other row appear twice or never."""
    for n in range(6):
        new_execution(store, f"e{n}", created_at=n)
        append_event(store, f"e{n}", 1, opened=[approval(0, since=n)])
    first = store.executions(limit=2)
    first_waits = store.waits(limit=2)
    new_execution(store, "e9", created_at=9)
    store.decide(wait_id("e0", 0), approve())

    second = store.executions(after=first.next, limit=2)
    second_waits = store.waits(after=first_waits.next, limit=2)

    same([e.id for e in (*first.items, *second.items)], ["e5", "e4", "e3", "e2"], "executions")
    waits = [wait.execution for wait in (*first_waits.items, *second_waits.items)]
    same(waits, ["e0", "e1", "e2", "e3"], "waits")


def _wait_filters() -> list[tuple[WaitFilter, Callable[[str, dict[str, Any]], bool]]]:
    """Return filters, each with a predicate of the id of an execution and the record of a wait."""

    def for_ana(record: dict[str, Any]) -> bool:
        return not record["assignees"] or "user:ana" in record["assignees"]

    return [
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


@checks
def check_waits_are_listed_oldest_first(store: JournalStore) -> None:
    """Pages of any size hold what fits the filter, oldest or first due first, each once."""
    teams: list[list[str]] = [
        [],
        ["user:ana"],
        ["group:ops", "user:ben"],
        ["group:ops", "user:ana"],
    ]
    all_waits: dict[tuple[str, int], dict[str, Any]] = {}
    for n in range(8):
        new_execution(store, f"e{n}", flow=f"flow{n % 2}")
        records = [
            approval(
                i,
                since=100 - n // 2 + i,
                kind=("approval", "question", "timer")[i],
                assignees=teams[(n + i) % 4],
                batch=f"b{i % 2}",
                **({"due": 500 - 10 * n} if n % 3 else {}),
            )
            for i in range(3)
        ]
        append_event(store, f"e{n}", 1, opened=records)
        all_waits |= {(f"e{n}", i): record for i, record in enumerate(records)}

    def expected(
        fits: Callable[[str, dict[str, Any]], bool], in_turn: bool
    ) -> list[tuple[str, int]]:
        def turn(place: tuple[str, int]) -> int:
            record = all_waits[place]
            return int(record.get("due", 1000 + record["since"]) if in_turn else record["since"])

        fitting = [place for place, record in all_waits.items() if fits(place[0], record)]
        return sorted(fitting, key=lambda place: (turn(place), place))

    for filter, fits in _wait_filters():
        for limit in (1, 5, 50):
            same(listed_waits(store, filter, limit), expected(fits, False), f"{filter} by {limit}")
            if filter.state == "pending":
                due = filter._replace(in_turn=True)
                same(listed_waits(store, due, limit), expected(fits, True), f"{due} by {limit}")
    raises(UsageError, lambda: store.waits(after="page 2"), "a page that never was")


@checks
def check_waits_are_shown_as_given(store: JournalStore) -> None:
    """A wait has an id, its newest record and its end."""
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
def check_long_texts_come_back(store: JournalStore) -> None:
    """The content of waits, votes and messages comes back, also if the journal contains it."""
    question, answer, other = ("why " * 100, "because " * 100, "else " * 100)
    new_execution(store, "e1")
    record = approval(0, title=question, body=other, need=2)
    append_event(store, "e1", 1, pack({"asks": [question]}), opened=[record])
    id = wait_id("e1", 0)
    same(store.wait(id).record, record, "the record")
    event = pack({"form": answer, "note": other})
    decided = store.decide(id, Vote("user:ana", 5, True, event))
    same(decided[1].record, record, "the record for who decides")
    packed = pack({"says": answer})
    sent = store.send("e1", packed, 6, "m")
    taken = [message.number for message in store.inbox("e1")]
    both = pack({"form": answer, "at": 7})
    record = {**record, "votes": [{"by": "user:ana"}]}
    append_event(store, "e1", 2, both, opened=[record], taken=taken)
    result = pack([answer, other])
    append_event(store, "e1", 3, both, closed=[ClosedWait(0, "decided", 8, result)])

    wait = store.wait(id)
    same((wait.record, wait.votes, wait.result), (record, [event], result), "what it says")
    same(store.waits(WaitFilter(state="all")).items[0].record, record, "what lists show")
    again = store.send("e1", b"x", 9, "m")
    same((again.first, again.number, again.event), (False, sent.number, packed), "the message")


@checks
def check_waits_that_open_again_are_new(store: JournalStore) -> None:
    """After its execution went back, a closed wait asks anew, the same approvers too."""
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
    same((again[0], again[1].decision), (True, b"once more"), "the same person's answer")
    same([m.event for m in store.inbox("e1")], [b"once more"], "the inbox")


@checks
def check_decided_waits_are_not_pending(store: JournalStore) -> None:
    """Lists show a wait as pending until it is decided or closed, and as closed from then on.

    Closed ones only are listed newest first.
    """
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
        same((pending, closed), ([("e1", 2)], [("e1", 1), ("e1", 0)]), f"waits by {given}")
        same(both, [("e1", 0), ("e1", 1), ("e1", 2)], f"all waits by {given}")


@checks
def check_ids_are_found_by_their_beginning(store: JournalStore) -> None:
    """A beginning that only one id has finds it. Short forms are such beginnings."""
    for id in ("01abcdefgh1", "01abcdefgh2", "01abcdzz", "01abcdefgh"):
        new_execution(store, id)
    append_event(store, "01abcdzz", 1, opened=[approval(n) for n in range(40)])

    same(store.find_execution("01abcdz"), "01abcdzz", "a beginning")
    same(store.find_execution("01abcdefgh"), "01abcdefgh", "an id that begins others")
    raises(UsageError, lambda: store.find_execution("01abcdefg"), "a beginning of several")
    new_execution(store, "01abcdzy", flow="other")
    same(store.find_execution("01abcdz", "other".__eq__), "01abcdzy", "of one flow")
    raises(NotFound, lambda: store.find_execution("01abcdzz", "other".__eq__), "of another flow")
    wait = wait_id("01abcdzz", 0)
    raises(NotFound, lambda: store.find_wait(wait, "other".__eq__), "a wait of another flow")
    same(store.find_wait(wait, "other".__ne__), wait, "a wait of one flow")
    for nothing in ("01abd", "01abcdzzz", "", "%", "_1abcdzz"):
        raises(NotFound, partial(store.find_execution, nothing), f"the beginning {nothing!r}")
    same(store.short_execution("01abcdefgh2"), "01abcdefgh2", "an id with close neighbours")
    same(store.short_execution("01abcdzz"), "01abcdzz", "an id of the shortest form")

    shorts = set()
    for number in range(40):
        short = store.short_wait(wait_id("01abcdzz", number))
        assert len(short) >= 4, f"{short!r} is too short"
        same(store.find_wait(short), wait_id("01abcdzz", number), f"the wait {short!r}")
        shorts.add(short)
    same(len(shorts), 40, "different short forms")
    raises(NotFound, lambda: store.find_wait("xyz"), "no wait")


@checks
def check_prune_removes_what_ended_long_ago(store: JournalStore) -> None:
    """Pruned are executions that ended by a time with a status, never open ones."""
    for id, status, at in (
        ("old", "succeeded", 100),
        ("young", "succeeded", 101),
        ("failed", "failed", 100),
        ("open", "waiting", 50),
    ):
        new_execution(store, id, labels={"a": "b"})
        append_event(store, id, 1, opened=[approval(0)], keys=[("paid", id)])
        store.send(id, b"x", 1, "m")
        store.decide(wait_id(id, 0), approve())
        append_event(store, id, 2, head=ExecutionHead(status, at), snapshot=(2, b"state"))

    pruned = store.prune(100, ["succeeded", "cancelled"])

    same(pruned.executions, 1, "pruned")
    same(listed_ids(store, ExecutionFilter(labels={"a": "b"})), ["open", "failed", "young"], "left")
    same(len(listed_waits(store, WaitFilter("all"))), 3, "their waits")
    raises(NotFound, lambda: store.load("old"), "the pruned one")
    raises(NotFound, lambda: store.wait(wait_id("old", 0)), "its wait")
    (outcome,) = store.commit([Append("old", 1, 3, [(3, b"late")])])
    same(type(outcome), LeaseLost, "a late writer")
    raises(UsageError, lambda: store.prune(100, ["waiting"]), "pruning what is open")
    same(store.prune(50, ids=["young", "open", "none"]).executions, 1, "those named that ended")
    same(store.prune(1000).executions, 1, "all that ended")
    same(listed_ids(store, ExecutionFilter()), ["open"], "left in the end")
    same(len(store.events("open")), 3, "its journal")


@checks
def check_pruned_ids_are_free(store: JournalStore) -> None:
    """An id can be used again after its execution was pruned. Nothing of the old one is left."""
    new_execution(store, "e1")
    store.send("e1", b"x", 1, "m")
    append_event(store, "e1", 1, head=ExecutionHead("succeeded", 100), opened=[approval(0)])
    store.prune(100)
    store.put_flow(FLOW, b"compiled")

    new_execution(store, "e1", owner="ben")

    same(len(store.events("e1")), 1, "the journal")
    same(store.send("e1", b"y", 1, "m").first, True, "its first message")
    same(store.waits(WaitFilter("all")).items, [], "waits")


@checks
def check_prune_collects_what_nothing_refers_to(store: JournalStore) -> None:
    """Artifacts and flows go with the last execution that refers to them."""
    store.put_flow("other", b"compiled")
    store.put_flow("cached", b"compiled")
    store.remember_source("x", "cached", [])
    new_execution(store, "e1", hash="other")
    new_execution(store, "e2")
    shared = store.put_artifact("e1", b"shared", "a")
    store.put_artifact("e2", b"shared", "a")
    own = store.put_artifact("e1", b"own", "a")
    append_event(store, "e1", 1, head=ExecutionHead("cancelled", 100))

    pruned = store.prune(100)

    same(tuple(pruned), (1, 1, 3, 0), "pruned")
    same(store.fetch_artifact(shared.sha256).read_bytes(), b"shared", "the shared artifact")
    raises(NotFound, lambda: store.fetch_artifact(own.sha256), "the artifact of the pruned one")
    raises(NotFound, lambda: store.get_flow("other"), "the flow of the pruned one")
    same((store.get_flow(FLOW), store.get_flow("cached")), (b"compiled", b"compiled"), "flows")
