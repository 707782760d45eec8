"""Coverage of flows by cases: which steps count as branches of an execution."""

from __future__ import annotations

from pathlib import Path

from flowengine.engines.flows import load
from flowengine.testing.suite import Coverage

FLOW = """
flowengine: 1
id: main
flows:
  inside: {steps: [{id: weigh, flow: deep}]}
  deep: {steps: [{id: scale}]}
  apart: {steps: [{id: print, flow: later}]}
  later: {steps: [{id: fold}]}
steps:
  - {id: ask, flow: inside}
  - {id: begin, flow: apart, detach: true}
"""


def test_what_is_detached_is_an_execution_of_its_own_and_none_of_its_steps_is_a_branch(
    tmp_path: Path,
) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text(FLOW)
    coverage = Coverage(load(path).compiled)

    reported = {coverage.name(branch) for branch in coverage.reported()}

    assert reported == {f"{step}: never entered" for step in ("ask", "begin", "weigh", "scale")}


def test_a_flow_that_is_run_and_detached_counts(tmp_path: Path) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text(FLOW + "  - {id: here, flow: apart}\n")
    coverage = Coverage(load(path).compiled)

    steps = {coverage.flow["steps"][branch.step]["id"] for branch in coverage.branches}

    assert steps == {"ask", "begin", "here", "weigh", "scale", "print", "fold"}
