"""Progress as lines on standard error: ended, waiting and failed steps, with durations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

from flowengine import registry
from flowengine.agents.calls_of_rounds import RoundCalls
from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import (
    STATUS_COLOURS,
    duration,
    err,
    error_text,
    first_line,
    out_text,
    paint,
    when,
)
from flowengine.cli.views.approvals import expiry, with_tool
from flowengine.cli.views.waits import evidence_lines, undelivered
from flowengine.engines import inspection
from flowengine.engines.executions.call_endings import (
    NOT_MADE,
    failure_told,
    shown_status,
)
from flowengine.engines.flows import LoadedFlow
from flowengine.engines.people.approvals import participle
from flowengine.engines.results import Update, WaitInfo
from flowengine.flow.export.yaml_text import inline
from flowengine.kernel.commands import Observation
from flowengine.kernel.notation.addresses import flow_name, wholes
from flowengine.kernel.notation.times import parse_time
from flowengine.kernel.view import DECIDABLE
from flowengine.sdk.steps.progress import progress_text
from flowengine.sdk.texts.visible_text import printable

WIDEST_ADDRESS = 48
"""Maximum width of the address column. Longer addresses shift the rest of their line."""
KEY_WIDTH = {False: 4, True: 14}
"""Width reserved for the number or key of an item, which is unknown before it runs."""
STATUS_WIDTH = 11
TOLD = frozenset({"succeeded", "failed", "skipped", "cancelled", "retrying"})
"""Statuses that get a separate line. A waiting step is reported with its wait."""
MOST_ITEMS = 30
"""Items of a map that succeed are counted if it has more, and not shown one by one."""
FAILED = frozenset({"failed", "retrying", *NOT_MADE.values()})
"""Statuses that are shown with the error."""


class ProgressDisplay:
    """Shows what happens to the executions that are driven.

    Attributes:
        execution: The first execution that reported anything.
        moved: Number of steps that reported anything, over all executions.
    """

    def __init__(self, session: CliSession) -> None:
        self.session = session
        self.execution: str | None = None
        self.moved = 0
        self._quiet = session.arguments.quiet
        self._verbose = session.arguments.verbose
        self._width = 14
        self._key_width = KEY_WIDTH[True]
        self._since: dict[tuple[str, str], int] = {}
        self._decided: dict[tuple[str, str], str] = {}
        self._evidence: dict[tuple[str, str], dict[str, Any]] = {}
        self._calls: defaultdict[str, RoundCalls] = defaultdict(RoundCalls)
        self._flows: dict[str, LoadedFlow] = {}
        self._waits: dict[str, str] = {}
        """The text last shown for each wait, which is reported again when it changes."""
        self._items: dict[tuple[str, str], int] = {}
        """Execution and address of a map → how many items it has."""
        self._counted: dict[str, int] = {}
        """Address of a long map → the last part of its items that was reported, in tenths."""
        self._missed = 0
        """How many pieces of a reply were omitted, until this is reported."""
        self._said: dict[tuple[str, str], list[str]] = {}
        """The pieces of a reply's last line, which has not ended."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the display."""

    def __call__(self, update: Update) -> None:
        """Handle an update of the engine."""
        if self.execution is None:
            self.execution = update.execution
        if update.kind == "missed":
            self._missed += update.data["count"]
            return
        if self._missed and not (update.kind == "part" and "text" in update.data):
            # Once for each reply, however often the terminal was too slow for it.
            self.line(paint(f"… {self._missed} pieces of replies are not shown", "dim"))
            self._missed = 0
        self._show(update)

    def _show(self, update: Update) -> None:
        if update.kind == "event":
            self._event(update.execution, update.data)
        elif update.kind == "text":
            self.text(str(update.data["text"]))
        elif update.kind == "output":
            self._output(**update.data)
        elif update.kind == "part":
            self._part(update.execution, update.data)
        elif update.kind == "undelivered":
            self.line(paint(f"not delivered: {undelivered(update.data)}", "yellow"))
        elif update.kind == "environment":
            self.environment(update)
        elif self._quiet:
            return
        elif update.kind == "step" and update.step is not None:
            self.moved += 1
            self._step(update.execution, update.step)
        elif update.kind == "wait" and "how" not in update.data:
            self._wait(update.execution, update.data)

    def line(self, text: str) -> None:
        err(text)

    def environment(self, update: Update) -> None:
        """Show that an environment could not be opened in the background."""
        if update.data["state"] == "failed":
            name, error = printable(update.data["name"]), update.data["error"]
            why = first_line(error_text(error), 500)
            message = f"'{name}' is not open, and is tried again when it is used: {why}"
            self.line(f"{paint('warning:', 'yellow')} {message}")

    def text(self, text: str) -> None:
        """Show text that a step prints, as part of the results."""
        if self.session.arguments.json:
            for line in text.split("\n"):
                self.line(line)
        else:
            out_text(text)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold back output until another user of the terminal is done."""
        yield

    def begin(self, address: str, at: int) -> None:
        """Handle that a step has started to run."""

    def end(self, address: str) -> None:
        """Handle that a step no longer runs."""

    def count(self, address: str, ended: int, items: int) -> None:
        """Show how many items of a long map have ended, ten times in all."""
        tenths = 10 * ended // items
        if items > MOST_ITEMS and tenths > self._counted.get(address, 0):
            self._counted[address] = tenths % 10
            self._line(address, "running", f"{ended} of {items} items")

    def head(self, execution: str) -> None:
        """Name an execution once, before anything else is reported about it."""
        if execution in self.session.named or self._quiet:
            return
        self.session.named.add(execution)
        record = self.session.engine.store.execution(execution)
        version = f" version {record.version}" if record.version not in (None, "", "0") else ""
        origin = self.session.origin(record.forked_from)
        parent = f", forked from {origin}" if origin else ""
        self._widen(address_width(self._flow(execution).compiled))
        name = paint(self.session.short(execution), "bold")
        self.line(f"execution {name} {flow_name(record.flow)}{version}{parent}")

    def _event(self, execution: str, entry: dict[str, Any]) -> None:
        if entry["type"] == "warning" and inspection.steps.concerns_others(entry):
            self.line(f"{paint('warning:', 'yellow')} {first_line(entry['message'], 500)}")
        if self._verbose and "traceback" in entry.get("evidence", ()):
            self._evidence[execution, entry.get("address", "")] = {
                "traceback": entry["evidence"]["traceback"]
            }
        if entry["type"] == "decided" and entry["via"] != "resume":
            decision = f"{participle(entry['choice'])} by {entry['by']}"
            self._decided[execution, entry.get("address", "")] = decision

    def _step(self, execution: str, step: Observation) -> None:
        self._calls[execution].note(step)
        self.head(execution)
        place = (execution, step.address)
        if step.items is not None:
            ended, items = step.items
            has_ended = step.status in TOLD and step.status != "retrying"
            whole = next(w for w in reversed(wholes(step.address)) if step.address[len(w)] == "[")
            self._items[execution, whole] = items
            self.count(whole, ended + has_ended, items)
        if step.status == "running":
            self._since[place] = step.at  # without the pause or the approval before
            for whole in wholes(step.address):
                self._since.setdefault((execution, whole), step.at)
            self.begin(step.address, step.at)
            keys = [part.partition("]")[0] for part in step.address.split("[")[1:]]
            longest = max(map(len, keys), default=0) + len("[]")
            if longest > self._key_width:
                self._key_width = longest
                self._widen(address_width(self._flow(execution).compiled, longest))
            if self._verbose:
                self._line(step.address, "running", _shown_value(step.input))
        elif step.status in TOLD:
            self.end(step.address)
            since = self._since.pop(place, None)
            spec = self._flow(execution).compiled["steps"][step.step]
            is_instant = spec["action"] in ("none", "fail", "cancel") and "map" not in spec
            if since is None and is_instant:
                since = step.at
            status = shown_status(step, spec)
            detail = self._detail(place, step, status, since)
            # One of many items that needs no attention is only counted.
            is_quiet = not self._verbose and status in ("succeeded", "skipped")
            numbers = (self._items.get((execution, w), 0) for w in wholes(step.address))
            if not (is_quiet and any(number > MOST_ITEMS for number in numbers)):
                self._line(step.address, status, detail)
            why = self._evidence.pop(place, {})
            if why:
                for line in evidence_lines(why, indent="    "):
                    self.line(line)

    def _flow(self, execution: str) -> LoadedFlow:
        if execution not in self._flows:
            self._flows[execution] = self.session.flow_of(execution)
        return self._flows[execution]

    def _detail(
        self, place: tuple[str, str], step: Observation, status: str, since: int | None
    ) -> str:
        """Return the details of a status: the decision, the error, the duration."""
        if status in FAILED and step.error is not None:
            if step.status == "retrying":
                self._since[place] = step.at
            return first_line(error_text(step.error))
        spec = self._flow(place[0]).compiled["steps"][step.step]
        decided = self._decided.pop(place, None)
        if (kind := spec.get("kind", spec["action"])) == "approval":
            decided = expiry(kind, step.outcome, step.output) or decided
        if step.status != "succeeded" or decided is not None:
            if decided and kind == "mcp":
                decided = with_tool(decided, spec["id"], self._calls[place[0]].of(step.address))
            return printable(decided or "")
        took = "" if since is None else duration(step.at - since)
        if "teller" in spec and not self._verbose:
            failure = failure_told(step.output, spec) if status == "failed" else None
            summary = failure or registry.summary(spec["teller"], spec.get("kind", ""), step.output)
            return f"{took:7} {first_line(summary or '', 80)}".rstrip()
        if self._verbose and step.output is not None:
            return f"{took:8} {_shown_value(step.output)}"
        return took

    def _wait(self, execution: str, wait: WaitInfo) -> None:
        self.head(execution)
        place = (execution, wait["address"])
        if place not in self._since:
            since = self._since[place] = parse_time(wait["since"])
            for whole in wholes(wait["address"]):
                self._since.setdefault((execution, whole), since)
        self.end(wait["address"])
        status = "uncertain" if wait.get("ran") == "maybe" else "waiting"
        shown = what_for(self.session, wait)
        if self._waits.get(wait["id"]) != shown:
            self._waits[wait["id"]] = shown
            self._line(wait["address"], status, shown)

    def _output(self, address: str, stream: str, text: str) -> None:
        """Show lines that a program of a step prints."""
        for line in text.split("\n"):
            self._line(address, stream, printable(line.rstrip("\r")))

    def _part(self, execution: str, part: Mapping[str, Any]) -> None:
        """Show the replies of models by lines, because several may arrive at once."""
        if part["part"] == "progress":
            self._line(part["address"], "progress", printable(progress_text(part)))
            return
        place = (execution, part["address"])
        parts = self._said.setdefault(place, [])
        first, *rest = (part["text"] if part["part"] == "text" else "").split("\n")
        parts.append(first)
        for begun in rest:
            self._says(part["address"], parts)
            parts[:] = [begun]
        if part["part"] in ("end", "restart") and any(self._said.pop(place)):
            self._says(part["address"], parts)
        if part["part"] == "restart":
            self._line(part["address"], "says", "(this is taken back, and the reply starts again)")

    def _says(self, address: str, line: list[str]) -> None:
        self._line(address, "says", printable("".join(line).rstrip("\r")))

    def _line(self, address: str, status: str, detail: str) -> None:
        shown = paint(f"{status:{STATUS_WIDTH}}", STATUS_COLOURS.get(status))
        self._widen(len(address))
        self.line(f"  {printable(address):{self._width}} {shown} {detail}".rstrip())

    def _widen(self, width: int) -> None:
        self._width = max(self._width, min(width, WIDEST_ADDRESS))


def address_width(flow: Mapping[str, Any], key_width: int = KEY_WIDTH[True]) -> int:
    """Return the width of the addresses of a flow's steps, as far as it can be known from the file.

    It keeps the columns stable from the first line on. Only keys of items can be wider.

    Args:
        flow: Compiled.
        key_width: Width of the longest key of an item, with its brackets.
    """
    widest, before = 0, {0: 0}
    bodies = [0]
    for body in bodies:  # the list grows during iteration
        if "final" in flow["bodies"][body]:
            cleanup = flow["steps"][flow["bodies"][body]["final"]]["child"]
            before[cleanup] = before[body] + len("finally/")
            bodies.append(cleanup)
        for step in (flow["steps"][index] for index in flow["bodies"][body]["steps"]):
            width = before[body] + len(step["id"])
            if "map" in step:
                width += key_width if "key" in step["map"] else KEY_WIDTH[False]
            if "loop" in step or "exchange" in step:
                width += len("@10")
            widest = max(widest, width + len("/compensate" if "compensate" in step else ""))
            child = step.get("child")
            if child is not None and child not in before:
                before[child] = width + len("/")
                bodies.append(child)
    return widest


def what_for(session: CliSession, wait: WaitInfo) -> str:
    """Return the reason of a wait in a few words."""
    kind = wait["kind"]
    if kind in DECIDABLE:
        noun = {"approval": "approval", "session": "message"}.get(kind, "question")
        return f"{noun} {session.short_wait(wait['id'])}"
    if kind == "worker":
        return f"a worker that offers {' and '.join(wait['needs'])}"
    signals = list(dict.fromkeys(str(signal["signal"]) for signal in wait.get("signals", [])))
    parts = [f"signal {' or '.join(signals)}"] if signals else []
    if "due" in wait:
        parts.append(f"until {when(wait['due'])}")
    return printable(", ".join(parts) or kind)


def _shown_value(value: Any) -> str:
    return "" if value in (None, {}, []) else first_line(inline(value), 120)
