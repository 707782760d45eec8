"""Every possible order of events, with the names that users import."""

from __future__ import annotations

from collections.abc import Callable
from math import factorial
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.explorer import ScheduleFailed, deciding, explore, sending
from tests.simulation.simulator import Fails, OneOf, Simulator

HEAD = "flowengine: 1\nid: flow\n"
THREE = """
steps:
  - id: all
    parallel:
      - {id: a, http: {url: https://example.com}}
      - {id: b, http: {url: https://example.com}}
      - {id: c, http: {url: https://example.com}}
outputs: {all: "${{ steps.all.output }}"}
"""
REPLY = {"status": 200, "headers": {}, "body": None}


@pytest.fixture
def flow(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        file = tmp_path / "flow.yaml"
        file.write_text(HEAD + text)
        return file

    return write


def ends(played: Simulator) -> tuple[str, ...]:
    return tuple(name.split()[0] for name in played.schedule if name.endswith(" ends"))


def test_every_order_of_parallel_steps_is_played_once(flow: Any) -> None:
    found = explore(flow(THREE), {"a": REPLY, "b": REPLY, "c": REPLY})

    assert found.complete
    assert str(found) == "all 6 schedules"
    assert len({ends(played) for played in found.runs}) == factorial(3)
    assert {played.status for played in found.runs} == {"succeeded"}


def test_beyond_the_bound_schedules_are_drawn_and_it_says_so(flow: Any) -> None:
    first, second = (explore(flow(THREE), limit=5, seed=seed) for seed in (1, 2))
    again = explore(flow(THREE), limit=5, seed=1)

    assert not first.complete
    assert str(first) == "5 schedules drawn at random of more"
    assert [ends(p) for p in first.runs] == [ends(p) for p in again.runs]
    assert [ends(p) for p in first.runs] != [ends(p) for p in second.runs]
    assert explore(flow(THREE), limit=6).complete


def test_exactly_the_bound_is_complete(flow: Any) -> None:
    found = explore(flow(THREE), limit=6)

    assert (found.complete, len(found.runs)) == (True, 6)


def test_time_races_with_tasks_unless_it_is_patient(flow: Any) -> None:
    text = """
steps:
  - {id: a, http: {url: https://example.com}, timeout: 1s, on_error: [{next: late}], next: end}
  - {id: late, output: 1}
"""
    statuses = [
        {("late running" in p.story() or "late succeeded" in p.story()) for p in found.runs}
        for found in (explore(flow(text)), explore(flow(text), patient=True))
    ]

    assert statuses == [{True, False}, {False}]


def test_tasks_end_in_all_ways_they_may(flow: Any) -> None:
    text = "steps:\n  - {id: a, http: {url: https://example.com}, retry: {attempts: 2, delay: 1s}}"
    broken = Fails("Timeout")

    found = explore(flow(text), {"a": OneOf([REPLY, broken])})

    assert [p.schedule for p in found.runs] == [
        [f"a gives {REPLY!r}"],
        ["a fails: Timeout", "time passes", f"a gives {REPLY!r}"],
        ["a fails: Timeout", "time passes", "a fails: Timeout"],
    ]
    assert [p.status for p in found.runs] == ["succeeded", "succeeded", "failed"]


def test_people_and_signals_are_part_of_the_schedule(flow: Any) -> None:
    text = """
signals: {stop: {}}
steps:
  - {id: go, next: {all: [ask, wait]}}
  - id: ask
    approval: {title: Sure?, expires: 1d}
    next: {outcome: {approve: end, reject: end_all, expired: end}}
  - {id: wait, wait: {signal: stop}, next: end_all}
"""
    outside = [deciding("ask", "approve", "reject"), sending("stop")]

    found = explore(flow(text), outside=outside, patient=False)

    assert found.complete
    assert {tuple(p.schedule) for p in found.runs} == {
        ("time passes", "stop is sent"),
        ("ask is decided: approve", "stop is sent"),
        ("ask is decided: reject",),
        ("stop is sent",),
    }


def test_what_does_not_hold_names_a_schedule_that_can_be_played_again(flow: Any) -> None:
    def never_c_before_a(played: Simulator) -> None:
        story = played.story()
        before = story[: story.index("all/a succeeded")] if "all/a succeeded" in story else story
        assert "all/c succeeded" not in before, "c ended before a"

    with pytest.raises(
        ScheduleFailed, match=r"(?s)c ended before a.*after: all/b ends; all/c ends"
    ):
        explore(flow(THREE), holds=never_c_before_a)

    with pytest.raises(ScheduleFailed) as failed:
        explore(flow(THREE), holds=never_c_before_a)
    again = Simulator(flow(THREE)).start().follow(failed.value.schedule)
    assert again.schedule == failed.value.schedule
    assert "all/c succeeded" in again.story()


def test_a_schedule_that_cannot_be_followed_says_what_can_happen(flow: Any) -> None:
    with pytest.raises(AssertionError, match=r"1: 'all/a ends' cannot happen now, .* all/b ends"):
        Simulator(flow(THREE)).start().follow(["all/a ends", "all/a ends"])


def test_a_run_without_end_is_told(flow: Any) -> None:
    text = """
limits: {activations: 100000, steps: 100000}
steps:
  - {id: a, wait: 1s, next: {first: [{when: "${{ inputs.x }}", to: end}, {else: a}]}}
inputs: {x: {type: boolean}}
"""
    with pytest.raises(ScheduleFailed, match="still not at rest after 2000"):
        explore(flow(text), inputs={"x": False})
