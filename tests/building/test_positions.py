# Shows F7
"""Errors in a built flow are reported as for a file, with positions in the Python source."""

from __future__ import annotations

import re
from contextlib import chdir
from pathlib import Path

import pytest

from flowengine import Flow, FlowFileError, cel
from tests import command_line
from tests.building import work


def told(program: str, folder: Path) -> str:
    """Run a program that compiles a flow, and return the report."""
    (folder / "app.py").write_text(f"from flowengine import *\n{program}\nflow.compile()\n")
    with chdir(folder):
        done = command_line.python("app.py")
    report = done.err.split("FlowFileError: ")
    assert len(report) == 2, done.err
    return report[1]


CASES = [
    (
        """
flow = Flow("f", inputs={"amount": float})
flow.step("a", when=cel.inputs.amout > 3)
""",
        r"app.py:4:21: error\[E301\]: .*\n    4 \| .*\n +\| +\^+ did you mean 'inputs.amount'",
    ),
    (
        """
flow = Flow("f")
flow.step("a", output="x ${{ inputs.b }}")
""",
        r"app.py:4:30: error\[E301\]",
    ),
    (
        """
flow = Flow("f")
flow.step("a", retry={"attempts": 0},
          timout="3s")
""",
        r"app.py:4:35: error\[E103\](.|\n)*app.py:5:18: error\[E102\]: .*'timout'(.|\n)*'timeout'",
    ),
    (
        """
flow = Flow("f")

def add(x: int, y: int) -> int:
    return x + y

flow.step(
    add,
    with_={"x": "one",
           "z": 3},
)
""",
        r"app.py:10:11: error\[E402\]: .* needs 'y'(.|\n)*app.py:10:17: error\[E402\]: .*whole"
        r"(.|\n)*app.py:11:17: error\[E402\]: .* takes no argument 'z'",
    ),
    (
        """
flow = Flow("f")

@flow.step(retry=2, effect="once")
def add() -> None: ...
""",
        r"app.py:5:\d+: error\[E404\]",
    ),
    (
        """
flow = Flow("f", state={"x": int}, inputs={"x": int})

@flow.step
def add(x: int) -> None: ...
""",
        r"app.py:5:2: error\[E402\]: the parameter 'x' of step 'add' is inputs.x and state.x",
    ),
    (
        """
flow = Flow("f")
a = flow.step("a")
b = flow.step("b")
c = flow.step("c")
a.first((cel.execution.id == "", b), otherwise=c)
""",
        r"app.py:5:15: error\[E203\]: ",
    ),
    (
        """
flow = Flow("f")
a = flow.step("a")
a.to("nowhere")
""",
        r"app.py:5:\d+: error\[E201\]: ",
    ),
    (
        """
flow = Flow("f")
flow.step("a")
flow.step("a")
""",
        r"app.py:5:11: error\[E105\]: duplicate step id 'a'(.|\n)*line 4 has the same id",
    ),
    (
        """
flow = Flow("f")
child = flow.subflow("child", inputs={"n": int})
child.step("a", output=cel.inputs.m)
flow.step("b", flow=child, with_={"n": "x"})
""",
        r"app.py:5:24: error\[E301\](.|\n)*app.py:6:40: error\[E402\]",
    ),
    (
        """
flow = Flow("f", limits={"steps": 0}, colour="red")
flow.input("x", {"type": "strin"})
flow.step("a")
""",
        r"app.py:3:35: error\[E103\](.|\n)*app.py:3:46: error\[E102\]"
        r"(.|\n)*app.py:4:\d+: error\[E103\].*strin",
    ),
]


@pytest.mark.parametrize(("program", "expected"), CASES, ids=[str(n) for n in range(len(CASES))])
def test_an_error_stands_at_the_argument(program: str, expected: str, tmp_path: Path) -> None:
    report = told(program, tmp_path)

    assert re.match(expected, report), report


def test_steps_of_several_files_are_told_each_in_its_own(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(
        "flowengine: 1\nid: f\nsteps:\n  - {id: a, retry: 0}\n  - {id: b, when: x}\n"
    )
    flow = Flow.from_yaml(tmp_path / "flow.yaml")
    flow.step("c", when="never")

    with pytest.raises(FlowFileError) as raised:
        flow.compile()

    found = [(Path(one.file).name, one.line, one.code) for one in raised.value.diagnostics]
    assert found[:2] == [("flow.yaml", 4, "E103"), ("flow.yaml", 5, "E103")]
    assert [one[0] for one in found[2:]] == ["test_positions.py"]
    assert 'flow.step("c", when="never")' in str(raised.value)
    assert "  - {id: a, retry: 0}" in str(raised.value)


def test_a_signal_or_tool_that_is_not_there() -> None:
    flow = Flow("f")
    flow.step("a", call="nothing")
    flow.step("b", wait={"signal": "nobody"})
    flow.step("c", compensate={"call": work.pay}, output=cel.steps.z.output)

    with pytest.raises(FlowFileError) as raised:
        flow.compile()

    codes = {one.code for one in raised.value.diagnostics}
    assert {"E401", "E301"} <= codes
