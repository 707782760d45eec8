"""Splits and joins not covered by the tests of language and patterns, in every order."""

from __future__ import annotations

from typing import Any

from tests.kernel.orders import in_every_order
from tests.testing.graphs import graph, step


def holds(value: bool) -> Any:
    return lambda _names: value


def test_token_that_left_through_a_join_belongs_to_the_next_round() -> None:
    """Without the mark on the token, the returning one would be absorbed."""
    flow = graph(
        step("s", next={"all": ["a", "b"]}),
        step("a", next="j"),
        step("b", next="j"),
        step("j", join=1, next={"first": [(lambda n: n["steps"]["k"]["status"] == "none", "k"),
                                          ("else", "end")]}),
        step("k", next="j"),
    )  # fmt: skip

    for played in in_every_order(flow):
        assert played.status == "succeeded"
        assert played.started.count("j") + played.started.count("j#2") == 2


def test_active_joins_that_wait_for_one_another_do_not_deadlock() -> None:
    flow = graph(
        step("a", next={"all": ["c", "d"]}),
        step("c", join="active", next={"first": [
            (lambda n: n["steps"]["d"]["status"] == "none", "d"), ("else", "end")]}),
        step("d", join="active", next={"first": [
            (lambda n: n["steps"]["c"]["status"] == "none", "c"), ("else", "end")]}),
    )  # fmt: skip

    assert {played.status for played in in_every_order(flow)} == {"succeeded"}


def test_unequal_arrivals_at_an_all_join_are_told_as_stalled() -> None:
    """A gap in the checker shows as a stalled execution, not as success."""
    flow = graph(
        step("a", next={"all": ["b", (holds(False), "c")]}),
        step("b", next="d"),
        step("c", next="d"),
        step("d", join="all"),
    )

    assert {played.status for played in in_every_order(flow)} == {"stalled"}
