"""Warnings about outputs that are null although the step succeeded (W305, W417)."""

from __future__ import annotations

import pytest

from flowengine.errors import FlowFileError
from flowengine.flow.compile import compile_text

FORK = """
  - id: g
    group:
      - {id: a, output: {x: 1}, next: {first: [{when: "${{ inputs.n > 1 }}", to: b}, {else: end}]}}
      - {id: b, output: {x: 2}}
"""
SKIPPED = """
  - id: g
    group:
      - {id: a, output: {x: 1}}
      - {id: b, when: "${{ inputs.n > 1 }}", output: {x: 2}}
"""
PARALLEL = """
  - id: g
    parallel:
      - {id: a, output: {x: 1}}
      - {id: b, when: "${{ inputs.n > 1 }}", output: {x: 2}}
"""
HEAD = "flowengine: 1\nid: f\ninputs: {n: {type: integer, default: 1}}\n"
NO_OUTPUT = "W417 'g' has no output, because 'a' and 'b' lead out of it"


def told(steps: str, use: str, more: str = "") -> list[str]:
    """Return the warnings about a flow whose last step, or whose `more`, uses an output."""
    step = f'\n  - {{id: use, output: "${{{{ {use} }}}}"}}\n' if use else "\n"
    found = compile_text(f"{HEAD}steps:{steps}{step}{more}").diagnostics
    return [f"{one.code} {one.message}" for one in found]


@pytest.mark.parametrize(
    "use", ["steps.g.output", "steps.g.output == 5", "[steps.g.output]", "string(steps.g.output)"]
)
def test_a_group_with_several_ways_out_gives_nothing(use: str) -> None:
    (found,) = told(FORK, use)
    assert found.startswith(NO_OUTPUT)


def test_the_hint_says_which_output_it_can_have() -> None:
    (found,) = compile_text(
        f'{HEAD}steps:{FORK}outputs: {{x: "${{{{ steps.g.output }}}}"}}\n'
    ).diagnostics
    assert found.hint == "give 'g' 'output: ${{ default(steps.b.output, steps.a.output) }}'"


def test_it_gives_nothing_to_outputs_conditions_and_joins_either() -> None:
    outputs = 'outputs: {x: "${{ steps.g.output }}"}\n'
    own = FORK + "    set: {k: '${{ output }}'}\n"
    join = (
        "\n  - {id: s, next: {all: [g, h]}}"
        + FORK
        + "    next: j\n  - {id: h, output: 1, next: j}\n"
        + "  - {id: j, join: all, output: '${{ join.outputs.g }}'}\n"
    )
    assert [one[:4] for one in told(FORK, "", outputs)] == ["W417"]
    assert [one[:4] for one in told(own, "", "state: {k: {}}\n") if one[:4] != "W105"] == ["W417"]
    assert [one[:4] for one in told(join, "1")] == ["W417"]


def test_what_is_wrong_inside_of_it_says_what_to_do() -> None:
    with pytest.raises(FlowFileError) as raised:
        told(FORK, "steps.g.output.x")
    (error,) = raised.value.diagnostics
    assert error.code == "E311"
    assert "default(steps.b.output, steps.a.output)" in str(error.hint)


def test_a_list_of_such_outputs_is_one_of_nulls() -> None:
    assert told(FORK + "    map: 3\n", "steps.g.output")[0].startswith(NO_OUTPUT)


@pytest.mark.parametrize(
    ("steps", "use"),
    [
        (SKIPPED, "steps.g.output.x"),
        (SKIPPED + "    output: '${{ steps.b.output }}'\n", "steps.g.output.x"),
        (SKIPPED + "    output: '${{ result }}'\n", "steps.g.output.x"),
        (SKIPPED + "  - {id: c, output: '${{ steps.g.output }}'}\n", "steps.c.output.x"),
        (PARALLEL, "steps.g.output.b.x"),
        (SKIPPED.replace('when: "${{ inputs.n > 1 }}"', "on_error: continue"), "steps.g.output.x"),
    ],
    ids=["last", "output", "result", "passed_on", "parallel", "failed"],
)
def test_an_output_that_comes_from_a_step_that_may_not_run_may_be_missing(
    steps: str, use: str
) -> None:
    (found,) = told(steps, use)
    value = use.removesuffix(".x")
    assert found.startswith("W305 'b' may have ")
    assert found.endswith(f": '{value}' is then null")


def test_a_signal_that_was_passed_on_says_why_it_may_be_missing() -> None:
    found = compile_text(
        "flowengine: 1\nid: f\nsignals: {paid: {data: {type: object}}}\nsteps:\n"
        "  - {id: a, output: 1, next: b}\n"
        "  - {id: t, trigger: paid, next: b}\n"
        "  - {id: b, join: each, output: '${{ signal }}', next: c}\n"
        "  - {id: c, output: '${{ steps.b.output.data }}'}\n"
    ).diagnostics
    says = "a token that no message started may have come: 'steps.b.output' is then null"
    assert [one.message for one in found] == [says]


def test_its_own_next_is_told_as_well() -> None:
    way = "    next: {first: [{when: '${{ output.x > 1 }}', to: use}, {else: end}]}\n"
    (found,) = told(SKIPPED + way, "1")
    assert found.startswith("W305 'b' may have been skipped")


@pytest.mark.parametrize(
    ("steps", "use"),
    [
        (FORK, "default(steps.g.output, 1)"),
        (FORK, "steps.g.output == null"),
        (FORK, "steps.g.status == 'succeeded'"),
        (
            FORK + "    output: '${{ default(steps.b.output, steps.a.output) }}'\n",
            "steps.g.output.x",
        ),
        (FORK.replace("{else: end}", "{else: b}"), "steps.g.output.x"),
        (SKIPPED, "steps.g.output"),
        (SKIPPED, "default(steps.g.output.x, 1)"),
        (SKIPPED, "has(steps.g.output.x)"),
        (SKIPPED, "steps.g.output != null ? steps.g.output.x : 0"),
        (PARALLEL, "steps.g.output.a.x"),
        (PARALLEL, "steps.g.output"),
        (PARALLEL, "default(steps.g.output.b.x, 1)"),
    ],
)
def test_nothing_is_said_of_what_is_there_or_guarded(steps: str, use: str) -> None:
    assert told(steps, use) == []


CHILD = """
flows:
  child:
    inputs: {n: {type: integer}}
    steps: [{id: b, when: "${{ inputs.n > 1 }}", output: {x: 2}}]
    outputs: {o: %s}
"""
CALL = "\n  - {id: g, flow: child, with: {n: 1}}"


@pytest.mark.parametrize(
    ("output", "use", "warned"),
    [
        ('"${{ steps.b.output }}"', "steps.g.output.o.x", True),
        ('"${{ steps.b.output }}"', "default(steps.g.output.o.x, 1)", False),
        ('"${{ steps.b.output }}"', "steps.g.output.o", False),
        ('{value: "${{ steps.b.output }}", type: object}', "steps.g.output.o.x", False),
        ("\"${{ default(steps.b.output, {'x': 1}) }}\"", "steps.g.output.o.x", False),
    ],
)
def test_an_output_of_a_flow_may_be_missing(output: str, use: str, warned: bool) -> None:
    found = told(CALL, use, CHILD % output)
    says = "W305 'child' may end without it: 'steps.g.output.o' is then null"
    assert found == ([says] if warned else [])


def test_ways_that_are_wrong_are_told_alone() -> None:
    broken = FORK.replace("{else: end}", "{to: end}")
    with pytest.raises(FlowFileError) as raised:
        told(broken, "steps.g.output == 5")
    assert [one.code for one in raised.value.diagnostics] == ["E104"]
