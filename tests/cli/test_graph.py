"""Pictures of compiled graphs are complete and without overlaps."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations, product
from pathlib import Path
from xml.etree import ElementTree

import networkx
import pytest

from flowengine import load
from flowengine.drawing.layout import ArrowRoute, Laid, lay_out
from flowengine.drawing.picture import draw
from flowengine.drawing.svg import _curve
from flowengine.flow.compile import compile_file
from tests.cli.conftest import CommandLine, also_served

EXAMPLES = Path(__file__).parents[2] / "examples"
FLOWS = sorted(
    path for path in EXAMPLES.rglob("*.yaml") if path.read_text().find("flowengine: 1") >= 0
)
EVERY = """\
flowengine: 1
id: every
title: Every "form"
inputs: {n: {type: integer, default: 3}}
state: {level: {type: integer, default: 0, reducer: add}, open: {type: boolean, default: false}}
signals: {paid: {}, extra: {data: {type: string}}, alarm: {}}
limits: {idle: 1h}
flows:
  child:
    inputs: {depth: {type: integer}}
    steps:
      - {id: draft, next: {first: [{when: "${{ inputs.depth > 0 }}", to: deeper}, {else: end}]}}
      - {id: deeper, flow: child, with: {depth: "${{ inputs.depth - 1 }}"}}
steps:
  - id: draft
    output: text
    next: review
  - id: review
    approval: {title: Good?, choices: [approve, reject, {id: redo, label: Again}]}
    next: {outcome: {approve: fan, reject: stop, redo: draft}}
  - id: fan
    title: Fan out <now>
    next: {all: [left, listen, {when: "${{ inputs.n > 1 && state.level == 0 }}", to: right}]}
  - id: left
    loop: {until: "${{ round.number > 2 }}", max: 5, every: 10s}
    lock: {key: desk, permits: 2}
    emit: alarm
    output: 1
    next: meet
  - id: listen
    wait:
      first:
        - {id: paid, signal: paid, transient: true}
        - {id: opened, when: "${{ state.open }}"}
        - {id: late, for: 3d}
    next: {outcome: {else: meet}}
  - id: right
    run: exit 3
    effect: pure
    retry: 2
    timeout: 1m
    on_error: [{type: ExitCode, next: rescue}, {type: Timeout, next: rescue}]
    next: meet
  - id: rescue
    output: 2
    on_error: continue
    next: meet
  - id: meet
    join: active
    next: {first: [{when: "${{ state.level > 100 }}", to: end_all}, {else: again}]}
  - id: again
    set: {level: 1}
    next: {first: [{when: "${{ state.level < 3 }}", to: again}, {else: done}]}
  - id: done
    map: {over: "${{ inputs.n }}", concurrency: 2, more: extra, join: {need: 2, late: cancel}}
    parallel:
      - {id: a, output: 1, compensate: {call: std.print, with: {text: x}}}
      - {id: b, wait: 1s}
    finally:
      - {id: clean, call: std.print, with: {text: x}}
    next: halt
  - id: halt
    cancel: {targets: [left], as: succeeded}
    next: inner
  - {id: inner, flow: child, with: {depth: 2}, next: end}
  - id: stop
    fail: no
  - id: heard
    trigger: alarm
    when: ${{ state.open }}
    next: end
on_error: [{type: Failed, compensate: true, next: end}]
"""
MERMAID = """\
---
title: Every "form"
config:
  flowchart: {subGraphTitleMargin: {top: 4, bottom: 72}}
---
flowchart TD
  start_0((" ")):::begin
  step_draft["draft"]
  step_review{{"review<br/>approval"}}
  step_fan{"Fan out #60;now#62;"}
  step_left["left<br/>loop until round.number #62; 2, max 5, every 10s<br/>lock desk, 2 at once<br/>emits alarm"]
  step_listen(["listen<br/>wait, first of<br/>paid: signal paid, transient<br/>opened: when state.open<br/>late: for 3d"])
  step_right["right<br/>run<br/>retry 2<br/>timeout 1m"]
  step_rescue["rescue<br/>on error: continue"]
  step_meet{"meet<br/>join active"}
  step_again{"again<br/>sets level"}
  subgraph step_done["done<br/>map item in inputs.n, 2 at once<br/>join 2, late cancel<br/>more items by extra"]
    direction TB
    start_1((" ")):::begin
    step_a["a"]
    step_b(["b<br/>wait for 1s"])
    undo_step_a[["undo a<br/>std.print"]]
    subgraph finally_1["finally"]
      direction TB
      start_2((" ")):::begin
      step_clean["clean<br/>std.print"]
      end_2(("end"))
      start_2 --> step_clean
      step_clean --> end_2
    end
    end_1(("end"))
    start_1 --> step_a
    start_1 --> step_b
    step_a --> end_1
    step_a -.- undo_step_a
    step_b --> end_1
    end_1 -.-> finally_1
  end
  step_halt[\\"halt<br/>cancels left as succeeded"/]
  step_inner[["inner<br/>flow child"]]
  step_stop[/"stop<br/>fail"/]
  step_heard["heard<br/>when state.open"]
  trigger_step_heard>"alarm"]
  error_0(["error"])
  end_0(("end"))
  end_all_0((("end<br/>all")))
  subgraph flow_1["flow child"]
    direction TB
    start_3((" ")):::begin
    flow_1_step_draft{"draft"}
    flow_1_step_deeper[["deeper<br/>flow child"]]
    end_3(("end"))
    start_3 --> flow_1_step_draft
    flow_1_step_draft -->|"inputs.depth #62; 0"| flow_1_step_deeper
    flow_1_step_draft -->|"else"| end_3
    flow_1_step_deeper --> end_3
  end
  start_0 --> step_draft
  step_draft --> step_review
  step_review -->|"approve"| step_fan
  step_review -->|"reject"| step_stop
  step_review -->|"redo"| step_draft
  step_fan --> step_left
  step_fan --> step_listen
  step_fan -->|"inputs.n #62; 1 #38;#38; state.level == 0"| step_right
  step_left --> step_meet
  step_listen -->|"else"| step_meet
  step_right --> step_meet
  step_right -.->|"ExitCode#59; Timeout"| step_rescue
  step_rescue --> step_meet
  step_meet -->|"state.level #62; 100"| end_all_0
  step_meet -->|"else"| step_again
  step_again -->|"state.level #60; 3"| step_again
  step_again -->|"else"| step_done
  step_done --> step_halt
  step_halt --> step_inner
  step_inner --> end_0
  step_heard --> end_0
  trigger_step_heard --> step_heard
  error_0 -.->|"Failed, undo"| end_0
  classDef begin fill:#212529,stroke:#212529
"""  # noqa: E501


@pytest.fixture
def every(flowengine: CommandLine) -> Path:
    return flowengine.write("every.yaml", EVERY)


def test_mermaid_shows_groups_maps_loops_joins_and_every_way(
    flowengine: CommandLine, every: Path
) -> None:
    assert flowengine("graph", every).out == MERMAID


def test_a_step_that_only_sends_tokens_to_all_is_no_choice(flowengine: CommandLine) -> None:
    path = flowengine.write(
        "fork.yaml",
        """\
flowengine: 1
id: fork
steps:
  - {id: fork, next: {all: [left, choice]}}
  - {id: left, wait: 1s, next: end}
  - {id: choice, next: {first: [{when: "${{ now > '2030' }}", to: right}, {else: end}]}}
  - {id: right, output: 1}
""",
    )

    drawn = flowengine("graph", path).out
    assert '  step_fork["fork"]:::fork\n' in drawn
    assert '  step_choice{"choice"}\n' in drawn
    assert "  classDef fork fill:" in drawn
    assert (
        'step_fork [label="fork", shape=box, fillcolor="#343a40"'
        in flowengine("graph", path, "--format", "dot").out
    )
    assert 'fill="white">fork</text>' in flowengine("graph", path, "--format", "svg").out


def test_dot_has_the_same_boxes_and_arrows(flowengine: CommandLine, every: Path) -> None:
    text = flowengine("graph", every, "--format", "dot").out

    assert "subgraph cluster_step_done {" in text
    assert text.count(" -> ") == sum(MERMAID.count(sign) for sign in ("-->", "-.->", "-.- "))
    assert 'label="inputs.n > 1 && state.level == 0"' in text
    assert 'label="Every \\"form\\""' in text
    assert text.count("{") == text.count("}")


def test_a_computed_key_and_a_tool_that_notifies_are_drawn(
    flowengine: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "nap.yaml").write_text(
        "flowengine: 1\n"
        "id: nap\n"
        "inputs: {pauses: {type: array, items: {type: string}}, n: {type: integer}}\n"
        "tools: {tell: {slack: https://hooks.example.com/x}}\n"
        "steps:\n"
        "  - {id: nap, wait: '${{ inputs.pauses[inputs.n] }}'}\n"
        "  - {id: ask, approval: {title: Go?, notify: [tell]}}\n"
    )
    text = flowengine("graph", tmp_path / "nap.yaml", "--format", "dot").out

    assert "wait for inputs.pauses[inputs.n]" in text
    assert "flow _notify.tell" in text


@pytest.mark.endurance
@pytest.mark.parametrize("flow", FLOWS, ids=[path.stem for path in FLOWS])
def test_svg_holds_every_step_of_the_examples(flowengine: CommandLine, flow: Path) -> None:
    text = flowengine("graph", flow, "--format", "svg").out

    root = ElementTree.fromstring(text)
    groups = {group.get("id") for group in root.iter("{http://www.w3.org/2000/svg}g")}
    compiled = compile_file(flow).flow
    found = set()
    for step in compiled["steps"]:
        if step["body"] >= 0 and not step.get("plumbing"):
            other = compiled["bodies"][step["body"]].get("flow", 0)
            found.add(f"flow_{other}_step_{step['id']}" if other else f"step_{step['id']}")
    assert found <= groups


@pytest.mark.endurance
@pytest.mark.parametrize("flow", ["every", *[str(path) for path in FLOWS]])
def test_boxes_and_labels_do_not_overlap_and_are_inside(every: Path, flow: str) -> None:
    frame = draw(compile_file(every if flow == "every" else flow).flow).frame

    check(lay_out(frame))


def check(laid: Laid) -> None:
    check_ways(laid)
    boxes = list(laid.places.values())
    boxes += [
        (x - len(arrow.label) * 2.8, y - 7, len(arrow.label) * 5.6, 14)
        for arrow, _, (x, y), *_sides in laid.routes
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


def check_ways(laid: Laid) -> None:
    """Check that no arrow runs through a box other than its source and target."""
    for route in laid.routes:
        others = [
            place for id, place in laid.places.items()
            if id not in (route.arrow.source, route.arrow.target)
        ]  # fmt: skip
        for curve in curves_of(route):
            west, east = min(x for x, _ in curve), max(x for x, _ in curve)
            north, south = min(y for _, y in curve), max(y for _, y in curve)
            near = [  # nearly all are far from the piece, which stays between its control points
                (left, top, left + width, top + height)
                for left, top, width, height in others
                if left < east and west < left + width and top < south and north < top + height
            ]
            for (x, y), (left, top, right, bottom) in product(
                points_of(curve) if near else [], near
            ):
                inside = left + 1 < x < right - 1 and top + 1 < y < bottom - 1
                assert not inside, (route.arrow, x, y)


def curves_of(route: ArrowRoute) -> Iterator[list[tuple[float, float]]]:
    """Yield the pieces of a drawn arrow, each as four control points."""
    numbers = [float(n) for n in re.findall(r"-?[\d.]+", _curve(route, 0, 0))]
    if route.arrow.source == route.arrow.target:
        return
    pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
    for i in range(0, len(pairs) - 3, 3):
        yield pairs[i : i + 4]


def points_of(curve: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return points on a piece, dense enough to hit every box on their way."""
    points = []
    for step in range(21):
        u = step / 20
        parts = [(1 - u) ** 3, 3 * u * (1 - u) ** 2, 3 * u * u * (1 - u), u**3]
        points.append((sum(k * p[0] for k, p in zip(parts, curve, strict=True)),
                       sum(k * p[1] for k, p in zip(parts, curve, strict=True))))  # fmt: skip
    return points


def large(seed: int, steps: int) -> str:
    """Return a flow of many steps with branches, back edges and long edges."""
    draw = random.Random(seed)
    lines = ["flowengine: 1", "id: large", "limits: {activations: 5}", "steps:"]
    for n in range(steps):
        near, far = (min(n + 1 + draw.randrange(k), steps) for k in (4, 30))
        ways = [f"s{far}" if far < steps else "end", f"s{draw.randrange(n + 1)}"]
        ways = ways[: draw.randrange(3)] if n else []
        when = [f"{{when: \"${{{{ now != '{i}' }}}}\", to: {way}}}" for i, way in enumerate(ways)]
        after = f"s{n + 1}" if n + 1 < steps else "end"
        note = ", title: A step with a rather long title to look at" if near % 3 == 0 else ""
        lines.append(
            f"  - {{id: s{n}{note}, next: {{first: [{', '.join([*when, f'{{else: {after}}}'])}]}}}}"
        )
    return "\n".join(lines)


@pytest.mark.endurance
@pytest.mark.parametrize(("seed", "steps"), [(1, 30), (2, 30), (3, 60), (4, 200)])
def test_large_flows_with_cycles_and_long_edges_read_well_too(
    flowengine: CommandLine, seed: int, steps: int
) -> None:
    path = flowengine.write("large.yaml", large(seed, steps))

    check(lay_out(draw(compile_file(path).flow).frame))


HOSTILE = """</text><script>alert('x')</script> & "quoted" \\" ]; x [label=y] %% --> | {{}} `#` \u202e ∑"""  # noqa: E501


@pytest.mark.parametrize("format", ["mermaid", "dot", "svg", "graphml"])
def test_text_of_the_file_stays_text(flowengine: CommandLine, format: str) -> None:
    flow = {
        "flowengine": 1, "id": "flow", "title": HOSTILE,
        "inputs": {"x": {"type": "string"}},
        "steps": [
            {"id": "s", "title": HOSTILE,
             "next": {"first": [{"when": "${{ inputs.x == '<b>\"-->' }}", "to": "t"},
                                {"else": "end"}]}},
            {"id": "t", "title": "line\nbreak\x01 ]] ))", "lock": "x\"];", "wait": "1s",
             "next": "end"},
        ],
    }  # fmt: skip
    text = flowengine(
        "graph", flowengine.write("hostile.yaml", json.dumps(flow)), "--format", format
    ).out

    assert "\u202e" not in text
    if format == "svg":
        assert "<script" not in text
        texts = [one.text or "" for one in ElementTree.fromstring(text).iter() if one.text]
        assert any(one.startswith("</text><script>alert('x')") for one in texts)
    elif format == "graphml":
        texts = [one.text or "" for one in ElementTree.fromstring(text).iter()]
        assert sum(one.startswith("</text><script>alert('x')") for one in texts) == 2
        assert "line\u2424break\ufffd ]] ))" in texts
    elif format == "dot":
        outside = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)
        assert set(re.findall(r"\w+ -> \w+", outside)) == {
            "start_0 -> step_s", "step_s -> step_t", "step_s -> end_0", "step_t -> end_0"
        }  # fmt: skip
        assert "label=y" not in outside
    else:
        assert "<script" not in text.split("---")[2]
        boxes = [line for line in text.splitlines() if line.startswith("  step_s{")]
        assert len(boxes) == 1
        assert not set(boxes[0][len('  step_s{"') : -2]) & set('"<>`]{}')


@pytest.mark.endurance
def test_the_same_flow_gives_the_same_picture_in_every_process(every: Path) -> None:
    program = str(Path(sys.executable).with_name("flowengine"))
    seen = {
        subprocess.run(
            [program, "graph", str(every), "--format", "svg"], capture_output=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip

    assert len(seen) == 1


@also_served
def test_an_execution_is_drawn_with_the_state_of_its_steps(
    flowengine: CommandLine, trio: Path
) -> None:
    ids = flowengine("run", trio, code=4).ids
    flowengine("approve", ids[0], code=4)

    text = flowengine("graph", flowengine.newest()[:10]).out

    assert 'step_ask{{"ask<br/>approval<br/>2 waiting, 1 succeeded"}}' in text
    assert re.search(r"class [\w,]*step_ask[\w,]* waiting", text)


def test_what_is_neither_a_file_nor_an_execution_is_said_so(
    flowengine: CommandLine, hello: Path
) -> None:
    flowengine("run", hello)

    done = flowengine("graph", "nothing", code=9)

    assert done.err == (
        "error: there is no file nothing, and there is no execution 'nothing'"
        f" in {flowengine.folder}/.flowengine\n"
    )
    assert "cannot write" in flowengine("graph", hello, "-o", "none/x.mmd", code=2).err


@also_served
def test_json_is_the_graph_as_data(flowengine: CommandLine) -> None:
    flow = flowengine.write(
        "two.yaml",
        "flowengine: 1\nid: two\nsteps:\n  - {id: a}\n  - {id: b, output: 1}\n"
        "finally:\n  - {id: c, output: 2}\n",
    )
    flowengine("run", flow)

    drawn = flowengine("--json", "graph", flowengine.newest()).json()

    assert drawn["title"] == "two"
    boxes = {box["id"]: box for box in drawn["frame"]["boxes"]}
    assert (boxes["step_a"]["lines"][0], boxes["step_b"]["status"]) == ("a", "succeeded")
    arrows = [(one["source"], one["target"]) for one in drawn["frame"]["arrows"]]
    assert ("step_a", "step_b") in arrows
    [cleaning] = [box for box in drawn["frame"]["boxes"] if box["shape"] == "finally"]
    assert "step_c" in [box["id"] for box in cleaning["frame"]["boxes"]]
    assert flowengine("graph", flowengine.newest(), "--format", "json").json() == drawn


def test_json_and_graphml_are_read_by_networkx(flowengine: CommandLine, every: Path) -> None:
    compiled = load(every).to_networkx()
    flowengine("graph", every, "--format", "graphml", "-o", flowengine.folder / "every.graphml")

    data = flowengine("graph", every, "--format", "json").json()
    of_json = networkx.node_link_graph(data, edges="edges")
    of_xml = networkx.read_graphml(flowengine.folder / "every.graphml", force_multigraph=True)

    assert dict(of_json.nodes.items()) == dict(compiled.nodes.items())
    assert dict(of_json.edges.items()) == dict(compiled.edges.items())
    assert of_json.graph == compiled.graph
    # GraphML cannot represent an empty text
    told = [
        {node: {key: value for key, value in data.items() if value} for node, data in graph.items()}
        for graph in (compiled.nodes, of_xml.nodes)
    ]
    assert told[0] == told[1]
    assert sorted(of_xml.edges()) == sorted(compiled.edges())


@also_served
def test_data_of_an_execution_has_the_status_of_its_steps(
    flowengine: CommandLine, trio: Path
) -> None:
    ids = flowengine("run", trio, code=4).ids
    flowengine("approve", ids[0], code=4)

    data = flowengine("graph", flowengine.newest(), "--format", "json").json()
    xml = ElementTree.fromstring(
        flowengine("graph", flowengine.newest(), "--format", "graphml").out
    )

    nodes = {node["id"]: node for node in data["nodes"]}
    assert (nodes["ask"]["status"], nodes["ask"]["activations"]) == (
        "waiting", "2 waiting, 1 succeeded",
    )  # fmt: skip
    assert "2 waiting, 1 succeeded" in {data.text for data in xml.iter() if data.text}


def test_pictures_do_not_load_networkx(every: Path) -> None:
    code = (
        "import sys; from flowengine.cli import main; path = sys.argv[1]\n"
        "for format in 'mermaid', 'svg': assert not main(['graph', path, '--format', format])\n"
        "sys.exit('networkx' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(every)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\nflowchart" in done.stdout
    assert done.stdout.endswith("</svg>\n")
