# Shows F24
"""The graph analyses against an exhaustive token game over random graphs."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flowengine.flow.check import concurrent_tokens, join_deadlocks, net, termination, token_game
from flowengine.flow.check.graph import check_graph
from flowengine.flow.compile import compile_text
from tests.flow.graphs import ACTIVE, ALL, Drawn, counting, flow_of, net_of
from tests.sliced_examples import sliced

JOINS = [
    *([None] * 4),
    {"kind": "each"},
    ALL,
    ALL,
    ACTIVE,
    counting(1),
    counting(2),
    counting(1, "cancel"),
    counting(1, "queue"),
]
NAMES = "abcdefg"


@st.composite
def graphs(draw: st.DrawFn) -> Drawn:
    """Random scopes of 3 to 7 steps."""
    names = list(NAMES[: draw(st.integers(3, 7))])
    target = st.sampled_from([*names, "end"])

    def split() -> Any:
        kind = draw(st.sampled_from(["one", "first", "all", "or", "mixed"]))
        if kind == "one":
            return draw(target)
        to = draw(st.lists(target, min_size=2, max_size=3, unique=True))
        if kind == "first":
            return ("first", [*(f"{t}?" for t in to[:-1]), f"{to[-1]}:"])
        if kind == "all":
            return ("all", to)
        if kind == "or":
            return ("all", [*(f"{t}?" for t in to[:-1]), f"{to[-1]}:"])
        return ("all", [to[0], *(f"{t}?" for t in to[1:])])

    return {name: (split(), draw(st.sampled_from(JOINS))) for name in names}


@sliced(examples=20)
@given(graphs())
def test_what_the_analyses_accept_neither_stalls_nor_meets(drawn: Drawn) -> None:
    """No accepted graph has a run where a join waits forever, or two tokens meet at one merge."""
    full = net.compress(net_of(drawn))
    found = concurrent_tokens.Pairs(full)
    if found.surplus or found.crowded or termination.endless(full):
        return
    stalls = token_game.play(full, limit=1_000)
    if not join_deadlocks.broken_promises(full) and not found.clashes and stalls.complete:
        assert not stalls.stalls
    meets = token_game.play(full, full=True, limit=400)
    if meets.complete and not concurrent_tokens.outrun(full):
        assert meets.clashes <= found.clashes.keys()


@sliced(examples=20)
@given(graphs())
def test_leaving_out_chains_changes_no_verdict(drawn: Drawn) -> None:
    whole = net_of(drawn)
    short = net.compress(whole)
    long_play, short_play = token_game.play(whole, limit=400), token_game.play(short, limit=400)
    if long_play.complete and short_play.complete:
        assert _steps(whole, long_play.stalls) == _steps(short, short_play.stalls)
    assert _steps(whole, concurrent_tokens.Pairs(whole).clashes) == _steps(
        short, concurrent_tokens.Pairs(short).clashes
    )


@sliced(examples=25)
@given(graphs(), st.data())
def test_tokens_that_meet_beside_a_gap_are_an_error_however_it_is_filled(
    drawn: Drawn, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(sorted(drawn)))
    without = {**drawn, name: (None, drawn[name][1])}

    if list(check_graph(flow_of(without), gaps={0})):
        assert any(one.code.startswith("E") for one in check_graph(flow_of(drawn)))


def test_a_held_token_may_wait_for_what_a_message_brings() -> None:
    flow = compile_text(
        "flowengine: 1\nid: f\nsignals: {sent: {}, paid: {}}\nsteps:\n"
        "  - {id: a, output: 1, next: end}\n"
        "  - {id: goods, trigger: sent, next: both}\n"
        "  - {id: money, trigger: paid, next: both}\n"
        "  - {id: both, join: all}\n"
    ).flow
    assert flow is not None

    verdict = token_game.play(net.build(flow, 0, net.cancellations(flow)))

    assert verdict.complete
    assert not verdict.stalls


def _steps(of: net.Net, places: Any) -> set[int]:
    return {of.nodes[place].step for place in places}
