"""`--log-level` and `FLOWENGINE_LOG_LEVEL`: agent logs on standard error."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine.runner import LoggerManager
from tests.cli.conftest import CommandLine

FLOW = """\
flowengine: 1
id: f
defaults: {model: scripted/replies.yaml}
tools:
  add: {python: "tools:add"}
agents:
  first: {instructions: You add., tools: [add], handoffs: [second], retry: {delay: 1ms}}
  second: {instructions: You know.}
steps: [{id: ask, agent: first, with: {prompt: hi}}]
"""
REPLIES = """\
- {raise: ModelError, message: down}
- {calls: [{name: add, arguments: {a: 1, b: 2}}], usage: {input_tokens: 7, output_tokens: 3}}
- calls: [{name: transfer_to_second}]
- text: done
"""
MODEL = "scripted/replies.yaml"
TOLD = [
    "first attempt 1 failed: ModelError: down",
    f"first {MODEL}: 7 + 3 tokens",
    "first tool add started",
    "first tool add succeeded",
    f"first {MODEL}: 0 + 0 tokens",
    "first hands over to second",
    f"second {MODEL}: 0 + 0 tokens",
    "second ended: resolved",
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLOWENGINE_LOG_LEVEL", raising=False)
    monkeypatch.setattr(LoggerManager, "_current", None)
    (tmp_path / "f.yaml").write_text(FLOW)
    (tmp_path / "replies.yaml").write_text(REPLIES)
    (tmp_path / "tools.py").write_text(
        'def add(a: int, b: int) -> int:\n    "Add."\n    return a + b\n'
    )


def told(flowengine: CommandLine, *options: str) -> list[str]:
    """Return the log lines of a run, without their times."""
    err = flowengine("--quiet", *options, "run", "f.yaml").err
    assert "\x1b" not in err
    return [line[9:] for line in err.splitlines() if line[2:3] == ":"]


@pytest.mark.parametrize(("level", "lines"), [("info", TOLD), ("warning", TOLD[:1])])
# Shows M79
def test_the_option_shows_what_agents_do(
    level: str, lines: list[str], flowengine: CommandLine
) -> None:
    assert told(flowengine, "--log-level", level) == lines
