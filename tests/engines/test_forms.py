# Shows F16
"""Which compiled form an execution runs if several files compile to the same flow."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from flowengine import Engine
from flowengine.engines.flows import load
from flowengine.errors import StoreError

FLOW = """
flowengine: 1
id: it
state: {total: {type: integer, default: 0, reducer: {python: "acts:add"}}}
tools: {TOOL: {python: "acts:act"}}
steps:
  - {id: a, call: TOOL, set: {total: 1}}
  - {id: w, wait: {signal: s}}
  - {id: b, call: TOOL, set: {total: 1}}
signals: {s: {}}
outputs: {o: "${{ [steps.a.output, steps.b.output, string(state.total)] }}"}
"""
pytestmark = pytest.mark.usefixtures("folder")


def write(folder: str, code: str, factor: int = 1, tool: str = "get") -> str:
    """Write a flow and the module next to it."""
    Path(folder).mkdir(exist_ok=True)
    Path(folder, "acts.py").write_text(
        f"def act(**args):\n    return {code!r}\n"
        f"def add(old, new):\n    return old + {factor} * new\n"
    )
    path = Path(folder, "flow.yaml")
    path.write_text(FLOW.replace("TOOL", tool))
    return str(path)


def run(path: str, id: str) -> list[str]:
    """Run a flow with a wait, each half in a new engine."""
    with Engine("store") as engine:
        engine.run(path, id=id)
    with Engine("store") as engine:
        result = engine.signal("s", execution=id).result
    assert result is not None
    assert result.outputs is not None, result
    found: list[str] = result.outputs["o"]
    return found


def test_flows_with_the_same_text_run_the_modules_of_their_own_folders() -> None:
    one, other = write("one", "one"), write("other", "other", factor=10)

    assert load(one).hash == load(other).hash
    for number in range(2):  # compiled, then from the store
        assert run(one, f"one{number}") == ["one", "one", "2"]
        assert run(other, f"other{number}") == ["other", "other", "20"]


def test_a_folder_that_was_renamed_runs_as_before() -> None:
    run(write("before", "it"), "first")
    shutil.move("before", "after")

    for number in range(2):
        assert run("after/flow.yaml", f"then{number}") == ["it", "it", "2"]


def test_what_waits_moves_to_the_new_place_of_its_file() -> None:
    with Engine("store") as engine:
        engine.run(write("before", "it"), id="waiting")
        shutil.move("before", "after")
        [found] = engine.executions.upgrade("after/flow.yaml")
        assert (found["verdict"], found["moved"]) == ("continues", True)
        result = engine.signal("s", execution="waiting").result
    assert result is not None
    assert result.outputs == {"o": ["it", "it", "2"]}


# Shows F45
def test_rules_see_the_name_that_the_tool_has_in_its_own_file() -> None:
    with Engine("store") as engine:
        for tool in ("harmless", "dangerous"):
            assert engine.run(write("flows", "it", tool=tool), id=tool).status == "waiting"
    config = Path("config/flowengine")
    config.mkdir(parents=True)
    (config / "rules.yaml").write_text("rules: [{deny: dangerous}]\n")
    with Engine("store") as engine:
        harmless, dangerous = (
            engine.signal("s", execution=id).result for id in ("harmless", "dangerous")
        )
    assert harmless is not None
    assert dangerous is not None
    assert harmless.status == "succeeded"
    assert dangerous.error is not None
    assert dangerous.error["type"] == "Refused"


def test_an_execution_of_another_format_is_refused_and_its_journal_stays() -> None:
    path = write("one", "one")
    with Engine("store") as engine:
        engine.run(path, id="it")
    with pytest.MonkeyPatch.context() as patch:  # only there: the store has a format, too
        patch.setattr("flowengine.kernel.graph.compiled.FORMAT", 4)
        with Engine("store") as engine, pytest.raises(StoreError) as refused:
            engine.signal("s", execution="it")
    assert "has format 1, but this version of flowengine runs format 4" in refused.value.message
    assert "the version of flowengine that wrote it" in (refused.value.hint or "")

    with Engine("store") as engine:
        assert engine.signal("s", execution="it").result is not None
