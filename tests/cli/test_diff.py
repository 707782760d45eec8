"""`flowengine diff`: two executions, compared for a human reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine, also_served, steady

FLOW = """
flowengine: 1
id: story
inputs: {words: {type: integer}, name: {type: string, default: Ada}}
steps:
  - id: write
    output: "${{ inputs.name }}"
  - id: ask
    approval: {title: "Fine?", subject: {text: "${{ steps.write.output }}"}}
    next: {outcome: {approve: print, reject: end}}
  - id: print
    output: {text: "${{ steps.write.output }}", words: "${{ inputs.words }}"}
outputs: {printed: "${{ steps.print.output }}"}
"""


@pytest.fixture
def story(flowengine: CommandLine) -> Path:
    return flowengine.write("story.yaml", FLOW)


def run(flowengine: CommandLine, story: Path, command: str, *inputs: str) -> str:
    """Run the story, decide, and return the execution's ID."""
    given = [word for one in ("words=1", *inputs) for word in ("-i", one)]
    wait = flowengine("run", story, *given, code=4).ids[-1]
    flowengine(command, wait)
    return flowengine.newest()


@also_served
def test_the_parting_is_shown_in_eighty_columns(flowengine: CommandLine, story: Path) -> None:
    left = run(flowengine, story, "approve")
    right = run(flowengine, story, "reject")

    done = flowengine("diff", left, right, code=1)

    assert max(map(len, done.out.splitlines())) <= 80
    assert done.err == ""
    text = steady(done.out)
    assert "diverge     at the end of ask" in text
    for row in ("outcome approve reject", "status succeeded succeeded", "output.choice"):
        assert row in " ".join(text.split())
    assert "\n  print  succeeded   -" in text
    assert text.endswith("they differ\n")


@also_served
def test_the_same_end_with_zero(flowengine: CommandLine, story: Path) -> None:
    left, right = (run(flowengine, story, "approve") for _ in range(2))
    done = flowengine("diff", left, right)
    assert done.out.endswith("the same\n")
    assert flowengine("--json", "diff", left, right).json()["same"] is True


@also_served
def test_large_values_are_cut_where_they_differ(flowengine: CommandLine, story: Path) -> None:
    long = "x" * 5000
    left = run(flowengine, story, "approve", f"name={long}LEFT{long}")
    right = run(flowengine, story, "approve", f"name={long}RIGHT{long}")

    done = flowengine("diff", left, right, code=1)

    assert max(map(len, done.out.splitlines())) <= 80
    assert "diverge     at the inputs" in done.out
    assert "xLEFTx" in done.out
    assert "xRIGHTx" in done.out
    told = flowengine("--json", "diff", left, right, code=1).json()
    assert told["inputs"] == [
        {"path": "name", "left": f"{long}LEFT{long}", "right": f"{long}RIGHT{long}"}
    ]


@also_served
def test_text_of_a_flow_cannot_control_the_terminal(flowengine: CommandLine, story: Path) -> None:
    left = run(flowengine, story, "approve", "name=\x1b[31mred")
    right = run(flowengine, story, "approve", "name=\x1b[32mgreen\nnew line")
    done = flowengine("diff", left, right, code=1)
    assert "\x1b" not in done.out
    assert "red" in done.out


@also_served
def test_a_fork_says_so(flowengine: CommandLine, story: Path) -> None:
    left = run(flowengine, story, "approve")
    wait = flowengine("fork", left, "--from-step", "ask", code=4).ids[-1]
    flowengine("reject", wait)
    done = flowengine("diff", left, flowengine.newest(), code=1)
    assert "fork        right was forked from left at ask" in done.out
    assert "copied from it are the same in both" in done.out
    assert "diverge     at the end of ask" in done.out


@also_served
def test_what_is_not_there_ends_with_nine(flowengine: CommandLine, story: Path) -> None:
    left = run(flowengine, story, "approve")
    assert "no execution" in flowengine("diff", left, "nothing", code=9).err
