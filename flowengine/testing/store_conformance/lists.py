"""Lists: filters, pages, short ids."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from flowengine.errors import NotFound, UsageError
from flowengine.journal.records import ExecutionFilter, Head, WaitFilter
from flowengine.journal.store import Store
from flowengine.kernel.notation.ids import wait_id
from flowengine.testing.store_conformance.making import (
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
def check_executions_are_listed_newest_first(store: Store) -> None:
    """Pages of any size contain the matching executions, newest first, each once."""
    for n in range(12):
        labels = {"team": "ab"[n % 2], "n": str(n % 3)}
        # Times are those of a clock that jumps. Equal times are ordered by creation.
        new_execution(store, f"e{n}", flow=f"flow{n % 2}", labels=labels, created_at=100 - n // 4)
        head = Head(("waiting", "failed")[n // 6], 200, due=None if n % 4 else 300 + n)
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
    ):
        for limit in (1, 3, 50):
            same(listed_ids(store, filter, limit), expected(fits), f"{filter} by {limit}")
    raises(UsageError, lambda: store.executions(after="page 2"), "a page that never was")


@checks
def check_pages_hold_while_others_write(store: Store) -> None:
    """Rows created or decided between two pages make no other row appear twice or never."""
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


@checks
def check_waits_are_listed_oldest_first(store: Store) -> None:
    """Pages of any size contain the matching waits, oldest first, each once."""
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
            )
            for i in range(3)
        ]
        append_event(store, f"e{n}", 1, opened=records)
        all_waits |= {(f"e{n}", i): record for i, record in enumerate(records)}

    def expected(fits: Callable[[str, dict[str, Any]], bool]) -> list[tuple[str, int]]:
        found = [place for place, record in all_waits.items() if fits(place[0], record)]
        return sorted(found, key=lambda place: (all_waits[place]["since"], place))

    def for_ana(record: dict[str, Any]) -> bool:
        return not record["assignees"] or "user:ana" in record["assignees"]

    filters: list[tuple[WaitFilter, Callable[[str, dict[str, Any]], bool]]] = [
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
    for filter, fits in filters:
        for limit in (1, 5, 50):
            same(listed_waits(store, filter, limit), expected(fits), f"{filter} by {limit}")
    raises(UsageError, lambda: store.waits(after="page 2"), "a page that never was")


@checks
def check_ids_are_found_by_their_beginning(store: Store) -> None:
    """A prefix that only one id has finds it, and short forms are such prefixes."""
    for id in ("01abcdefgh1", "01abcdefgh2", "01abcdzz", "01abcdefgh"):
        new_execution(store, id)
    append_event(store, "01abcdzz", 1, opened=[approval(n) for n in range(40)])

    same(store.find_execution("01abcdz"), "01abcdzz", "a beginning")
    same(store.find_execution("01abcdefgh"), "01abcdefgh", "an id that begins others")
    raises(UsageError, lambda: store.find_execution("01abcdefg"), "a beginning of several")
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
