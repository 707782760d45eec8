"""Data of the public API, as plain dicts: the documented JSON of the command line.

Times are RFC 3339 strings in UTC, ids are strings. Only annotations need this module. Other modules
import it for type checking alone, because loading it takes some milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal, NotRequired, Required, TypedDict

from flowengine.kernel.events import ErrorData, Evidence

Status = Literal[
    "recorded", "running", "interrupted", "waiting", "stalled", "quarantined", "succeeded",
    "failed", "cancelled",
]  # fmt: skip
"""Status of an execution.

`succeeded`, `failed` and `cancelled` are final. `interrupted`: it has work to do, but no process is
running it, for example because its process died. `recorded`: no step of it has started.
`quarantined`: its processes died several times in a row, so no worker takes it. `resume` continues
all three.
"""


class FoundInfo(TypedDict):
    """The effect that an attempt determined before performing it."""

    action: str
    """The action, in a few words."""
    target: dict[str, Any]
    """The target of the action."""
    login: NotRequired[dict[str, Any]]
    """Identifies the login that it needs: see `Approvals.log_in`."""


class RequestInfo(TypedDict):
    """What a call requests while it runs, such as the values of a form. Untrusted text."""

    by: str
    """Who asks: the server of the tool."""
    message: str
    """What it asks."""
    url: NotRequired[str]
    """The address that it asks to open."""
    host: NotRequired[str]
    """The host of the address."""
    note: NotRequired[str]
    """Warnings for the person who answers, one on each line."""


class WaitInfo(TypedDict, total=False):
    """An open or closed wait. Keys that do not apply are absent."""

    id: str
    """Public id. Every method accepts an unambiguous prefix of it."""
    execution: str
    flow: str
    kind: str
    """`approval`, `ask`, `signal`, `timer`, `state`, `question`, `session`: the next
    message of a session of agents in Python, or `worker`: one that offers what the step `needs`."""
    address: str
    step: str
    chat: bool
    """Whether it shows a reply of a conversation. The answer to it is the next message."""
    since: str
    due: str
    """When it ends by itself: its expiry, its timeout, or the awaited time."""
    title: str
    body: str
    subject: Any
    edit: Any
    """Fields of `subject` that the decider may change, or `True` for all."""
    edit_schema: dict[str, Any]
    """JSON Schema of these fields, to the extent that the flow declares their types."""
    tool: str
    """Name of the tool, for a call that waits for approval or whose outcome is unknown. `subject`
    contains the arguments."""
    version: str
    """Digest of the tool's declaration."""
    digest: str
    """Digest of the approved content: tool, version, arguments."""
    about: dict[str, str]
    """The context of an agent's call: `user`, the user's newest message, and `model`, the model's
    text that accompanied the call. Empty entries are absent."""
    rule: str
    """The rule that requires the approval."""
    difference: str
    """How the tool has changed since the call was approved, as a unified diff."""
    found: FoundInfo
    """The effect of the call, as determined right before performing it."""
    request: RequestInfo
    """What the call requests while it runs."""
    preview: str
    """The tool's preview of the effect of the call. Untrusted text, with secrets masked."""
    note: str
    """Why the preview that the tool provides is missing."""
    source: str
    """Digest of the tool's source text when the approval was requested."""
    needs: list[str]
    """Labels that a worker must offer to run the step."""
    required: bool
    """Whether each call requires approval, regardless of grants."""
    bound: list[str]
    """Arguments that the flow fixes. No approver can edit them."""
    returns: dict[str, Any]
    """JSON Schema of a result supplied with the choice `respond`."""
    environment: str
    """Name of an environment that waits for approval."""
    opens: list[str]
    """Names of the environments that a call opens. They are approved with it, see `body`."""
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
    """Whether it must be claimed before it is decided."""
    claimed_by: str
    """The user who has claimed it. Only this user can decide it."""
    delegate: bool
    """Whether it may be delegated. Absent: it may."""
    handed: list[dict[str, Any]]
    """Claims, releases and delegations: `{do, by, to, at, via, comment}` each."""
    ran: str
    """For a `question`, whether the attempt took effect: `maybe` if it was interrupted, `no` if it
    never started because an environment could not be reopened."""
    error: ErrorData
    """For a `question`: what happened to the environment."""
    signals: list[dict[str, Any]]
    """`{signal, key}` each: the messages that it accepts."""
    timers: list[dict[str, str]]
    """`{what, due}` each, soonest first: the next `reminder` and `escalation`, and the `expiry`.
    Present only if a single execution or wait is shown."""
    status: str
    """`pending` or `closed`."""
    decision: dict[str, Any]
    """`{choice, by, at, via, comment, form, edits, attachments}` of a closed wait."""


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
    plumbing: bool
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
    """`{status, outcome, input, output, error}`. None: it did not start there."""
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
    """The first 200 steps that differ."""
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


class GrantGiven(TypedDict, total=False):
    """The later calls of the same tool that an approval also covers."""

    scope: Literal["execution", "flow"]
    """`execution` (the default): calls of this execution. `flow`: calls of all executions of the
    flow, including future ones."""
    args: Mapping[str, str]
    """Argument → a pattern: `*` matches anything but `/`, `**` anything, `?` one character.
    Arguments without a pattern must equal those of the approved call."""
    uses: int
    """Maximum number of later calls. Default: unlimited."""
    expires: str
    """A duration: `2h`. Default: until the execution ends or the grant is revoked."""


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


class Answering(TypedDict, total=False):
    """Optional parts of a decision."""

    form: Any
    """The completed form: a map of its fields, or the answer itself if the form is not a map."""
    edit: Mapping[str, Any]
    """Field of `subject`, or dotted path into it → new value."""
    comment: str
    attach: Sequence[str | PathLike[str]]
    """Paths of files to attach."""
    images: Sequence[str | PathLike[str] | bytes]
    """With the approval or rejection of a call: paths, bytes or `data:` URLs of images to show to
    the model that made the call."""
    value: Any
    """The output of the step: required with the choice `result` of a question and `respond` of a
    call, refused with others. Checked against the return type of the step or tool. None is null."""
    grant: GrantGiven
    """With the approval of a call: the later calls that it also covers."""
    by: str
    """The user who decides, as `user:NAME`. Default: the engine's user."""
    resume: bool
    """Resume the execution. Otherwise the decision is only recorded. Default: True."""


class DecisionGiven(Answering):
    """A decision as an interface submits it."""

    choice: Required[str]
