# Shows M81
"""Secrets of an agent's run: on the wire where they belong, and nowhere else."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from flowengine import Engine, LogEvent, Update
from flowengine.engines.agent_events import AgentEvents
from flowengine.runner import LoggerManager
from flowengine.runner.work import Reporter
from tests.agents.models.wire import Wire, call, failed, inside, streamed
from tests.stored_data import stored_in

KEY, TOKEN = "sk-live-hunter2hunter2", "tok-correct-horse-battery"
FLOW = """\
flowengine: 1
id: safe
secrets: {KEY: {env: MODEL_KEY}, TOKEN: {env: SHOP_TOKEN}}
defaults: {model: openai/gpt-4o}
tools:
  find: {python: "tools:find", with: {token: "${{ secrets.TOKEN }}"}}
  fail: {python: "tools:fail", with: {token: "${{ secrets.TOKEN }}"}}
agents:
  clerk:
    instructions: Find orders.
    tools: [find, fail]
    retry: {attempts: 1}
    settings: {api_base: "URL/v1", api_key: "${{ secrets.KEY }}"}
steps: [{id: ask, agent: clerk, with: {prompt: hello}}]
"""
TOOLS = f"""\
def find(token: str, note: str) -> dict[str, str]:
    assert token == {TOKEN!r}
    return {{"note": note, "used": token}}

def fail(token: str) -> str:
    raise ValueError(f"the shop refused {{token}}")
"""


def test_a_secret_is_in_no_journal_snapshot_update_log_or_error(
    wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MODEL_KEY", KEY)
    monkeypatch.setenv("SHOP_TOKEN", TOKEN)
    (tmp_path / "safe.yaml").write_text(FLOW.replace("URL", wire.url))
    (tmp_path / "tools.py").write_text(TOOLS)
    echoed = json.dumps({"note": f"with {TOKEN}"})
    wire.answer(
        streamed(
            {"content": f"I know {TOKEN[:9]}"},
            {"content": f"{TOKEN[9:]} and {KEY}"},
            {"tool_calls": [call(0, echoed[:20], id="c1", name="find")]},
            {"tool_calls": [call(0, echoed[20:])]},
            {"tool_calls": [call(1, "{}", id="c2", name="fail")]},
            finish="tool_calls",
        ),
        failed(401, f"Incorrect API key provided: {KEY}, token {TOKEN}"),
    )
    updates: list[Update] = []
    events: list[LogEvent] = []
    logger = LoggerManager("DEBUG", file=tmp_path / "log.jsonl")
    logger.sinks.append(events.append)

    with Engine(tmp_path / "store", workdir=tmp_path) as engine:
        flow = engine.load(tmp_path / "safe.yaml")
        over = engine.subscribe(updates.append, output=True)
        engine.subscribe(Reporter(logger, AgentEvents(flow.compiled, "run"), ends=True))
        result = engine.run(flow, id="run")
        over()
        told = json.dumps(
            [engine.executions.show("run"), *engine.executions.events("run")], default=str
        )

    # They are where they belong.
    first, second = wire.requests
    assert first.headers["authorization"] == f"Bearer {KEY}"
    found, refused = [one["content"] for one in second.body["messages"] if one["role"] == "tool"]
    assert json.loads(inside(found)) == {"note": "with ***", "used": "***"}
    assert "ValueError: the shop refused ***" in refused
    assert "I know *** and ***" in json.dumps(second.body)
    # And nowhere else.
    assert result.error is not None
    assert "Incorrect API key provided: ***" in result.error["message"]
    assert (
        "".join(
            update.data.get("text", "")
            for update in updates
            if update.kind == "part" and update.data["part"] == "text"
        )
        == "I know *** and ***"
    )
    places = {
        "what is sent to the model": json.dumps(second.body),
        "the result": repr(result),
        "show and events": told,
        "updates": repr(updates),
        "log events": repr([asdict(one) for one in events]),
        "standard output and error": repr(capsys.readouterr()),
    }
    for place, text in places.items():
        assert KEY not in text, place
        assert TOKEN not in text, place
    stored = stored_in(tmp_path / "store")
    assert len(stored) > 1
    for name, data in [*stored.items(), ("log", (tmp_path / "log.jsonl").read_bytes())]:
        assert KEY.encode() not in data, name
        assert TOKEN.encode() not in data, name
    assert {one.event for one in events} == {"llm_call", "tool_call", "note", "termination"}
