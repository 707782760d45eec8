"""Pictures of compiled graphs: nothing is missing, nothing overlaps."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest

from flowengine.cli.drawing.layout import Laid, lay_out
from flowengine.cli.drawing.picture import draw
from flowengine.flow.compile import compile_file
from tests.cli.conftest import CommandLine

EXAMPLES = Path(__file__).parents[2] / "examples"
FLOWS = sorted(
    path for path in EXAMPLES.rglob("*.yaml") if path.read_text().find("flowengine: 1") >= 0
)
EVERY = """\
flowengine: 1
id: every
title: Every "form"
inputs: {n: {type: integer, default: 3}}
state: {level: {type: integer, default: 0, reducer: add}}
steps:
  - id: draft
    output: text
    next: review
  - id: review
    approval: {title: Good?, choices: [approve, reject, {id: redo, label: Again}]}
    next: {outcome: {approve: fan, reject: stop, redo: draft}}
  - id: fan
    next: {all: [left, {when: "${{ inputs.n > 1 && state.level == 0 }}", to: right}]}
  - id: left
    loop: {until: "${{ round.number > 2 }}", max: 5}
    output: 1
    next: meet
  - id: right
    run: exit 3
    effect: pure
    retry: 2
    on_error: [{type: ExitCode, next: rescue}]
    next: meet
  - id: rescue
    output: 2
    next: meet
  - id: meet
    join: active
    next: {first: [{when: "${{ state.level > 100 }}", to: end_all}, {else: again}]}
  - id: again
    set: {level: 1}
    next: {first: [{when: "${{ state.level < 3 }}", to: again}, {else: done}]}
  - id: done
    map: "${{ inputs.n }}"
    parallel:
      - {id: a, output: 1, compensate: {call: std.print, with: {text: x}}}
      - {id: b, wait: 1s}
    next: end
  - id: stop
    fail: no
"""
MERMAID = """\
---
title: Every "form"
---
flowchart TD
  start_0((" "))
  step_draft["draft"]
  step_review{{"review<br/>approval"}}
  step_fan{"fan"}
  step_left["left<br/>loop until round.number #62; 2, max 5"]
  step_right["right<br/>run<br/>retry 2"]
  step_rescue["rescue"]
  step_meet{"meet<br/>join active"}
  step_again{"again"}
  subgraph step_done["done<br/>map item in inputs.n"]
    start_1((" "))
    step_a["a"]
    step_b(["b<br/>wait"])
    undo_a[["undo a<br/>std.print"]]
    end_1(("end"))
    start_1 --> step_a
    start_1 --> step_b
    step_a --> end_1
    step_a -.- undo_a
    step_b --> end_1
  end
  step_stop[/"stop<br/>fail"/]
  end_0(("end"))
  end_all_0((("end<br/>all")))
  start_0 --> step_draft
  step_draft --> step_review
  step_review -->|"approve"| step_fan
  step_review -->|"reject"| step_stop
  step_review -->|"redo"| step_draft
  step_fan --> step_left
  step_fan -->|"inputs.n #62; 1 #38;#38; state.level == 0"| step_right
  step_left --> step_meet
  step_right --> step_meet
  step_right -.->|"ExitCode"| step_rescue
  step_rescue --> step_meet
  step_meet -->|"state.level #62; 100"| end_all_0
  step_meet -->|"else"| step_again
  step_again -->|"state.level #60; 3"| step_again
  step_again -->|"else"| step_done
  step_done --> end_0
"""


@pytest.fixture
def every(flowengine: CommandLine) -> Path:
    return flowengine.write("every.yaml", EVERY)


def test_mermaid_shows_groups_maps_loops_joins_and_every_way(
    flowengine: CommandLine, every: Path
) -> None:
    assert flowengine("graph", every).out == MERMAID


def test_dot_has_the_same_boxes_and_arrows(flowengine: CommandLine, every: Path) -> None:
    text = flowengine("graph", every, "--format", "dot").out

    assert "subgraph cluster_step_done {" in text
    assert text.count(" -> ") == MERMAID.count("-->") + MERMAID.count("-.")
    assert 'label="inputs.n > 1 && state.level == 0"' in text
    assert 'label="Every \\"form\\""' in text
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize("flow", FLOWS, ids=[path.stem for path in FLOWS])
def test_svg_holds_every_step_of_the_examples(flowengine: CommandLine, flow: Path) -> None:
    text = flowengine("graph", flow, "--format", "svg").out

    root = ElementTree.fromstring(text)
    groups = {group.get("id") for group in root.iter("{http://www.w3.org/2000/svg}g")}
    steps = compile_file(flow).flow["steps"]
    assert {f"step_{step['id']}" for step in steps if step["body"] >= 0} <= groups


@pytest.mark.parametrize("flow", ["every", *[str(path) for path in FLOWS]])
def test_boxes_and_labels_do_not_overlap_and_are_inside(every: Path, flow: str) -> None:
    frame = draw(compile_file(every if flow == "every" else flow).flow).frame

    check(lay_out(frame))


def check(laid: Laid) -> None:
    boxes = list(laid.places.values())
    boxes += [
        (x - len(arrow.label) * 2.8, y - 7, len(arrow.label) * 5.6, 14)
        for arrow, _, (x, y) in laid.routes
        if arrow.label
    ]
    for one, other in combinations(boxes, 2):
        apart = (
            one[0] + one[2] <= other[0] + 0.1
            or other[0] + other[2] <= one[0] + 0.1
            or one[1] + one[3] <= other[1] + 0.1
            or other[1] + other[3] <= one[1] + 0.1
        )
        assert apart, (one, other)
    for x, y, width, height in boxes:
        assert x >= -0.1
        assert x + width <= laid.width + 0.1
        assert y >= -0.1
        assert y + height <= laid.height + 0.1
    for inner in laid.inside.values():
        check(inner)


def test_an_execution_is_drawn_with_the_state_of_its_steps(
    flowengine: CommandLine, trio: Path
) -> None:
    ids = flowengine("run", trio, code=4).ids
    flowengine("approve", ids[0], code=4)

    text = flowengine("graph", flowengine.newest()[:10]).out

    assert 'step_ask{{"ask<br/>approval<br/>1 succeeded, 2 waiting"}}' in text
    assert re.search(r"class [\w,]*step_ask[\w,]* waiting", text)


def test_what_is_neither_a_file_nor_an_execution_is_said_so(
    flowengine: CommandLine, hello: Path
) -> None:
    flowengine("run", hello)

    done = flowengine("graph", "nothing", code=9)

    assert done.err == "error: there is no file nothing, and no such execution\n"
    assert "cannot write" in flowengine("graph", hello, "-o", "none/x.mmd", code=2).err
