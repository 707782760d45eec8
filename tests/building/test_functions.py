# Shows F7
"""Functions of steps are found again, in this program and in other processes."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from flowengine import Engine, Flow, UsageError
from flowengine.agents.models import using
from flowengine.agents.models.scripted import ScriptedModel
from tests import command_line
from tests.building import work
from tests.rows import each_row


class Shop:
    def pay(self) -> None: ...


def inside() -> Any:
    def inner() -> None: ...

    return inner


@each_row(
    ("function", "message"),
    [
        (
            lambda: 1,
            r"a lambda \(.*test_functions.py:\d+\) cannot be a step\nwrite it as a function",
        ),
        (inside(), r"'inner' \(.*\) is defined inside 'inside'\nmove it to the top level"),
        (Shop().pay, r"'Shop.pay' \(.*\) is a method\ndefine a function that calls it"),
        (functools.partial(print, 1), r"partial.* has no name"),
    ],
)
def test_what_no_process_can_find_again_is_refused(function: Any, message: str) -> None:
    flow = Flow("f")
    with pytest.raises(UsageError, match=message):
        flow.step(function)
    with pytest.raises(UsageError, match=message):
        flow.tool(function) if hasattr(function, "__name__") else flow.step(function)
    flow.step("later", python=function)
    with pytest.raises(UsageError, match=message):
        flow.compile()


def program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def python(*arguments: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=False,
    )


def flowengine(*arguments: str, cwd: Path) -> command_line.Done:
    """Run a command in the process of the tests, where no module of a program is loaded."""
    with chdir(cwd):
        return command_line.flowengine(*arguments)


SCRIPT = """
from flowengine import Engine, Flow

flow = Flow("ask", inputs={"name": str})
calls = []
WAYS = {"approve": "part", "reject": "end"}

@flow.step
def greet(name: str) -> str:
    calls.append(name)
    return f"Hello, {name}"

ask = flow.step("ask", approval=f"{greet.output}?", next={"outcome": WAYS})

@flow.step(with_={"said": greet.output})
def part(said: str) -> str:
    return said + ", bye"

flow.output("said", part.output)

def main():
    with Engine() as engine:
        print(engine.run(flow, {"name": "Ana"}, id="one").status, calls)
"""
GUARD = "\nif __name__ == '__main__':\n    main()\n"


@pytest.mark.endurance
def test_a_script_runs_its_own_functions_and_another_process_goes_on(tmp_path: Path) -> None:
    program(tmp_path, "greeting.py", SCRIPT + GUARD)

    begun = python("greeting.py", cwd=tmp_path)
    assert (begun.returncode, begun.stdout) == (0, "waiting ['Ana']\n"), begun.stderr

    (tmp_path / "elsewhere").mkdir()
    [wait] = Engine(tmp_path / ".flowengine").approvals.list().items
    command = ("--store", "../.flowengine", "approve", wait["id"])
    gone_on = flowengine(*command, cwd=tmp_path / "elsewhere")
    assert gone_on.code == 0, gone_on.err
    assert "said: Hello, Ana, bye" in gone_on.out


@pytest.mark.endurance
def test_a_script_that_runs_when_it_is_imported_is_told_so(tmp_path: Path) -> None:
    program(tmp_path, "greeting.py", SCRIPT + "\nmain()\n")

    begun = python("greeting.py", cwd=tmp_path)
    assert (begun.returncode, begun.stdout) == (0, "waiting ['Ana']\n"), begun.stderr

    [wait] = Engine(tmp_path / ".flowengine").approvals.list().items
    gone_on = flowengine("approve", wait["id"], cwd=tmp_path)
    assert gone_on.code != 0
    told = gone_on.out + gone_on.err
    assert "the module 'greeting' runs a flow while" in told
    assert "if __name__ == '__main__'" in told


@pytest.mark.endurance
def test_a_module_of_a_package_is_found_from_anywhere(tmp_path: Path) -> None:
    program(tmp_path, "shop/__init__.py", "")
    program(tmp_path, "shop/tools.py", "def name() -> str:\n    return 'shop'\n")
    program(
        tmp_path,
        "shop/flows.py",
        "from flowengine import Engine, Flow\nfrom shop import tools\n"
        "flow = Flow('f')\nname = flow.step(tools.name)\nask = flow.step('ask', wait='1ms')\n"
        "flow.step(tools.name, id='again')\nflow.output('name', name.output)\n"
        "if __name__ == '__main__':\n"
        "    with Engine(None) as engine: print(engine.run(flow).outputs)\n",
    )
    program(tmp_path, "main.py", "from shop.flows import flow\nprint(flow.folder, flow.compile())")

    alone = python("-m", "shop.flows", cwd=tmp_path)
    assert alone.stdout == "{'name': 'shop'}\n", alone.stderr
    other = tmp_path / "other"
    other.mkdir()
    imported = python(tmp_path / "main.py", cwd=other)
    assert imported.stdout.split()[0] == str(tmp_path), imported.stderr


CELLS = (
    """
from dataclasses import dataclass
from datetime import date

from pydantic import BaseModel

from flowengine import Agent, Flow, quick, step


class Order(BaseModel):
    id: int
    when: date


@dataclass
class Line:
    text: str


def make(n: int) -> Order:
    return Order(id=n, when=date(2020, 1, 1))


async def lines(order: Order) -> list[Line]:
    return [Line(f"{type(order).__name__} {order.id}")]


@quick
def count(items: list[Line]) -> int:
    return len(items)


@step(effect="idempotent", timeout="5m")
def double(n: int = 3) -> int:
    return 2 * n


def merge(old: dict, new: dict) -> dict:
    return {**old, **new}


def shown(args: dict) -> str:
    return f"doubles {args['n']}"
""",
    """
def built():
    flow = Flow("f", inputs={"n": int})
    flow.declare("state", "seen", {"type": "object", "default": {}, "reducer": {"python": merge}})
    flow.tool(double, preview=shown)
    made = flow.step(make, with_={"n": "${{ inputs.n }}"}, set={"seen": {"made": True}})
    read = flow.step(lines, with_={"order": made.output})
    counted = flow.step(count, with_={"items": read.output})
    doubled = flow.step("double", call="double", with_={"n": counted.output})
    clerk = Agent(name="Clerk", model="scripted/x", tools=[double])
    asked = flow.step("ask", agent=clerk, with_={"prompt": "Double 2."})
    flow.output("lines", read.output)
    flow.output("doubled", doubled.output)
    flow.output("answer", asked.output)
    return flow
""",
    """
def double(n: int = 3) -> int:
    return 3 * n
""",
)


def test_functions_of_a_notebook_run_in_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)

    def enter(number: int) -> None:
        exec(compile(CELLS[number], f"/tmp/ipykernel_1/{number}.py", "exec"), vars(main))

    calls = [{"name": "double", "arguments": {"n": 2}}]
    enter(0)
    enter(1)
    for factor in (2, 3):
        flow, model = main.built(), ScriptedModel([{"calls": calls}, {"text": "done"}])
        with Engine(None) as engine, using(model):
            assert engine.run(flow, {"n": 7}).outputs == {
                "lines": [{"text": "Order 7"}], "doubled": factor, "answer": "done",
            }  # fmt: skip
        assert model.requests[-1].messages[-1]["content"] == str(2 * factor)
        enter(2)  # the cell is run again, with another function
    with Engine(folder / "store") as engine:
        for refused in (engine.run, engine.start, engine.flows.deploy):
            with pytest.raises(UsageError, match=r"is in no file") as told:
                refused(flow, *([] if refused.__name__ == "deploy" else [{"n": 7}]))
            assert "%%writefile" in told.value.with_hint
            assert "Engine(None)" in told.value.with_hint
    for write in (flow.to_yaml, flow.to_python):
        with pytest.raises(UsageError, match=r"is in no file"):
            write()


def test_a_test_can_replace_what_a_flow_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Flow("f", inputs={"amount": float})
    pay = flow.step(work.pay)
    flow.output("paid", pay.output)
    monkeypatch.setattr(work, "pay", lambda amount: f"nothing of {amount}")

    with Engine(None) as engine:
        assert engine.run(flow, {"amount": 1.0}).outputs == {"paid": "nothing of 1.0"}
        monkeypatch.undo()
        assert engine.run(flow, {"amount": 1.0}).outputs == {"paid": "paid 1.0"}
