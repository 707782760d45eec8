"""Long executions at a glance: what they are doing, without their past."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.inspection import indexed
from flowengine.journal.reading import HistoryPort

WORKS = """
def work(n):
    if n == 3:
        raise ValueError("three")
    return "x" * 300
"""
LONG = """
flowengine: 1
id: long
inputs: {note: {type: string, default: hello}}
budget: {tool_calls: 1000}
steps:
  - id: before
    map: {over: 150, as: n}
    python: "works:work"
    with: {n: "${{ n + 10 }}"}
  - id: branches
    parallel:
      - {id: approve, approval: {title: Good?}}
      - {id: pause, wait: 1h}
      - id: each
        map: {over: 120, as: n, on_item_error: continue}
        group:
          - {id: one, python: "works:work", with: {n: "${{ n }}"}}
          - {id: late, when: "${{ n % 40 == 7 }}", approval: {title: "Good ${{ n }}?"}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "works.py").write_text(WORKS)
    (tmp_path / "long.yaml").write_text(LONG)
    monkeypatch.setattr(indexed, "LONG", 100)
    return tmp_path


def open_steps(info: Any) -> dict[str, Any]:
    return {
        step["address"]: (step["status"], step["kind"], step["attempts"])
        for step in info["steps"]
        if "ended_at" not in step
    }


def refused(store: HistoryPort, *_: object, **__: object) -> object:
    raise AssertionError("a glance reads the journal")


def test_it_has_what_is_open_as_the_whole_history_does(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine("store") as driver, Engine("store") as reader:
        reader.keep_histories()
        execution = driver.run("long.yaml").execution
        events = type(reader.store).events

        monkeypatch.setattr(type(reader.store), "events", refused)
        seen = reader.executions.glance(execution)
        monkeypatch.setattr(type(reader.store), "events", events)
        whole = reader.executions.show(execution)

        assert seen is not None
        items = {step["address"]: step for step in whole["steps"]}
        ended = [step for step in seen["steps"] if step["status"] in ("succeeded", "failed")]
        now = [step for step in seen["steps"] if step not in ended]
        assert open_steps({"steps": now}) == open_steps(whole)
        assert len(ended) == 117
        for step in ended:
            found = items[step["address"]]
            for key in ("status", "output", "error", "kind", "step"):
                assert step[key] == found[key]
        for key in ("status", "inputs", "waits", "budgets", "outputs", "error", "execution"):
            assert seen[key] == whole[key]  # type: ignore[literal-required]


def test_what_is_short_or_kept_in_memory_needs_none(folder: Path) -> None:
    (folder / "short.yaml").write_text("flowengine: 1\nid: s\nsteps: [{id: a, output: 1}]\n")
    with Engine("store") as engine:
        long, short = (engine.run(f"{name}.yaml").execution for name in ("long", "short"))
        assert engine.executions.glance(long) is None
        engine.keep_histories()
        assert engine.executions.glance(short) is None
        assert engine.executions.glance(long) is not None
        engine.executions.show(long)
        assert engine.executions.glance(long) is None


def test_many_steps_that_one_event_began_are_long_too(folder: Path) -> None:
    (folder / "instant.yaml").write_text(
        "flowengine: 1\nid: instant\nsteps:\n"
        "  - {id: each, map: 600, output: 1}\n"
        "  - {id: approve, approval: {title: Good?}}\n"
    )
    with Engine("store") as engine:
        engine.keep_histories()
        execution = engine.run("instant.yaml").execution
        assert len(engine.store.events(execution)) < indexed.LONG
        seen = engine.executions.glance(execution)

    assert seen is not None
    assert [step["address"] for step in seen["steps"]] == ["approve"]


def test_a_failed_one_has_its_error_without_reading_the_journal(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "fails.yaml").write_text(
        LONG.split("  - id: branches", maxsplit=1)[0]
        .replace("id: long", "id: fails")
        .replace("over: 150", "over: 400")
        + '  - {id: last, python: "works:work", with: {n: 3}}\n'
    )
    with Engine("store") as engine:
        engine.keep_histories()
        execution = engine.run("fails.yaml").execution
        whole = engine.executions.show(execution)
        engine.keep_histories()
        monkeypatch.setattr(type(engine.store), "events", refused)
        seen = engine.executions.glance(execution)

    assert seen is not None
    assert (seen["status"], seen["error"]) == ("failed", whole["error"])
    assert "command" in whole.keys() - seen.keys()  # only the journal determines it
