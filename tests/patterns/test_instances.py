# Shows F20
"""Patterns 12-15, 26, 27, 34-36: multiple instances of one step."""

from __future__ import annotations

from typing import Any

import pytest

from tests.patterns.playing import Span, Story, play
from tests.rows import each_row
from tests.simulation.explorer import deciding, sending


def ended(spans: list[Span]) -> list[int]:
    return sorted(span.ended for span in spans)


@pytest.mark.endurance
def test_12_instances_without_synchronisation() -> None:
    """Instances run in parallel, each has its own successor, and none waits for all."""

    def holds(story: Story) -> None:
        offences = story.items("record")
        assert {span.begun for span in offences} == {0}
        assert sorted(s.output for s in offences) == ["no belt", "red light", "speeding"]
        assert [fine.begun for fine in story.runs("fine")] == ended(offences)
        assert story.one("answer_driver").begun == 0

    plays = play(12)
    plays.always(holds)
    last = plays.seen(lambda s: max(s.spans, key=lambda one: one.last).address.split("#")[0])
    assert last == {"fine", "answer_driver"}
    play(12, (", join: none", ""), ("join.output", "1")).refute(holds)


@each_row(
    ("number", "step", "after", "given"),
    [
        (13, "sign", "publish", [{}]),
        (14, "pack", "ship", [{"lines": []}, {"lines": ["a"]}, {"lines": ["a", "b", "c", "d"]}]),
    ],
)
def test_13_known_at_design_time_and_14_known_at_run_time(
    number: int, step: str, after: str, given: list[dict[str, Any]]
) -> None:
    """All instances start, in the given number. The next step starts once, after the last."""

    for inputs in given:
        count = len(inputs.get("lines", "four"))

        def holds(story: Story, count: int = count) -> None:
            instances = story.items(step)
            assert [span.begun for span in instances] == [0] * count
            assert story.one(after).begun == max([0, *ended(instances)])
            assert not [s for s in story.runs(step) if s.output is None]

        play(number, inputs=inputs).always(holds)
    lowered = ("as: seat", "as: seat, join: {need: 3}"), ("as: line", "as: line, join: {need: 3}")
    play(number, lowered[number - 13]).refute(holds)


def test_15_not_known_at_run_time() -> None:
    """Instances are added while others run, and the next step waits for these too."""
    people = [deciding("hear", "heard"), sending("witness", "Cem", times=2)]

    def holds(story: Story) -> None:
        heard = story.items("hear")
        report = story.one("write_report").begun
        sent = [
            number + 1
            for number, name in enumerate(story.schedule)
            if name == "witness is sent" and number + 1 <= report
        ]
        assert [span.begun for span in heard] == [0, 0, *sent]
        assert {span.status for span in heard} == {"succeeded"}
        assert report == max(ended(heard))
        assert story.outputs["heard"] == ["Ada", "Ben", *["Cem"] * len(sent)]

    plays = play(15, outside=people)
    plays.always(holds)
    assert plays.seen(lambda story: len(story.items("hear"))) == {2, 3, 4}
    play(15, (", signal: witness", ""), outside=people).refute(holds)


GUESTS = [deciding("answer", "comes")]


@pytest.mark.endurance
def test_26_cancel_instances() -> None:
    """All running and waiting instances are withdrawn at once, and future ones never start."""

    def holds(story: Story) -> None:
        [called_off] = story.runs("call_off")
        party = story.items("invite")
        after = story.runs("lay_tables")
        if after:
            assert [span.status for span in party] == ["succeeded"] * 3
            assert after[0].begun < called_off.begun
            return
        withdrawn = [span for span in party if span.status == "cancelled"]
        assert withdrawn
        assert {span.ended for span in withdrawn} == {called_off.begun}
        assert all(span.first < called_off.first for span in story.runs("write", "answer"))
        assert all(span.ended <= called_off.begun for span in story.runs("write", "answer"))
        assert story.status == "succeeded"

    plays = play(26, outside=GUESTS)
    plays.always(holds)
    begun = plays.seen(lambda story: len(story.runs("write")))
    assert begun == {2, 3}, "some never begin"
    assert plays.seen(lambda story: bool(story.runs("lay_tables"))) == {True, False}
    play(26, ("cancel: [invite]", "output: 1"), outside=GUESTS).refute(holds)


def test_27_complete_instances() -> None:
    """Unfinished instances are withdrawn, and the flow continues at once with the others."""
    people = [deciding("vote", "agree")]

    def holds(story: Story) -> None:
        votes = story.items("vote")
        cast = [span for span in votes if span.status == "succeeded"]
        count = story.one("count")
        if len(cast) < 3:
            closed = story.one("close_vote")
            assert closed.begun == count.begun
            assert {v.ended for v in votes if v not in cast} == {closed.begun}
        else:
            assert count.begun == max(ended(votes))
        votes.sort(key=lambda span: span.address)
        assert story.outputs["votes"] == [v.output if v in cast else None for v in votes]
        assert story.status == "succeeded"

    plays = play(27, outside=people)
    plays.always(holds)
    assert plays.seen(lambda story: len(story.done("vote"))) == {1, 2, 3, 4}
    play(27, (", as: succeeded", ""), outside=people).refute(holds)


@pytest.mark.endurance
def test_34_static_partial_join_for_instances() -> None:
    """The third of five starts the next step once. The others end without effect."""

    def holds(story: Story) -> None:
        votes = story.items("vote")
        assert [span.begun for span in votes] == [0] * 5
        assert {span.status for span in votes} == {"succeeded"}
        assert story.one("decide").begun == ended(votes)[2]
        [vote] = story.runs("vote")
        assert len([v for v in vote.output if v is not None]) == 3

    play(34).always(holds)
    play(34, ("need: 3", "need: 2")).refute(holds)
    play(34, ("need: 3", "need: 3, late: cancel")).refute(holds)


def test_35_cancelling_partial_join_for_instances() -> None:
    """The second of four starts the next step, and the others are withdrawn at once."""
    people = [deciding("ask", "offers")]

    def holds(story: Story) -> None:
        asked = sorted(story.items("ask"), key=lambda span: span.last)
        begun = story.one("compare").begun
        assert sorted(s.status for s in asked) == ["cancelled"] * 2 + ["succeeded"] * 2
        offers = [span for span in asked if span.status == "succeeded"]
        assert begun == max(ended(offers))
        assert {span.ended for span in asked if span.status == "cancelled"} == {begun}
        given = [offer for offer in story.outputs["offers"] if offer is not None]
        assert sorted(given) == sorted(span.output for span in offers)

    plays = play(35, outside=people)
    plays.always(holds)
    assert len(plays.stories) == 12, "each of four first, each of three second"
    play(35, (", late: cancel", ""), outside=people).refute(holds)
    play(35, ("need: 2", "need: 3"), outside=people).refute(holds)


def test_36_dynamic_partial_join_for_instances() -> None:
    """Instances may be added. The flow continues as soon as the current condition holds."""
    people = [deciding("search", "hint"), sending("place", "garden")]

    def holds(story: Story) -> None:
        letter = story.one("read_letter").ended
        hints = story.done("search")
        hints = [span for span in hints if "[" in span.address]
        dig = story.one("dig").begun

        def enough(moment: int) -> bool:
            found = sum(hint.ended <= moment for hint in hints)
            return found >= (1 if letter <= moment else 2)

        assert enough(dig)
        assert not enough(dig - 1)
        sent = story.schedule.index("place is sent") + 1 if "place is sent" in story.schedule else 0
        assert len(story.items("search")) == (3 if 0 < sent <= dig else 2)
        others = [s for s in story.items("search") if s.status == "cancelled"]
        assert all(span.ended == dig for span in others)

    plays = play(36, outside=people)
    plays.always(holds)
    assert plays.seen(lambda story: len(story.items("search"))) == {2, 3}
    by_letter = plays.seen(lambda s: s.one("dig").begun == s.one("read_letter").ended)
    assert by_letter == {True, False}, "the condition may come to hold without an instance's end"
    play(36, ('"${{ state.enough }}"', "2"), outside=people).refute(holds)
