"""An exhausted budget ends an agent's work with a distinct outcome."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agents.flows import HEAD, Case, call, flow

AGENT = "first: {instructions: You add., tools: [add]}"
REPLY = {
    "calls": [call("add", a=1, b=2)],
    "usage": {"input_tokens": 300, "output_tokens": 100, "cost_usd": 0.5},
    "repeat": True,
}


@pytest.mark.parametrize(
    ("budget", "turns", "calls"),
    [("{tokens: 1250}", 3, 3), ("{cost_usd: 1}", 2, 2), ("{tool_calls: 2}", 3, 2)],
)
def test_a_budget_ends_the_work_before_what_it_has_nothing_left_for(
    tmp_path: Path, budget: str, turns: int, calls: int
) -> None:
    case = Case(tmp_path, flow(AGENT, head=f"{HEAD}budget: {budget}\n"), [REPLY])

    result = case.run()

    assert result.error is not None
    assert result.error["type"] == "BudgetExceeded"
    assert (len(case.model.requests), len(case.called)) == (turns, calls)


def test_the_outcome_is_budget(tmp_path: Path) -> None:
    steps = """
steps:
  - id: ask
    agent: first
    with: {prompt: Hi}
    next: {outcome: {budget: spent, else: end}}
  - {id: spent, output: "${{ steps.ask.outcome }}"}
outputs: {how: "${{ steps.spent.output }}"}
"""
    case = Case(tmp_path, flow(AGENT, steps, f"{HEAD}budget: {{tokens: 1000}}\n"), [REPLY])

    assert case.run().outputs == {"how": "budget"}
