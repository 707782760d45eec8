# Shows F74, M52
"""Budgets of tokens and money bound the turns of agents (F74)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from flowengine.agents.models.failures import ModelError
from flowengine.agents.models.port import ModelFacts
from flowengine.agents.models.registry import register, unregister
from flowengine.journal.sqlite.store import SqliteStore
from tests.agents.flows import HEAD, NAME, STEPS, Case, call, flow

CHEAP = "scripted/cheap"
AGENT = f"""
first:
  instructions: You add.
  tools: [add]
  model: [{NAME}, {CHEAP}]
"""
USED = {"input_tokens": 300, "output_tokens": 100, "cost_usd": 0.01}
TURN = {"calls": [call("add", a=1, b=2)], "usage": USED}
LAST = {"text": "3", "usage": USED}


def with_budget(budget: str) -> str:
    return flow(AGENT, f"budget: {budget}\n{STEPS.strip()}")


def test_turns_count_for_tokens_and_money_and_calls_for_tool_calls(tmp_path: Path) -> None:
    text = with_budget("{tokens: 10000, cost_usd: 1, tool_calls: 5}")
    case = Case(tmp_path, text, [TURN, TURN, LAST])
    assert case.run().status == "succeeded"

    with case.engine_open() as engine:
        [budget] = engine.executions.show(case.id)["budgets"]
    assert budget["tokens"]["used"] == 1200
    assert budget["cost_usd"]["used"] == 0.03
    assert budget["tool_calls"]["used"] == 2


@pytest.mark.parametrize(
    ("budget", "facts", "warned"),
    [
        ("{cost_usd: 1}", ModelFacts(), True),
        ("{tokens: 10000, cost_usd: 1}", ModelFacts(input_price=1e-6), True),
        ("{cost_usd: 1}", ModelFacts(input_price=0.0, output_price=0.0), False),
        ("{tokens: 10000}", ModelFacts(), False),
    ],
)
def test_a_model_without_a_known_price_is_told_once_where_money_is_bounded(
    tmp_path: Path, budget: str, facts: ModelFacts, warned: bool
) -> None:
    case = Case(tmp_path, with_budget(budget), [TURN, TURN, LAST], facts=facts)
    assert case.run().status == "succeeded"

    with case.engine_open() as engine:
        told = [one["message"] for one in engine.executions.show(case.id)["warnings"]]
    assert len(told) == warned
    assert all(one.startswith("ask/first: the cost of its calls is not known") for one in told)


def test_a_process_that_goes_on_does_not_tell_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state records the warning, so the journal is not read for it."""
    read: list[object] = []
    events = SqliteStore.events

    def noted(store: SqliteStore, *given: Any, **more: Any) -> Any:
        read.append(given)
        return events(store, *given, **more)

    asked = HEAD.replace('"tools:add"', '"tools:add", approval: required')
    steps = """
budget: {cost_usd: 1}
steps:
  - {id: each, map: {over: "${{ ['a', 'b'] }}"}, agent: first, with: {prompt: Add.}}
outputs: {answers: "${{ steps.each.output }}"}
"""
    case = Case(tmp_path, flow(AGENT, steps, asked), [TURN, LAST], by_turn=True, facts=ModelFacts())
    assert case.run().status == "waiting"

    for _ in range(2):  # the engine treats each as a new process
        with case.engine_open() as engine, monkeypatch.context() as patch:
            wait = engine.executions.show(case.id)["waits"][0]["id"]
            patch.setattr(SqliteStore, "events", noted)
            engine.approvals.approve(wait)
    assert read == []

    with case.engine_open() as engine:
        shown = engine.executions.show(case.id)
    assert shown["status"] == "succeeded"
    [told] = [one["message"] for one in shown["warnings"]]
    assert told.startswith("each/first: the cost of its calls is not known")


def test_a_turn_that_needs_more_than_is_left_does_not_begin(tmp_path: Path) -> None:
    """The next request includes the last one, so it has at least as many tokens."""
    case = Case(tmp_path, with_budget("{tokens: 1000}"), [TURN, TURN, LAST])
    result = case.run()

    assert result.error["type"] == "BudgetExceeded"
    said = r"'f' has 200 of its 1000 tokens left, and the next call needs about 4\d\d \(budget"
    assert re.search(said, result.error["message"])
    assert case.called == ["add 1 2", "add 1 2"]
    assert len(case.model.requests) == 2


def test_the_last_model_is_asked_once_a_part_is_used(tmp_path: Path) -> None:
    text = with_budget("{tokens: 1300, fallback_at: 60%}")
    case = Case(tmp_path, text, [TURN, TURN, LAST])
    register(CHEAP, case.model)
    try:
        assert case.run().status == "succeeded"
    finally:
        unregister(CHEAP)

    assert [one.model for one in case.model.requests] == [NAME, NAME, CHEAP]


LARGE = ModelFacts(longest_reply=128_000, input_price=1e-6, output_price=4e-6)


@pytest.mark.parametrize(
    ("budget", "settings", "low", "high"),
    [
        ("{tokens: 10000}", "{}", 9000, 10_000),
        ("{tokens: 10000}", "{max_tokens: 500}", None, None),
        ("{cost_usd: 0.04}", "{}", 9000, 10_000),
        ("{tokens: 5000, cost_usd: 0.04}", "{}", 4000, 5000),
        ("{tokens: 1000000, cost_usd: 100}", "{}", None, None),
        ("{tool_calls: 5}", "{}", None, None),
    ],
)
def test_a_reply_is_no_longer_than_the_budget_allows(
    tmp_path: Path, budget: str, settings: str, low: int | None, high: int
) -> None:
    """The reply is bounded, so the maximum of the model cannot use up a budget at once."""
    agent = f"first: {{instructions: You add., tools: [add], settings: {settings}}}"
    text = flow(agent, f"budget: {budget}\n{STEPS.strip()}")
    case = Case(tmp_path, text, [LAST], facts=LARGE)
    assert case.run().status == "succeeded"

    [request] = case.model.requests
    if low is None:
        assert request.longest_reply is None  # bounded by the model or the setting
    else:
        assert request.longest_reply is not None
        assert low < request.longest_reply < high


def test_a_reply_of_an_unknown_model_is_bounded(tmp_path: Path) -> None:
    case = Case(tmp_path, with_budget("{tokens: 1000000}"), [LAST])
    assert case.run().status == "succeeded"

    assert case.model.requests[0].longest_reply == 4096


def test_agents_at_once_wait_for_what_others_have_only_reserved(tmp_path: Path) -> None:
    """One may use all that is left, and the other one starts once the actual usage is known."""
    steps = """
budget: {tokens: 9000}
steps:
  - id: both
    parallel:
      - {id: one, agent: first, with: {prompt: Hi}}
      - {id: two, agent: first, with: {prompt: Hi}}
"""
    case = Case(tmp_path, flow(AGENT, steps), [LAST, LAST], facts=LARGE)
    assert case.run().status == "succeeded"

    replies = [one.longest_reply or 0 for one in case.model.requests]
    assert len(replies) == 2
    assert min(replies) > 4500  # both have more than half


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (ModelError("busy", retryable=False), False),
        (ModelError("broke off", retryable=False, data={"unfinished": True}), True),
    ],
)
def test_a_reply_whose_end_nobody_hears_counts_with_what_it_may_have_used(
    tmp_path: Path, error: ModelError, counted: bool
) -> None:
    text = flow("first: {instructions: You add.}", f"budget: {{tokens: 9000}}\n{STEPS.strip()}")
    case = Case(tmp_path, text, [error], facts=ModelFacts(longest_reply=1000))
    assert case.run().status == "failed"

    with case.engine_open() as engine:
        [budget] = engine.executions.show(case.id)["budgets"]
    assert (budget["tokens"]["used"] > 1000) == counted
    assert counted or budget["tokens"]["used"] == 0


def test_a_prompt_that_is_longer_than_the_budget_is_not_sent(tmp_path: Path) -> None:
    case = Case(tmp_path, with_budget("{tokens: 400}"), [LAST])
    long = "word " * 1000
    result = case.run({"q": long})

    assert result.error["type"] == "BudgetExceeded"
    assert not case.model.requests
