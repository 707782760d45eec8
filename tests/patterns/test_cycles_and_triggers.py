# Shows F20
"""Patterns 10, 21-24: repetition, and external messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.patterns.playing import Story, at_most, play
from tests.rows import each_row
from tests.simulation.explorer import deciding, sending
from tests.simulation.simulator import Happening, Simulator

EDIT = {"good": "legal", "rewrite": "write", "drop": None}
LEGAL = {"publish": "publish", "soften": "edit", "rewrite": "write"}


@pytest.mark.endurance
@pytest.mark.parametrize("draft_exists", [True, False])
def test_10_arbitrary_cycles(draft_exists: bool) -> None:
    """Cycles with two entries and two exits: every path of the graph can be taken."""
    people = [at_most(5, deciding("edit", *EDIT)), at_most(5, deciding("legal", *LEGAL))]

    def holds(story: Story) -> None:
        path = ["edit"] if draft_exists else ["write", "edit"]
        for address, choice in story.decided:
            step = address.split("#")[0]
            assert step == path[-1]
            to = (EDIT if step == "edit" else LEGAL)[choice]
            path += ["write", "edit"] if to == "write" else [to] if to else []
        assert story.order("write", "edit", "legal", "publish") == path
        assert story.status == "succeeded"

    plays = play(10, inputs={"draft_exists": draft_exists}, outside=people)
    plays.always(holds)
    assert max(plays.seen(lambda story: len(story.runs("write")))) >= 5
    ways = plays.seen(lambda s: (s.decided[-1][0].split("#")[0], s.decided[-1][1]))
    assert ways == {("edit", "drop"), ("legal", "publish")}
    other = ("soften: edit", "soften: write")
    play(10, other, inputs={"draft_exists": draft_exists}, outside=people).refute(holds)


@each_row(("pages", "tries"), [(0, 1), (1, 1), (3, 2), (2, 3)])
def test_21_structured_loop(pages: int, tries: int) -> None:
    """Tested before each round (possibly none) or after it (at least one), with ordered rounds."""

    def holds(story: Story) -> None:
        expected = ([*["fetch"] * tries, "store"] * pages) + ["done"]
        went = [name.split("/")[-1].split("@")[0].split()[0] for name in story.schedule]
        assert went == expected
        assert story.one("done").begun == pages * (tries + 1)
        assert story.outputs == {"fetched": pages}

    plays = play(21, inputs={"pages": pages, "tries": tries})
    plays.always(holds)
    if pages == 0:
        after = ('while: "${{ state.fetched < inputs.pages }}"',
                 'until: "${{ state.fetched >= inputs.pages }}"')  # fmt: skip
        play(21, after, inputs={"pages": pages, "tries": tries}).refute(holds)


BOX: dict[str, Any] = {"name": "a", "parts": [
    {"name": "b", "parts": [{"name": "d", "parts": []}]}, {"name": "c", "parts": []},
]}  # fmt: skip
DEEPEST: dict[str, Any] = {"name": "x", "parts": []}
for _level in range(12):
    DEEPEST = {"name": "x", "parts": [DEEPEST]}


def test_22_recursion() -> None:
    """A flow runs itself, each run with separate data, and the outer one uses the inner result."""

    def holds(story: Story) -> None:
        inner = [s for s in story.spans if s.address.endswith("each_part[0]")]
        assert len(story.runs("open")) == 4
        for flow in inner:
            within = [s for s in story.spans if s.address.startswith(f"{flow.address}/")]
            assert within
            assert flow.ended == max(span.ended for span in within)
        assert story.outputs == {"parts": 4}
        assert story.status == "succeeded"

    plays = play(22, inputs={"box": BOX})
    plays.always(holds)
    assert len(plays.seen(lambda story: tuple(span.address for span in story.done("open")))) > 2
    play(22, ("1 + sum", "sum"), inputs={"box": BOX}).refute(holds)


def test_22_recursion_is_bounded_by_its_depth() -> None:
    plays = play(22, inputs={"box": DEEPEST})

    [story] = plays.stories
    assert story.status == "failed"
    assert "(limits.depth)" in json.dumps(story.error)
    assert len(story.runs("open")) == 8


def moment(story: Story, name: str) -> list[int]:
    return [number for number, what in enumerate(story.schedule, 1) if what == name]


def test_23_transient_trigger() -> None:
    """A message counts if a step waits for it. Earlier messages are lost."""
    bell = [sending("doorbell", key="7 Mill Lane", times=2)]

    def holds(story: Story) -> None:
        listening = story.one("listen")
        heard = [ring for ring in moment(story, "doorbell is sent") if ring > listening.begun]
        opened = story.runs("open")
        if opened:
            assert [opened[0].begun, listening.ended] == heard[:1] * 2
        else:
            assert not heard or heard[0] > story.one("go_home").begun
        assert story.status == "succeeded"

    plays = play(23, outside=bell)
    plays.always(holds)
    lost = plays.seen(lambda s: bool(moment(s, "doorbell is sent")) and not s.runs("open"))
    assert lost == {True, False}
    play(23, (", transient: true", ""), outside=bell).refute(holds)


def test_24_persistent_trigger() -> None:
    """Messages are kept until a step consumes them, each exactly once and in order."""

    def letters(played: Simulator) -> list[Happening]:
        came = sum(event["type"] == "message" for event in played.journal)
        id = f"letter {came + 1}"
        post = Happening("letter is sent", lambda: played.send("letter", id, "Mill Lane", id))
        return [post] if came < 2 else []

    def holds(story: Story) -> None:
        came = moment(story, "letter is sent")
        first, second = story.one("first_letter"), story.one("second_letter")
        assert len(came) == 2
        assert first.ended == max(first.begun, came[0])
        assert second.ended == max(second.begun, came[1])
        assert [first.output, second.output] == ["letter 1", "letter 2"]
        assert story.status == "succeeded"

    plays = play(24, outside=[letters])
    plays.always(holds)
    kept = plays.seen(lambda s: moment(s, "letter is sent")[0] < s.one("first_letter").begun)
    assert kept == {True, False}
    forgetful = ("{signal: letter}", "{signal: letter, transient: true}")
    play(24, forgetful, outside=[letters]).refute(holds)
