"""Functions receive environments by the class in a type hint (E21)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.errors import FlowFileError
from flowengine.flow.compile import compile_file

FUNCTIONS = """
from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Annotated, Optional

import flowengine_envs.kinds.sqlite
import flowengine_envs.kinds.files as folders
from dataclasses import dataclass

if TYPE_CHECKING:
    from flowengine_envs.kinds.sqlite import Database
    from flowengine_envs.kinds.sqlite import Database as Db
    Store = Database

def plain(box: Database, text: str = "x"):
    return [type(box).__name__, box.query("select :t as t", {"t": text})[0]["t"]]

def quoted(box: "Database"): return plain(box)
def aliased(box: Db): return plain(box)
def named(box: Store): return plain(box)
def dotted(box: flowengine_envs.kinds.sqlite.Database): return plain(box)
def optional(box: Optional[Database] = None): return plain(box)
def either(box: Database | None = None): return box and plain(box)
def annotated(box: Annotated[Database, "it"]): return plain(box)
def keyword(*, box: Database): return plain(box)
async def other(folder: folders.Folder): return type(folder).__name__
def both(first: Database, folder: folders.Folder): return [first is not None, folder is not None]
def all_of(box: Database, runtime_resources): return sorted(runtime_resources)

@dataclass
class Own:
    it: int

def mine(box: Own): return box

from collections.abc import Hashable
from flowengine.sdk.environments import Resource

def derived(box: Resource): return type(box).__name__
def anything(box: object): return box
def hashable(box: Hashable): return box
"""
DATABASE = "environments: {db: {kind: sqlite, config: {path: ':memory:'}}}\n"
TWO = (
    "environments:\n"
    "  a: {kind: sqlite, config: {path: ':memory:'}}\n"
    "  b: {kind: sqlite, config: {path: ':memory:'}}\n"
    "  other: {kind: files}\n"
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("things.py").write_text(FUNCTIONS)
    return tmp_path


def write(environments: str, step: str) -> str:
    Path("flow.yaml").write_text(
        f"flowengine: 1\nid: it\n{environments}steps: [{{id: a, {step}}}]\n"
        'outputs: {a: "${{ steps.a.output }}"}\n'
    )
    return "flow.yaml"


def run(environments: str, step: str) -> Any:
    with Engine("store") as engine:
        result = engine.run(write(environments, step))
        assert result.outputs is not None, result.error
        return result.outputs["a"]


def refused(environments: str, step: str) -> str:
    with pytest.raises(FlowFileError) as raised:
        compile_file(write(environments, step))
    return str(raised.value)


@pytest.mark.parametrize(
    "function",
    ["plain", "quoted", "aliased", "named", "dotted", "optional", "either", "annotated", "keyword"],
)
def test_a_parameter_gets_what_its_hint_names_however_it_is_written(function: str) -> None:
    assert run(DATABASE, f'python: "things:{function}"') == ["Database", "x"]


def test_each_parameter_gets_its_own_kind_and_the_others_are_arguments() -> None:
    both = f"{DATABASE[:-2]}, files: {{kind: files}}}}\n"

    assert run(both, 'python: "things:both"') == [True, True]
    assert run(both, 'python: "things:other"') == "Folder"
    assert run(DATABASE, 'python: "things:plain", with: {text: hi}') == ["Database", "hi"]


def test_what_the_step_names_comes_first_by_whatever_name() -> None:
    assert run(TWO, 'python: "things:plain", environments: [a]') == ["Database", "x"]
    assert run(TWO, 'python: "things:plain", environments: {box: b}') == ["Database", "x"]
    assert run(TWO, 'python: "things:all_of", environments: {mine: b}') == ["box", "mine"]


def test_a_tool_has_it_and_its_callers_do_not_see_the_parameter() -> None:
    tool = DATABASE + 'tools: {t: {python: "things:plain"}}\n'

    assert run(tool, "call: t, with: {text: hi}") == ["Database", "hi"]
    assert "takes no argument 'box'" in refused(tool, "call: t, with: {box: 1}")


def test_several_or_none_are_told_where_the_step_stands() -> None:
    several = refused(TWO, 'python: "things:plain"')
    assert "flow.yaml:7:" in several
    assert "'box' of things:plain takes a Database, and 'a' and 'b' are such env" in several
    assert "choose one with 'environments: {box: a}'" in several
    assert "'a' and 'b'" in refused(TWO, 'python: "things:plain", environments: [a, b]')

    none = refused("", 'python: "things:plain"')
    assert "flow.yaml:3:" in none
    assert "'box' of things:plain takes a Database, and there is no such environment" in none
    assert "'environments: {box: {kind: sqlite}}'" in none
    assert "needs 'box'" not in none


def test_what_is_named_must_be_of_the_class() -> None:
    told = refused(TWO, 'python: "things:plain", environments: {box: other}')

    assert "'box' of things:plain takes a Database, and 'other' is of kind 'files'" in told


def test_what_may_be_left_out_is_and_other_classes_are_arguments() -> None:
    assert run("", 'python: "things:either"') is None
    assert "needs 'box'" in refused(DATABASE, 'python: "things:mine"')


def test_a_class_from_which_it_is_derived_will_do_and_pythons_own_say_nothing() -> None:
    assert run(DATABASE, 'python: "things:derived"') == "Database"
    assert "'a' and 'b' and 'other' are such" in refused(TWO, 'python: "things:derived"')
    for function in ("anything", "hashable"):
        assert "needs 'box'" in refused(DATABASE, f'python: "things:{function}"')


@pytest.mark.endurance
def test_a_check_imports_nothing_that_opens_anything() -> None:
    """This covers the function's module and the packages behind environments."""
    write("environments: {box: {kind: docker}}\n", 'python: "light:count"')
    Path("light.py").write_text(
        "from flowengine_envs.kinds.docker.containers import Containers\n"
        "def count(it: Containers): ...\n"
    )
    heavy = ("docker", "mcp", "light")
    program = (
        "import sys; from flowengine.flow.compile import compile_file; compile_file('flow.yaml');"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.stdout, done.stderr) == ("[]\n", "")
