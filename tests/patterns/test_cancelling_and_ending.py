# Shows F20
"""Patterns 11, 19, 20, 25, 43: cancelling part or all of a case, and its end."""

from __future__ import annotations

from tests.patterns.playing import Story, play
from tests.simulation.explorer import deciding


def test_11_implicit_termination() -> None:
    """The case ends at the moment when no work is left, whichever step is last."""
    steps = ("order_laptop", "install_laptop", "make_badge", "show_house")

    def holds(story: Story) -> None:
        assert len(story.done(*steps)) == 4
        assert story.status == "succeeded"
        assert story.happenings == max(span.ended for span in story.runs(*steps))

    plays = play(11)
    plays.always(holds)
    last = plays.seen(lambda story: story.done(*steps)[-1].address)
    assert last == {"install_laptop", "make_badge", "show_house"}
    play(11, ("made.}\n    next: end", "made.}\n    next: end_all")).refute(holds)


def test_19_cancel_task() -> None:
    """A running task is withdrawn at once, with its successors, and without other effects."""
    people = [deciding("search_archive", "found")]

    def holds(story: Story) -> None:
        search, stop = story.one("search_archive"), story.one("stop_search")
        if search.ended < stop.begun:
            assert search.status == "succeeded"
            assert story.one("fetch").status == "succeeded"
        else:
            assert (search.status, search.ended) == ("cancelled", stop.begun)
            assert not story.runs("fetch")
        assert story.status == "succeeded"

    plays = play(19, outside=people)
    plays.always(holds)
    assert plays.seen(lambda s: s.one("search_archive").status) == {"succeeded", "cancelled"}
    play(19, ("cancel: [search_archive]", "output: 1"), outside=people).refute(holds)


def test_20_cancel_case() -> None:
    """All current and future work is withdrawn at once. Cleanup still runs."""
    people = [deciding("rate_house", "enough")]
    work = ("rate_customer", "rate_house", "offer")

    def holds(story: Story) -> None:
        withdrawn = story.one("withdraw").begun
        for span in story.runs(*work):
            assert span.ended <= withdrawn
            assert (span.status == "cancelled") == (span.ended == withdrawn)
        assert story.status == "cancelled"
        assert story.one("tidy_up").begun == withdrawn
        assert story.one("tidy_up").status == "succeeded"

    plays = play(20, outside=people, patient=True)
    plays.always(holds)
    assert plays.seen(lambda story: len(story.runs("offer"))) == {0, 1}
    only_a_task = ("cancel: execution", "cancel: [rate_house]\n    next: end")
    play(20, ("join: all", "join: active"), only_a_task, outside=people).refute(holds)


def test_25_cancel_region() -> None:
    """Everything in the region is withdrawn at once. Work outside continues undisturbed."""
    people = [deciding("visit_place", "traces")]

    def holds(story: Story) -> None:
        close = story.one("close_investigation").begun
        inside = [s for s in story.spans if s.address.startswith("investigate/")]
        region = story.one("investigate")
        if region.ended < close:
            assert region.status == "succeeded"
            assert len(inside) == 4
        else:
            assert (region.status, region.ended) == ("cancelled", close)
            for span in inside:
                assert span.ended <= close
                assert (span.status == "cancelled") == (span.ended == close)
        assert story.one("inform_customer").status == "succeeded"
        assert story.status == "succeeded"

    plays = play(25, outside=people)
    plays.always(holds)
    assert plays.seen(lambda s: s.one("investigate").status) == {"succeeded", "cancelled"}
    after = plays.seen(lambda s: s.one("inform_customer").ended > s.one("investigate").ended)
    assert after == {True, False}
    everything = ("cancel: [investigate]\n    next: end", "output: 1\n    next: end_all")
    play(25, everything, outside=people).refute(holds)


def test_43_explicit_termination() -> None:
    """Reaching the end ends all other work at once, and the case succeeds."""
    people = [deciding("search_wood", "no"), deciding("search_station", "no")]
    searches = ("search_park", "search_wood", "search_station")

    def holds(story: Story) -> None:
        found = story.one("call_friends").ended
        assert story.status == "succeeded"
        for span in story.runs(*searches):
            assert span.ended <= found
            assert (span.status == "cancelled") == (span.ended == found)
        assert story.happenings == found

    plays = play(43, outside=people)
    plays.always(holds)
    withdrawn = plays.seen(
        lambda s: frozenset(x.address for x in s.runs(*searches) if x.status == "cancelled")
    )
    assert withdrawn >= {frozenset(), frozenset({"search_wood", "search_station"})}
    play(43, ("end_all", "end"), outside=people).refute(holds)
