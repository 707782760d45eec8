"""Steps that only connect a generated flow are hidden on the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine.flow.compile.flow import Compiler
from tests.cli.conftest import CommandLine, also_served

FLOW = """flowengine: 1
id: f
inputs: {bad: {type: boolean, default: false}}
steps:
  - id: work
    group:
      - {id: pick, next: right}
      - {id: right, output: 2}
      - {id: both, output: "${{ 6 / (inputs.bad ? 0 : 1) }}"}
"""


@pytest.fixture
def path(flowengine: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A flow with two steps marked as in a generated flow."""
    compile = Compiler.compile

    def marking(compiler: Compiler) -> None:
        compile(compiler)
        for spec in compiler.plan.flow["steps"]:
            if spec["id"] in ("pick", "both"):
                spec["plumbing"] = True

    monkeypatch.setattr(Compiler, "compile", marking)
    return flowengine.write("f.yaml", FLOW)


def steps(text: str) -> list[str]:
    """Return the addresses in lines about steps."""
    return [line.split()[0] for line in text.splitlines() if line.startswith("  work")]


def test_progress_leaves_plumbing_out_but_with_verbose(flowengine: CommandLine, path: Path) -> None:
    assert steps(flowengine("run", path).err) == ["work/right", "work"]
    assert "work/pick" in steps(flowengine("run", "-v", path).err)


def test_progress_tells_of_plumbing_that_failed(flowengine: CommandLine, path: Path) -> None:
    told = flowengine("run", path, "-i", "bad=true", code=1).err

    assert "work/both" in steps(told)
    assert "work/pick" not in steps(told)


@also_served
def test_show_leaves_plumbing_out_but_with_plumbing(flowengine: CommandLine, path: Path) -> None:
    flowengine("run", path)
    id = flowengine.newest()

    assert steps(flowengine("show", id).out) == ["work", "work/right"]
    assert steps(flowengine("show", id, "--plumbing").out) == [
        "work", "work/pick", "work/right", "work/both",
    ]  # fmt: skip
    assert len(flowengine("show", id, "--json").json()["steps"]) == 2


def test_pictures_leave_plumbing_out_but_with_plumbing(flowengine: CommandLine, path: Path) -> None:
    assert "pick" not in flowengine("graph", path).out
    assert "pick" in flowengine("graph", path, "--plumbing").out


def test_cases_expect_no_plumbing_in_the_path(flowengine: CommandLine, path: Path) -> None:
    flowengine.write(
        "f.test.yaml",
        "flow: ./f.yaml\ncases:\n  - {name: good, expect: {path: [work, work/right]}}\n",
    )

    done = flowengine("test", path.parent / "f.test.yaml")

    assert done.out.endswith("f.yaml: 2 of 2 branches taken\n1 passed\n")
