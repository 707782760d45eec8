"""Results of the public API, as named tuples, so that callers read them field by field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from flowengine.engines.infos import ExecutionInfo, Status, WaitInfo
from flowengine.journal.filters import is_found, searched_text
from flowengine.journal.records import ENDED as ENDED  # noqa: PLC0414 - for those who see only the engine
from flowengine.kernel.commands import Observation
from flowengine.kernel.events import ErrorData
from flowengine.kernel.notation.addresses import flow_name
from flowengine.kernel.notation.times import format_time
from flowengine.sdk.texts.visible_text import one_line
from flowengine.util.loops import is_interrupt

LISTED = ("approval", "ask", "question")
"""Kinds of waits in lists of open decisions. A session waits for its program."""


class ExecutionResult(NamedTuple):
    """The state of an execution: ended, or waiting for a time, a message or a decision.

    `result._asdict()` without `due` is the JSON object that the command line prints.
    """

    execution: str
    flow: str
    status: Status
    outputs: dict[str, Any] | None
    """The outputs that the flow declares, once it has succeeded."""
    waits: list[WaitInfo]
    """The open waits. Empty once the execution has ended."""
    error: ErrorData | None
    due: int | None = None
    """When the next timer is due, in milliseconds since 1970. The execution must then be
    resumed."""

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.status in ENDED


class ExecutionPage(NamedTuple):
    """A page of executions, newest first."""

    items: list[ExecutionInfo]
    next: str | None
    """Pass it as `after` to get the next page. None: this was the last page."""


class WaitPage(NamedTuple):
    """A page of waits, oldest first. Closed ones only: newest first."""

    items: list[WaitInfo]
    next: str | None
    """Pass it as `after` to get the next page. None: this was the last page."""


class Decision(NamedTuple):
    """The decision on a wait that counts."""

    wait: str
    execution: str
    choice: str
    by: str
    at: int
    """Milliseconds since 1970."""
    via: str
    comment: str | None
    first: bool
    """False: the same decision had been made before, and nothing was recorded."""
    result: ExecutionResult | None
    """The state of the execution after resuming it. None if it was not resumed here."""

    @property
    def data(self) -> dict[str, Any]:
        """The decision as JSON, without the result."""
        fields = {**self._asdict(), "at": format_time(self.at)}
        del fields["result"]
        return fields


class Sent(NamedTuple):
    """A signal that was stored for an execution."""

    execution: str
    id: str
    result: ExecutionResult | None
    """The state of the execution after resuming it. None if it was not resumed here."""
    began: bool = False
    """Whether the signal started the execution."""
    first: bool = True
    """False: the same message had been sent before, and nothing was stored."""


class ScheduledStart(NamedTuple):
    """An execution that a schedule has started."""

    flow: str
    schedule: str
    """The expression and the time zone."""
    time: int
    """The time of the schedule, in milliseconds since 1970."""
    execution: str | None
    """Its id. None: it could not be started, or was skipped, as `concurrency` of the flow says."""
    error: Exception | None = None
    """The reason. If the inputs are refused, or too many executions are open, this time is passed
    over. Otherwise it is tried again."""


class StoreEvent(NamedTuple):
    """An event of one of the executions of a store."""

    number: int
    """Its place among the events of all executions, in the order of their commits."""
    execution: str
    flow: str
    status: str
    """That of the execution right after the event."""
    labels: dict[str, str]
    created_at: int
    """When the execution was created, in milliseconds since 1970."""
    entry: dict[str, Any]
    """As `Engine.executions.events` returns it. Of type `unreadable` if its journal is damaged."""


class EventFilter(NamedTuple):
    """The events to return: those of the executions that fit."""

    flow: str | None = None
    status: str | None = None
    """Of the execution, right after the event."""
    labels: Mapping[str, str] = {}
    since: int | None = None
    """Executions that were created at this time or later, in milliseconds since 1970."""

    def fits(self, event: StoreEvent) -> bool:
        """Return whether an event is one of these."""
        labels = event.labels.items()
        return (
            self.flow in (None, event.flow)
            and self.status in (None, event.status)
            and self.labels.items() <= labels
            and (self.since is None or event.created_at >= self.since)
        )


class Update(NamedTuple):
    """A notification for subscribers, sent after it is on disk. Execution never depends on it."""

    execution: str
    kind: Literal[
        "event", "step", "wait", "text", "output", "part", "missed", "warning", "notify",
        "undelivered", "environment", "end",
    ]  # fmt: skip
    data: Any
    """The data, by kind:

    - `event`: the journal entry, as in `Engine.executions.events`
    - `wait`: a `WaitInfo` that opened, changed or closed
    - `text`: `{address, text}`, printed by a step
    - `output`: `{address, stream, text}`, lines printed by a step's program
    - `part`: `{address, part, text?, ...}`, part of a reply as it arrives
    - `missed`: `{count}`, the number of parts that a slow subscriber missed
    - `warning`: `{text, address, left, ended}`, about a step that left something running
    - `notify`: `{wait, why, to}`
    - `environment`: `{name, state, error?}`, `ready` or `failed` after opening in the background
    - `end`: the `ExecutionResult`
    """
    step: Observation | None = None
    """`step`: what happened to an activation."""


def deliver(callback: Callable[[Update], None], update: Update) -> None:
    """Call a subscriber. Its exceptions are logged: they stop no other one and no execution."""
    try:
        callback(update)
    except BaseException as error:
        if is_interrupt(error):
            raise
        import logging

        message = "a subscriber failed at an update of kind '%s'"
        logging.getLogger("flowengine.engines").warning(message, update.kind, exc_info=True)


def shown_title(info: Mapping[str, Any], longest: int = 200) -> str:
    """Return the title of an execution with its key inputs, in one line.

    Args:
        info: The keys of `ExecutionInfo` that lists have.
        longest: Maximum number of characters.
    """
    flow = [] if "title" in info else [flow_name(str(info["flow"]))]
    return one_line(", ".join([*flow, *told_by(info)]), longest)


def told_by(info: Mapping[str, Any]) -> list[str]:
    """Return what distinguishes an execution from others of its flow: its title, its key inputs."""
    key_inputs = info.get("key_inputs", {}).items()
    title = [str(info["title"])] if "title" in info else []
    return [*title, *(f"{name} {_shown(value)}" for name, value in key_inputs)]


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_found_by(info: Mapping[str, Any], search: str) -> bool:
    """Return whether a search finds an execution by its entry in a list.

    Args:
        info: The entry of the execution.
        search: See `Engine.executions.list`.
    """
    told = [info["flow"], info.get("title", ""), info.get("failure", "")]
    values = (*info.get("key_inputs", {}).items(), *info["labels"].items())
    return is_found(info["execution"], searched_text(told, values), search)


class InterventionPlan(NamedTuple):
    """The effects that an intervention would have. Steps are named by their addresses."""

    again: dict[str, str] = {}  # noqa: RUF012 - a default that nothing changes
    """Steps that have run and may run again → the effect of their calls: `pure`, `idempotent` or
    `once`. Empty for steps that make no call, such as approvals."""
    kept: int = 0
    """Number of steps whose results are kept."""
    stopped: tuple[str, ...] = ()
    """Steps whose attempts are stopped, and that may have taken effect."""
    undone: tuple[str, ...] = ()
    """Steps that are compensated."""
    cleanup: tuple[str, ...] = ()
    """Steps of `finally` that run, inner ones first."""
    outdated: tuple[str, ...] = ()
    """Of a fork: steps whose results are kept although they were compensated later."""
    state: dict[str, Any] = {}  # noqa: RUF012 - a default that nothing changes
    """Of a fork: the state right before its step."""
