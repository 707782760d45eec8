# Shows F20
"""Patterns 6-9, 28-33, 37, 38, 41, 42: splits and joins of branches and threads."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tests.patterns.playing import Span, Story, at_most, play, refused
from tests.rows import each_row
from tests.simulation.explorer import deciding


def kth_ends(spans: list[Span], number: int) -> list[int]:
    """Return the times when the first, second, ... of some activations ended."""
    ends = sorted(span.ended for span in spans)
    assert len(ends) == number
    return ends


SERVICES = {"fire": "send_fire_brigade", "injured": "send_ambulance", "crime": "send_police"}
NEEDS = [dict(zip(SERVICES, needs, strict=True)) for needs in product([True, False], repeat=3)]


@pytest.mark.parametrize("needs", NEEDS, ids=str)
def test_06_multi_choice(needs: dict[str, bool]) -> None:
    """All branches whose condition holds are taken at once, or `else` if there are none."""
    expected = [SERVICES[need] for need, wanted in needs.items() if wanted] or ["advise"]

    def holds(story: Story) -> None:
        spans = story.runs(*SERVICES.values(), "advise")
        assert sorted(span.address for span in spans) == sorted(expected)
        assert {span.begun for span in spans} == {0}

    play(6, inputs=needs).always(holds)
    if len(expected) > 1:
        play(6, ("      all:", "      first:"), inputs=needs).refute(holds)


CHECKS = {"damage": "send_assessor", "injury": "ask_doctor", "theft": "ask_police"}
CLAIMS = [dict(zip(CHECKS, needs, strict=True)) for needs in product([True, False], repeat=3)]


@pytest.mark.parametrize("claim", CLAIMS, ids=str)
def test_07_structured_synchronising_merge(claim: dict[str, bool]) -> None:
    """The next step starts once, when the last of the chosen branches has ended."""

    def holds(story: Story) -> None:
        taken = story.runs(*CHECKS.values(), "file_only")
        assert len(taken) == max(1, sum(claim.values()))
        assert story.one("report").begun == max(branch.ended for branch in taken)

    play(7, inputs=claim).always(holds)
    if sum(claim.values()) > 1:
        play(7, ("join: active", "join: 1"), inputs=claim).refute(holds)


def test_08_multi_merge() -> None:
    """The next step starts once per branch, at the moment when that branch ends."""

    def holds(story: Story) -> None:
        branches = story.done("payslip", "tax_return", "passport")
        assert [b.ended for b in branches] == [file.begun for file in story.runs("file")]
        assert story.outputs == {"filed": ["passport", "payslip", "tax_return"]}

    plays = play(8)
    plays.always(holds)
    assert True in plays.seen(lambda story: _overlap(story.runs("file"))), "they run side by side"
    play(8, ("join: each", "join: active")).refute(holds)


def _overlap(spans: list[Span]) -> bool:
    return any(one.beside(other) for one in spans for other in spans if one is not other)


MIRRORS = ("mirror_a", "mirror_b", "mirror_c")


@pytest.mark.endurance
def test_09_structured_discriminator() -> None:
    """The first branch starts the next step once. It is reset when all branches have ended."""

    def holds(story: Story) -> None:
        taken = story.runs("take_price")
        assert len(taken) == 2
        for number, one in enumerate(taken, 1):
            asked = [s for s in story.runs(*MIRRORS) if s.address.startswith(f"quote@{number}/")]
            assert len(asked) == 3
            assert {s.status for s in asked} == {"succeeded"}, "the others end by themselves"
            assert one.begun == min(span.ended for span in asked)
        second = [s for s in story.runs(*MIRRORS) if s.address.startswith("quote@2/")]
        first = [s for s in story.runs(*MIRRORS) if s.address.startswith("quote@1/")]
        assert min(s.begun for s in second) >= max(s.ended for s in first)

    play(9).always(holds)
    play(9, ("join: 1", "join: each")).refute(holds)
    play(9, ("join: 1", "join: {need: 1, late: cancel}")).refute(holds)


OPINIONS = ("doctor_a", "doctor_b", "doctor_c")


def test_30_structured_partial_join() -> None:
    """The second of three branches starts the next step once. The third has no effect."""

    def holds(story: Story) -> None:
        asked = story.done(*OPINIONS)
        assert len(asked) == 3
        assert story.one("decide").begun == asked[1].ended

    plays = play(30)
    plays.always(holds)
    play(30, ("join: 2", "join: all")).refute(holds)
    play(30, ("join: 2", "join: 1")).refute(holds)


WATCH = ("pilot", "coast_guard")


@pytest.mark.endurance
def test_28_blocking_discriminator() -> None:
    """The first of a wave starts the next step. A new wave starts when all have arrived."""

    def holds(story: Story) -> None:
        reports = [kth_ends(story.runs(who), 2) for who in WATCH]
        first, second = story.runs("open_port")
        assert first.begun == min(ends[0] for ends in reports)
        reset = max(ends[0] for ends in reports)
        assert second.begun == max(reset, min(ends[1] for ends in reports))

    plays = play(28)
    plays.always(holds)

    def one_reports_both_first(story: Story) -> bool:
        first, second, *_ = (report.address.split("#")[0] for report in story.done(*WATCH))
        return first == second

    assert plays.seen(one_reports_both_first) == {True, False}
    assert refused(28, ("late: queue", "late: ignore")) == ["E212"]
    play(28, ("join: {need: 1, late: queue}", "join: each")).refute(holds)


@pytest.mark.endurance
def test_31_blocking_partial_join() -> None:
    """The second of a wave starts the next step. A new wave starts when all have arrived."""
    checks = ("look_at_badge", "look_at_bag", "call_host")

    def holds(story: Story) -> None:
        ends = [kth_ends(story.runs(check), 2) for check in checks]
        first, second = story.runs("let_in")
        wave = sorted(e[0] for e in ends), sorted(e[1] for e in ends)
        assert first.begun == wave[0][1]
        assert second.begun == max(wave[0][2], wave[1][1])

    play(31, limit=150).always(holds, drawn=True)
    play(31, ("need: 2, late: queue", "need: all")).refute(holds)
    assert refused(31, ("late: queue", "late: ignore")) == ["E212"]


@each_row(
    ("number", "branches", "after", "need"),
    [
        (29, ("app", "city_taxi", "night_rider"), "ride", 1),
        (32, ("disk", "cloud", "tape"), "safe", 2),
    ],
)
def test_29_cancelling_discriminator_and_32_cancelling_partial_join(
    number: int, branches: tuple[str, ...], after: str, need: int
) -> None:
    """Once enough branches have ended, the next step starts and the others are withdrawn."""
    answers = {"city_taxi": "we_come", "night_rider": "we_come", "tape": "it_is"}
    people = [deciding(step, choice) for step, choice in answers.items()]

    def holds(story: Story) -> None:
        asked = sorted(story.runs(*branches), key=lambda span: span.last)
        begun = story.one(after).begun
        assert [span.status for span in asked] == ["succeeded"] * need + ["cancelled"] * (3 - need)
        assert all(span.ended == begun for span in asked[need - 1 :])
        assert story.status == "succeeded"

    plays = play(number, outside=people)
    plays.always(holds)
    assert len(plays.seen(lambda story: frozenset(s.address for s in story.done(*branches)))) == 3
    play(number, ("late: cancel", "late: ignore"), outside=people).refute(holds)


def test_33_generalised_and_join() -> None:
    """Pairs consist of one engine and one body, in any order of arrival. Surplus ones wait."""

    def holds(story: Story) -> None:
        engines = kth_ends(story.runs("build_engine"), 2)
        bodies = kth_ends(story.runs("build_body"), 2)
        pairs = [max(engine, body) for engine, body in zip(engines, bodies, strict=True)]
        assert [car.begun for car in story.runs("assemble")] == pairs

    plays = play(33)
    plays.always(holds)

    def two_engines_first(story: Story) -> bool:
        ends = story.done("build_engine", "build_body")
        return ends[0].address[:9] == ends[1].address[:9]

    assert plays.seen(two_engines_first) == {True, False}
    play(33, ("join: all", "join: active")).refute(holds)
    play(33, ("join: all", "join: {need: 1, late: queue}")).refute(holds)


PLANS = [
    {"height": height, "old_town": old} for height, old in product([10, 30, 60], [True, False])
]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_37_acyclic_synchronising_merge(plan: dict[str, Any]) -> None:
    """Both merges wait for exactly those tokens that can still arrive, across crossing branches."""
    expert = plan["height"] > 50 or plan["old_town"]

    def holds(story: Story) -> None:
        asks = story.runs("fire_brigade", "heritage_office")
        assert len(asks) == (plan["height"] > 20) + plan["old_town"]
        if expert:
            # The fire brigade may call in the experts, who therefore always wait for its answer.
            assert story.one("experts").begun == max(s.ended for s in asks)
        else:
            assert not story.runs("experts")
        before = story.runs("plan_check", "fire_brigade", "experts")
        assert story.one("permit").begun == max(s.ended for s in before)

    play(37, inputs=plan).always(holds)
    if expert:
        play(37, ("join: active", "join: 1"), inputs=plan).refute(holds)


@pytest.mark.endurance
def test_38_general_synchronising_merge() -> None:
    """With cycles, it starts once no more tokens can arrive, in each round."""
    people = [
        at_most(4, deciding("proofread", "right", "wrong")),
        at_most(4, deciding("customer", "print_them", "other_text", "other_pictures", "all_new")),
    ]
    upstream = ("split", "translate", "proofread", "draw")

    def holds(story: Story) -> None:
        rounds = story.runs("set_pages")
        answers = [choice for step, choice in story.decided if step.startswith("customer")]
        assert len(rounds) == len(answers)
        since = 0
        for one in rounds:
            behind = [s for s in story.runs(*upstream) if s.last < one.first]
            later = [s for s in story.runs(*upstream) if s.last > one.first]
            assert all(s.first > one.first for s in later), "something could still come"
            assert one.begun == max(s.ended for s in behind)
            assert one.begun >= since
            since = one.ended
        assert story.status == "succeeded"

    plays = play(38, outside=people)
    plays.always(holds)
    assert plays.seen(lambda story: len(story.runs("set_pages"))) >= {1, 2, 3}
    assert "E202" in refused(38, ("join: active", "join: each"))
    assert "E207" in refused(38, ("join: active", "join: all"))
    play(38, ("join: active", "join: {need: 2, late: cancel}"), outside=people).refute(holds)


def test_41_thread_merge() -> None:
    """Threads of one branch become one when the last has arrived, with all their values."""

    def holds(story: Story) -> None:
        tyres = story.items("change_tyre")
        assert len(tyres) == 4
        assert story.one("leave").begun == max(tyre.ended for tyre in tyres)
        tyres.sort(key=lambda tyre: tyre.last)
        assert story.outputs["tyres"] == [tyre.output for tyre in tyres], "in order of arrival"
        assert len(set(story.outputs["tyres"])) == 4
        assert story.status == "succeeded"

    play(41).always(holds)
    play(41, ("need: 4", "need: 2")).refute(holds)
    play(41, ("join.all.map(a, a.output)", "values(join.outputs)")).refute(holds)
    play(41, ("over: 4", "over: 8")).refute(holds)


def test_42_thread_split() -> None:
    """One thread becomes several in the same branch, each at its own pace."""

    def holds(story: Story) -> None:
        signed, filed = story.runs("sign"), story.runs("file")
        assert {span.begun for span in signed} == {0}
        assert len(signed) == 3
        assert sorted(s.output for s in signed) == [1, 2, 3]
        assert [file.begun for file in filed] == sorted(span.ended for span in signed)

    plays = play(42)
    plays.always(holds)
    assert plays.seen(lambda s: s.runs("file")[0].ended < s.done("sign")[-1].ended) == {True, False}
    play(42, (", join: none", ""), ("join.output", "1")).refute(holds)
