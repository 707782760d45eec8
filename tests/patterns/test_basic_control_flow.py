# Shows F20
"""Patterns 1-5: basic control flow."""

from __future__ import annotations

from itertools import pairwise

from tests.patterns.playing import Story, play, refused
from tests.rows import each_row


def test_01_sequence() -> None:
    """Each step starts at the moment when the previous one ends."""
    steps = ("check_stock", "charge", "ship")

    def holds(story: Story) -> None:
        spans = [story.one(step) for step in steps]
        assert all(before.ended == after.begun for before, after in pairwise(spans))

    play(1).always(holds)
    play(1, ("- id: check_stock", "- id: begin\n    next: {all: [check_stock, charge]}\n  - id: check_stock"), ("- id: charge", "  next: end\n  - id: charge")).refute(holds)  # fmt: skip  # noqa: E501


def test_02_parallel_split() -> None:
    """One thread becomes several: all branches start at the moment when it ends."""
    branches = ("pack", "invoice", "reserve_courier")

    def holds(story: Story) -> None:
        split = story.one("accept").ended
        assert {story.one(branch).begun for branch in branches} == {split}

    plays = play(2)
    plays.always(holds)
    ends = plays.seen(lambda story: tuple(span.address for span in story.done(*branches)))
    assert len(ends) == 6, "they end in any order"
    play(2, ("{all: [pack, invoice, reserve_courier]}", "pack"), ("next: end\n  - id: invoice", "\n  - id: invoice"), ("next: end\n  - id: reserve", "\n  - id: reserve")).refute(holds)  # fmt: skip  # noqa: E501


def test_03_synchronisation() -> None:
    """The next step starts once, at the moment when the last branch ends."""

    def holds(story: Story) -> None:
        branches = story.runs("pack", "take_payment", "print_label")
        assert story.one("dispatch").begun == max(branch.ended for branch in branches)

    plays = play(3)
    plays.always(holds)
    assert len(plays.stories) == 6
    play(3, ("join: all", "join: 2")).refute(holds)
    play(3, ("join: all", "join: each")).refute(holds)


WAYS = ("ask_board", "ask_manager", "book")


@each_row(
    ("amount", "way"),
    [(50.0, "book"), (100.0, "book"), (100.5, "ask_manager"), (1000.5, "ask_board")],
)
def test_04_exclusive_choice(amount: float, way: str) -> None:
    """Exactly one branch is taken, even if several conditions hold."""

    def holds(story: Story) -> None:
        assert story.order(*WAYS) == [way]

    play(4, inputs={"amount": amount}).always(holds)
    if amount > 1000:
        play(4, ("first:", "all:"), inputs={"amount": amount}).refute(holds)


@each_row(("grams", "way"), [(800, "box"), (20, "envelope")])
def test_05_simple_merge(grams: int, way: str) -> None:
    """The next step starts when the chosen branch ends, without waiting for others."""

    def holds(story: Story) -> None:
        [branch] = story.runs("box", "envelope")
        assert branch.address == way
        assert story.one("hand_over").begun == branch.ended

    play(5, inputs={"grams": grams}).always(holds)


def test_05_simple_merge_is_never_entered_by_two() -> None:
    """The checker guarantees the pattern's condition of one branch at a time."""
    assert refused(5, ("first:", "all:"), ("{else: envelope}", "envelope")) == ["E202"]
    assert refused(5, ("- id: hand_over", "- id: hand_over\n    join: all"))[:1] == ["E207"]
