"""Live progress and questions on a terminal, tested with a pseudo-terminal."""

from __future__ import annotations

import codecs
import os
import pty
import re
import select
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from flowengine.settings import current_user
from tests.cli.conftest import CommandLine, steady
from tests.engines.world import until
from tests.forked_program import shared_forks

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
ASK = """\
flowengine: 1
id: ask
steps:
  - {id: name, call: std.ask, with: {question: What is your name?}}
outputs:
  name: ${{ steps.name.output }}
"""
SLOW = """\
flowengine: 1
id: slow
steps:
  - id: both
    parallel:
      - {id: fine, run: {script: "until [ -e fine ]; do sleep 0.05; done", cwd: .}}
      - {id: bad, run: {script: "until [ -e bad ]; do sleep 0.05; done; exit 3", cwd: .}}
"""


class Terminal:
    """A terminal with a program in it."""

    def __init__(self, folder: Path, *words: str, **more: str) -> None:
        self.master, slave = pty.openpty()
        env = {name: os.environ[name] for name in ("PATH", "XDG_STATE_HOME")}
        env |= {"TERM": "xterm", "HOME": str(folder)}
        env |= {"COLUMNS": "100", "LINES": "40", **more}
        self.process = self.start(words, folder, env, slave)
        os.close(slave)
        self.seen = ""
        self._read = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def start(self, words: Sequence[str], folder: Path, env: Mapping[str, str], slave: int) -> Any:
        """Start the program."""
        return shared_forks().start(words, folder, env, slave)

    def expect(self, text: str) -> None:
        """Wait until a text appears after the previously expected one."""
        end = time.monotonic() + 300
        while text not in self.seen[self._read :]:
            assert time.monotonic() < end, self.seen
            assert self._more(), self.seen
        self._read = self.seen.index(text, self._read) + len(text)

    def answer(self, prompt: str, text: str) -> None:
        """Wait for a prompt and type an answer."""
        self.expect(prompt)
        self.type(text)

    def type(self, text: str) -> None:
        """Type a text. A terminal accepts it as fast as the program reads it."""
        data = text.encode()
        while data:
            data = data[os.write(self.master, data) :]

    def end(self, code: int) -> str:
        """Wait for the program's end, and return its output without colors."""
        while self._more():
            pass
        assert self.process.wait(60) == code, self.seen
        return CONTROL.sub("", self.seen).replace("\r", "")

    def _more(self) -> bool:
        if not select.select([self.master], [], [], 300)[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:  # the other side is closed
            return False
        self.seen += self._decoder.decode(data)
        return bool(data)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for one in opened:
        one.close()


@pytest.fixture
def refund_at_terminal(tmp_path: Path, refund: Path, terminals: list[Terminal]) -> Terminal:
    terminals.append(Terminal(tmp_path, "run", refund.name, "-i", "amount=80"))
    return terminals[0]


# Shows F3
def test_an_approval_is_asked_with_choice_edit_form_and_comment(
    refund_at_terminal: Terminal, flowengine: CommandLine
) -> None:
    terminal = refund_at_terminal
    terminal.expect("Refund 80 EUR?")
    terminal.answer("approve, reject, later? (Enter leaves it open) ", "maybe\n")
    terminal.answer("approve, reject, later? (Enter leaves it open) ", "a\n")
    terminal.answer("approve, reject, later? (Enter leaves it open) ", "approve\n")
    terminal.answer("edit amount [80]: ", "70\n")
    terminal.answer("cost_center (Cost centre): ", "\n")
    terminal.answer("cost_center (Cost centre): ", "4711\n")
    terminal.answer("comment (Enter: none): ", "as agreed\n")
    shown = terminal.end(0)

    assert shown.count("type approve or reject or later as a whole word") == 2
    assert "cost_center is required" in shown
    assert f"  ask            succeeded   approved by {current_user()}\n" in shown
    assert shown.endswith("paid: 70\n")
    [step, _] = flowengine("--json", "show", flowengine.newest()).json()["steps"]
    assert step["decision"]["comment"] == "as agreed"
    assert step["output"]["original"]["amount"] == 80


@pytest.mark.parametrize("key", ["\n", "\x04"])
def test_a_question_can_be_left_open(refund_at_terminal: Terminal, key: str) -> None:
    refund_at_terminal.answer("leaves it open) ", key)

    shown = steady(refund_at_terminal.end(4))

    assert "saved as EXECUTION; nothing runs while it waits\n" in shown


PASTE = "\x1b[200~{}\x1b[201~"
"""A text as a terminal sends it on bracketed paste."""
GATED = """\
flowengine: 1
id: gated
steps:
  - {id: work, run: {script: "until [ -e go ]; do sleep 0.05; done", cwd: .}}
  - {id: ask, approval: Go?, next: {outcome: {approve: done, reject: end}}}
  - {id: done, output: went}
"""


@pytest.mark.parametrize(
    "early", ["approve\n\n", "approve\n" * 3000, "appr", PASTE.format("a mail\rapprove\r\r")]
)
def test_what_was_typed_before_a_question_is_no_answer_to_it(
    tmp_path: Path, flowengine: CommandLine, terminals: list[Terminal], early: str
) -> None:
    """This includes input beyond the terminal's buffer, which arrives once that was read."""
    flowengine.write("gated.yaml", GATED)
    terminal = Terminal(tmp_path, "run", "gated.yaml")
    terminals.append(terminal)
    terminal.expect("running")
    typist = threading.Thread(target=terminal.type, args=(early,), daemon=True)
    typist.start()
    if len(early) < 1000:
        typist.join()
    (tmp_path / "go").touch()
    terminal.answer("approve, reject? (Enter leaves it open) ", "ove\n")
    terminal.expect("as a whole word")
    terminal.answer("leaves it open) ", "\n")
    typist.join()

    terminal.end(4)


@pytest.mark.parametrize("pasted", [PASTE.format("approve\r"), "approve\n\n\n"])
def test_a_paste_at_a_question_is_one_text_and_decides_nothing(
    refund_at_terminal: Terminal, pasted: str
) -> None:
    """Whether or not the terminal marks pastes."""
    mail = pasted.replace("approve", "Dear Ana,\rapprove\rall of it")
    refund_at_terminal.answer("leaves it open) ", mail)
    refund_at_terminal.answer("" if mail.endswith("\n") else "all of it", "\n")
    refund_at_terminal.answer("as a whole word", "")
    refund_at_terminal.answer("leaves it open) ", "\n")

    refund_at_terminal.end(4)


def test_a_line_can_be_edited(
    tmp_path: Path, flowengine: CommandLine, terminals: list[Terminal]
) -> None:
    flowengine.write("ask.yaml", ASK)
    terminals.append(Terminal(tmp_path, "run", "ask.yaml"))
    typed = "no\x15Änne\x1b[D\x7f\x7f\x7f\x7fA\x04da Lovelice\x17Lovelx\x7fac\x1b\x1bOCe\n"
    terminals[0].answer("answer (Answer): ", typed)

    assert terminals[0].end(0).endswith("name: Ada Lovelace\n")


def test_interrupting_a_question_leaves_it_open(refund_at_terminal: Terminal) -> None:
    refund_at_terminal.answer("leaves it open) ", "\x03")

    shown = steady(refund_at_terminal.end(130))

    assert "interrupted; saved as EXECUTION; to resume: flowengine resume EXECUTION\n" in shown


def test_who_answers_at_a_terminal_claims_what_must_be_claimed(
    flowengine: CommandLine, terminals: list[Terminal]
) -> None:
    flow = flowengine.write(
        "sign.yaml",
        "flowengine: 1\nid: sign\nsteps:\n  - id: sign\n"
        "    approval: {title: 'Sure?', claim: true, choices: [yes]}\n"
        "    next: {outcome: {else: end}}\n",
    )
    terminal = Terminal(flowengine.folder, "run", flow.name)
    terminals.append(terminal)
    terminal.answer("yes? (Enter leaves it open) ", "yes\n")
    terminal.answer("comment", "fine\n")
    assert "succeeded in" in terminal.end(0)
    told = flowengine("events", flowengine.newest()).out
    assert told.index("claimed") < told.index("decided")


def rounds(flowengine: CommandLine) -> int:
    """Return the number of completed rounds of `both/poll`."""
    steps = flowengine("--json", "show", flowengine.newest()).json()["steps"]
    return sum(1 for one in steps if one["address"].startswith("both/poll@"))


def test_a_question_is_asked_while_other_steps_go_on_and_holds_back_their_progress(
    tmp_path: Path, flowengine: CommandLine, terminals: list[Terminal]
) -> None:
    flowengine.write(
        "poll.yaml",
        "flowengine: 1\nid: poll\nsteps:\n  - id: both\n    parallel:\n"
        "      - {id: ask, approval: Go?, next: {outcome: {approve: end_all, reject: end}}}\n"
        "      - {id: poll, loop: {until: '${{ round.number > 999 }}', max: 1000, every: 250ms}}\n",
    )
    terminals.append(Terminal(tmp_path, "run", "poll.yaml"))
    terminals[0].expect("leaves it open) ")
    asked_at = rounds(flowengine)
    until(lambda: rounds(flowengine) > asked_at + 2)
    terminals[0].answer("", "approve\n")
    terminals[0].answer("comment (Enter: none): ", "\n")
    shown = terminals[0].end(0)

    asked, _, after = shown.partition("leaves it open) approve\n")
    assert "comment (Enter: none): \n  both/poll@" in "".join(after)
    assert asked.rstrip().endswith("approve, reject? (Enter")
    assert "  both/ask" in after


DECIDED = GATED.replace('"until [ -e go ]; do sleep 0.05; done"', "'true'").replace(
    "output: went", 'run: {script: "until [ -e go ]; do sleep 0.05; done; echo went", cwd: .}'
)


@pytest.mark.parametrize("elsewhere", ["resumes", "only records", "still runs it", "at Enter"])
def test_what_somebody_else_decides_takes_the_question_away_and_goes_on(
    flowengine: CommandLine, terminals: list[Terminal], elsewhere: str
) -> None:
    """Whether the other process resumes the execution, has ended it or still drives it."""
    flow = flowengine.write("decided.yaml", DECIDED)
    if elsewhere != "still runs it":
        (flowengine.folder / "go").touch()
    terminals.append(Terminal(flowengine.folder, "run", flow.name, "--id", "l9"))
    terminals[0].expect("leaves it open) ")
    [wait] = flowengine("--json", "approvals", "list").json()
    words = ["approve", wait["id"], "--as", "mia"]
    words += ["--no-resume"] if elsewhere == "only records" else []
    if elsewhere == "still runs it":
        process = flowengine.spawn(*words)
        terminals[0].expect("approved by user:mia")
        (flowengine.folder / "go").touch()
        process.communicate(timeout=60)
    else:
        terminals[0].type("reject" if elsewhere == "at Enter" else "")
        assert flowengine(*words).code == 0
        terminals[0].type("\n" if elsewhere == "at Enter" else "")
    shown = terminals[0].end(0)

    assert "approved by user:mia" in shown
    assert "waiting for" not in shown.partition("leaves it open)")[2]
    assert flowengine("--json", "show", "l9").json()["status"] == "succeeded"


@pytest.mark.endurance
def test_what_a_crash_left_uncertain_is_asked_on_resume(
    tmp_path: Path, flowengine: CommandLine, terminals: list[Terminal]
) -> None:
    flowengine.write(
        "pay.yaml",
        "flowengine: 1\nid: pay\nsteps: [{id: pay, run: sleep 60}]\n"
        "outputs: {got: '${{ steps.pay.output }}'}\n",
    )
    process = flowengine.spawn("run", "pay.yaml")
    flowengine.wait_until_running(process)
    process.kill()
    process.communicate()

    terminals.append(Terminal(tmp_path, "resume", flowengine.newest()))
    terminals[0].answer("retry, result, fail?", "result\n")
    terminals[0].answer("output of the step (JSON or text): ", '{"id": 7}\n')
    terminals[0].answer("comment (Enter: none): ", "\n")

    assert terminals[0].end(0).endswith("got: {id: 7}\n")


# Shows F2
def test_what_runs_is_shown_live_with_its_time_and_then_taken_away(
    tmp_path: Path, flowengine: CommandLine, terminals: list[Terminal]
) -> None:
    flowengine.write("slow.yaml", SLOW)
    terminals.append(Terminal(tmp_path, "run", "slow.yaml"))
    terminals[0].expect("\x1b[36mrunning")
    (tmp_path / "fine").touch()
    terminals[0].expect("\x1b[32msucceeded")
    (tmp_path / "bad").touch()
    shown = terminals[0].end(1)

    assert re.search(r". both/bad       running +\d+s\n", shown)
    assert "  both/fine      succeeded   " in shown
    assert "  both/bad       failed      ExitCode: exit code 3" in shown
    assert "\x1b[32msucceeded" in terminals[0].seen


@pytest.mark.parametrize("words", [["--no-color"], []])
def test_colours_can_be_turned_off(
    tmp_path: Path, hello: Path, terminals: list[Terminal], words: list[str]
) -> None:
    more = {} if words else {"NO_COLOR": "1"}
    terminals.append(Terminal(tmp_path, "run", hello.name, *words, **more))
    terminals[0].end(0)

    assert "\x1b[" not in terminals[0].seen


# Shows F2
def test_a_run_into_a_pipe_has_no_control_codes(flowengine: CommandLine) -> None:
    flow = flowengine.write("slow.yaml", SLOW)
    for name in ("fine", "bad"):
        (flowengine.folder / name).touch()

    process = flowengine.spawn("run", str(flow))
    out, err = process.communicate(timeout=60)

    assert process.returncode == 1
    assert "failed      ExitCode: exit code 3" in err
    assert [c for c in out + err if ord(c) < 32 and c != "\n"] == []
