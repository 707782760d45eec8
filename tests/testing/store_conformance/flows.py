"""Compiled flows, deployed versions, and what starts them."""

from __future__ import annotations

from flowengine.errors import NotFound
from flowengine.journal.records import Deployed, Scheduled, SignalStart
from flowengine.journal.store import JournalStore
from tests.testing.store_conformance.making import FLOW, checks, raises, same


@checks
def check_flows_are_kept_by_hash(store: JournalStore) -> None:
    """A flow is there once it was put. Putting it again replaces one that is damaged."""
    store.put_flow("a", b"damaged")
    store.put_flow("a", b"one")
    store.put_flow("a", b"one")

    same(store.get_flow("a"), b"one", "the flow")
    raises(NotFound, lambda: store.get_flow("b"), "a flow that was never put")


@checks
def check_sources_are_remembered(store: JournalStore) -> None:
    """The result of compiling a file is found by its key, only the newest one."""
    same(store.find_source("x"), None, "an unknown source")

    store.remember_source("x", FLOW, [("a.yaml", "1"), ("b.py", "2")], b"warnings")
    store.remember_source("x", FLOW, [("a.yaml", "3")])

    same(store.find_source("x"), (FLOW, [("a.yaml", "3")], b""), "the source")


@checks
def check_the_version_deployed_last_is_the_current_one(store: JournalStore) -> None:
    """Each version is kept with its flow, the latest comes first, also if clocks are set back."""
    other = "e" * 64
    store.put_flow(FLOW, b"compiled")
    store.put_flow(other, b"other")
    store.deploy(Deployed("orders", "1", FLOW, 50))
    store.deploy(Deployed("orders", "2", other, 20))
    store.deploy(Deployed("audit", "1", FLOW, 60))

    audit, second, first = store.deployed()
    same((audit, first), (Deployed("audit", "1", FLOW, 60), Deployed("orders", "1", FLOW, 50)), "")
    same(second[:3], ("orders", "2", other), "the current version")
    same(second.at > first.at, True, "the order of times")
    store.prune(10**15)
    same(store.get_flow(other), b"other", "its flow")

    store.deploy(Deployed("orders", "1", other, 90))
    same([deployed.version for deployed in store.deployed("orders")], ["1", "2"], "deployed again")
    store.undeploy("orders", "2")
    same(store.deployed("orders"), [Deployed("orders", "1", other, 90)], "without one version")
    store.undeploy("orders")
    same(store.deployed(), [Deployed("audit", "1", FLOW, 60)], "without the flow")
    store.prune(10**15)
    raises(NotFound, lambda: store.get_flow(other), "a flow that is not deployed any more")


@checks
def check_what_starts_a_flow_is_replaced_as_a_whole(store: JournalStore) -> None:
    """Only the version deployed last decides on which signals a flow starts."""
    other = "e" * 64
    store.deploy(Deployed("orders", "1", FLOW, 1), ["placed", "moved", "placed"])
    store.deploy(Deployed("audit", "1", FLOW, 2), ["placed"])
    store.deploy(Deployed("orders", "2", other, 3), ["placed"])

    same(
        store.starts("placed"),
        [SignalStart("audit", FLOW), SignalStart("orders", other)],
        "of placed",
    )
    same(store.starts("moved"), [], "of moved")
    store.undeploy("audit")
    same(
        store.starts("placed"), [SignalStart("orders", other)], "when one is not deployed any more"
    )
    store.deploy(Deployed("orders", "3", other, 4))
    same(store.starts("placed"), [], "when it starts on none")


@checks
def check_schedules_keep_their_times(store: JournalStore) -> None:
    """A schedule is due at its time until it is moved. Deploying it again changes the flow only."""
    other = "e" * 64
    store.deploy(Deployed("orders", "1", FLOW, 1), (), [("daily", 100, 130), ("hourly", 60, 60)])
    daily, hourly = store.schedules()
    same(daily, Scheduled("orders", FLOW, "daily", 100, 130), "a schedule")
    same((store.schedules(59), store.schedules(60)), ([], [hourly]), "due ones")
    same(store.schedules(130), [hourly, daily], "the earliest first")
    same((store.next_due(0), store.next_due(60), store.next_due(130)), (60, 130, None), "next")

    store.deploy(Deployed("orders", "2", other, 2), (), [("daily", 900, 900)])
    kept = Scheduled("orders", other, "daily", 100, 130)
    same(store.schedules(), [kept], "deployed again")
    store.deploy(Deployed("orders", "3", other, 3))
    same(store.schedules(), [], "removed")


@checks
def check_of_two_one_moves_a_schedule(store: JournalStore) -> None:
    """A schedule is moved by compare-and-set, and is never due while it is paused."""
    store.deploy(Deployed("orders", "1", FLOW, 1), (), [("daily", 100, 130)])
    [read] = store.schedules()
    moves = store.move_schedule(read, 200, 210), store.move_schedule(read, 200, 210)
    same(moves, (True, False), "moved by two")
    [moved] = store.schedules()
    same(moved, Scheduled("orders", FLOW, "daily", 200, 210), "the schedule")

    same(store.move_schedule(moved, 200, None), True, "paused")
    same(store.move_schedule(moved, 300, 300), False, "moved by one who read it before")
    same((store.schedules(999), store.next_due(0)), ([], None), "due when paused")
    [paused] = store.schedules()
    same(store.move_schedule(paused, 300, 310), True, "resumed")
    same(store.schedules(999), [Scheduled("orders", FLOW, "daily", 300, 310)], "due again")
    store.undeploy("orders")
    same(store.move_schedule(paused, 400, 400), False, "removed")
