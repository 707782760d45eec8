"""Compiled flows, and what begins on signals."""

from __future__ import annotations

from flowengine.errors import NotFound
from flowengine.journal.records import (
    Start,
)
from flowengine.journal.store import JournalStore
from flowengine.testing.store_conformance.making import (
    FLOW,
    checks,
    raises,
    same,
)


@checks
def check_flows_are_kept_by_hash(store: JournalStore) -> None:
    """A flow is there once it was put; putting it again replaces one that is damaged."""
    store.put_flow("a", b"damaged")
    store.put_flow("a", b"one")
    store.put_flow("a", b"one")

    same(store.get_flow("a"), b"one", "the flow")
    raises(NotFound, lambda: store.get_flow("b"), "a flow that was never put")


@checks
def check_sources_are_remembered(store: JournalStore) -> None:
    """What a file compiled to is found by its key, the newest answer only."""
    same(store.find_source("x"), None, "an unknown source")

    store.remember_source("x", FLOW, [("a.yaml", "1"), ("b.py", "2")], b"warnings")
    store.remember_source("x", FLOW, [("a.yaml", "3")])

    same(store.find_source("x"), (FLOW, [("a.yaml", "3")], b""), "the source")


@checks
def check_flows_begin_on_the_signals_they_said_last(store: JournalStore) -> None:
    """What a flow begins on is replaced as a whole, and keeps the flow."""
    other = "e" * 64
    store.put_flow(other, b"other")
    store.put_starts("orders", FLOW, ["placed", "moved", "placed"])
    store.put_starts("audit", FLOW, ["placed"])
    store.put_starts("orders", other, ["placed"])

    same(store.starts("placed"), [Start("audit", FLOW), Start("orders", other)], "of placed")
    same(store.starts("moved"), [], "of moved")
    store.prune(10**15)
    same(store.get_flow(other), b"other", "its flow")
    store.put_starts("orders", other, [])
    same(store.starts("placed"), [Start("audit", FLOW)], "when it begins on none")
