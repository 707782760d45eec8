"""Plumbing: steps that only connect a generated flow are hidden from users."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from flowengine import Engine, LoadedFlow, load
from flowengine.engines.inspection.reasons import _shown_address
from flowengine.flow.structural_hash import structural_hash
from flowengine.kernel.view import View
from tests.simulation.simulator import Simulator
from tests.testing.graphs import graph, step

FLOW = """flowengine: 1
id: f
inputs: {bad: {type: boolean, default: false}}
steps:
  - id: work
    group:
      - id: pick
        next: {first: [{when: "${{ inputs.bad }}", to: left}, {else: right}]}
      - {id: left, fail: no luck, on_error: continue, next: both}
      - {id: right, output: 2, next: both}
      - {id: both, join: each, output: "${{ 6 / (inputs.bad ? 0 : 1) }}"}
"""


def flow(folder: Path, *plumbing: str) -> LoadedFlow:
    """Return the flow with some of its steps marked as plumbing, as in a generated flow."""
    (folder / "f.yaml").write_text(FLOW)
    loaded = load(folder / "f.yaml")
    compiled: Any = copy.deepcopy(loaded.compiled)
    for spec in compiled["steps"]:
        if spec["id"] in plumbing:
            spec["plumbing"] = True
    return loaded._replace(compiled=compiled, form=structural_hash(compiled))


def addresses(shown: Any) -> list[str]:
    return [step["address"] for step in shown["steps"]]


def test_show_leaves_plumbing_out_unless_it_is_asked_for(tmp_path: Path) -> None:
    with Engine(None) as engine:
        id = engine.run(flow(tmp_path, "pick", "both")).execution
        some, all_ = engine.executions.show(id), engine.executions.show(id, plumbing=True)
        one = engine.executions.show(id, step="work/both")

    assert addresses(some) == ["work", "work/right"]
    assert addresses(all_) == ["work", "work/pick", "work/right", "work/both"]
    assert [step.get("plumbing", False) for step in all_["steps"]] == [False, True, False, True]
    assert addresses(one) == ["work/both"]


def test_plumbing_that_failed_is_shown(tmp_path: Path) -> None:
    with Engine(None) as engine:
        result = engine.run(flow(tmp_path, "pick", "both"), {"bad": True})
        shown = engine.executions.show(result.execution)

    assert result.status == "failed"
    assert addresses(shown) == ["work", "work/left", "work/both"]


def test_the_graph_for_programs_has_plumbing_and_says_so(tmp_path: Path) -> None:
    nodes = flow(tmp_path, "pick").to_networkx().nodes

    assert nodes["pick"]["plumbing"] is True
    assert "plumbing" not in nodes["left"]


def test_why_names_the_step_around_plumbing() -> None:
    played = Simulator(
        graph(step("work", group=[step("pick", plumbing=True), step("right")]))
    ).start()
    [unit] = [one for one in played.state["units"].values() if one["phase"] == "run"]

    assert _shown_address(View(played.graph, played.state), unit) == "work"
