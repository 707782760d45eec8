"""Functions of steps are found again, in this program and in other processes."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine, Flow, UsageError
from tests import command_line
from tests.building import work


class Shop:
    def pay(self) -> None: ...


def inside() -> Any:
    def inner() -> None: ...

    return inner


@pytest.mark.parametrize(
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
    [wait] = Engine(tmp_path / ".flowengine").waits().items
    command = ("--store", "../.flowengine", "approve", wait["id"])
    gone_on = flowengine(*command, cwd=tmp_path / "elsewhere")
    assert gone_on.code == 0, gone_on.err
    assert "said: Hello, Ana, bye" in gone_on.out


@pytest.mark.endurance
def test_a_script_that_runs_when_it_is_imported_is_told_so(tmp_path: Path) -> None:
    program(tmp_path, "greeting.py", SCRIPT + "\nmain()\n")

    begun = python("greeting.py", cwd=tmp_path)
    assert (begun.returncode, begun.stdout) == (0, "waiting ['Ana']\n"), begun.stderr

    [wait] = Engine(tmp_path / ".flowengine").waits().items
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


@pytest.mark.parametrize("how", [["-c"], ["-"]])
def test_a_program_in_no_file_cannot_have_its_own_functions(tmp_path: Path, how: list[str]) -> None:
    text = "from flowengine import Flow\nflow = Flow('f')\n@flow.step\ndef f(): ...\n"
    done = subprocess.run(
        [sys.executable, *how, *([text] if how == ["-c"] else [])],
        input=text,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "the program of f() is in no file, which no other process can import" in done.stderr
    assert "put the functions of the steps into a module" in done.stderr


def test_a_file_with_a_name_that_is_no_module_is_refused(tmp_path: Path) -> None:
    program(tmp_path, "my-flow.py", SCRIPT + GUARD)
    done = python("my-flow.py", cwd=tmp_path)
    assert "is my-flow.py, which no other process can import" in done.stderr


def test_a_test_can_replace_what_a_flow_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Flow("f", inputs={"amount": float})
    pay = flow.step(work.pay)
    flow.output("paid", pay.output)
    monkeypatch.setattr(work, "pay", lambda amount: f"nothing of {amount}")

    with Engine(None) as engine:
        assert engine.run(flow, {"amount": 1.0}).outputs == {"paid": "nothing of 1.0"}
        monkeypatch.undo()
        assert engine.run(flow, {"amount": 1.0}).outputs == {"paid": "paid 1.0"}
