# Shows G15
"""Input that MCP servers request: on the page, in AG-UI, in a chat, and by clients of `serve`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agents.flows import NAME
from tests.server.api import Api
from tests.server.mcp import Mcp
from tests.server.test_page import Browser

SERVER = Path(__file__).parents[1] / "envs" / "mcp" / "asking_quickly.py"
FLOW = f"""flowengine: 1
id: shop
inputs: {{tool: {{type: string}}, args: {{type: object, default: {{}}}}}}
tools: {{shop: {{mcp: {{command: [{sys.executable}, {SERVER}, .]}}, effect: idempotent}}}}
steps:
  - id: choose
    next:
      first:
        - {{when: "${{{{ inputs.tool == 'asks' }}}}", to: asks}}
        - {{else: opens}}
  - {{id: asks, call: shop.asks, with: {{schema: "${{{{ inputs.args }}}}"}}, next: end}}
  - {{id: opens, call: shop.opens, with: {{url: "${{{{ inputs.args.url }}}}"}}, next: end}}
outputs: {{o: "${{{{ default(steps.asks.output, default(steps.opens.output, '')) }}}}"}}
"""
FIELD = {"type": "string", "title": "<b>Size</b>", "oneOf": [{"const": "s", "title": "Small"}]}
SCHEMA = {
    "type": "object",
    "properties": {"size": FIELD, "password": {"type": "string"}},
    "required": ["size"],
}
URL = "https://pay.example.com/x?id=7"
TALK = f"""flowengine: 1
id: f
defaults: {{model: {NAME}}}
tools: {{shop: {{mcp: {{command: [{sys.executable}, {SERVER}, .]}}, effect: idempotent}}}}
agents: {{desk: {{instructions: Help., tools: [shop.confirm]}}}}
steps: [{{id: talk, agent: {{name: desk, chat: true}}}}]
"""


@pytest.fixture
def flows() -> tuple[str, ...]:
    return (FLOW, TALK)


@pytest.fixture
def ben(api: Api) -> Browser:
    return Browser(api, api.token("user:ben"))


def begun(api: Api, tool: str, args: dict[str, Any]) -> tuple[str, str]:
    Path("shop.yaml").write_text(FLOW)
    result = api.engine.run("shop.yaml", {"tool": tool, "args": args})
    return result.execution, result.waits[0]["id"]


def test_a_form_on_the_page(api: Api, ben: Browser) -> None:
    execution, wait = begun(api, "asks", SCHEMA)

    path = f"/approvals/{wait}"
    assert "Server &#39;shop&#39; asks in a call of shop.asks" in ben("GET", "/approvals").text
    shown = ben("GET", path).text
    assert "Fill this in." in shown
    assert "&lt;b&gt;Size&lt;/b&gt;" in shown
    assert "Do not enter a password, code or key: it would be recorded" in shown
    for choice in ("accept", "decline", "cancel"):
        assert f'name="choice" value="{choice}"' in shown
    form = {"form_token": ben.form_token(path), "choice": "accept"}
    assert ben("POST", path, {**form, "form.size": "xl"}).status_code == 422
    assert ben("POST", path, {**form, "form.size": "s"}).status_code == 303
    api.engine.resume(execution)
    outputs = api.engine.executions.result(execution).outputs or {}
    said = json.loads(outputs["o"])
    assert said == {"action": "accept", "content": {"size": "s"}}


def test_a_link_on_the_page(api: Api, ben: Browser) -> None:
    execution, wait = begun(api, "opens", {"url": URL})

    path = f"/approvals/{wait}"
    shown = ben("GET", path).text
    link = re.search(r'<a href="https://pay[^>]*>([^<]*)</a>', shown)
    assert link is not None
    assert 'href="https://pay.example.com/x?id=7"' in link[0]
    assert 'rel="noopener noreferrer nofollow"' in link[0]
    assert link[1] == "Open pay.example.com"
    form = {"form_token": ben.form_token(path), "choice": "decline"}
    assert ben("POST", path, form).status_code == 303
    api.engine.resume(execution)
    assert api.engine.executions.result(execution).outputs == {"o": "decline"}


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_a_client_of_the_mcp_server_is_asked(api: Api, mode: str) -> None:
    mcp = Mcp(api, mode)
    given = {"tool": "asks", "args": {**SCHEMA, "properties": {"size": FIELD}}}

    found = mcp.call("shop", given, [{"choice": "accept", "size": "s"}], read_timeout_seconds=60)

    [asked] = mcp.asked
    assert "Server 'shop' asks in a call of shop.asks" in asked.message
    assert "Fill this in." in asked.message
    assert asked.requested_schema["properties"]["choice"]["enum"] == ["accept", "decline", "cancel"]
    said = json.loads(found.structured_content["outputs"]["o"])
    assert said == {"action": "accept", "content": {"size": "s"}}
