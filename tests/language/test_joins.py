"""Parallel steps are what the group and split that they stand for are (F86)."""

from __future__ import annotations

import pytest

from tests.language.stage import Stage
from tests.simulation.simulator import Fails

PARALLEL = """
steps:
  - id: p
    parallel:
      - {{id: a, python: "tools:act", with: {{value: 1}}, next: {a}}}
      - {{id: b, python: "tools:act", with: {{value: 2}}}}
      - {{id: c, when: "${{{{ false }}}}", python: "tools:act"}}
      - id: d
        group:
          - {{id: d1, python: "tools:act", with: {{value: 3}}}}
          - {{id: d2, python: "tools:act", with: {{value: "${{{{ steps.d1.output }}}}"}}}}
outputs: {{p: "${{{{ steps.p.output }}}}"}}
"""
WRITTEN_OUT = """
steps:
  - id: p
    group:
      - {{id: s, next: {{all: [a, b, c, d]}}}}
      - {{id: a, python: "tools:act", with: {{value: 1}}, next: {a}}}
      - {{id: b, python: "tools:act", with: {{value: 2}}, next: end}}
      - {{id: c, when: "${{{{ false }}}}", python: "tools:act", next: end}}
      - id: d
        group:
          - {{id: d1, python: "tools:act", with: {{value: 3}}}}
          - {{id: d2, python: "tools:act", with: {{value: "${{{{ steps.d1.output }}}}"}}}}
        next: end
    output:
      a: ${{{{ steps.a.output }}}}
      b: ${{{{ steps.b.output }}}}
      c: ${{{{ steps.c.output }}}}
      d: ${{{{ steps.d.output }}}}
outputs: {{p: "${{{{ steps.p.output }}}}"}}
"""


@pytest.mark.endurance
@pytest.mark.parametrize("way", ["end", "end_all"])
# Shows F86
def test_parallel_has_the_history_of_the_group_and_split_that_it_stands_for(
    stage: Stage, way: str
) -> None:
    short, long = (stage.compile(text.format(a=way)) for text in (PARALLEL, WRITTEN_OUT))
    for failing in (None, "b", "d2"):
        script = {failing: Fails("Broken", retryable=False)} if failing else {}
        for seed in range(25):
            one = stage.simulate(short, script, seed=seed)
            other = stage.simulate(long, script, seed=seed)
            assert one.started == other.started
            assert one.story() == [line for line in other.story() if not line.startswith("p/s ")]
            assert one.state["outputs"] == other.state["outputs"]
            assert one.state["error"] == other.state["error"]
