"""`loop.keep: all`: the outputs of all rounds."""

from __future__ import annotations

import pytest

from tests.language.stage import Stage


@pytest.mark.parametrize("test", ["until: '${{ output >= 3 }}'", "while: '${{ output < 3 }}'"])
def test_a_loop_gives_the_outputs_of_all_its_rounds(stage: Stage, test: str) -> None:
    """The condition and `round.last` see the output of one round, and later steps see all."""
    text = f"""
steps:
  - id: a
    loop: {{ {test.replace("output <", "default(output, 0) <")}, max: 9, keep: all}}
    python: "tools:count"
    with: {{value: "${{{{ default(round.last, 0) + 1 }}}}"}}
  - {{id: b, output: "${{{{ size(steps.a.output) }}}}"}}
outputs: {{a: "${{{{ steps.a.output }}}}", b: "${{{{ steps.b.output }}}}"}}
"""
    assert stage.play(text).outputs == {"a": [1, 2, 3], "b": 3}


def test_each_item_of_a_map_keeps_its_own_rounds(stage: Stage) -> None:
    text = """
steps:
  - id: a
    map: {over: 3, as: n}
    loop: {until: "${{ round.number > n }}", max: 5, keep: all}
    python: "tools:count"
    with: {value: "${{ n * 10 + round.number }}"}
outputs: {a: "${{ steps.a.output }}"}
"""
    assert stage.play(text).outputs == {"a": [[1], [11, 12], [21, 22, 23]]}


def test_a_group_keeps_what_each_round_gave(stage: Stage) -> None:
    text = """
steps:
  - id: g
    loop: {until: "${{ steps.b.output == 2 }}", max: 5, keep: all}
    group:
      - {id: b, python: "tools:count", with: {value: "${{ round.number }}"}}
    output: "round ${{ round.number }}: ${{ result }}"
outputs: {g: "${{ steps.g.output }}"}
"""
    assert stage.play(text).outputs == {"g": ["round 1: 1", "round 2: 2"]}


def test_too_many_rounds_carry_the_last_output_only(stage: Stage) -> None:
    text = """
steps:
  - id: a
    loop: {until: "${{ output > 9 }}", max: 2, keep: all}
    python: "tools:count"
    with: {value: "${{ round.number }}"}
    on_error: [{type: LoopLimit, output: ["${{ error.data.last }}"]}]
outputs: {a: "${{ steps.a.output }}"}
"""
    assert stage.play(text).outputs == {"a": [2]}
