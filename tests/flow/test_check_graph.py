# Shows F24
"""The graph checks by case: graphs that must be rejected, and graphs that must pass.

See docs/language.md: Order, Checking.

A graph is written as `{"a": (split, join)}`, see `flow_of`.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from flowengine.flow.check import concurrent_tokens
from flowengine.flow.check.graph import check_graph
from tests.flow.graphs import ACTIVE, ALL, counting, flow_of
from tests.replacing import Limits
from tests.rows import each_row

EACH: Any = {"kind": "each"}


def codes(drawn: dict[str, Any]) -> list[str]:
    compiled = flow_of(drawn)
    names = [step["id"] for step in compiled["steps"]]
    found = sorted(check_graph(compiled), key=lambda one: (one.step, one.code))
    return [f"{one.code} {names[one.step]}" for one in found]


SPLIT = ("all", ["b", "c"])

ACCEPTED: dict[str, dict[str, Any]] = {
    "both ways are joined": {
        "a": (SPLIT, None),
        "b": ("d", None),
        "c": ("d", None),
        "d": ("end", ALL),
    },
    "branches that may not be taken are not waited for": {
        "a": (("all", ["b?", "c?", "d:"]), None),
        "b": ("d", None),
        "c": ("d", None),
        "d": ("end", ACTIVE),
    },
    "an exclusive merge": {
        "a": (("first", ["b?", "c:"]), None),
        "b": ("d", None),
        "c": ("d", None),
        "d": ("end", None),
    },
    "a cycle with an entry and an exit": {"a": ("b", None), "b": (("first", ["a?", "end:"]), None)},
    "a review loop behind a discriminator": {
        "s": (SPLIT, None),
        "b": ("j", None),
        "c": ("j", None),
        "j": ("r", counting(1)),
        "r": ("k", None),
        "k": (("first", ["r?", "end:"]), None),
    },
    "joins in a row": {
        "s": (("all", ["b", "c", "d"]), None),
        "b": ("j", None),
        "c": ("j", None),
        "d": ("k", None),
        "j": ("k", ALL),
        "k": ("end", ALL),
    },
    "a fork and join inside a loop, inside another": {
        "s": (("all", ["b", "c", "d"]), None),
        "b": ("j", None),
        "c": ("j", None),
        "d": ("k", None),
        "j": ("k", ALL),
        "k": (("first", ["s?", "end:"]), ALL),
    },
    "a conditional spawner, which limits hold": {
        "a": (("all", ["a?", "b:"]), EACH),
        "b": ("end", EACH),
    },
    "two waves into a join that queues": {
        "s": (SPLIT, None),
        "b": ("w", None),
        "c": ("w", None),
        "w": (("all", ["x", "y"]), EACH),
        "x": ("j", EACH),
        "y": ("j", EACH),
        "j": ("end", counting(1, "queue")),
    },
    "one of two parallel ways ends the scope": {
        "s": (SPLIT, None),
        "b": ("end_all", None),
        "c": ("end", None),
    },
    "joins that wait for one another, in a cycle of active ones (S1)": {
        "a": (SPLIT, None),
        "b": (("all", ["c", "d"]), None),
        "c": (("first", ["d?", "end:"]), ACTIVE),
        "d": ("c", ACTIVE),
    },
}

REFUSED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "two ways without a join": (
        {"a": (SPLIT, None), "b": ("d", None), "c": ("d", None), "d": ("end", None)},
        ["E202 d"],
    ),
    "what follows a meeting is not reported again": (
        {
            "a": (SPLIT, None),
            "b": ("d", None),
            "c": ("d", None),
            "d": (("first", ["e?", "f:"]), None),
            "e": ("f", None),
            "f": ("end", None),
        },
        ["E202 d"],
    ),
    "a branch of an 'all' join that may not be taken": (
        {
            "a": (SPLIT, None),
            "b": (("first", ["d?", "end:"]), None),
            "c": ("d", None),
            "d": ("end", ALL),
        },
        ["E207 d"],
    ),
    "an 'all' join behind an exclusive split": (
        {
            "a": (("first", ["b?", "c:"]), None),
            "b": ("d", None),
            "c": ("d", None),
            "d": ("end", ALL),
        },
        ["E207 d"],
    ),
    "two 'all' joins that wait for one another": (
        {
            "s": (SPLIT, None),
            "b": ("j", None),
            "c": ("k", None),
            "j": (("first", ["k?", "end:"]), ALL),
            "k": (("first", ["j?", "end:"]), ALL),
        },
        ["E207 j", "E207 k"],
    ),
    "two over one edge of an 'all' join and one over the others (3.1)": (
        {
            "a": (SPLIT, None),
            "b": (("all", ["c", "d", "end"]), None),
            "c": ("d", EACH),
            "d": ("end", ALL),
        },
        ["E207 d"],
    ),
    "a first step that is a join, and targeted (S6)": (
        {"a": ("b", ALL), "b": (("first", ["a?", "end:"]), None)},
        ["E207 a"],
    ),
    "two waves over one edge, late ones ignored (S4)": (
        {
            "s": (SPLIT, None),
            "b": ("w", None),
            "c": ("w", None),
            "w": (("all", ["x", "y"]), EACH),
            "x": ("j", EACH),
            "y": ("j", EACH),
            "j": ("end", counting(1)),
        },
        ["E212 j"],
    ),
    "a cycle without a way out": (
        {"a": ("b", None), "b": ("c", None), "c": ("b", None)},
        ["E406 b"],
    ),
    "one token that always goes round (3.4)": (
        {"a": (("all", ["a", "b"]), EACH), "b": ("end", EACH)},
        ["E406 a"],
    ),
    "steps that no token reaches, the first of each part": (
        {
            "a": ("end", None),
            "b": ("c", None),
            "c": ("end", None),
            "d": ("e", None),
            "e": ("d", None),
        },
        ["E204 b", "E204 d"],
    ),
    "a need that can never be met": (
        {"a": (SPLIT, None), "b": ("d", None), "c": ("d", None), "d": ("end", counting(3))},
        ["E103 d"],
    ),
    "fewer arrivals than needed may come (3.6)": (
        {
            "a": (SPLIT, None),
            "b": (("first", ["d?", "end:"]), None),
            "c": ("d", None),
            "d": ("end", counting(2)),
        },
        ["W209 d"],
    ),
}


@pytest.mark.parametrize("case", ACCEPTED, ids=list(ACCEPTED))
def test_accepted(case: str) -> None:
    assert codes(ACCEPTED[case]) == []


@pytest.mark.parametrize("case", REFUSED, ids=list(REFUSED))
def test_refused(case: str) -> None:
    drawn, expected = REFUSED[case]

    assert codes(drawn) == expected


def test_a_cancelled_step_sends_no_token_to_a_join() -> None:
    """A join of all could wait forever for a cancelled step (S11)."""
    compiled = flow_of(
        {
            "s": (("all", ["b", "c", "d"]), None),
            "b": ("j", None),
            "c": ("j", None),
            "d": ("x", None),
            "x": ("end", None),
            "j": ("end", ALL),
        }
    )
    compiled["steps"][4]["cancel"] = {"targets": [1], "outcome": "cancelled"}

    assert [one.code for one in check_graph(compiled)] == ["E207"]


def test_a_handler_is_a_way_to_a_join() -> None:
    compiled = flow_of({"s": (SPLIT, None), "b": ("j", None), "c": ("j", None), "j": ("end", ALL)})
    compiled["steps"][1]["on_error"] = [{"do": "next", "to": -1}]

    assert [one.code for one in check_graph(compiled)] == ["E207"]


@pytest.mark.endurance
@pytest.mark.parametrize("size", [1_000, 10_000])
def test_chains_diamonds_and_wide_splits_cost_in_proportion_to_their_size(size: int) -> None:
    """The limit only guards against a hang: the time must not depend on the pairs of steps."""
    diamonds: dict[str, Any] = {}
    for number in range(size // 4):
        after = f"a{number + 1}" if number < size // 4 - 1 else "end"
        diamonds[f"a{number}"] = (("all", [f"b{number}", f"c{number}"]), None)
        diamonds[f"b{number}"] = (f"d{number}", None)
        diamonds[f"c{number}"] = (f"d{number}", None)
        diamonds[f"d{number}"] = (after, ALL)
    ways = size // 10
    wide: dict[str, Any] = {"s": (("all", [f"w{n}_0" for n in range(ways)]), None)}
    for number in range(ways):
        for place in range(9):
            wide[f"w{number}_{place}"] = (f"w{number}_{place + 1}" if place < 8 else "z", None)
    wide["z"] = ("end", ALL)

    begun = time.process_time()

    assert codes(diamonds) == []
    assert codes(wide) == []
    assert time.process_time() - begun < 60


def test_what_is_too_large_to_be_checked_is_refused_and_not_taken_as_fine(
    limits: Limits,
) -> None:
    """Two long paths full of branches have more pairs of positions than the limit."""
    limits(concurrent_tokens, PAIRS=10_000)
    drawn: dict[str, Any] = {"s": (("all", ["l0", "r0"]), None)}
    for side in "lr":
        for number in range(100):
            after = f"{side}{number + 1}" if number < 99 else "z"
            drawn[f"{side}{number}"] = (("first", [f"{side}x{number}?", f"{after}:"]), None)
            drawn[f"{side}x{number}"] = (after, None)
    drawn["z"] = ("end", ALL)

    found = list(check_graph(flow_of(drawn)))

    assert [one.code for one in found] == ["E202"]
    assert "too many parallel paths" in found[0].message


@each_row(
    ("over", "need", "found"),
    [(4, 4, []), (["x", "y"], 2, []), (4, 5, ["E103"]), (1000, 4, ["W209"]), (None, 4, ["W209"])],
)
def test_a_join_behind_items_that_go_on_alone_may_need_as_many_as_there_are(
    over: Any, need: int, found: list[str]
) -> None:
    """A constant gives the number. Otherwise it may vary, and `need` may drop or be handled."""
    compiled = flow_of({"a": ("j", None), "j": ("end", counting(need, "queue"))})
    value = ["expr", 0] if over is None else ["const", over]
    compiled["steps"][0]["map"] = {"over": value, "each": True, "on_item_error": "stop"}

    assert [one.code for one in check_graph(compiled)] == found
