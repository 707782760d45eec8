"""Values: state, outputs of groups, values of a token's past, defaults (F21, F84, F101)."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine import FlowFileError
from flowengine.testing.simulator import Fails
from tests.language.stage import Stage

# State


@pytest.mark.parametrize(
    ("declared", "writes", "final"),
    [
        ("{type: integer, default: 1}", [2, 3], 3),
        ("{type: array, default: [0], reducer: append}", [1, [2, 3]], [0, 1, 2, 3]),
        ("{type: array, default: [1], reducer: union}", [[2, 1], 3, [3]], [1, 2, 3]),
        ("{type: object, default: {a: 1}, reducer: merge}", [{"b": 2}, {"a": 3}], {"a": 3, "b": 2}),
        ("{type: integer, default: 10, reducer: add}", [5, -7], 8),
        ("{type: number, default: 0.5, reducer: add}", [1, 0.25], 1.75),
        ("{type: number, default: 0, reducer: max}", [3, 7.5, 2], 7.5),
        ("{type: integer, default: 9, reducer: min}", [3, 7], 3),
        ('{type: string, default: "", reducer: add}', ["a", "b"], "ab"),
        ('{type: string, default: "", reducer: {python: "tools:longer"}}', ["abc", "de"], "abc"),
    ],
)
def test_reducer_says_what_a_write_makes_of_the_old_value(
    stage: Stage, declared: str, writes: list[Any], final: Any
) -> None:
    steps = "".join(
        f'  - {{id: w{n}, python: "tools:act", set: {{v: "${{{{ output }}}}"}}}}\n'
        for n in range(len(writes))
    )
    text = f"state: {{v: {declared}}}\nsteps:\n{steps}outputs: {{v: '${{{{ state.v }}}}'}}\n"
    script = {f"w{n}": value for n, value in enumerate(writes)}
    assert stage.run_script(text, script).outputs == {"v": final}


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("{type: integer, default: 1}", "2"),
        ("{type: integer, default: 1, maximum: 5}", 6),
        ("{type: array, items: {type: string}, default: [], reducer: append}", [1]),
        ("{type: integer, default: 1, reducer: add}", "x"),
        ("{type: integer, default: 1, reducer: max}", None),
        ("{type: object, default: {}, reducer: merge}", [1]),
        ('{type: string, default: "", reducer: {python: "tools:longer"}}', 5),
        ('{type: string, default: "", reducer: {python: "tools:broken"}}', "x"),
        ("{type: integer, default: 9223372036854775807, reducer: add}", 1),
    ],
)
def test_write_that_does_not_fit_fails_the_step_and_writes_nothing(
    stage: Stage, declared: str, value: Any
) -> None:
    text = f"""
state: {{v: {declared}, other: {{type: integer, default: 0}}}}
steps:
  - id: w
    python: "tools:act"
    set: {{v: "${{{{ output }}}}", other: 1}}
    on_error: [{{type: ValidationError, next: after}}]
    next: end
  - {{id: after, output: "${{{{ state.v }}}}"}}
outputs: {{after: "${{{{ steps.after.output }}}}", other: "${{{{ state.other }}}}"}}
"""
    result = stage.run_script(text, {"w": value})
    assert result.error is None
    assert result.outputs is not None
    assert result.outputs["after"] == stage.compile(text).flow["state"]["v"]["default"]
    assert result.outputs["other"] == 0


@pytest.mark.parametrize("value", ["inputs.x * 2.0", "[inputs.x * 2.0]"])
def test_a_computed_whole_number_is_an_integer_where_one_is_declared(
    stage: Stage, value: str
) -> None:
    is_list = value.startswith("[")
    declared = "{type: array, items: {type: integer}}" if is_list else "{type: integer, default: 0}"
    read = "state.n[0] + 1" if is_list else "state.n + 1"
    text = f"""
inputs: {{x: {{type: number, default: 1.5}}}}
state: {{n: {declared}}}
steps:
  - {{id: a, set: {{n: "${{{{ {value} }}}}"}}}}
  - {{id: b, output: "${{{{ {read} }}}}"}}
outputs: {{o: "${{{{ steps.b.output }}}}"}}
"""
    assert stage.run(text).outputs == {"o": 4}
    error = stage.run(text.replace("default: 1.5", "default: 1.2")).error
    assert error is not None
    assert (error["type"], error["step"]) == ("ValidationError", "a")


def test_reducer_that_is_not_there_is_an_error(stage: Stage) -> None:
    text = """
state: {v: {type: string, default: "", reducer: {python: "tools:nothing"}}}
steps: [{id: a, set: {v: x}}]
"""
    with pytest.raises(FlowFileError, match=r"E401.*module 'tools' has no function 'nothing'"):
        stage.compile(text)


def test_reducer_cannot_change_what_was_there(stage: Stage) -> None:
    (stage.folder / "reducers.py").write_text("""
def add(old: list, new: int) -> list:
    old.append(new)
    return old
""")
    text = """
state: {v: {type: array, default: [], reducer: {python: "reducers:add"}}}
steps:
  - {id: a, set: {v: 1}, output: "${{ state.v }}"}
  - {id: b, set: {v: 2}, output: "${{ state.v }}"}
outputs: {a: "${{ steps.a.output }}", b: "${{ steps.b.output }}", v: "${{ state.v }}"}
"""
    assert stage.play(text).outputs == {"a": [], "b": [1], "v": [1, 2]}


def test_values_of_one_set_see_the_state_before_it_and_next_sees_it_after(stage: Stage) -> None:
    text = """
state: {a: {type: integer, default: 1}, b: {type: integer, default: 2}}
steps:
  - id: swap
    set: {a: "${{ state.b }}", b: "${{ state.a }}"}
    next: {first: [{when: "${{ state.a == 2 && state.b == 1 }}", to: good}, {else: end}]}
  - {id: good, output: "${{ [state.a, state.b] }}"}
outputs: {good: "${{ steps.good.output }}"}
"""
    assert stage.play(text).outputs == {"good": [2, 1]}


PARALLEL_WRITES = """
state: {{n: {{type: integer, default: 0{reducer}}}}}
steps:
  - {{id: s, next: {{all: [a, b]}}}}
  - {{id: a, python: "tools:act", set: {{n: 1}}, next: j}}
  - {{id: b, python: "tools:act", set: {{n: 2}}, next: j}}
  - {{id: j, join: all, set: {{n: "${{{{ state.n + 10 }}}}"}}}}
outputs: {{n: "${{{{ state.n }}}}"}}
"""


def test_parallel_branches_that_replace_one_key_conflict_in_every_order(stage: Stage) -> None:
    text = PARALLEL_WRITES.format(reducer="")
    assert "W306" in stage.warnings(text)
    for order in (["a", "b"], ["b", "a"]):
        simulator = stage.simulator(text).start()
        for address in order:
            simulator.finish(address)
        error = simulator.state["error"]
        assert error is not None
        assert (error["type"], error["step"]) == ("StateConflict", order[1])
        assert error["data"] == {"key": "n"}


def test_parallel_branches_that_add_to_one_key_do_not(stage: Stage) -> None:
    text = PARALLEL_WRITES.format(reducer=", reducer: add")
    assert "W306" not in stage.warnings(text)
    assert stage.play(text, most=20).outputs == {"n": 16}


def test_branch_that_has_met_the_other_may_replace_what_it_wrote(stage: Stage) -> None:
    text = """
state: {n: {type: integer, default: 0}}
steps:
  - {id: s, set: {n: 1}, next: {all: [a, b]}}
  - {id: a, python: "tools:act", set: {n: 2}, next: j}
  - {id: b, group: [{id: b1, python: "tools:act"}], next: j}
  - {id: j, join: all, set: {n: "${{ state.n + 10 }}"}, next: k}
  - {id: k, group: [{id: k1, set: {n: "${{ state.n * 2 }}"}}]}
  - {id: l, set: {n: "${{ state.n + 1 }}"}}
outputs: {n: "${{ state.n }}"}
"""
    assert stage.play(text, most=20).outputs == {"n": 25}


def test_items_that_replace_one_key_conflict_and_are_warned_of(stage: Stage) -> None:
    text = """
state: {n: {type: integer, default: 0}}
steps:
  - {id: m, map: 3, python: "tools:act", set: {n: "${{ index }}"}}
"""
    assert "W306" in stage.warnings(text)
    state = stage.simulate(text).state
    assert state["error"] is not None
    assert state["error"]["type"] == "MapFailed"
    assert state["error"]["data"]["failed"][0]["error"]["type"] == "StateConflict"


def test_items_one_after_the_other_may_replace_a_key(stage: Stage) -> None:
    """A warning appears only if an item that waits lets the next one start."""
    text = """
state: {n: {type: integer, default: 0}}
steps:
  - id: m
    map: {over: 3, concurrency: 1}
    group:
      - {id: a, python: "tools:act"}
      - {id: b, set: {n: "${{ state.n * 2 + index }}"}}
outputs: {n: "${{ state.n }}"}
"""
    assert stage.warnings(text) == []
    assert stage.play(text).outputs == {"n": 4}
    waiting = text.replace('id: a, python: "tools:act"', "id: a, wait: 1m")
    assert stage.warnings(waiting) == ["W306"]
    assert stage.warnings(text.replace("concurrency: 1", "concurrency: 2")) == ["W306"]


def test_rounds_of_a_loop_replace_a_key_again_and_again(stage: Stage) -> None:
    text = """
state: {n: {type: integer, default: 0}}
steps:
  - {id: r, loop: {until: "${{ state.n == 5 }}", max: 9}, set: {n: "${{ state.n + 1 }}"}}
  - id: g
    loop: {until: "${{ state.n == 8 }}", max: 9}
    group: [{id: inner, python: "tools:act", set: {n: "${{ state.n + 1 }}"}}]
outputs: {n: "${{ state.n }}"}
"""
    assert stage.play(text).outputs == {"n": 8}


# Outputs of groups


P = {"when": "${{ inputs.p }}"}
EITHER = {"id": "a", "next": {"first": [{**P, "to": "b"}, {"else": "c"}]}}
LAST_STEPS: list[tuple[list[dict[str, Any]], Any]] = [
    ([{"id": "a", "output": 1}], 1),
    ([{"id": "a", "output": 1}, {"id": "b", "output": 2}], 2),
    ([{"id": "a", "output": 1}, {"id": "b", "when": "${{ !inputs.p }}", "output": 2}], None),
    (
        [
            {"id": "a", "next": {"all": ["b", "c"]}},
            {"id": "b", "output": 1, "next": "end"},
            {"id": "c", "output": 2},
        ],
        None,
    ),
    (
        [
            EITHER,
            {"id": "b", "output": 1, "next": "d"},
            {"id": "c", "output": 2, "next": "d"},
            {"id": "d", "output": "${{ join.output }}"},
        ],
        1,
    ),
    ([EITHER, {"id": "b", "output": 1, "next": "end"}, {"id": "c", "fail": "no"}], 1),
    ([EITHER, {"id": "b", "output": 1, "next": "end"}, {"id": "c", "output": 2}], None),
    ([{"id": "a", "output": 1, "next": "end_all"}], 1),
    ([{"id": "a", "map": 2, "output": "${{ item }}"}], [0, 1]),
    ([{"id": "a", "group": [{"id": "b", "parallel": [{"id": "c", "output": 3}]}]}], {"c": 3}),
]


@pytest.mark.parametrize(("steps", "gives"), LAST_STEPS)
def test_group_gives_the_output_of_its_last_step_if_there_is_one(
    stage: Stage, steps: list[dict[str, Any]], gives: Any
) -> None:
    flow = {
        "inputs": {"p": {"type": "boolean", "default": True}},
        "steps": [{"id": "g", "group": steps}],
        "outputs": {"g": "${{ steps.g.output }}"},
    }
    assert stage.play(flow).outputs == {"g": gives}


def test_own_output_of_a_group_sees_the_steps_inside_and_the_result(stage: Stage) -> None:
    text = """
steps:
  - id: g
    group:
      - {id: a, output: 1}
      - {id: b, output: 2}
    output: {sum: "${{ steps.a.output + steps.b.output }}", last: "${{ result }}"}
    set: {n: "${{ output.sum * 10 + steps.a.output }}"}
state: {n: {type: integer, default: 0}}
outputs: {g: "${{ steps.g.output }}", n: "${{ state.n }}"}
"""
    assert stage.play(text).outputs == {"g": {"sum": 3, "last": 2}, "n": 31}


@pytest.mark.parametrize(
    "where",
    [
        "next: {first: [{when: '${{ steps.a.output == 1 }}', to: z}, {else: z}]}",
        "on_error: [{when: '${{ steps.a.output == 1 }}', output: 1}]",
    ],
)
def test_steps_inside_a_group_are_not_seen_around_it(stage: Stage, where: str) -> None:
    text = f"""
steps:
  - id: g
    group: [{{id: a, output: 1}}]
    {where}
  - {{id: z, output: 1}}
"""
    with pytest.raises(FlowFileError, match=r"E301.*'steps\.a' is not visible here"):
        stage.compile(text)


# Steps before a token


def test_expression_sees_what_lies_behind_its_token_however_fast_the_others_are(
    stage: Stage,
) -> None:
    text = """
steps:
  - {id: s, next: {all: [a, b]}}
  - {id: a, python: "tools:act", with: {value: 1}, next: c}
  - {id: b, python: "tools:act", with: {value: 2}, next: d}
  - {id: c, python: "tools:act", with: {value: "${{ steps.a.output + 10 }}"}, next: j}
  - {id: d, python: "tools:act", with: {value: "${{ steps.b.output + 20 }}"}, next: j}
  - id: j
    join: all
    output:
      - ${{ steps.a.output }}
      - ${{ steps.b.output }}
      - ${{ steps.c.output + steps.d.output }}
outputs: {j: "${{ steps.j.output }}"}
"""
    assert stage.play(text, most=30).outputs == {"j": [1, 2, 33]}
    with pytest.raises(FlowFileError, match=r"E304.*'steps\.b' cannot have run yet"):
        stage.compile(text.replace("steps.a.output + 10", "steps.b.output + 10"))


def test_latest_of_two_activations_is_seen_after_a_cycle(stage: Stage) -> None:
    text = """
steps:
  - {id: a, output: "${{ default(steps.a.activations, 0) }}", next: b}
  - {id: b, next: {first: [{when: "${{ steps.a.activations < 3 }}", to: a}, {else: c}]}}
  - {id: c, output: ["${{ steps.a.output }}", "${{ steps.a.activations }}"]}
outputs: {c: "${{ steps.c.output }}"}
"""
    assert stage.play(text).outputs == {"c": [2, 3]}


# Defaults (F101)

DEFAULT = """
inputs: {{go: {{type: boolean}}, skip: {{type: boolean}}}}
steps:
  - {{id: s, next: {{first: [{{when: "${{{{ inputs.go }}}}", to: a}}, {{else: z}}]}}}}
  - id: a
    when: ${{{{ !inputs.skip }}}}
    python: "{module}:act"
    on_error: continue
    next: z
  - {{id: z, output: "${{{{ default(steps.a.output.n.m, 'none') }}}}"}}
outputs: {{z: "${{{{ steps.z.output }}}}"}}
"""
TYPED = """
from typing import Any, TypedDict

from flowengine import StepContext

import tools

class Inner(TypedDict):
    m: str

class Outer(TypedDict):
    n: Inner

async def act(context: StepContext, value: Any = None) -> Outer:
    return await tools.act(context, value)
"""
DEEP = {"n": {"m": "deep"}}


@pytest.mark.parametrize(
    ("gives", "inputs", "expected"),
    [
        (DEEP, {}, "deep"),
        (Fails("Broken", retryable=False), {}, "none"),
        (DEEP, {"skip": True}, "none"),
        (DEEP, {"go": False}, "none"),
    ],
    ids=["there", "failed", "skipped", "not run"],
)
@pytest.mark.parametrize("module", ["tools", "typed"])
def test_default_stands_for_a_step_that_gave_nothing(
    stage: Stage, gives: Any, inputs: dict[str, bool], expected: str, module: str
) -> None:
    (stage.folder / "typed.py").write_text(TYPED)
    given = {"go": True, "skip": False, **inputs}
    outcome = stage.play(DEFAULT.format(module=module), {"a": gives}, given, most=2)
    assert outcome.outputs == {"z": expected}


@pytest.mark.parametrize("gives", [{"n": {"m": None}}, {"n": None}, {"n": {}}, {}, None])
def test_default_leads_over_null_and_what_is_missing(stage: Stage, gives: Any) -> None:
    text = DEFAULT.format(module="tools")
    outcome = stage.play(text, {"a": gives}, {"go": True, "skip": False}, most=2)
    assert outcome.outputs == {"z": "none"}
