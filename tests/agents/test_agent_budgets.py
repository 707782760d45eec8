"""Budgets of tokens and money bound the turns of agents (F74)."""

from __future__ import annotations

from pathlib import Path

from flowengine.agents.models.registry import register, unregister
from tests.agents.flows import NAME, STEPS, Case, call, flow

CHEAP = "scripted/cheap"
AGENT = f"""
first:
  instructions: You add.
  tools: [add]
  fallbacks: [{CHEAP}]
"""
USED = {"input_tokens": 30, "output_tokens": 10, "cost_usd": 0.01}
TURN = {"calls": [call("add", a=1, b=2)], "usage": USED}
LAST = {"text": "3", "usage": USED}


def with_budget(budget: str) -> str:
    return flow(AGENT, f"budget: {budget}\n{STEPS.strip()}")


def test_turns_count_for_tokens_and_money_and_calls_for_tool_calls(tmp_path: Path) -> None:
    text = with_budget("{tokens: 1000, cost_usd: 1, tool_calls: 5}")
    case = Case(tmp_path, text, [TURN, TURN, LAST])
    assert case.run().status == "succeeded"

    with case.engine_open() as engine:
        [budget] = engine.show(case.id)["budgets"]
    assert budget["tokens"]["used"] == 120
    assert budget["cost_usd"]["used"] == 0.03
    assert budget["tool_calls"]["used"] == 2


def test_a_budget_that_is_used_up_ends_the_agent(tmp_path: Path) -> None:
    case = Case(tmp_path, with_budget("{tokens: 70}"), [TURN, TURN, LAST])
    result = case.run()

    assert result.error["type"] == "BudgetExceeded"
    assert "'f' has used up its 70 tokens (budget.tokens)" in result.error["message"]
    assert case.called == ["add 1 2", "add 1 2"]


def test_the_last_model_is_asked_once_a_part_is_used(tmp_path: Path) -> None:
    text = with_budget("{tokens: 100, fallback_at: 60%}")
    case = Case(tmp_path, text, [TURN, TURN, LAST])
    register(CHEAP, case.model)
    try:
        assert case.run().status == "succeeded"
    finally:
        unregister(CHEAP)

    assert [one.model for one in case.model.requests] == [NAME, NAME, CHEAP]
