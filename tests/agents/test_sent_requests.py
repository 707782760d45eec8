# Shows G10
"""The exact request of each turn, made again from the journal (G10)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine import Agent, Engine
from flowengine.agents.models.registry import register, unregister
from flowengine.cli import main
from flowengine.testing import scripted
from tests.agents.flows import NAME
from tests.agents.test_long_conversations import HEAD, agent, case, pages

SUMMARY = {"text": "So far.", "when": {"contains": "Now write the summary"}, "repeat": True}


def requests_of(engine: Engine, execution: str) -> list[dict[str, Any]]:
    """Return the requests of all steps, as `show` makes them again."""
    shown = engine.executions.show(execution)["steps"]
    each = [
        engine.executions.show(execution, step=step["address"])["steps"][0]
        for step in shown
        if step["kind"] in ("agent_turn", "agent_reduction")
    ]
    return [step["request"] for step in each if "request" in step]


@pytest.mark.parametrize("context", ["{tokens: 6000, keep: 2, reduce: summarize}", "drop"])
def test_what_was_sent_is_shown(
    context: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", "sesame-open-0815")
    more = '  settings: {api_key: "${{ secrets.KEY }}"}\n'
    head = HEAD.replace("id: f\n", "id: f\nsecrets: {KEY: {env: THE_KEY}}\n")
    one = case(tmp_path, agent(context, more=more), [SUMMARY, *pages(20)], head)

    assert one.run().outputs["answer"] == "read"

    with one.engine_open() as engine:
        shown = requests_of(engine, one.id)
    sent = [request.as_data() for request in one.model.requests]
    assert [request["messages"] for request in shown] == [each["messages"] for each in sent]
    assert [request.get("tools") for request in shown] == [each.get("tools") for each in sent]
    assert all(request["settings"] == {"api_key": None} for request in shown)


def test_a_snapshot_and_an_open_turn_change_nothing(tmp_path: Path) -> None:
    script = [*pages(60)[:60], {"raise": "ModelError", "retryable": False, "message": "no"}]
    one = case(tmp_path, agent("{tokens: 9000, keep: 3}", more="  max_turns: 90\n"), script)
    assert one.run().status == "failed"

    with one.engine_open() as engine:
        shown = requests_of(engine, one.id)
    assert [r["messages"] for r in shown] == [r.as_data()["messages"] for r in one.model.requests]


def test_the_command_line_lists_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = case(tmp_path, agent("drop"), pages(1))
    one.run()
    register(NAME, one.model)
    try:
        main(["--store", str(tmp_path / "store.db"), "show", one.id, "--step", "ask/first@2"])
    finally:
        unregister(NAME)
    lines = capsys.readouterr().out.splitlines()
    at = lines.index(f"request     {NAME}")
    assert lines[at + 1 : at + 4] == [
        "  system    You read.",
        "  user      What is 1 + 2?",
        "  assistant calls page(n=0)",
    ]
    assert lines[at + 5] == "  tools     page"


def test_instructions_of_a_function_are_recorded_with_the_turn() -> None:
    told = iter(["First.", "Second."])
    with scripted("Hello."), Engine(None) as engine:
        one = Agent(name="clerk", instructions=lambda: next(told))
        response = one.run("Hi", engine=engine)
        [shown] = requests_of(engine, response.execution)
    assert shown["messages"][0] == {"role": "system", "content": "First."}
