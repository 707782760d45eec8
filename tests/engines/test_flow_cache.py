"""Compiled flows are kept in the user's state directory, and used until their files change."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

import flowengine
from flowengine.flow import compile as compiler
from tests.replacing import patches_everywhere

MODULE = """\
def act(value: int) -> int:
    return value
"""
FILE = """\
flowengine: 1
id: cached
tools: {act: {python: "cache_tools:act"}}
steps: [{id: a, call: act, with: {value: 1}}]
"""
BUILT = """\
from flowengine import Flow

flow = Flow("cached", title="One")
flow.step("a", python="cache_tools:act", with_={"value": 1})
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with the same flow as a file and in Python."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "cache_tools.py").write_text(MODULE)
    (tmp_path / "cached.yaml").write_text(FILE)
    (tmp_path / "built.py").write_text(BUILT)
    return tmp_path


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by one with each compilation."""
    found: list[str] = []
    before = compiler.compile_source

    def counted(source: object, folder: str, path: str | None = None) -> compiler.Compiled:
        found.append(folder)
        return before(source, folder, path)  # type: ignore[arg-type]

    monkeypatch.setattr(compiler, "compile_source", counted)
    return found


def load(name: str) -> flowengine.LoadedFlow:
    """Load the flow of a file, as a fresh process does."""
    if name.endswith(".yaml"):
        return flowengine.load(name)
    return flowengine.load(runpy.run_path(str(Path(name).absolute()))["flow"])


@pytest.mark.parametrize("name", ["cached.yaml", "built.py"])
def test_an_unchanged_flow_is_compiled_once(
    folder: Path, compilations: list[str], name: str
) -> None:
    first = load(name)

    assert load(name) == first
    with flowengine.Engine(None) as engine:
        assert engine.load(name if name.endswith(".yaml") else runpy.run_path(name)["flow"])
    assert len(compilations) == 1


@pytest.mark.parametrize("name", ["cached.yaml", "built.py"])
def test_a_change_of_the_flow_or_of_its_code_compiles_it_again(
    folder: Path, compilations: list[str], name: str
) -> None:
    load(name)

    (folder / "cache_tools.py").write_text(MODULE + "\n")
    load(name)
    text = (folder / name).read_text()
    (folder / name).write_text(text.replace("act", "fly"))
    (folder / "cache_tools.py").write_text(MODULE.replace("act", "fly"))
    changed = load(name)

    assert len(compilations) == 3
    assert "cache_tools:fly" in json.dumps(changed.compiled)


def test_a_built_flow_depends_on_what_it_was_given(folder: Path, compilations: list[str]) -> None:
    """Its file is the same, but the values in it come from elsewhere."""
    built = BUILT.replace('"One"', "__import__('os').environ['TITLE']")
    (folder / "built.py").write_text(built)
    titles = []
    with patches_everywhere() as patch:
        for title in ("One", "Two"):
            patch.setenv("TITLE", title)
            titles.append(load("built.py").compiled["title"])

    assert titles == ["One", "Two"]


def test_damage_costs_a_compilation(folder: Path, compilations: list[str]) -> None:
    first = load("cached.yaml")
    [kept] = (folder / "state" / "flowengine" / "flows").iterdir()
    whole = kept.read_bytes()

    for damaged in (b"", whole[:-1], whole.replace(b"cached", b"c4ched")):
        kept.write_bytes(damaged)
        assert load("cached.yaml") == first

    assert len(compilations) == 4
    assert kept.read_bytes() == whole


def test_a_cache_that_others_can_write_to_is_not_used(
    folder: Path, compilations: list[str]
) -> None:
    first = load("cached.yaml")
    (folder / "state" / "flowengine" / "flows").chmod(0o777)

    assert load("cached.yaml") == first
    assert len(compilations) == 2


def test_errors_are_reported_each_time(folder: Path) -> None:
    (folder / "cached.yaml").write_text(FILE.replace("call: act", "call: fly"))

    for _ in range(2):
        with pytest.raises(flowengine.FlowFileError, match="fly"):
            load("cached.yaml")
