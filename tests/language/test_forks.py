"""Forks at a step that ran beside others: their results are kept, not repeated or asked about."""

from __future__ import annotations

from typing import Any

import pytest

from tests.language.stage import Stage

ACT = 'python: "tools:act", with: {value: 1}'


def forked(
    stage: Stage, text: str, at: str, order: list[str] | None = None
) -> tuple[Any, list[str]]:
    """Run a flow and fork it. Return the fork's result, and its calls."""
    stage.world.order = order or []
    assert stage.run(text, id="it").status == "succeeded"
    stage.world.order = []
    before = len(stage.world.started)
    result = stage.do(stage.engine.executions.fork_async("it", from_step=at))
    return result, stage.world.started[before:]


@pytest.mark.parametrize("scope", ["run", "execution", "flow"])
def test_a_step_that_was_queued_for_a_lock_starts_when_it_has_it(stage: Stage, scope: str) -> None:
    text = f"""
steps:
  - id: m
    map: {{over: 3, concurrency: 3}}
    group: [{{id: a, {ACT}, lock: {{key: calls, scope: {scope}}}}}]
  - id: last
    output: done
outputs: {{last: "${{{{ steps.last.output }}}}"}}
"""
    result, calls = forked(stage, text, "m[1]/a")

    assert (result.status, result.outputs) == ("succeeded", {"last": "done"})
    assert calls == ["m[1]/a", "m[2]/a"]


@pytest.mark.parametrize("effect", ["once", "idempotent", "pure"])
@pytest.mark.parametrize(("at", "other"), [("both/a", "both/b"), ("both/b", "both/a")])
def test_a_result_that_came_after_the_point_of_the_fork_is_kept(
    stage: Stage, at: str, other: str, effect: str
) -> None:
    text = f"""
steps:
  - id: both
    parallel:
      - {{id: a, {ACT}, effect: {effect}}}
      - {{id: b, {ACT}, effect: {effect}}}
outputs: {{both: "${{{{ steps.both.output }}}}"}}
"""
    result, calls = forked(stage, text, at, order=[other, at])

    assert (result.status, result.outputs) == ("succeeded", {"both": {"a": 1, "b": 1}})
    assert calls == [at]


def test_a_result_is_kept_beside_a_step_that_ended_as_it_began(stage: Stage) -> None:
    text = f"""
steps:
  - id: both
    parallel:
      - {{id: a, {ACT}}}
      - {{id: b, output: 1}}
outputs: {{both: "${{{{ steps.both.output }}}}"}}
"""
    result, calls = forked(stage, text, "both/b")

    assert (result.status, calls) == ("succeeded", [])


def test_an_attempt_without_a_result_is_asked_about(stage: Stage) -> None:
    text = f"""
steps:
  - id: both
    on_error: continue
    parallel:
      - {{id: a, {ACT}, timeout: 5s}}
      - {{id: b, {ACT}}}
"""
    stage.world.held = {"both/a"}
    result, calls = forked(stage, text, "both/b")

    assert (result.status, calls) == ("stalled", ["both/b"])
    assert [wait["address"] for wait in result.waits] == ["both/a"]
