# Shows G10
"""The share of prompts that a server which counts common prefixes reads from its cache (G10)."""

from __future__ import annotations

import json
from itertools import takewhile
from operator import eq
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.agents.actions import usage_of
from tests.agents.flows import flow
from tests.agents.models.wire import Answer, Wire, replied

TURNS = 50
_SETUP = """
flowengine: 1
id: f
tools:
  page: {python: "tools:page", effect: pure}
  other: {python: "tools:other"}
"""
_TOOLS = """
def page(n: int) -> str:
    "Read a page."
    return f"{n}: " + "words of the page " * 90

def other(b: int, a: int) -> str:
    "Do something else."
    return ""
"""


class Counting:
    """Replies with calls, and counts what a request shares with the one before, as providers do.

    A provider caches tools, instructions and messages in this order, in blocks of 128 tokens.
    """

    def __init__(self) -> None:
        self.before = ""
        self.turn = 0
        self.sent = self.shared = 0

    def __call__(self, body: Any) -> Answer:
        prompt = json.dumps([body.get("tools"), body["messages"]])
        common = sum(takewhile(bool, map(eq, self.before, prompt)))
        same = common // 4 // 128 * 128
        tokens = len(prompt) // 4
        self.sent, self.shared = self.sent + tokens, self.shared + same
        usage = {"prompt_tokens": tokens, "completion_tokens": 20, "total_tokens": tokens + 20,
                 "prompt_tokens_details": {"cached_tokens": same}}  # fmt: skip
        if "Now write the summary" in prompt:
            return replied("So far, all pages were read.", usage=usage)
        self.before, self.turn = prompt, self.turn + 1
        if self.turn == TURNS:
            return replied("Read.", usage=usage)
        called = {"name": "page", "arguments": json.dumps({"n": self.turn})}
        if self.turn == 5:
            called = {"name": "find_tools", "arguments": '{"query": "something else"}'}
        call = {"id": f"c{self.turn}", "type": "function", "function": called}
        return replied(None, message={"tool_calls": [call]}, usage=usage)


@pytest.mark.wherever("context")
@pytest.mark.parametrize(
    "context",
    [
        "{tokens: 18000}",
        "{tokens: 18000, reduce: summarize}",
        "{tokens: 18000, keep: 3}",
        "{tokens: 18000, keep: 3, reduce: summarize}",
    ],
)
def test_nine_tenths_of_fifty_turns_come_from_the_cache(
    context: str, wire: Wire, tmp_path: Path
) -> None:
    agent = f"""
        first:
          model: openai/gpt-4o
          instructions: You read the pages of a book and report on them.
          tools: [page, other]
          defer: [other]
          max_turns: 60
          context: {context}
          settings: {{api_key: key, api_base: "{wire.url}/v1"}}
        """
    steps = "steps: [{id: ask, agent: first, with: {prompt: Read all pages.}}]"
    (tmp_path / "flow.yaml").write_text(flow(agent, steps, _SETUP))
    (tmp_path / "tools.py").write_text(_TOOLS)
    server = Counting()
    wire.answer(*[server] * 2 * TURNS)

    with Engine(tmp_path / "store.db", workdir=tmp_path) as engine:
        result = engine.run(tmp_path / "flow.yaml")
        steps_of = engine.executions.show(result.execution)["steps"]

    assert result.status == "succeeded", result.error
    assert any("left_out" in (step.get("output") or {}) for step in steps_of)
    total = usage_of(step.get("output") for step in steps_of)[0]
    assert (total.input_tokens, total.cached_tokens) == (server.sent, server.shared)
    assert total.cached_tokens / total.input_tokens >= 0.9
