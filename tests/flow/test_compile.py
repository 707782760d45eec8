"""Compilation: the compiled form of each element of a flow file, and its effect in the kernel."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from flowengine.errors import FlowFileError, NotFound
from flowengine.flow.compile import Compiled, compile_file, compile_text
from flowengine.flow.expressions.evaluator import CelEvaluator
from flowengine.kernel import Graph
from flowengine.kernel.graph.specs import StepSpec
from tests.flow import examples
from tests.simulation.simulator import Simulator


def compiled(body: str, folder: Path | None = None) -> Compiled:
    return compile_text("flowengine: 1\nid: test\n" + textwrap.dedent(body), folder=folder)


def steps(flow: Compiled) -> dict[str, StepSpec]:
    return {step["id"]: step for step in flow.flow["steps"] if step["body"] >= 0}


def run(
    flow: Compiled, script: dict[str, Any] | None = None, inputs: dict[str, Any] | None = None
) -> Simulator:
    graph = Graph(flow.flow, CelEvaluator(flow.flow["expressions"], "test"))
    return Simulator(graph, script, order="first").start(inputs).run()


def errors(body: str) -> list[str]:
    """Return the codes and messages of a rejected flow."""
    with pytest.raises(FlowFileError) as refused:
        compiled(body)
    return [f"{one.code} {one.message}" for one in refused.value.diagnostics]


# Complete flows


def test_the_examples_pass_without_a_warning() -> None:
    found = [(file, one) for file in examples.FILES for one in examples.compiled(file).diagnostics]

    assert found == []


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"nowhere\.yaml"):
        compile_file(tmp_path / "nowhere.yaml")


@pytest.mark.endurance
def test_a_flow_compiles_without_recursion_over_its_steps_which_name_one_another() -> None:
    count = 2 * sys.getrecursionlimit()
    lines = ["steps:", "  - {id: s0, output: 0}"]
    lines += [
        f"  - {{id: s{i}, output: '${{{{ steps.s{i - 1}.output }}}}'}}" for i in range(1, count)
    ]

    flow = compiled("\n".join(lines))

    assert len(flow.flow["steps"]) == count
    assert flow.diagnostics == []


# Values and names


def test_the_defaults_of_inputs_are_computed_in_the_order_of_what_they_need() -> None:
    flow = compiled(
        """
        inputs:
          third: {type: string, default: "${{ inputs.second }}!"}
          second: {type: string, default: "${{ inputs.first }} ${{ execution.id }}"}
          first: {type: string, default: hello}
        steps: [{id: a, output: "${{ inputs.third }}"}]
        """
    )

    assert [name for name, _ in flow.flow["defaults"]] == ["second", "third"]


def test_defaults_that_need_one_another_are_refused() -> None:
    found = errors(
        """
        inputs:
          a: {type: string, default: "${{ inputs.b }}"}
          b: {type: string, default: "${{ inputs.a }}"}
        steps: [{id: x, output: 1}]
        """
    )

    assert found == ["E103 the defaults of 'a' and 'b' depend on each other"]


# Calls


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(
        "def pay(amount: float, account: str, key: str = '') -> dict[str, int]:\n    '''Pay.'''\n"
    )
    return tmp_path


def test_the_type_of_a_result_is_that_of_the_signature(shop: Path) -> None:
    with pytest.raises(FlowFileError, match="E311"):
        compiled(
            """
            steps:
              - {id: a, python: "shop:pay", with: {amount: 1, account: x}}
              - {id: b, output: "${{ steps.a.output.left + 'x' }}"}
            """,
            shop,
        )


# Waits, approvals, errors


def test_a_handler_of_the_flow_may_lead_to_a_step_that_nothing_else_leads_to() -> None:
    flow = compiled(
        """
        steps:
          - {id: a, http: https://example.com, next: end}
          - {id: tell, output: sorry}
        on_error: [{type: HttpError, next: tell}]
        outputs: {x: "${{ default(steps.tell.output, 'fine') }}"}
        """
    )

    assert flow.diagnostics == []
    assert run(flow, {"a": {"status": 200}}).state["outputs"] == {"x": "fine"}
