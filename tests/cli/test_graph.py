# Shows F5, P4
"""Pictures of compiled graphs are complete and without overlaps. `graph.md` shows some."""

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

import pytest

from flowengine.drawing.layout import SMALL_CHARACTER, ArrowRoute, Laid, label_of, lay_out
from flowengine.drawing.picture import draw
from flowengine.drawing.svg import _curve
from flowengine.flow.compile import compile_file
from tests.cli.conftest import CommandLine, also_served
from tests.transcripts import write_files

PAGE = Path(__file__).with_name("graph.md")
EXAMPLES = Path(__file__).parents[2] / "examples"
FLOWS = sorted(
    path for path in EXAMPLES.rglob("*.yaml") if path.read_text().find("flowengine: 1") >= 0
)


@pytest.fixture
def every(flowengine: CommandLine) -> Path:
    write_files(PAGE.read_text(encoding="utf-8").partition("\n## ")[0])
    return flowengine.folder / "every.yaml"


@pytest.mark.endurance
@pytest.mark.parametrize("flow", FLOWS, ids=[path.stem for path in FLOWS])
def test_svg_holds_every_step_of_the_examples(flowengine: CommandLine, flow: Path) -> None:
    text = flowengine("graph", flow, "--format", "svg").out

    root = ElementTree.fromstring(text)
    groups = {group.get("id") for group in root.iter("{http://www.w3.org/2000/svg}g")}
    compiled = compile_file(flow).flow
    found = set()
    for step in compiled["steps"]:
        if step["body"] >= 0:
            other = compiled["bodies"][step["body"]].get("flow", 0)
            name = step["id"].replace(".", "__")
            found.add(f"flow_{other}_step_{name}" if other else f"step_{name}")
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
        (x - width / 2, y - 9, width, 18)
        for arrow, _, (x, y), *_sides in laid.routes
        if arrow.label
        for width in [len(label_of(arrow)) * SMALL_CHARACTER + 14]
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
