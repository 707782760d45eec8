"""`with` as a single expression: all arguments of a call or subflow in one map."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import flowengine
from flowengine.errors import FlowFileError
from flowengine.flow.compile import compile_text

TOOLS = """
def add(a: int, b: int = 1) -> int:
    return a + b
"""


def run(folder: Path, steps: str, given: Any = None, tool: str = "") -> flowengine.ExecutionResult:
    (folder / "arithmetic.py").write_text(TOOLS)
    path = folder / "flow.yaml"
    path.write_text(
        "flowengine: 1\nid: f\n"
        "inputs: {given: {}}\n"
        f"tools: {{add: {{python: 'arithmetic:add'{tool}}}}}\n"
        "flows:\n"
        "  child:\n"
        "    inputs: {a: {type: integer}, b: {type: integer, default: 5}}\n"
        "    outputs: {sum: '${{ inputs.a + inputs.b }}'}\n"
        "    steps: [{id: nothing}]\n"
        f"steps:\n  - {steps}\n"
        "outputs: {got: '${{ steps.s.output }}'}\n"
    )
    with flowengine.Engine(None, workdir=folder) as engine:
        return engine.run(path, {"given": given})


CALL = "{id: s, call: add, with: '${{ inputs.given }}'}"
FLOW = "{id: s, flow: child, with: '${{ inputs.given }}'}"
DETACHED = "{id: s, flow: child, detach: true, with: '${{ inputs.given }}'}"


def test_a_call_takes_its_arguments_from_one_map(tmp_path: Path) -> None:
    assert run(tmp_path, CALL, {"a": 2, "b": 3}).outputs == {"got": 5}
    assert run(tmp_path, CALL, {"a": 2}).outputs == {"got": 3}


def test_a_step_kind_takes_its_arguments_from_one_map(tmp_path: Path) -> None:
    step = "{id: s, python: 'arithmetic:add', with: '${{ inputs.given }}'}"

    assert run(tmp_path, step, {"a": 2, "b": 3}).outputs == {"got": 5}


def test_a_subflow_takes_its_inputs_from_one_map(tmp_path: Path) -> None:
    assert run(tmp_path, FLOW, {"a": 2}).outputs == {"got": {"sum": 7}}
    assert run(tmp_path, DETACHED, {"a": 2}).status == "succeeded"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([1], "'with' has to give a map, but this is a list"),
        (7, "'with' has to give a map, but this is 7"),
        ({"a": "x"}, "arguments: 'a' must be a whole number"),
        ({"c": 1, "a": 1}, "arguments: has no 'c'"),
    ],
)
def test_arguments_are_checked_before_the_call(tmp_path: Path, given: Any, message: str) -> None:
    result = run(tmp_path, CALL, given)

    assert result.error is not None
    assert result.error["type"] == "ValidationError"
    assert result.error["message"].startswith(message)


@pytest.mark.parametrize("step", [FLOW, DETACHED])
@pytest.mark.parametrize("given", [[1], {"a": "x"}, {"c": 1, "a": 1}, {}])
def test_inputs_are_checked_before_the_flow_begins(tmp_path: Path, step: str, given: Any) -> None:
    result = run(tmp_path, step, given)

    assert result.error is not None
    assert result.error["type"] == "ValidationError"


def test_what_the_flow_fixes_is_put_in_and_nobody_else_may_give_it(tmp_path: Path) -> None:
    bind = ", bind: {b: 10}"

    assert run(tmp_path, CALL, {"a": 2}, bind).outputs == {"got": 12}
    refused = run(tmp_path, CALL, {"a": 2, "b": 3}, bind)

    assert refused.error is not None
    assert (
        refused.error["message"] == "'with' gives the argument 'b', which the flow fixes by 'bind'"
    )


def test_a_tool_that_is_a_flow_fixes_arguments_too(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text("""flowengine: 1
id: f
inputs: {given: {type: object}}
tools: {sum: {flow: child, bind: {b: 10}}}
flows:
  child:
    inputs: {a: {type: integer}, b: {type: integer}}
    outputs: {sum: '${{ inputs.a + inputs.b }}'}
    steps: [{id: nothing}]
steps:
  - {id: s, call: sum, with: '${{ inputs.given }}'}
outputs: {got: '${{ steps.s.output.sum }}'}
""")
    with flowengine.Engine(None, workdir=tmp_path) as engine:
        good = engine.run(tmp_path / "flow.yaml", {"given": {"a": 1}})
        refused = engine.run(tmp_path / "flow.yaml", {"given": {"a": 1, "b": 2}})

    assert good.outputs == {"got": 11}
    assert refused.error is not None
    assert refused.error["type"] == "ValidationError"


def test_arguments_of_a_command_come_from_one_map(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text("""flowengine: 1
id: f
inputs: {given: {type: object}}
tools:
  tell:
    shell: {argv: [echo, "${{ args.a }}", "${{ args.b }}"]}
    args: {properties: {a: {type: string}}, required: [a], additionalProperties: false}
    bind: {b: fixed}
steps:
  - {id: s, call: tell, with: '${{ inputs.given }}'}
outputs: {got: '${{ steps.s.output.stdout }}'}
""")
    with flowengine.Engine(None, workdir=tmp_path) as engine:
        good = engine.run(tmp_path / "flow.yaml", {"given": {"a": "hello"}})
        refused = engine.run(tmp_path / "flow.yaml", {"given": {"a": "hello", "b": "mine"}})

    assert good.outputs == {"got": "hello fixed\n"}
    assert refused.error is not None
    assert refused.error["type"] == "ValidationError"


HEAD = """flowengine: 1
id: f
inputs:
  map: {type: object, properties: {a: {type: string}}}
  list: {type: array}
tools: {add: {python: 'arithmetic:add', BIND}}
steps:
  - {id: s, call: add, with: "${{ GIVEN }}"}
"""


@pytest.mark.parametrize(
    ("given", "bind", "message"),
    [
        ("inputs.list", "", "the arguments of 'add' must be a map, not a list"),
        ("inputs.map", "", "add.a must be a whole number, not text"),
        ("{'a': 1, 'c': 2}", "", "'add' takes no argument 'c'"),
        ("{'b': 2}", "", "'add' needs 'a', which this does not give"),
        (
            "{'a': 1, 'b': 2}",
            "bind: {b: 1}",
            "the flow fixes the argument 'b' of 'add' with 'bind'",
        ),
    ],
)
def test_the_type_of_the_expression_is_checked(
    tmp_path: Path, given: str, bind: str, message: str
) -> None:
    (tmp_path / "arithmetic.py").write_text(TOOLS)
    with pytest.raises(FlowFileError) as caught:
        compile_text(HEAD.replace("GIVEN", given).replace("BIND", bind), folder=tmp_path)

    [error] = caught.value.diagnostics
    assert (error.code, error.message) == ("E402", message)
    assert (error.line, error.column) == (8, 30)


def test_text_is_no_arguments(tmp_path: Path) -> None:
    with pytest.raises(FlowFileError) as caught:
        compile_text(
            "flowengine: 1\nid: f\nsteps:\n  - {id: s, call: std.print, with: 'hello'}\n",
            folder=tmp_path,
        )

    [error] = caught.value.diagnostics
    assert error.code == "E103"
    assert error.message.startswith("expected a map of arguments, or one expression")


def test_a_question_takes_its_arguments_one_by_one(tmp_path: Path) -> None:
    with pytest.raises(FlowFileError) as caught:
        compile_text(
            "flowengine: 1\nid: f\ninputs: {q: {type: object}}\n"
            "steps:\n  - {id: s, call: std.ask, with: '${{ inputs.q }}'}\n",
            folder=tmp_path,
        )

    assert [one.message for one in caught.value.diagnostics] == [
        "'std.ask' takes its arguments one by one"
    ]
