"""What the public API gives back: small named tuples and plain dicts.

The dicts are the documented JSON of the command line: times are RFC 3339 texts in UTC, ids are
texts. The named tuples are what a caller reads field by field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal, NamedTuple, TypedDict

from flowengine.kernel.commands import Observation
from flowengine.kernel.events import ErrorData, Evidence

Status = Literal["running", "interrupted", "waiting", "stalled", "succeeded", "failed", "cancelled"]
"""Status of an execution; `succeeded`, `failed` and `cancelled` are ends. `interrupted`: it has
work to do and nobody is at it, as after its process died; `resume` continues it."""

ENDED = frozenset({"succeeded", "failed", "cancelled"})


class WaitInfo(TypedDict, total=False):
    """An open or closed wait. Keys that do not apply are absent."""

    id: str
    """Public id; every call takes any unambiguous beginning of it."""
    execution: str
    flow: str
    kind: str
    """`approval`, `ask`, `signal`, `timer`, `state` or `question`."""
    address: str
    step: str
    since: str
    due: str
    """When time ends it: expiry, time-out or the awaited time itself."""
    title: str
    body: str
    subject: Any
    edit: Any
    """Fields of `subject` that the decider may change, or `True` for all."""
    edit_schema: dict[str, Any]
    """JSON Schema of these fields, as far as the flow declares their types."""
    form: dict[str, Any]
    choices: list[dict[str, Any]]
    """`{id, label, counts_as, comment}` each."""
    assignees: list[str]
    exclude: list[str]
    need: int
    votes: list[Any]
    batch: str
    attachments: list[Any]
    on_expire: str
    claim: bool
    """It must be claimed before it is decided."""
    claimed_by: str
    """Who has claimed it; nobody else decides then."""
    delegate: bool
    """Whether it may be handed on; absent: yes."""
    handed: list[dict[str, Any]]
    """Who claimed it, gave it back or handed it on: `{do, by, to, at, via, comment}` each."""
    ran: str
    """Of a `question`, whether the attempt acted: `maybe`, if it was cut off; `no`, if it has not
    begun because an environment cannot be had again."""
    error: ErrorData
    """Of a `question`: what became of the environment."""
    signals: list[dict[str, Any]]
    """`{signal, key}` each: the messages that it takes."""
    timers: list[dict[str, str]]
    """`{what, due}` each, soonest first: the next `reminder` and `escalation`, and the `expiry`.
    Only where one execution or one wait is shown."""
    status: str
    """`pending` or `closed`."""
    decision: dict[str, Any]
    """`{choice, by, at, via, comment, form, edits, attachments}` of a closed one."""


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
    """What shows why it failed; absent: there is none."""


class StepInfo(TypedDict, total=False):
    """One activation of a step, in order of its start."""

    address: str
    step: str
    kind: str
    status: str
    outcome: str | None
    attempts: int
    started_at: str
    ended_at: str
    input: Any
    output: Any
    error: ErrorData | None
    tries: list[AttemptInfo]
    """Each attempt; only where one step was asked for."""
    decision: dict[str, Any]
    """Of an approval: what was decided, by whom, when and through what."""


class BudgetInfo(TypedDict, total=False):
    """What a flow at work may use, and what it has used. Keys that do not apply are absent."""

    address: str
    """Of the step that runs the flow; empty: it is the execution's own."""
    flow: str
    then: str
    """`stop` or `ask`."""
    tool_calls: dict[str, int]
    """`{used, running, limit}`; those that run are used."""
    wall_time: dict[str, str]
    """`{used, limit}`: durations."""


class ExecutionInfo(TypedDict, total=False):
    """An execution: what `show` tells; `list` gives the first group of keys only."""

    execution: str
    flow: str
    version: str
    status: Status
    labels: dict[str, str]
    started_by: str
    started_at: str
    ended_at: str
    parent: str | None
    forked_from: str | None
    due: str
    """When the next timer is due, while it waits and nobody drives it."""
    command: str
    """The command line that continues it: `resume` if it was interrupted; if it failed, and only
    where one execution is shown, `retry`, or the `fork` that undoes what was not undone."""
    not_undone: list[str]
    """Addresses of steps whose compensation failed, in the order in which they are undone; absent:
    there are none."""

    durability: str
    budgets: list[BudgetInfo]
    """Of its flow and of the subflows at work, as far as they have one; absent: none has."""
    inputs: dict[str, Any]
    steps: list[StepInfo]
    waits: list[WaitInfo]
    undelivered: list[dict[str, Any]]
    """What it has sent to other executions that nobody could take: `{signal, to, key, id, why}`."""
    warnings: list[dict[str, Any]]
    """What went wrong beside it, also after its end: `{at, about, message}` each. An environment
    that could not be closed, for example."""
    outputs: dict[str, Any] | None
    error: ErrorData | None


class Reason(TypedDict, total=False):
    """Why a live branch of an execution stands where it stands."""

    address: str
    what: str
    """One sentence: what it waits for."""
    since: str
    wakes: str
    """One sentence: what would wake it."""
    due: str
    command: str
    """The command line that wakes it, where there is one."""
    wait: str
    """Public id of the wait, where it is one."""
    timers: list[dict[str, str]]
    """`{what, due}` each: what time will do to an approval."""
    lock: str
    """Key of the lock, where it waits for one that executions share."""


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
    """Of its journal, without what was gone back over by `retry`."""
    facts: int
    """Things that happened in it: inputs, ends of attempts, signals, …"""
    outputs: Any
    error: Any


class Parting(TypedDict):
    """The first point at which two histories part."""

    address: str
    """Of the step; empty: it is about no step."""
    what: str
    """`input`, `end`, `inputs`, `signal NAME`, …"""
    left: dict[str, Any] | None
    """`{seq, address, status, outcome, input, output, error}` as far as they apply; None: it did
    not happen there."""
    right: dict[str, Any] | None
    differ: list[dict[str, Any]]
    """Places at which both differ: `{path, left, right}` each."""


class StepPair(TypedDict):
    """A step that went one way in one execution, and another or none in the other."""

    address: str
    left: dict[str, Any] | None
    """`{status, outcome, input, output, error}`; None: it did not begin there."""
    right: dict[str, Any] | None
    differ: list[dict[str, Any]]


class ForkInfo(TypedDict):
    """How one of two executions was forked from the other."""

    side: Literal["left", "right"]
    at: str
    """Address of the step."""
    past: int
    """How many things it took along."""
    same: bool
    """Whether these are the same in both."""


class Difference(TypedDict):
    """Two executions side by side. Ids and times of each are `(id)` and `(time)` in values."""

    same: bool
    """Both did the same, as far as they have come, and stand alike."""
    same_flow: bool
    left: Side
    right: Side
    shared: int
    """How many things happened in both in the same way before the first that did not."""
    fork: ForkInfo | None
    """If one was forked from the other."""
    parting: Parting | None
    steps: list[StepPair]
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    errors: list[dict[str, Any]]


Verdict = Literal["continues", "mapping", "cannot", "held", "current", "ended"]
"""Whether an execution can go on under another form of its flow: it can; the mapping has to say
more; there is no way; a living process holds it; it runs that form already; it is over."""


class ObstacleInfo(TypedDict):
    """Something of an execution that has no counterpart in another form of its flow."""

    what: str
    """`step`, `state`, `signal`, `input`, `subflow`, or `execution`: all of it."""
    name: str
    why: str
    write: dict[str, Any] | None
    """What to write into the mapping, with `NEW` or `VALUE` where only its author knows; None: no
    mapping helps."""
    fits: list[str]
    """What may stand in place of `NEW`."""


class UpgradeInfo(TypedDict):
    """What became of one execution that was to be moved."""

    execution: str
    flow: str
    version: str
    """The version that it ran until now."""
    status: Status
    verdict: Verdict
    moved: bool
    """It was moved just now."""
    obstacles: list[ObstacleInfo]
    write: dict[str, Any]
    """All that is to be written into the mapping for it."""


class Result(NamedTuple):
    """How an execution stands: ended, or with nothing to do until a time, a message or a person.

    `result._asdict()` without `due` is the JSON object that the command line prints.
    """

    execution: str
    flow: str
    status: Status
    outputs: dict[str, Any] | None
    """What the flow declares as outputs, once it has succeeded."""
    waits: list[WaitInfo]
    """The open waits; empty once it has ended."""
    error: ErrorData | None
    due: int | None = None
    """When the next timer is due, in milliseconds since 1970; somebody has to resume it then."""

    @property
    def ended(self) -> bool:
        """Whether it will never move again."""
        return self.status in ENDED


class ExecutionPage(NamedTuple):
    """A page of executions, newest first."""

    items: list[ExecutionInfo]
    next: str | None
    """Give it as `after` to get the next page; None: this was the last."""


class WaitPage(NamedTuple):
    """A page of waits, oldest first."""

    items: list[WaitInfo]
    next: str | None
    """Give it as `after` to get the next page; None: this was the last."""


class Answering(TypedDict, total=False):
    """What may come with a decision."""

    form: Any
    """What was filled in: a map of the form's fields; the answer itself, if the form is no map."""
    edits: Mapping[str, Any]
    """Field of `subject`, or dotted path into it → new value."""
    comment: str
    attach: Sequence[str | PathLike[str]]
    """Files that go with it."""
    value: Any
    """With the choice `result` of a question: the output that the step is taken to have."""
    by: str
    """Who decides, as `user:NAME`. Default: the engine's user."""
    resume: bool
    """Go on with the execution; else it is only recorded. Default: yes."""


class Decision(NamedTuple):
    """What stands as decided on a wait."""

    wait: str
    execution: str
    choice: str
    by: str
    at: int
    """Milliseconds since 1970."""
    via: str
    comment: str | None
    first: bool
    """False: the very same decision had been made before, and nothing was recorded now."""
    result: Result | None
    """How the execution stands after going on with it; None if it was not resumed here."""


class Sent(NamedTuple):
    """A signal that was stored for an execution."""

    execution: str
    id: str
    result: Result | None
    """How the execution stands after going on with it; None if it was not resumed here."""
    began: bool = False
    """Whether the signal began the execution."""
    first: bool = True
    """False if the same message had been sent before; then nothing was stored."""


class Update(NamedTuple):
    """Something that subscribers are told, after it is on disk; nothing depends on it."""

    execution: str
    kind: Literal[
        "event", "step", "wait", "text", "output", "warning", "notify", "undelivered", "end"
    ]
    data: Any
    """`event`: the journal's entry as `Engine.events` gives it; `wait`: a `WaitInfo` that opened,
    changed or closed; `text`: `{address, text}` that a step says; `output`:
    `{address, stream, text}`, lines that a program of a step has printed; `warning`:
    `{text, address, left, ended}`, of a step that left something running; `notify`:
    `{wait, why, to}`; `end`: the `Result`."""
    step: Observation | None = None
    """`step`: what happened to an activation."""
