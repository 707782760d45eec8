"""Percentages follow one rule, whether literal or computed."""

from __future__ import annotations

import pytest

from flowengine.errors import FlowFileError
from flowengine.flow.compile import Compiled, compile_text
from flowengine.flow.expressions.evaluator import CelEvaluator
from flowengine.kernel import Graph
from flowengine.kernel.notation.times import share
from tests.rows import each_row
from tests.simulation.simulator import Fails, Simulator

GOOD = {"0%": 0, "10%": 20, "0.5%": 1, "1.4%": 2, "99.999%": 199, "100%": 200, "100.0%": 200}
BAD = ["-1%", "100.1%", "101%", "5 %", " 5%", "%", ".5%", "5.%", "1e1%", "nan%", "inf%", "\u0665%"]


def flow(max_failures: str) -> Compiled:
    return compile_text(f"""
flowengine: 1
id: f
inputs: {{most: {{}}}}
steps:
  - id: m
    map: {{over: 4, concurrency: 1, on_item_error: continue, max_failures: "{max_failures}"}}
    python: "json:dumps"
    with: {{obj: 1}}
""")


def ends(most: object) -> str:
    """Return the outcome of a map of four items that all fail."""
    compiled = flow("${{ inputs.most }}").flow
    graph = Graph(compiled, CelEvaluator(compiled["expressions"], "test"))
    script = {"m": Fails("Oops", retryable=False)}
    played = Simulator(graph, script, order="first").start({"most": most}).run().state
    return "succeeded" if played["error"] is None else str(played["error"]["type"])


@each_row(("text", "of_200"), GOOD.items())
def test_a_percentage_is_taken_written_and_computed(text: str, of_200: int) -> None:
    flow(text)
    assert share(text, 200) == of_200
    assert ends(text) == ("succeeded" if of_200 == 200 else "MapFailed")


@each_row("text", BAD)
def test_what_is_not_a_percentage_is_refused_written_and_computed(text: str) -> None:
    with pytest.raises(FlowFileError, match="expected a count, a percentage such as 10%"):
        flow(text)
    assert ends(text) == "ValidationError"
