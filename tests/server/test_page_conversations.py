# Shows P10, V53
"""Agents on the page: what they and their users said, their tool calls, and their usage."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine.agents.models.registry import register, unregister
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.server.redaction import without_content
from tests.agents.flows import ASKING, HEAD, NAME, TOOLS, call, flow
from tests.server.api import Api
from tests.server.test_page import HOSTILE, Browser, words

TWO = """
first:
  instructions: You add.
  tools: [add, boom]
  handoffs: [second]
second: {instructions: You answer., tools: [add]}
"""
CHAT = """
steps: [{id: talk, agent: {name: first, chat: true}, with: {prompt: "${{ inputs.q }}"}}]
"""
USAGE = {"input_tokens": 100, "output_tokens": 20, "cost_usd": 0.25}


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[str]:
    script: list[Any] = [
        {
            "text": "I add them",
            "reasoning": "one and two",
            "calls": [call("add", "c1", a=1, b=2), call("boom", "c2", why=HOSTILE)],
            "usage": USAGE,
        },
        {"calls": [call("transfer_to_second", "c3")], "usage": USAGE},
        {"text": f"It is 3 {HOSTILE}", "usage": USAGE},
    ]
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "agents.yaml").write_text(flow(TWO))
    register(NAME, ScriptedModel(script))
    yield "agents.yaml"
    unregister(NAME)


def test_agents_are_shown_as_a_conversation(api: Api, agents: str) -> None:
    path = f"/executions/{api.engine.run(agents, {'q': HOSTILE}).execution}"
    owner = Browser(api)
    text = owner("GET", f"{path}/conversation").text
    shown = text[text.index("<h2>") :]
    said = [
        shown.index(part)
        for part in (
            "3 turns, 300 tokens in, 60 out, 0.7500 USD", "<strong>User</strong>", "&lt;script&gt;",
            "<strong>first</strong>", "one and two", "I add them", "<code>add</code>",
            "<code>boom</code>", "ZeroDivisionError", "first hands off to second", "It is 3",
        )
    ]  # fmt: skip
    assert said == sorted(said)
    assert "<script>alert" not in text
    assert "100 tokens in, 20 out, 0.2500 USD" in text
    [add, boom] = re.findall(r"<summary><code>(?:add|boom)</code>.*?</details>", text, re.DOTALL)
    assert "&#34;b&#34;: 2" in add
    assert re.search(r'<span class="meta">(?:&lt; 0.1 s|\d+\.\d s)</span></summary>', add)
    table = words(text[text.index("<tbody>") : text.index("</table>")])
    took = r"(?:&lt; )?[\d.]+ s"
    rows = (
        *("first 2 240 0.5000", "add 1", "boom 1, 1 failed", "transfer_to_second 1"),
        "second 1 120 0.2500",
    )
    assert re.fullmatch(" ".join(f"{re.escape(row)} {took}" for row in rows), table), table
    assert '<pre tabindex="0">3</pre>' in add
    assert 'class="status bad failed"' in boom
    [step] = re.findall(r'href="([^"]+)">Its step', add)
    assert owner("GET", step).status_code == 200
    assert f'{path}/conversation" aria-current' in text
    assert "The model had asked for" not in text


# Shows G8
def test_the_page_of_a_paused_agent_says_who_paused_it_and_continues_it(
    api: Api, tmp_path: Path
) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "held.yaml").write_text(
        flow("first: {instructions: You add., tools: [add]}", head=ASKING)
    )
    register(NAME, ScriptedModel([{"calls": [call("add", "c1", a=1, b=2)]}, {"text": "It is 3."}]))
    try:
        result = api.engine.run("held.yaml", {"q": "message 0."})
        api.engine.signal("agent.pause", True, execution=result.execution, resume=False)
        api.engine.approvals.approve(result.waits[0]["id"])
        path, owner = f"/executions/{result.execution}", Browser(api)
        text = owner("GET", path).text
        assert "paused by user:" in text
        assert "agent.pause --data false" in text
        token = owner.form_token(path)
        owner("POST", f"{path}/signals/agent.pause", {"form_token": token})
        assert api.engine.resume(result.execution).status == "succeeded"
    finally:
        unregister(NAME)


# Shows G8
def test_a_message_to_an_agent_at_work_is_sent_from_its_conversation(
    api: Api, tmp_path: Path
) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "steered.yaml").write_text(
        flow("first: {instructions: You add., tools: [add]}", head=ASKING)
    )
    register(NAME, ScriptedModel([{"calls": [call("add", "c1", a=1, b=2)]}, {"text": "It is 3."}]))
    try:
        result = api.engine.run("steered.yaml", {"q": "message 0."})
        path, owner = f"/executions/{result.execution}", Browser(api)
        text = owner("GET", f"{path}/conversation").text
        assert f'action="{path}/signals/agent.steer"' in text
        [step] = re.findall(r'name="step" value="([^"]+)"', text)
        sent = owner(
            "POST",
            f"{path}/signals/agent.steer",
            {
                "form_token": owner.form_token(f"{path}/conversation"),
                "step": step,
                "signal.agent.steer.data": f"Be quick. {HOSTILE}",
            },
        )
        assert sent.headers["location"] == f"{path}/conversation"
        api.engine.approvals.approve(result.waits[0]["id"])
    finally:
        unregister(NAME)
    text = owner("GET", f"{path}/conversation").text
    talk = words(text[text.index('<ol class="cards talk">') :])
    assert talk.index("message 0.") < talk.index("add") < talk.index("Be quick.")
    assert talk.index("Be quick.") < talk.index("It is 3.")
    assert "<script>alert" not in text
    assert "/signals/agent.steer" not in text


# Shows G10
def test_a_turn_shows_its_request_and_a_reduction_what_it_kept(api: Api, tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(
        "def page(n: int) -> str:\n    'Read.'\n    return f'{n}' + 'x' * 4000\n"
    )
    head = HEAD.replace("add", "page").replace("  boom", "  page2").replace("boom", "page")
    agent = "first: {instructions: You read., tools: [page], context: {tokens: 2500, keep: 1}}"
    (tmp_path / "read.yaml").write_text(flow(agent, head=head))
    usage = {"input_tokens": 1000, "cached_tokens": 250, "output_tokens": 20, "cost_usd": 0.25}
    calls = [{"calls": [call("page", f"p{n}", n=n)], "usage": usage} for n in range(3)]
    register(NAME, ScriptedModel([*calls, {"text": "Read.", "usage": usage}]))
    try:
        id = api.engine.run("read.yaml", {"q": HOSTILE}).execution
    finally:
        unregister(NAME)
    owner = Browser(api)

    talk = owner("GET", f"/executions/{id}/conversation").text
    assert "The context of first: replaces 2 old results by notes, keeps 7: about" in talk
    assert "4,000 tokens in (25 % cached)" in talk
    step = owner("GET", f"/executions/{id}?at=ask%2Ffirst%407").text
    shown = step[step.index('<h2 id="request">') :]
    assert "This result was left out: 4,2" in shown
    assert "read_result" in shown
    assert "&lt;script&gt;" in shown
    assert "<script>alert" not in step
    [info] = api.engine.executions.show(id, step="ask/first@7")["steps"]
    assert "request" in info
    assert "request" not in without_content({"execution": id, "steps": [info]})["steps"][0]
