"""A conversation at the terminal: replies as they arrive, questions, the next message."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from time import time
from typing import Any

from flowengine import registry
from flowengine.agents.actions import AHEAD, TURN, asked_model, outputs_in, usage_of
from flowengine.agents.rounds.agent_round import FAILED, RETRY
from flowengine.cli.driving.dialogue import Dialogue
from flowengine.cli.driving.progress import ProgressDisplay
from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import (
    ask,
    err,
    err_text,
    error_text,
    first_line,
    flush,
    is_terminal,
    out,
    out_piece,
    paint,
    show_error,
)
from flowengine.engines.agent_events import AgentEvents
from flowengine.engines.results import Update, WaitInfo
from flowengine.errors import Conflict, NotFound
from flowengine.kernel.commands import Observation
from flowengine.kernel.graph.compiled import OPENING
from flowengine.kernel.notation.times import parse_time
from flowengine.sdk.texts.near_words import did_you_mean
from flowengine.sdk.texts.visible_text import printable

# Replies of models, written to the terminal while they arrive, one after the other.


class ReplyPrinter:
    """Writes replies piece by piece. If several arrive at once, the others wait for the first.

    Args:
        write: Writes a piece of a line.
        end_line: Ends the line.
        broke_off: Reports that a reply was interrupted and will begin again.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        end_line: Callable[[], object],
        broke_off: Callable[[], object],
    ) -> None:
        self._write = write
        self._end_line = end_line
        self._broke_off = broke_off
        self._live: str | None = None
        """Address of the step whose reply is being written."""
        self._waiting: dict[str, list[Mapping[str, Any]]] = {}
        """Address → parts of its reply that are written later."""
        self._in_line = False
        self._returned = ""
        """A carriage return at the end of the last piece: it may be half of a line end."""

    def feed(self, part: Mapping[str, Any]) -> None:
        """Process the next part of a reply: `{address, part, text?, ...}`."""
        if self._live in (None, part["address"]):
            self._show(part)
            self._show_next()
        else:
            self._waiting.setdefault(part["address"], []).append(part)

    def ended(self, address: str) -> None:
        """Note that a step has ended, so no more of its reply will arrive."""
        if self._live == address:
            self._end()
            self._show_next()

    def end_line(self) -> None:
        """End the current line, so that something else can be shown."""
        if self._in_line:
            self._in_line = False
            self._end_line()

    def _show(self, part: Mapping[str, Any]) -> None:
        kind = part["part"]
        if kind == "start":
            self._live = part["address"]
        elif kind == "text":
            piece = self._returned + part["text"]
            self._returned = "\r" if piece.endswith("\r") else ""
            first, *lines = piece.removesuffix("\r").replace("\r\n", "\n").split("\n")
            self._piece(first)
            for line in lines:
                self._in_line = False
                self._end_line()
                self._piece(line)
        elif kind in ("restart", "end"):
            self._end()
            if kind == "restart":
                self._broke_off()

    def _show_next(self) -> None:
        while self._live is None and self._waiting:
            for part in self._waiting.pop(next(iter(self._waiting))):
                self._show(part)

    def _piece(self, text: str) -> None:
        if text:
            self._in_line = True
            self._write(text)

    def _end(self) -> None:
        self._live, self._returned = None, ""
        self.end_line()


# A conversation at the terminal: answers as they arrive, questions, the next message.

HELP = """\
A \\ at the end of a line, or Alt-Enter, continues the message in the next line.
/retry   ask again, after an error
/tools   the tools of the agents
/cost    tokens and costs of the models so far
/help    show these commands
/end     end the conversation
/quit    leave it open, to be resumed later (or press Ctrl-D)"""
_COMMANDS = re.findall(r"^/\w+", HELP, re.MULTILINE)


class ChatDisplay(ProgressDisplay):
    """Shows replies of an agent as they arrive, and a line for each call."""

    def __init__(self, session: CliSession) -> None:
        super().__init__(session)
        self.shown: list[str] = []
        """The text shown since the user's last message, in pieces."""
        self._agents = cache(lambda id: AgentEvents(self._flow(id).compiled, id))
        """Returns the reader of what agents do in an execution."""
        self._open: set[str] = set()
        self.notified: set[str] = set()
        """Ids of the questions that came, after all that led to them."""
        self._failed: str | None = None
        """A line about a turn without a reply, for the case that no question reports it."""
        self._came: dict[str, Update] = {}
        """Results of opening environments in the background, by name, until they are shown."""
        self._replies = ReplyPrinter(self._write, self._end_line, self._broke_off)

    def __exit__(self, *_: object) -> None:
        """End the line of a reply that was interrupted."""
        self._replies.end_line()

    def line(self, text: str) -> None:
        self._replies.end_line()
        super().line(text)

    def __call__(self, update: Update) -> None:
        """Handle an update while the conversation is driven."""
        super().__call__(update)
        if update.kind == "step":
            self.catch_up()
        elif update.kind == "wait":
            self.notified.add(update.data["id"])

    def environment(self, update: Update) -> None:
        """Do nothing, because `came` receives the update too."""

    def came(self, update: Update) -> None:
        """Accept an update at any time, from any thread, to show it between other lines."""
        if update.kind == "environment":
            self._came[update.data["name"]] = update

    def catch_up(self) -> None:
        """Show the results of opening environments in the background."""
        for name in self._open.intersection([*self._came]):
            update = self._came.pop(name)
            if update.data["state"] == "failed":
                super().environment(update)
            else:
                self.line(paint(f"  {printable(name)}  ready", "dim"))

    def head(self, execution: str) -> None:
        """Do nothing, because there is only one conversation."""

    def _step(self, execution: str, step: Observation) -> None:
        """Show calls, handoffs and errors. Replies are shown as they arrive."""
        if step.status != "running":
            self._replies.ended(step.address)
        spec = self._flow(execution).compiled["steps"][step.step]
        is_turn = spec["kind"] == TURN and step.error is None and not asked_model(step.output)
        if self._failed is not None and "chat" not in spec and not is_turn:
            self.line(self._failed)
            self._failed = None
        for part in self._agents(execution).of(Update(execution, "step", {}, step)):
            if part.kind == "handoff":
                self.line(paint(f"→ {printable(part.to)}", "dim"))
        if step.error is not None and step.status in ("failed", "retrying"):
            text = first_line(error_text(step.error))
            line = f"  {paint(f'{printable(step.address)} {step.status}', 'yellow')} {text}"
            if step.status == "failed" and spec["kind"] == TURN:
                self._failed = line
            else:
                self.line(line)
            return
        if spec["kind"] == OPENING and step.status == "succeeded":
            named: Any = spec["input"]
            later: Any = spec["task"].get("background", ())
            for name in named[1]["environments"][1]:
                if name not in self._open:
                    self._open.add(name)
                    state = "opens in the background" if name in later else "ready"
                    self.line(paint(f"  {printable(name)}  {state}", "dim"))
            return
        if step.status == "succeeded" and "teller" in spec and spec["kind"] not in (TURN, AHEAD):
            text = registry.summary(spec["teller"], spec["kind"], step.output) or ""
            self.line(paint(f"  {printable(spec['id'])}  {first_line(text, 100)}", "dim"))

    def _output(self, address: str, stream: str, text: str) -> None:
        if stream == "stdout":
            self._replies.end_line()
            for line in text.split("\n"):
                out(line.rstrip("\r"))

    def _part(self, execution: str, part: Mapping[str, Any]) -> None:
        self._replies.feed(part)

    def _write(self, text: str) -> None:
        self.shown.append(text)
        out_piece(text)

    def _end_line(self) -> None:
        self.shown.append("\n")
        out()
        flush()

    def _broke_off(self) -> None:
        self.shown = []
        self.line(paint("  this is taken back, and the reply starts again", "yellow"))

    def _wait(self, execution: str, wait: WaitInfo) -> None:
        """Do nothing, because the dialogue asks the question."""

    def take_failure(self) -> None:
        """Note that the user has read why the reply is missing."""
        self._failed = None


class Chat(Dialogue):
    """Asks for the next message, and for approvals, until the user leaves."""

    def __init__(self, session: CliSession, talk: ChatDisplay) -> None:
        super().__init__(session)
        self.talk = talk
        self._at_terminal = is_terminal(sys.stdin)
        # In a pipe, the next line is the next message, not the answer to a prompt.
        self._asks_for_optional_parts = self._at_terminal
        self._driven_since: int | None = None
        """Since when (ms) steps run beside the questions. None: all their output was shown."""

    @contextmanager
    def beside(self, progress: ProgressDisplay) -> Iterator[None]:
        """Ask open questions in a thread while other steps run."""
        self._driven_since = int(time() * 1000)
        with super().beside(progress):
            yield
            self._driven_since = None

    def _may_ask(self, wait: WaitInfo) -> bool:
        """Return whether everything that precedes a question has been shown.

        The store has a question before the last pieces of the reply are shown that it ends: asked
        then, it would show the reply once more.
        """
        since = self._driven_since
        if since is None or wait["id"] in self.talk.notified:
            return True
        return parse_time(str(wait["since"])) < since

    def _ask(self, wait: WaitInfo) -> bool:
        """Ask for the next message, and for other decisions as every command does."""
        if not wait.get("chat"):
            return super()._ask(wait)
        title = str(wait.get("title", ""))
        self._show(title)
        while True:
            self.talk.catch_up()
            text = self._read("> ")
            while text.endswith("\\"):
                text = f"{text[:-1]}\n{self._read('… ')}"
            text = text.strip()
            if not text:
                continue
            if not text.startswith("/") or text == "/end":
                break
            if text == RETRY and _is_failure(title):
                break
            if text == "/quit":
                raise EOFError
            self._command(text, wait["execution"])
        self.talk.catch_up()
        self.talk.shown = []
        form = {"answer": "" if text == "/end" else text}
        try:
            self._session.engine.approvals.decide(wait["id"], "answer", form=form, resume=False)
        except (Conflict, NotFound) as error:  # it was decided elsewhere
            show_error(error)
            return False
        return True

    def _show(self, text: str) -> None:
        """Show an answer that was not streamed, or why it is missing."""
        if _is_failure(text):
            self.talk.take_failure()
            for line in text.split("\n"):
                err(paint(line, "yellow"))
        elif not "".join(self.talk.shown).rstrip().endswith(text.rstrip()):
            for line in text.split("\n"):
                out(line.rstrip("\r"))
            flush()

    def _command(self, text: str, execution: str) -> None:
        if text == "/tools":
            for line in _tools(self._session, execution):
                err(line)
        elif text == "/cost":
            err(cost(self._session, execution))
        elif text == RETRY:
            err("the last message has an answer: type the next message")
        else:
            word = text.split(maxsplit=1)[0]
            if word != "/help":
                near = did_you_mean(word, _COMMANDS)
                err(f"unknown command {first_line(word, 40)}{f': {near}' if near else ''}")
            err_text(HELP)

    def _read(self, prompt: str) -> str:
        if self._at_terminal:
            return super()._read(prompt)
        ask(prompt)
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")


def _is_failure(title: str) -> bool:
    """Return whether a question reports that a model did not answer."""
    return title.endswith(FAILED)


def _tools(session: CliSession, execution: str) -> list[str]:
    """Return a line for each tool of each agent."""
    lines = []
    for step in session.flow_of(execution).compiled["steps"]:
        if step.get("kind") == TURN:
            agent: Any = step["task"]["agent"]
            lines.append(agent["name"])
            described = [(tool["name"], tool["description"]) for tool in agent["tools"]]
            described += [(f"→ {name}", what) for name, what in agent["handoffs"].items()]
            lines += [f"  {name}  {first_line(what, 80)}".rstrip() for name, what in described]
    return lines


def cost(session: CliSession, execution: str) -> str:
    """Return the token usage and cost of an execution, in a line."""
    total, _ = usage_of(outputs_in(session.engine.executions.events(execution)))
    return str(total)
