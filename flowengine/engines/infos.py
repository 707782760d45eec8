"""Data of the public API, as plain dicts: the documented JSON of the command line.

Times are RFC 3339 strings in UTC, ids are strings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, NotRequired, Required, TypedDict

from flowengine.engines.results import Status, WaitInfo
from flowengine.journal.filters import is_found, searched_text
from flowengine.journal.records import ENDED, ExecutionRecord
from flowengine.journal.shapes import EVENTS
from flowengine.kernel.events import ErrorData, Evidence
from flowengine.kernel.notation.addresses import flow_name
from flowengine.kernel.notation.times import format_time
from flowengine.sdk.texts.visible_text import one_line


class LogLineInfo(TypedDict):
    """A line that a step logged."""

    at: str
    level: str
    """`INFO`, `WARNING`, …"""
    text: str
    """Secrets are masked. It may contain line breaks and any other characters."""


class LogInfo(TypedDict):
    """The log of an attempt, written with `context.log`: its last lines, at most 16 KiB."""

    lines: list[LogLineInfo]
    """Oldest first."""
    left_out: int
    """Number of older lines that are not kept."""


class AttemptInfo(TypedDict, total=False):
    """One attempt of a step."""

    attempt: int
    status: str
    started_at: str
    ended_at: str
    input: Any
    output: Any
    error: ErrorData
    evidence: Evidence
    """Evidence of why it failed. Absent if there is none."""
    log: LogInfo
    """Absent if it logged nothing, or if its process died."""


class StepInfo(TypedDict, total=False):
    """One activation of a step, in order of its start."""

    address: str
    step: str
    kind: str
    """Whether it is a connecting step of a generated flow. Absent for other steps."""
    summary: str
    """The meaning of its output in one line, if its step kind provides one."""
    status: str
    """For a model's tool call, also `rejected`, `expired` and `refused`: the call was not made."""
    outcome: str | None
    attempts: int
    started_at: str
    ended_at: str
    took: str
    """How long attempts ran in it. Pauses are not counted, nor are attempts whose process died.
    Concurrent attempts count once. Absent if none ran, or if one step was requested."""
    tokens: int
    """Used by the last attempt, as it reported. Only in a sorted or filtered list."""
    cost_usd: float
    input: Any
    output: Any
    error: ErrorData | None
    tries: list[AttemptInfo]
    """Each attempt, only if requested."""
    request: dict[str, Any]
    """The last attempt's request to a model: `model`, `messages`, `tools`, `tool_choice`, `returns`
    and `settings` without secrets. Only if one step was requested."""
    subject: Any
    """The subject of the approval, before any edits. For a call, its arguments. Only if one step
    was requested."""
    decision: dict[str, Any]
    """For an approval: the decision, its user, its time and its channel."""
    earlier_decisions: list[dict[str, Any]]
    """Earlier decisions in the same format: votes, and the approval of a call whose outcome became
    unknown in a crash."""


StepOrder = Literal["time", "attempts", "error", "tokens", "cost"]
"""See `Engine.executions.show`."""


class StepFilter(NamedTuple):
    """The steps of an execution to show, and their order."""

    status: str | None = None
    kind: str | None = None
    sort: StepOrder | None = None
    """None: in order of beginning."""
    limit: int | None = None
    """None: all."""


class ScreenInfo(TypedDict):
    """The screen of an open environment."""

    environment: str
    """Its id."""
    at: str
    """When it showed that."""
    screen: dict[str, str]
    """`text`: the lines of a terminal. `picture`: a PNG of a browser's window in base64, `title`
    and `address`: of its page. Absent if empty."""


class BudgetInfo(TypedDict, total=False):
    """The budget of a running flow, and the amounts used. Keys that do not apply are absent."""

    address: str
    """Address of the step that runs the flow. Empty: the flow of the execution itself."""
    flow: str
    then: str
    """`stop` or `ask`."""
    tool_calls: dict[str, int]
    """`{used, running, limit}`. Running calls count as used."""
    tokens: dict[str, int]
    """`{used, running, estimated, limit}`. `used` includes the maximum that running calls may use.
    `estimated` is the part for interrupted calls, whose actual use is unknown."""
    cost_usd: dict[str, float]
    """The same amounts in US dollars."""
    wall_time: dict[str, str]
    """`{used, limit}`: durations."""


class SharedBudgetInfo(TypedDict, total=False):
    """A budget that executions share, in one period."""

    key: Required[str]
    period: Required[str]
    """`day`, `month`, or `all`."""
    start: str
    """The day or month. Absent for `all`."""
    resets: str
    """When the period ends. Absent for `all`."""
    amounts: Required[dict[str, dict[str, float]]]
    """`tool_calls`, `tokens` or `cost_usd` → `{used, reserved, limit}`. `reserved` is the maximum
    that running calls may use, and `limit` is that of the newest call, absent without one."""


class Again(TypedDict, total=False):
    """How an execution is continued. Keys that do not apply are absent."""

    command: str
    """The command line that continues or wakes it: `resume` if it was interrupted. If it failed
    (only if one execution is shown) `retry`, or the `fork` that completes the undoing."""
    not_undone: list[str]
    """Addresses of steps whose compensation failed, in the order in which they are undone."""
    undone_by: dict[str, str]
    """Address of a step whose compensation failed → the fork that undid it, or is at work on it.
    In such a fork, that is the fork itself."""


class ExecutionInfo(Again, total=False):
    """An execution as `show` prints it. `list` has only the first group of keys."""

    execution: str
    flow: str
    version: str
    status: Status
    labels: dict[str, str]
    started_by: str
    started_at: str
    ended_at: str
    took: str
    """How long attempts of its steps ran, as for a step."""
    parent: str | None
    forked_from: str | None
    due: str
    """When the next timer is due, while it waits and no process drives it."""
    title: str
    """The title of its flow, with the values of the expressions in it. It is set when it starts.
    Absent: the flow has no title."""
    key_inputs: dict[str, Any]
    """Inputs by which users recognize it. Absent if the title of the flow has expressions."""
    failure: str
    """In lists: the message of its error, in one line of at most 300 characters."""
    durability: str
    budgets: list[BudgetInfo]
    """Budgets of its flow and of running subflows. Absent if there are none."""
    inputs: dict[str, Any]
    state: dict[str, Any]
    """Values of its state, only if it is shown as it was before an event."""
    event: dict[str, Any]
    """The event before that, as in `events`. Absent: there is none."""
    entries: int
    """Length of its journal, with `event`."""
    steps: list[StepInfo]
    waits: list[WaitInfo]
    undelivered: list[dict[str, Any]]
    """Messages that it could not deliver to other executions: `{signal, to, key, id, why}`."""
    warnings: list[dict[str, Any]]
    """Problems that did not affect the result, also after its end: `{at, about, message}` each. For
    example, an environment that could not be closed."""
    outputs: dict[str, Any] | None
    error: ErrorData | None


class Reason(Again, total=False):
    """Why a live branch of an execution does not move."""

    address: str
    what: str
    """The awaited thing or event, in one sentence."""
    since: str
    wakes: str
    """The event that would resume it, in one sentence."""
    due: str
    wait: str
    """Public id, if it is a wait."""
    commands: dict[str, str]
    """Choice → the command line that makes it, for a step that may have taken effect. Those that do
    not run it again come first."""
    nobody: str
    """Why no user may decide it: its groups have no members, or it excludes all of them."""
    timers: list[dict[str, str]]
    """`{what, due}` each: the timers of an approval."""
    lock: str
    """Key of the lock, if it waits for a lock that executions share."""
    signals: list[str]
    """Names of the signals that continue it."""


class Side(TypedDict):
    """One of two executions that are compared."""

    execution: str
    flow: str
    version: str
    hash: str
    """Structural hash of the flow that it runs."""
    status: Status
    forked_from: str | None
    entries: int
    """Length of its journal, without the entries that `retry` discarded."""
    facts: int
    """Number of recorded facts: inputs, ends of attempts, signals, …"""
    outputs: Any
    error: Any


class Parting(TypedDict):
    """The first point where two histories diverge."""

    address: str
    """Address of the step. Empty: the difference is not about a step."""
    what: str
    """`input`, `end`, `inputs`, `signal NAME`, …"""
    left: dict[str, Any] | None
    """`{seq, address, status, outcome, input, output, error}` if applicable. None: it did not
    happen there."""
    right: dict[str, Any] | None
    differ: list[dict[str, Any]]
    """Paths at which the values differ: `{path, left, right}` each."""


class StepPair(TypedDict):
    """A step that ended differently in two executions, or ran in only one."""

    address: str
    left: dict[str, Any] | None
    """`{status, outcome, input, output, error}`, the input only if it differs, or of the step where
    they part. None: it did not start there."""
    right: dict[str, Any] | None
    differ: list[dict[str, Any]]


class ForkInfo(TypedDict):
    """How one of two executions was forked from the other."""

    side: Literal["left", "right"]
    at: str
    """Address of the step."""
    past: int
    """How many events it copied."""
    same: bool
    """Whether these events are the same in both."""


class Difference(TypedDict):
    """Two executions side by side. In values, ids and times are replaced by `(id)` and `(time)`."""

    same: bool
    """Whether both had the same history so far and have the same status."""
    same_flow: bool
    left: Side
    right: Side
    shared: int
    """Number of events before the first difference."""
    fork: ForkInfo | None
    """The fork, if one was forked from the other."""
    parting: Parting | None
    steps: list[StepPair]
    """The first 200 steps that differ, with the one where they part in front."""
    more_steps: NotRequired[int]
    """How many other steps have results or inputs that are not the same, byte for byte."""
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    errors: list[dict[str, Any]]


Verdict = Literal["continues", "mapping", "cannot", "held", "current", "ended"]
"""Whether an execution can continue with another version of its flow.

- `continues`: it can
- `mapping`: the mapping needs more entries
- `cannot`: it is impossible
- `held`: a running process holds it
- `current`: it already runs that version
- `ended`: it has ended
"""


class ObstacleInfo(TypedDict):
    """A part of an execution that has no counterpart in another version of its flow."""

    what: str
    """`step`, `state`, `signal`, `input`, `subflow`, or `execution` for the whole execution."""
    name: str
    why: str
    write: dict[str, Any] | None
    """The entry to add to the mapping, with the placeholders `NEW` or `VALUE` where the author must
    choose. None: no mapping helps."""
    fits: list[str]
    """The possible values of `NEW`."""


class UpgradeInfo(TypedDict):
    """The outcome of moving one execution to another version."""

    execution: str
    flow: str
    version: str
    """The version that it has run so far."""
    status: Status
    verdict: Verdict
    moved: bool
    """Whether it was moved now."""
    obstacles: list[ObstacleInfo]
    """Those that no mapping helps with come first."""
    write: dict[str, Any]
    """All entries that the mapping needs for it."""
    fork: str | None
    """If no mapping helps: the address of the last step from which a fork can start with the other
    version, where there is one."""


class DeployedInfo(TypedDict):
    """A deployed version of a flow."""

    flow: str
    version: str
    hash: str
    """`LoadedFlow.form`."""
    deployed_at: str
    current: bool
    """Whether its id alone names this version, and signals and schedules start it."""


class StartInfo(TypedDict, total=False):
    """Something that starts executions of a deployed flow: a signal or a schedule."""

    flow: str
    signal: str
    schedule: str
    timezone: str
    missed: str
    jitter: float
    """Seconds."""
    next: str
    """The next time of the schedule. Absent: it is paused."""
    due: str
    """When its execution starts: at that time, or later because of the jitter."""


LISTED = ("approval", "ask", "question")
"""Kinds of waits in lists of open decisions. A session waits for its program."""


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


EVENT_TYPES = (*EVENTS,)
"""The types of events."""


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


def execution_view(record: ExecutionRecord) -> ExecutionInfo:
    """Return an execution as shown in lists."""
    view: ExecutionInfo = {
        "execution": record.id,
        "flow": record.flow,
        "version": record.version or "",
        "status": record.status,  # type: ignore[typeddict-item]
        "labels": record.labels,
        "started_by": record.started_by,
        "started_at": format_time(record.created_at),
        "parent": record.parent,
        "forked_from": record.forked_from,
    }
    if record.status in ENDED and record.ended_at is not None:
        view["ended_at"] = format_time(record.ended_at)
    if record.due is not None:
        view["due"] = format_time(record.due)
    if record.title:
        view["title"] = record.title
    if record.key_inputs:
        view["key_inputs"] = dict(record.key_inputs)
    return view


class GrantInfo(TypedDict, total=False):
    """A grant: an approval that also covers later calls. Keys that do not apply are absent."""

    id: str
    """Public id: the id of the wait whose approval created it."""
    execution: str
    """The execution whose call was approved."""
    flow: str
    """Id of the flow, for a grant that covers all executions of a flow."""
    tool: str
    args: dict[str, str]
    """Argument → its permitted values: a pattern, or the JSON of the only value."""
    uses: int
    used: int
    until: str
    by: str
    at: str
    status: str
    """`open`, `used up`, `over` or `revoked`."""
    revoked_by: str
