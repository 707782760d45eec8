# Shows M85
"""Replies in `flowengine chat` and `run -v` appear as they arrive."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flowengine.cli.driving.chat import ChatDisplay, ReplyPrinter
from flowengine.engines.results import Update
from tests.agents.models.wire import Answer, Wire, serving, streamed
from tests.cli.conftest import CommandLine
from tests.cli.test_terminal import Terminal

SECRET = "hunter2-hunter2"
FLOW = """\
flowengine: 1
id: talk
secrets: {{KEY: {{env: TALK_KEY}}}}
defaults: {{model: openai/gpt-4o}}
agents:
  helper:
    instructions: Help.
    retry: {{delay: 1ms}}
    settings: {{api_base: "{url}/v1", api_key: "${{{{ secrets.KEY }}}}"}}
steps:
  - {{id: work, agent: helper, with: {{prompt: hello}}}}
"""


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[Wire]:
    with serving() as one:
        (tmp_path / "talk.yaml").write_text(FLOW.format(url=one.url))
        yield one


def test_replies_appear_piece_by_piece_masked_and_harmless(tmp_path: Path, wire: Wire) -> None:
    """Interrupted replies are reported and repeated. One terminal serves both, to save time."""
    pieces = ("The key is hun", "ter2-hun", "ter2, \x1b[31", "m it\r", "\nis ")
    begun = streamed(*({"content": piece} for piece in pieces), finish=None).pieces
    wire.answer(
        streamed({"content": "It is 4, "}, finish=None, then="drop"),
        streamed({"content": "It is 3."}),
        Answer(begun, headers={"Content-Type": "text/event-stream"}, then="hold"),
    )
    terminal = Terminal(tmp_path, "chat", "talk.yaml", TALK_KEY=SECRET)
    terminal.answer("> ", "hello\n")

    terminal.expect("It is 4,\r\n")
    terminal.expect("this is taken back, and the reply starts again")
    terminal.expect("It is 3.\r\n")
    terminal.answer("> ", "and the key?\n")
    assert terminal.seen.count("It is 3.") == 1

    terminal.expect("The key is ***, \ufffd[31m it\r\nis")  # while the reply is still streaming
    os.write(terminal.master, b"\x03")
    assert wire.closed.wait(60)
    terminal.expect("saved as")
    shown = terminal.end(130)

    assert SECRET not in terminal.seen
    assert "to resume: flowengine resume" in shown
    assert len(wire.requests) == 3


def test_a_verbose_run_shows_replies_by_lines(
    tmp_path: Path, wire: Wire, flowengine: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALK_KEY", SECRET)
    wire.answer(
        streamed(*({"content": piece} for piece in ("It is\n", "hunter2-", "hunter2 \x1b[0m")))
    )

    done = flowengine("run", "-v", "talk.yaml")

    lines = [line.split("says", 1)[1].strip() for line in done.err.splitlines() if " says " in line]
    assert lines == ["It is", "*** \ufffd[0m"]
    assert SECRET not in done.err + done.out


class Screen:
    def __init__(self) -> None:
        self.text = ""
        self.replies = ReplyPrinter(self.write, self.end_line, self.broke_off)

    def write(self, text: str) -> None:
        self.text += text

    def end_line(self) -> None:
        self.text += "\n"

    def broke_off(self) -> None:
        self.text += "(again)\n"

    def take(self, address: str, part: str, **more: Any) -> None:
        self.replies.feed({"address": address, "part": part, **more})


def test_replies_that_arrive_at_once_are_shown_one_after_the_other() -> None:
    screen = Screen()

    screen.take("a", "start")
    screen.take("b", "start")
    for a, b in (("one ", "three "), ("two", "four")):
        screen.take("a", "text", text=a)
        screen.take("b", "text", text=b)
    screen.take("b", "end")
    screen.take("c", "start")
    screen.take("c", "text", text="five")
    assert screen.text == "one two"
    screen.take("a", "end")

    assert screen.text == "one two\nthree four\nfive"
    screen.replies.ended("c")
    screen.replies.end_line()
    assert screen.text == "one two\nthree four\nfive\n"


def test_what_a_slow_terminal_missed_of_a_reply_is_told_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A 10 MB reply has hundreds of gaps on a slow terminal."""
    session: Any = SimpleNamespace(
        arguments=SimpleNamespace(quiet=False, verbose=False), named={"x"}
    )
    talk = ChatDisplay(session)
    part = {"address": "a", "part": "text"}
    for update in (
        Update("x", "part", {"address": "a", "part": "start"}),
        *(Update("x", "part", {**part, "text": "one "}), Update("x", "missed", {"count": 3})),
        *(Update("x", "part", {**part, "text": "two"}), Update("x", "missed", {"count": 4})),
        Update("x", "part", {"address": "a", "part": "end"}),
        Update("x", "part", {"address": "b", "part": "start"}),
    ):
        talk(update)

    shown = capsys.readouterr()
    assert shown.out == "one two\n"
    assert shown.err == "… 7 pieces of replies are not shown\n"
