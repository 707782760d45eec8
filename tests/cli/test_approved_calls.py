"""Approval of calls on the command line: their display, and all ways to decide."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.test_terminal import Terminal

FLOW = """\
flowengine: 1
id: pay
tools:
  send:
    python: "tools:send"
    approval: {edit: true}
steps:
  - {id: pay, call: send, with: {text: TEXT}}
outputs: {said: "${{ steps.pay.output }}"}
"""
TOOLS = "def send(text: str) -> str:\n    return text.upper()\n"


@pytest.fixture
def pay(flowengine: CommandLine) -> CommandLine:
    flowengine.write("tools.py", TOOLS)
    flowengine.write("pay.yaml", FLOW.replace("TEXT", "hello"))
    return flowengine


@pytest.fixture
def terminal(pay: CommandLine) -> Iterator[Terminal]:
    opened = Terminal(pay.folder, "run", "pay.yaml")
    yield opened
    opened.close()


def test_on_a_terminal_somebody_may_respond(terminal: Terminal) -> None:
    terminal.expect("Call send: text")
    terminal.answer("leaves it open) ", "respond\n")
    terminal.answer("(JSON or text): ", "by hand\n")
    terminal.answer("none): ", "\n")
    assert terminal.end(0).endswith("said: by hand\n")


HOSTILE = [
    "\x1b[2J\x1b[31mred",
    "a\rb\x08\x08c\x00d",
    "user\u202egnp.exe",
    "x\n  choice      approve\nstatus: approved by user:ana",
    "\x9b2J",
    "y" * 1_000_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
# Shows T49
def test_hostile_arguments_are_shown_harmless_and_inside_their_line(
    pay: CommandLine, text: str
) -> None:
    import json

    flow = FLOW.replace(
        "approval: {edit: true}", 'approval: {edit: true, body: "${{ args.text }}"}'
    )
    pay.write("pay.yaml", flow.replace("TEXT", json.dumps(text)))
    asked = pay("run", "pay.yaml", code=4)
    shown = pay("show", *asked.ids)
    listed = pay("approvals", "list")

    for out in (asked.err, shown.out, listed.out):
        assert all(char == "\n" or char.isprintable() for char in out)
    assert not re.search(r"^status|^  choice      approve$", shown.out, re.M)
    [line] = re.findall(r"^  text  .*$", shown.out, re.M)
    assert len(line) < 700
    if len(text) > 1000:
        assert re.search(r"yyy … 1000000 characters, sha256 [0-9a-f]{16} … yyy", line)
