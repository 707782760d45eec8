# Shows F24
"""The cost and the bounds of the graph checks. `broken/` and the patterns have what they find.

See docs/language.md: Order, Checking.

A graph is written as `{"a": (split, join)}`, see `flow_of`.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from flowengine.flow.check import concurrent_tokens
from flowengine.flow.check.graph import check_graph
from tests.flow.graphs import ALL, counting, flow_of
from tests.replacing import Limits
from tests.rows import each_row


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

    assert [*check_graph(flow_of(diamonds)), *check_graph(flow_of(wide))] == []
    assert time.process_time() - begun < 60


def test_what_is_too_large_to_be_checked_is_refused_and_not_taken_as_fine(limits: Limits) -> None:
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
