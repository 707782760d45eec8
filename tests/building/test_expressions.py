# Shows F7
"""Expressions written with Python's operators."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine import Engine, Flow, cel
from flowengine.flow.building import Expr
from tests.rows import each_row

x, y = cel.inputs.x, cel.inputs.y


@each_row(
    ("built", "text"),
    [
        (x > 3, "inputs.x > 3"),
        (3 <= x, "inputs.x >= 3"),  # noqa: SIM300
        ((x == "it's") & ~(y != None), "inputs.x == 'it\\'s' && !(inputs.y != null)"),  # noqa: E711
        ((x | y) & x, "(inputs.x || inputs.y) && inputs.x"),
        (x | y & x, "inputs.x || inputs.y && inputs.x"),
        ((x + 1) * 2 - y, "(inputs.x + 1) * 2 - inputs.y"),
        (x - (y - 1), "inputs.x - (inputs.y - 1)"),
        (1 - x / 2 % 3, "1 - inputs.x / 2 % 3"),
        (-x, "-inputs.x"),
        (-(x + y), "-(inputs.x + inputs.y)"),
        (x[0].name["a b"], "inputs.x[0].name['a b']"),
        (x.in_([1, "a", True]), "inputs.x in [1, 'a', true]"),
        ((x == y) == True, "inputs.x == inputs.y == true"),  # noqa: E712
        (cel.size(x) >= y, "size(inputs.x) >= inputs.y"),
        (x.name.startsWith("a") & y, "inputs.x.name.startsWith('a') && inputs.y"),
        ((x + y).size(), "(inputs.x + inputs.y).size()"),
        (cel("x ? 1 : 2") + 1, "(x ? 1 : 2) + 1"),
        (cel.default(x, {"a": [1.5, None]}), "default(inputs.x, {'a': [1.5, null]})"),
        (x + 'say "a"\n\\', "inputs.x + 'say \"a\"\\n\\\\'"),
    ],
)
def test_an_operator_writes_its_expression(built: Expr, text: str) -> None:
    assert str(built) == f"${{{{ {text} }}}}"


def test_in_an_f_string_it_makes_a_template() -> None:
    assert f"a {x} b {x + 1}" == "a ${{ inputs.x }} b ${{ inputs.x + 1 }}"
    with pytest.raises(TypeError, match="a format is not supported here"):
        f"{x:>3}"


@each_row(
    "misuse",
    [
        lambda: bool(x),
        lambda: x > 1 and y,
        lambda: not x,
        lambda: 1 < x < 3,
        lambda: 1 in x,
        lambda: list(x),
        lambda: x == object(),
        lambda: setattr(x, "name", 1),
        lambda: {x: 1},
    ],
)
def test_what_python_would_decide_itself_is_refused(misuse: Any) -> None:
    with pytest.raises(TypeError):
        misuse()


def test_they_give_what_python_would_give() -> None:
    flow = Flow("compute", inputs={"x": int, "y": int, "text": str})
    text = cel.inputs.text
    flow.step(
        "all",
        output=[
            (x + 1) * 2 - (y - 3),
            -(x + y) * 2,
            (x > y) | (x == 7) & ~(y == 2),
            text + ' it\'s "so" \\ \n é',
            (x == 7) == (y == 2),
            x.in_([1, 7]),
            cel("inputs.x > 5 ? 'more' : 'less'") + "!",
        ],
    )
    flow.output("all", cel.steps.all.output)

    with Engine(None) as engine:
        outputs = engine.run(flow, {"x": 7, "y": 2, "text": "T"}).outputs

    assert outputs is not None
    assert outputs["all"] == [17, -18, True, 'T it\'s "so" \\ \n é', True, True, "more!"]


def test_a_step_names_its_own_output_in_what_it_says_of_itself() -> None:
    flow = Flow("own", state={"count": int})
    again = flow.step("again", output={"x": 1, "steps.again.output": 2})
    again.say("set", {"count": again.output.x}, again.place)
    again.say(
        "emit", {"signal": "s", "data": {"text": f"it's {again.output.x} isn't"}}, again.place
    )
    flow.signal("s")
    last = flow.step("last", output=again.output.x)
    again.first((again.output.x > 0, last), (again.outcome == "steps.again.output", "end"))

    [first, second] = [step.spec for step in flow.steps]
    assert second["output"]._text == "steps.again.output.x"
    written = flow.to_yaml()
    assert "set:\n      count: ${{ output.x }}" in written
    assert "it's ${{ output.x }} isn't" in written
    assert "${{ outcome == 'steps.again.output' }}" in written
    assert first["output"] == {"x": 1, "steps.again.output": 2}
    flow.compile()
