"""What the public API tells, as plain dicts: the documented JSON of the command line.

Times are RFC 3339 strings in UTC, ids are strings. Only types need this module; it takes some
milliseconds to load, so other modules import it for type checking alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from flowengine.kernel.events import ErrorData, Evidence

Status = Literal[
    "recorded", "running", "interrupted", "waiting", "stalled", "succeeded", "failed", "cancelled"
]
"""Status of an execution; `succeeded`, `failed` and `cancelled` are final. `interrupted`: it has
work to do, but no process is running it, for example because its process died. `recorded`: nothing
of it has begun. `resume` continues both."""


class FoundInfo(TypedDict):
    """What an attempt found that it would do."""

    action: str
    """What, in a few words."""
    target: dict[str, Any]
    """To what."""


class WaitInfo(TypedDict, total=False):
    """An open or closed wait. Keys that do not apply are absent."""

    id: str
    """Public id; every call accepts an unambiguous prefix of it."""
    execution: str
    flow: str
    kind: str
    """`approval`, `ask`, `signal`, `timer`, `state` or `question`."""
    address: str
    step: str
    chat: bool
    """It shows an answer of a conversation; what it is answered is the next message."""
    since: str
    due: str
    """When it ends by time: expiry, timeout, or the awaited time itself."""
    title: str
    body: str
    subject: Any
    edit: Any
    """Fields of `subject` that the decider may change, or `True` for all."""
    edit_schema: dict[str, Any]
    """JSON Schema of these fields, to the extent that the flow declares their types."""
    tool: str
    """Of a call that waits for approval, or of which nobody knows whether it was made: its name;
    `subject` has the arguments."""
    version: str
    """Digest of the tool's declaration."""
    digest: str
    """Digest of what is approved: tool, version, arguments."""
    about: dict[str, str]
    """What led to an agent's call: `user`, the user's newest message; `model`, what the model said
    with the call. Absent where it is empty."""
    rule: str
    """Which policy wants it to be asked about."""
    difference: str
    """What has changed of the tool since the call was approved: a unified diff."""
    found: FoundInfo
    """What the call would do, as it found out right before it did."""
    preview: str
    """What the call would do, as its tool says: text of others, secrets masked."""
    note: str
    """Why there is no preview although the tool has one."""
    source: str
    """Digest of the text of the tool when it was asked about."""
    required: bool
    """Whether each call is asked about, whatever was granted."""
    bound: list[str]
    """Arguments that the flow fixes; nobody can change them."""
    returns: dict[str, Any]
    """JSON Schema of a result that is given with the choice `respond`."""
    environment: str
    """Of an environment that waits for approval: its name."""
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
    """Who has claimed it; nobody else can decide it then."""
    delegate: bool
    """Whether it may be delegated; absent: yes."""
    handed: list[dict[str, Any]]
    """Who claimed, released or delegated it: `{do, by, to, at, via, comment}` each."""
    ran: str
    """Of a `question`, whether the attempt acted: `maybe` if it was interrupted; `no` if it has not
    started because an environment cannot be opened again."""
    error: ErrorData
    """Of a `question`: what happened to the environment."""
    signals: list[dict[str, Any]]
    """`{signal, key}` each: the messages that it accepts."""
    timers: list[dict[str, str]]
    """`{what, due}` each, soonest first: the next `reminder` and `escalation`, and the `expiry`.
    Only if one execution or one wait is shown."""
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
    """Evidence of why it failed; absent if there is none."""


class StepInfo(TypedDict, total=False):
    """One activation of a step, in order of its start."""

    address: str
    step: str
    kind: str
    plumbing: bool
    """It only holds a generated flow together; absent of other steps."""
    summary: str
    """What its output means, in a line, if its step kind says so."""
    status: str
    """Of a call of a model, also `rejected`, `expired` and `refused`: it was not made."""
    outcome: str | None
    attempts: int
    started_at: str
    ended_at: str
    input: Any
    output: Any
    error: ErrorData | None
    tries: list[AttemptInfo]
    """Each attempt; only if one step was requested."""
    subject: Any
    """What was approved or rejected, before any edits; of a call its arguments. Only if one step
    was requested."""
    decision: dict[str, Any]
    """Of an approval: what was decided, by whom, when and through which channel."""
    earlier_decisions: list[dict[str, Any]]
    """The same of those before it: votes, the approval of a call that a crash left uncertain."""


class BudgetInfo(TypedDict, total=False):
    """What a running flow may use, and what it has used. Keys that do not apply are absent."""

    address: str
    """Address of the step that runs the flow; empty: the execution's own."""
    flow: str
    then: str
    """`stop` or `ask`."""
    tool_calls: dict[str, int]
    """`{used, running, limit}`; running calls count as used."""
    tokens: dict[str, int]
    """`{used, running, estimated, limit}`: what running calls may use at most is part of what is
    used; estimated is what nobody knows of calls that were cut off."""
    cost_usd: dict[str, float]
    """The same in US dollars."""
    wall_time: dict[str, str]
    """`{used, limit}`: durations."""


class Again(TypedDict, total=False):
    """How an execution is continued. Each key is absent if there is nothing to say."""

    command: str
    """The command line that continues or wakes it: `resume` if it was interrupted; if it failed
    (only if one execution is shown) `retry`, or the `fork` that undoes what was not undone."""
    not_undone: list[str]
    """Addresses of steps whose compensation failed, in the order in which they are undone."""
    undone_by: dict[str, str]
    """Address of a step whose compensation failed → the fork that undid it, or is at work on it."""


class ExecutionInfo(Again, total=False):
    """An execution as `show` prints it; `list` has only the first group of keys."""

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
    """When the next timer is due, while it waits and no process drives it."""
    durability: str
    budgets: list[BudgetInfo]
    """Budgets of its flow and of running subflows; absent if there are none."""
    inputs: dict[str, Any]
    steps: list[StepInfo]
    waits: list[WaitInfo]
    undelivered: list[dict[str, Any]]
    """Undeliverable messages that it sent to other executions: `{signal, to, key, id, why}`."""
    warnings: list[dict[str, Any]]
    """Problems that did not affect the result, also after its end: `{at, about, message}` each. For
    example an environment that could not be closed."""
    outputs: dict[str, Any] | None
    error: ErrorData | None


class Reason(Again, total=False):
    """Why a live branch of an execution does not move."""

    address: str
    what: str
    """One sentence: what it waits for."""
    since: str
    wakes: str
    """One sentence: what would wake it."""
    due: str
    wait: str
    """Public id of the wait, if it is one."""
    timers: list[dict[str, str]]
    """`{what, due}` each: the timers of an approval."""
    lock: str
    """Key of the lock, if it waits for one that executions share."""


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
    """Length of its journal, without what `retry` went back over."""
    facts: int
    """Things that happened in it: inputs, ends of attempts, signals, …"""
    outputs: Any
    error: Any


class Parting(TypedDict):
    """The first point where two histories diverge."""

    address: str
    """Address of the step; empty: not about a step."""
    what: str
    """`input`, `end`, `inputs`, `signal NAME`, …"""
    left: dict[str, Any] | None
    """`{seq, address, status, outcome, input, output, error}` if applicable; None: it did not
    happen there."""
    right: dict[str, Any] | None
    differ: list[dict[str, Any]]
    """Places where both differ: `{path, left, right}` each."""


class StepPair(TypedDict):
    """A step that ended differently in two executions, or ran in only one."""

    address: str
    left: dict[str, Any] | None
    """`{status, outcome, input, output, error}`; None: it did not start there."""
    right: dict[str, Any] | None
    differ: list[dict[str, Any]]


class ForkInfo(TypedDict):
    """How one of two executions was forked from the other."""

    side: Literal["left", "right"]
    at: str
    """Address of the step."""
    past: int
    """How many events it took over."""
    same: bool
    """Whether these are the same in both."""


class Difference(TypedDict):
    """Two executions side by side. In values, ids and times are replaced by `(id)` and `(time)`."""

    same: bool
    """Whether both did the same so far and have the same status."""
    same_flow: bool
    left: Side
    right: Side
    shared: int
    """How many events are the same in both before the first difference."""
    fork: ForkInfo | None
    """If one was forked from the other."""
    parting: Parting | None
    steps: list[StepPair]
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    errors: list[dict[str, Any]]


Verdict = Literal["continues", "mapping", "cannot", "held", "current", "ended"]
"""Whether an execution can continue with another version of its flow: it can; the mapping needs
more entries; it is impossible; a running process holds it; it already runs that version; it has
ended."""


class ObstacleInfo(TypedDict):
    """Something in an execution that has no counterpart in another version of its flow."""

    what: str
    """`step`, `state`, `signal`, `input`, `subflow`, or `execution` for the whole execution."""
    name: str
    why: str
    write: dict[str, Any] | None
    """What to write into the mapping, with `NEW` or `VALUE` where only the author knows; None: no
    mapping helps."""
    fits: list[str]
    """The possible values of `NEW`."""


class UpgradeInfo(TypedDict):
    """What happened to one execution that was to be moved."""

    execution: str
    flow: str
    version: str
    """The version that it has run until now."""
    status: Status
    verdict: Verdict
    moved: bool
    """Whether it was moved now."""
    obstacles: list[ObstacleInfo]
    write: dict[str, Any]
    """Everything that the mapping needs for it."""


class GrantGiven(TypedDict, total=False):
    """For which later calls of the same tool a yes holds as well."""

    scope: Literal["execution", "flow"]
    """`execution`: those of this execution, as if it is not said; `flow`: those of all executions
    of the flow, also of ones to come."""
    args: Mapping[str, str]
    """Argument → a pattern: `*` is anything but `/`, `**` anything, `?` one character. Arguments
    that are not named have to be the same as in the call that is approved."""
    uses: int
    """How many later calls. Default: any number."""
    lasts: str
    """A duration: `2h`. Default: as long as the execution, or until it is revoked."""


class GrantInfo(TypedDict, total=False):
    """A grant: a yes that answers the questions about later calls. Absent keys do not apply."""

    id: str
    """Public id: that of the wait with whose approval it was given."""
    execution: str
    """The execution that asked."""
    flow: str
    """Of a grant for all executions of a flow: its id."""
    tool: str
    args: dict[str, str]
    """Argument → what it may be: a pattern, or the JSON of the only value."""
    uses: int
    used: int
    until: str
    by: str
    at: str
    status: str
    """`open`, `used up`, `over` or `revoked`."""
    revoked_by: str


class Answering(TypedDict, total=False):
    """Optional parts of a decision."""

    form: Any
    """The completed form: a map of its fields; the answer itself if the form is not a map."""
    edit: Mapping[str, Any]
    """Field of `subject`, or dotted path into it → new value."""
    comment: str
    attach: Sequence[str | PathLike[str]]
    """Paths of files to attach."""
    images: Sequence[str | PathLike[str] | bytes]
    """With the approval or rejection of a call: paths, bytes or `data:` URLs of images that the
    model which made the call is shown."""
    value: Any
    """The output of the step: required with the choice `result` of a question and `respond` of a
    call, refused with others. Checked against what the step or tool returns; None is null."""
    grant: GrantGiven
    """With the approval of a call: it answers the questions about later calls like it, too."""
    by: str
    """The user who decides, as `user:NAME`. Default: the engine's user."""
    resume: bool
    """Resume the execution; otherwise the decision is only recorded. Default: yes."""
