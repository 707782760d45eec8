"""Splits and joins: who is activated, with what, in every order of the tasks."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.kernel import Graph
from flowengine.testing.graphs import graph, output_of, step, v, x
from flowengine.testing.simulator import Fails, Simulator

SEEDS = range(24)


def play(flow: Graph, script: Any = None, seed: int = 0, **inputs: Any) -> Simulator:
    return Simulator(flow, script, seed=seed).start(inputs).run()


def given(run: Any) -> Any:
    return run.input


@pytest.mark.parametrize("seed", SEEDS)
def test_all_joins_one_arrival_of_each_source(seed: int) -> None:
    flow = graph(
        step("a", next={"all": ["b", "c"]}),
        step("b", next="d"),
        step("c", next="d"),
        step("d", join="all", input=v(x(lambda n: n["join"]["outputs"]))),
        outputs={"d": v(output_of("d"))},
    )

    played = play(flow, {"b": 1, "c": 2, "d": given}, seed)

    assert played.state["outputs"] == {"d": {"b": 1, "c": 2}}
    assert played.started.count("d") == 1


def holds(value: bool) -> Any:
    return lambda _names: value


@pytest.mark.parametrize(
    ("ways", "taken"),
    [
        ({"all": ["b", "c"]}, ["b", "c"]),
        ({"all": ["b", (holds(False), "c")]}, ["b"]),
        ({"all": ["b", (holds(True), "c")]}, ["b", "c"]),
        ({"all": [(holds(True), "b"), (holds(True), "c")]}, ["b", "c"]),
        ({"all": [(holds(False), "b"), (holds(True), "c")]}, ["c"]),
        ({"all": [(holds(False), "b"), ("else", "c")]}, ["c"]),
        ({"all": [(holds(True), "b"), ("else", "c")]}, ["b"]),
        ({"all": ["b", (holds(False), "end"), ("else", "c")]}, ["b", "c"]),
        ({"first": [(holds(True), "b"), (holds(True), "c")]}, ["b"]),
        ({"first": [(holds(False), "b"), (holds(True), "c")]}, ["c"]),
        ({"first": [(holds(False), "b"), ("else", "c")]}, ["c"]),
        ({"first": [(holds(True), "b"), ("else", "c")]}, ["b"]),
        ({"all": [(holds(False), "b"), (holds(False), "c")]}, None),
        ({"first": [(holds(False), "b"), (holds(False), "c")]}, None),
    ],
)
def test_split_follows_what_holds(ways: Any, taken: list[str] | None) -> None:
    """`all` every entry that holds, `else` if no conditional one did; `first` the first."""
    flow = graph(step("a", next=ways), step("b", next="end"), step("c", next="end"))

    played = play(flow)

    if taken is None:
        assert (played.state["error"] or {})["type"] == "NoBranch"
    else:
        assert sorted(played.started[1:]) == taken


@pytest.mark.parametrize("seed", SEEDS)
def test_discriminator_ignores_late_arrivals(seed: int) -> None:
    flow = graph(
        step("a", next={"all": ["b", "c", "e"]}),
        step("b", next="d"),
        step("c", next="d"),
        step("e", next="d"),
        step("d", join=1),
    )

    played = play(flow, seed=seed)

    assert played.status == "succeeded"
    assert played.started.count("d") == 1
    assert sorted(played.started) == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("seed", SEEDS)
def test_cancelling_join_withdraws_what_can_still_reach_it(seed: int) -> None:
    flow = graph(
        step("a", next={"all": ["b", "c", "e", "f"]}),
        step("b", next="d"),
        step("c", next="d"),
        step("e", next="d"),
        step("f", next="end"),
        step("d", join={"need": 2, "late": "cancel"}, input=v(x(lambda n: n["join"]["from"]))),
        outputs={"from": v(output_of("d"))},
    )

    played = play(flow, {"d": given}, seed)

    first_two = [s.split()[0] for s in played.story() if s.endswith("succeeded")]
    first_two = [s for s in first_two if s in "bce"][:2]
    assert played.state["outputs"] == {"from": first_two}
    assert "f succeeded" in played.story()
    assert sum(s.endswith(" cancelled") for s in played.story()) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_arrivals_count_and_not_edges(seed: int) -> None:
    """Thread merge: four threads over one edge make two rounds of two."""
    flow = graph(
        step("a", next={"all": ["b", "c", "e", "f"]}),
        step("b", next="m"),
        step("c", next="m"),
        step("e", next="m"),
        step("f", next="m"),
        step("m", join="each", action="none", next="d"),
        step("d", join={"need": 2, "late": "queue"}),
    )

    played = play(flow, seed=seed)

    assert sum(address.startswith("d") for address in played.started) == 2


@pytest.mark.parametrize("seed", SEEDS)
def test_token_that_left_through_a_join_belongs_to_the_next_round(seed: int) -> None:
    """Without the mark on the token, the one that comes back would be absorbed."""
    flow = graph(
        step("s", next={"all": ["a", "b"]}),
        step("a", next="j"),
        step("b", next="j"),
        step("j", join=1, next={"first": [(lambda n: n["steps"]["k"]["status"] == "none", "k"),
                                          ("else", "end")]}),
        step("k", next="j"),
    )  # fmt: skip

    played = play(flow, seed=seed)

    assert played.status == "succeeded"
    assert played.started.count("j") + played.started.count("j#2") == 2


@pytest.mark.parametrize("taken", [["b"], ["c"], ["b", "c"]])
@pytest.mark.parametrize("seed", range(8))
def test_active_join_waits_for_the_branches_that_were_taken(seed: int, taken: list[str]) -> None:
    flow = graph(
        step("a", next={"all": [(holds("b" in taken), "b"), (holds("c" in taken), "c")]}),
        step("b", next="d"),
        step("c", next="d"),
        step("d", join="active", input=v(x(lambda n: n["join"]["from"]))),
        outputs={"from": v(output_of("d"))},
    )

    assert play(flow, {"d": given}, seed).state["outputs"] == {"from": taken}


@pytest.mark.parametrize("seed", SEEDS)
def test_active_joins_that_wait_for_one_another_do_not_deadlock(seed: int) -> None:
    flow = graph(
        step("a", next={"all": ["c", "d"]}),
        step("c", join="active", next={"first": [
            (lambda n: n["steps"]["d"]["status"] == "none", "d"), ("else", "end")]}),
        step("d", join="active", next={"first": [
            (lambda n: n["steps"]["c"]["status"] == "none", "c"), ("else", "end")]}),
    )  # fmt: skip

    assert play(flow, seed=seed).status == "succeeded"


@pytest.mark.parametrize("seed", SEEDS)
def test_join_that_cannot_get_enough_raises_too_few_with_who_came(seed: int) -> None:
    def fails(_run: Any) -> Any:
        raise Fails("Broken", retryable=False)

    to_end = [{"do": "next", "to": "z"}]
    flow = graph(
        step("a", next={"all": ["b", "c", "e"]}),
        step("b", next="d", on_error=to_end),
        step("c", next="d", on_error=to_end),
        step("e", next="d"),
        step("d", join=2, on_error=[{"types": ["TooFew"], "do": "output",
                                     "output": v(x(lambda n: n["error"]["data"]["from"]))}],
             next="end"),
        step("z", join="each"),
        outputs={"came": v(output_of("d"))},
    )  # fmt: skip

    played = play(flow, {"b": fails, "c": fails}, seed)

    assert played.state["outputs"] == {"came": ["e"]}


@pytest.mark.parametrize("seed", SEEDS)
def test_end_all_withdraws_the_other_tokens(seed: int) -> None:
    flow = graph(
        step("a", next={"all": ["b", "c"]}),
        step("b", next="end_all"),
        step("c", next="d"),
        step("d", next="end"),
    )

    assert play(flow, seed=seed).status == "succeeded"


@pytest.mark.parametrize("seed", SEEDS)
def test_unequal_arrivals_at_an_all_join_are_told_as_stalled(seed: int) -> None:
    """A hole in the checker is told as such and not as success."""
    flow = graph(
        step("a", next={"all": ["b", (holds(False), "c")]}),
        step("b", next="d"),
        step("c", next="d"),
        step("d", join="all"),
    )

    assert play(flow, seed=seed).status == "stalled"


@pytest.mark.parametrize("seed", SEEDS)
def test_what_arrived_is_of_the_last_round(seed: int) -> None:
    """A review cycle whose second round takes the other arm."""
    flow = graph(
        step("write", next="review"),
        step("review", join="each", input=v(x(lambda n: n["join"]["output"])),
             next={"first": [(lambda n: n["output"] == "draft", "rewrite"), ("else", "end")]}),
        step("rewrite", next="review"),
        outputs={"text": v(output_of("review"))},
    )  # fmt: skip

    played = play(flow, {"write": "draft", "rewrite": "better", "review": given}, seed)

    assert played.state["outputs"] == {"text": "better"}
