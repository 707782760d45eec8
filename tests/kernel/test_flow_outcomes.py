"""Flows that declare their outcome, which becomes that of the step that runs them."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.errors import FlowFileError
from flowengine.flow.compile import compile_text
from flowengine.flow.compile.compilation import Compilation
from flowengine.flow.expressions.evaluator import CelEvaluator
from flowengine.flow.loading.files import FlowFiles
from flowengine.flow.models import GeneratedBody
from flowengine.flow.models.reading import Reading
from flowengine.flow.source.diagnostics import Diagnostics
from flowengine.flow.source.yaml_source import read_text
from flowengine.kernel import Graph
from flowengine.kernel.graph.specs import CompiledFlow
from tests.rows import each_row
from tests.simulation.simulator import Simulator
from tests.testing.graphs import Described, graph, output_of, step, v, x

RAISES = {"refused": "Refused", "stuck": "NotResolved"}


def play(said: Any, keys: Described, *more: Described, outcome: bool = True) -> Simulator:
    """Run a flow whose step `run` runs a subflow with the outcome `said`."""
    child: Described = {"steps": [step("inside", action="none")]}
    child["outputs"] = {"text": v("done")}
    if outcome:
        child["outcome"] = v(said)
    flow = graph(
        step("run", action="flow", flow="child", raises=RAISES, **keys),
        *more,
        flows={"child": child},
        outputs={
            "outcome": v(x(lambda names: names["steps"]["run"]["outcome"])),
            "output": v(output_of("run")),
            "refused": v(x(lambda names: names["steps"]["refused"]["status"])),
            "error": v(x(lambda names: names["steps"]["run"]["error"])),
        },
    )
    return Simulator(flow, order="first").start().run()


ROUTED = {"next": {"outcome": {"refused": "refused", "else": "other"}}}
TARGETS = (step("refused", next="end"), step("other", next="end"))


def outputs(played: Simulator) -> dict[str, Any]:
    assert played.outputs is not None, played.error
    return played.outputs


def test_an_outcome_is_routed() -> None:
    assert outputs(play("refused", ROUTED, *TARGETS))["refused"] == "succeeded"
    assert outputs(play("resolved", ROUTED, *TARGETS))["refused"] == "none"


def test_an_outcome_that_nobody_routes_raises_if_it_is_one_that_does() -> None:
    played = play("stuck", {"next": {"outcome": {"refused": "refused"}}}, *TARGETS)

    assert played.error is not None
    assert played.error["type"] == "NotResolved"
    assert played.error["message"] == "'run' ended in NotResolved"
    assert played.error["data"] == {"text": "done"}


def test_a_raised_outcome_is_tried_again() -> None:
    again = {"attempts": 3, "delay": "1s", "only": ["NotResolved"]}
    played = play("stuck", {"next": "end", "retry": again}, *TARGETS)

    tried = [o for o in played.observations if o.address == "run" and o.status == "running"]
    assert [o.attempt for o in tried] == [1, 2, 3]


@each_row("said", ["", 3, None, ["resolved"]])
def test_an_outcome_is_a_name(said: Any) -> None:
    played = play(said, {"next": "end"}, *TARGETS)

    assert played.error is not None
    assert played.error["type"] == "ValidationError"
    assert played.error["message"].startswith("outcome: expected text, got")


def test_an_outcome_sees_the_state_and_steps_of_its_flow() -> None:
    said = x(lambda names: f"{names['state']['s']}_{names['steps']['inside']['status']}")
    child: Described = {"steps": [step("inside", set=[["s", v("set")]])], "outcome": v(said)}
    child |= {"state": {"s": {"default": "new"}}, "outputs": {}}
    flow = graph(
        step("run", action="flow", flow="child"),
        flows={"child": child},
        outputs={"outcome": v(x(lambda names: names["steps"]["run"]["outcome"]))},
    )

    played = Simulator(flow, order="first").start().run()

    assert outputs(played)["outcome"] == "set_succeeded"


TEXT = """flowengine: 1
id: f
flows:
  child: {state: {end: {type: string, default: resolved}}, steps: [{id: inside, set: {end: stuck}}]}
steps:
  - {id: run, flow: child}
outputs: {outcome: "${{ steps.run.outcome }}"}
"""


def compiled(outcome: str) -> tuple[CompiledFlow, list[str]]:
    """Compile a flow whose `child` declares an outcome, as generated flows do."""
    files = FlowFiles(Diagnostics())
    first = files.first(read_text(TEXT, "flow.yaml"), ".", None)
    assert first is not None
    first.flows["child"].outcome = outcome
    compilation = Compilation(files, first)
    compilation.check()
    errors = [one.message for one in files.diagnostics.errors]
    return {} if errors else compilation.link(), errors


def test_a_generated_flow_says_its_outcome() -> None:
    flow, _ = compiled("${{ state.end }}")
    played = Simulator(Graph(flow, CelEvaluator(flow["expressions"], "f"))).start().run()

    assert played.outputs == {"outcome": "stuck"}


def test_the_outcome_of_a_generated_flow_is_text() -> None:
    assert compiled("${{ 3 }}")[1] == ["expected text, got a whole number"]
    body = Reading().part(GeneratedBody, {"steps": [{"id": "a"}], "outcome": "${{ 'done' }}"})
    assert body.outcome == "${{ 'done' }}"


def test_a_flow_of_a_file_has_no_outcome_of_its_own() -> None:
    with pytest.raises(FlowFileError) as caught:
        compile_text(TEXT.replace("child: {", "child: {outcome: '${{ state.end }}', "))

    assert "unknown key 'outcome' in a flow" in str(caught.value)


def test_a_handler_leads_back_into_a_flow_whose_turn_never_came() -> None:
    flow = graph(
        step("a", next="end"),
        step("after", next="end"),
        concurrency={"max": 1, "then": "queue"},
        limits={"duration": "1h"},
        on_error=[{"types": ["LimitExceeded"], "do": "next", "to": "after"}],
    )
    played = Simulator(flow, {"a": 1, "after": 2}).start()
    played.pass_time()
    assert played.started == ["after"]
    assert played.run().status == "succeeded"
    assert played.started == ["after"]
