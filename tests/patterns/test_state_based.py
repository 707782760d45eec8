# Shows F20
"""Patterns 16-18, 39, 40: options that depend on the state of the whole case."""

from __future__ import annotations

from tests.patterns.playing import Story, never_at_once, play
from tests.simulation.explorer import deciding, sending

CUSTOMER = [sending("paid", key="4711"), sending("withdrawn", key="4711")]
WAYS = {"paid is sent": "ship", "withdrawn is sent": "restock", "time passes": "remind"}


def test_16_deferred_choice() -> None:
    """All branches are open until an event selects one of them and closes the others."""

    def holds(story: Story) -> None:
        offered = story.one("wait_for_customer")
        [way] = story.runs(*WAYS.values())
        assert offered.begun == 0
        assert (offered.ended, way.begun) == (1, 1)
        assert way.address == WAYS[story.schedule[0]]
        assert story.status == "succeeded"
        assert story.open == []

    plays = play(16, outside=CUSTOMER)
    plays.always(holds)
    assert plays.seen(lambda story: story.schedule[0]) == set(WAYS)
    apart = """
  - {id: begin, next: {all: [withdrawal, wait_for_customer]}}
  - {id: withdrawal, wait: {signal: withdrawn}, next: end}
  - id: wait_for_customer
"""
    play(16, ("\n  - id: wait_for_customer\n", apart), outside=CUSTOMER).refute(holds)


def test_17_interleaved_parallel_routing() -> None:
    """Each once, one at a time, in every order that the partial order permits."""
    rooms = ("blood", "ecg", "xray")

    def holds(story: Story) -> None:
        spans = story.runs(*rooms)
        assert sorted(span.address for span in spans) == sorted(rooms)
        never_at_once(spans)
        assert story.one("ecg").first > story.one("blood").last
        assert story.one("discharge").begun == max(span.ended for span in spans)

    plays = play(17)
    plays.always(holds)
    orders = plays.seen(lambda story: tuple(story.order(*rooms)))
    assert orders == {("blood", "xray", "ecg"), ("xray", "blood", "ecg"), ("blood", "ecg", "xray")}
    play(17, ("lock: patient", "title: patient")).refute(holds)


def test_18_milestone() -> None:
    """The step is available from the time the milestone is reached until it has passed."""
    traveller = [sending("change", key="B7")]

    def holds(story: Story) -> None:
        reached, passed = story.one("confirm").ended, story.one("print_tickets").ended
        changed = story.runs("change_booking")
        if changed and changed[0].status == "succeeded":
            [one] = changed
            assert reached <= one.begun < passed
        else:
            assert not changed
        asked = [n for n, what in enumerate(story.schedule, 1) if what == "change is sent"]
        if asked and asked[0] < passed:
            assert changed
        if asked and asked[0] > passed:
            assert not changed
        assert story.status == "succeeded"

    plays = play(18, outside=traveller, patient=True)
    plays.always(holds)
    assert plays.seen(lambda story: len(story.runs("change_booking"))) == {0, 1}
    before = plays.seen(
        lambda s: bool(s.runs("change_booking")) and s.schedule[0] != "confirm ends"
    )
    assert before == {True, False}, "also who asks too early is let through when it is reached"
    anytime = ("state.phase == 'open'", "state.phase != 'pending'")
    unwatched = ("""        - {id: over, when: "${{ state.phase == 'closed' }}"}\n""", "")
    play(18, anytime, unwatched, ("over: end, ", ""), outside=traveller, patient=True).refute(holds)


def test_18_milestone_never_waits_for_ever() -> None:
    """Requests that arrive late, or at that moment, are rejected. Only time needs to pass."""
    plays = play(18, outside=[sending("change", key="B7")])

    plays.always(_ended)
    assert True in plays.seen(lambda story: bool(story.runs("refuse")))


def _ended(story: Story) -> None:
    assert story.status == "succeeded"
    assert not story.open


def test_39_critical_section() -> None:
    """The sections are never active at the same time, and either may be first."""
    wages, rents = ("open_for_wages", "write_wages"), ("open_for_rents", "write_rents")

    def holds(story: Story) -> None:
        for wage in story.runs(*wages):
            assert not any(wage.beside(rent) for rent in story.runs(*rents))
        first, second = (story.runs(*steps) for steps in (wages, rents))
        assert len(first) == len(second) == 2
        assert (first[1].last < second[0].first) or (second[1].last < first[0].first)

    plays = play(39)
    plays.always(holds)
    assert plays.seen(lambda s: s.order(*wages, *rents)[0]) == {wages[0], rents[0]}
    outside = plays.seen(lambda s: s.one("collect_wages").beside(s.one("collect_rents")))
    assert outside == {True}, "only the sections exclude one another"
    play(39, ("lock: register", "title: register")).refute(holds)


STATIONS = ("eyes", "ears", "heart")


def test_40_interleaved_routing() -> None:
    """Each once, one at a time, in an order chosen by messages."""
    people = [
        *(sending(station, key="Ada") for station in STATIONS),
        *(deciding(station, "fit") for station in STATIONS),
    ]

    def holds(story: Story) -> None:
        spans = story.runs(*STATIONS)
        assert sorted(span.address for span in spans) == sorted(STATIONS)
        never_at_once(spans)
        assert story.one("certificate").begun == max(span.ended for span in spans)

    plays = play(40, outside=people)
    plays.always(holds)
    orders = plays.seen(lambda story: tuple(span.address for span in story.done(*STATIONS)))
    assert len(orders) == 6, "every order is possible"
    play(40, (", hold: true", ""), outside=people).refute(holds)
