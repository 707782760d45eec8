"""Events: facts that have happened.

The journal is a list of events, and only events change a state. An event is plain data. `at` is in
milliseconds since 1970-01-01T00:00Z. An event about a unit, attempt, wait or timer that is no
longer open stays in the journal and has no effect. Any event can have `reduced`, the results of
reducers written in Python from the first time it was applied. See `reducers`.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from flowengine.kernel.graph.compiled import Plain


class ErrorData(TypedDict, total=False):
    """An error as data. `type` is a name from docs/language.md: Errors, or `package.Class`."""

    type: str
    message: str
    data: Plain
    step: str
    """Address of the activation that raised it."""
    attempt: int
    retryable: bool
    """Absent: the default of its type."""
    retry_after: int
    """Milliseconds to wait, as requested by the remote service."""
    source: str
    """Origin of text by third parties that the message may quote. A model is shown such a message
    in a marked block."""
    cause: ErrorData | None


class Evidence(TypedDict, total=False):
    """Diagnostics of a failed attempt for display. No decision depends on them."""

    traceback: list[str]
    """`FILE:LINE in FUNCTION: CODE`, innermost last. A line `after ERROR` begins an earlier
    error."""
    stdout: str
    """The end of its standard output."""
    stderr: str


class Log(TypedDict):
    """The log of an attempt, for display. No decision depends on it."""

    lines: list[list[Plain]]
    """`[time (ms), level, text]` each, oldest first. Secrets are masked."""
    left_out: NotRequired[int]
    """Number of older lines that are not kept."""


class Started(TypedDict):
    """The execution was created. This is the first event of every journal."""

    type: Literal["started"]
    at: int
    inputs: dict[str, Plain]
    """Validated, with defaults filled in."""
    execution: dict[str, Plain]
    """`id flow version started_at scheduled_at started_by parent labels`, with times in RFC
    3339. Of a fork also `forked_by`: the users who forked it and its origins, in order."""
    message: NotRequired[dict[str, Plain]]
    """`{name, key, id, data}` of the signal that started the execution, if any. It is kept for the
    history, and to detect a second signal with the same id and other content."""
    budget: NotRequired[dict[str, int]]
    """Meter → the remaining amount in the execution whose attempt started this one, in the unit of
    its budgets. Absent: no outer budget applies."""


class Opening(TypedDict):
    """An environment that was opened for an execution. No decision depends on it."""

    name: str
    """Its name in the flow, without arguments."""
    kind: str
    scope: str
    provider: str
    """The chosen sandbox. For kinds without one, the kind."""
    asked: int
    """When it was requested (ms). This is before the attempt if it was opened ahead."""
    ready: int
    """When it was open (ms)."""


class Succeeded(TypedDict):
    """An attempt of a task succeeded."""

    type: Literal["succeeded"]
    at: int
    unit: int
    attempt: int
    value: Plain
    opened: NotRequired[list[Opening]]
    """The environments that were opened for the execution and that this attempt is the first to
    use."""
    log: NotRequired[Log]


class Failed(TypedDict):
    """An attempt of a task failed."""

    type: Literal["failed"]
    at: int
    unit: int
    attempt: int
    error: ErrorData
    evidence: NotRequired[Evidence]
    opened: NotRequired[list[Opening]]
    log: NotRequired[Log]
    began: NotRequired[bool]
    """False: it was refused right before it began, so budgets do not count it."""
    by: NotRequired[str]
    """The user who stopped it."""
    via: NotRequired[str]
    entered_by: NotRequired[str]
    sent: NotRequired[int]
    """When it was stopped (ms)."""


class Lost(TypedDict):
    """An attempt lost its environment, so its outcome is unknown, or it never began.

    `ran` is `maybe` if the environment ended while the attempt used it. It is `no` if the execution
    had the environment before and cannot open it again, so the attempt has not begun.
    """

    type: Literal["lost"]
    at: int
    unit: int
    attempt: int
    ran: Literal["no", "maybe"]
    error: ErrorData
    evidence: NotRequired[Evidence]
    opened: NotRequired[list[Opening]]
    log: NotRequired[Log]


class Asked(TypedDict):
    """The attempt of a call needs an approval at the point of execution, or input."""

    type: Literal["asked"]
    at: int
    unit: int
    attempt: int
    tool: str
    """The called tool. For a call that the flow submits for approval, the name in its question."""
    version: str
    """Digest of the tool and of how it is called."""
    subject: Plain
    """The arguments of the call, as shown to approvers."""
    rule: NotRequired[str]
    """The host rule that requires the approval."""
    difference: NotRequired[str]
    """The change to the tool since the call was approved."""
    found: NotRequired[Plain]
    """The intended action and its target as found by the attempt: `action` and `target`."""
    input: NotRequired[Plain]
    """The call has begun, and requests input: `key`, `request` (`by`, `message` and so on), `form`
    and `before`. See `flowengine.sdk.NeedsInput`."""
    opened: NotRequired[list[Opening]]


class Measured(TypedDict):
    """An attempt has not begun. Its step kind has computed how much of the budgets it may use."""

    type: Literal["measured"]
    at: int
    unit: int
    attempt: int
    needs: dict[str, list[float]]
    """Meter → `[least, most, beyond]`, as in `flowengine.sdk.Need`."""


class Used(TypedDict):
    """An execution started by an attempt has used or reserved a part of the budgets."""

    type: Literal["used"]
    at: int
    unit: int
    attempt: int
    run: str
    """Id of that execution."""
    amounts: dict[str, int]
    """Meter → the total amount so far, in the unit of the budgets."""


class Described(TypedDict):
    """Details of a call that awaits approval, which only the engine can determine."""

    type: Literal["described"]
    at: int
    wait: int
    source: NotRequired[str]
    """Digest of the tool's text. An approval applies to this text only."""
    preview: NotRequired[str]
    """The effect of the call, as described by its tool."""
    note: NotRequired[str]
    """The reason for a missing preview."""


class ProcessData(TypedDict):
    """A process, as shown to an operator."""

    pid: int
    host: str


class CutOff(TypedDict):
    """A process died while an attempt ran, so it is unknown whether the attempt took effect.

    `began` is false if the process never began the attempt: it stopped in an orderly way before, or
    received it too late. The latter can answer the question whether the attempt took effect.
    """

    type: Literal["cut"]
    at: int
    unit: int
    attempt: int
    began: NotRequired[bool]
    log: NotRequired[Log]
    """Its log so far."""
    process: NotRequired[ProcessData]
    """The process that ran it, if that may still be at work."""


class Unoffered(TypedDict):
    """An attempt did not begin: its process does not meet the needs of the step."""

    type: Literal["unoffered"]
    at: int
    unit: int
    attempt: int


class Offered(TypedDict):
    """A process that meets the needs of the wait's step drives the execution."""

    type: Literal["offered"]
    at: int
    wait: int


class TimerFired(TypedDict):
    """A timer is due. `at` is the time at which this was noticed, at or after the due time."""

    type: Literal["timer"]
    at: int
    timer: int
    evidence: NotRequired[Evidence]
    """The output of the attempt that the timer ends."""
    log: NotRequired[Log]
    """The log of this attempt."""


class Decided(TypedDict, total=False):
    """An approver or a policy decided an approval or answered a question.

    For a question about an attempt whose outcome is unknown, or that lost its environment, `choice`
    is `retry`, `result` (with `value`) or `fail`.
    """

    type: Literal["decided"]
    at: int
    wait: int
    choice: str
    form: Plain
    edits: dict[str, Plain]
    comment: str | None
    attachments: list[Plain]
    images: list[str]
    """With a decision about a call: images for the model that made the call, as `data:` URLs."""
    by: str
    via: str
    entered_by: str
    """The user who entered the decision on behalf of another user (`by`)."""
    value: Plain
    """The result in place of the call, for the choice `respond`. With `{refused: True}`, a host's
    rule makes the error `Refused`."""
    grant: Plain
    """With an approved call: `{args, uses, until, scope}`, so that the approval also covers later
    calls like it. See `grants`."""
    granted: str
    """Id of the grant for all executions of the flow, if the answer comes from one."""
    sent: int
    """When it was made (ms), if it was recorded before it was journaled."""


class Revoked(TypedDict):
    """A user revoked a grant."""

    type: Literal["revoked"]
    at: int
    grant: int
    by: str
    via: NotRequired[str]
    entered_by: NotRequired[str]
    sent: NotRequired[int]


class Handed(TypedDict, total=False):
    """A user claimed an approval, released it, or delegated it to `to`."""

    type: Literal["claimed", "released", "delegated"]
    at: int
    wait: int
    by: str
    via: str
    entered_by: str
    to: str
    """`user:NAME`."""
    comment: str | None
    sent: int
    """When it was done (ms), if it was recorded before it was journaled."""


class Message(TypedDict):
    """A signal arrived for this execution."""

    type: Literal["message"]
    at: int
    signal: str
    key: str | None
    data: Plain
    id: str
    by: str
    via: NotRequired[str]
    entered_by: NotRequired[str]
    sent: NotRequired[int]
    """When it was sent (ms), if it was stored before it was journaled."""
    step: NotRequired[str]
    """Address of the subflow whose state receives it. Absent: any receiver."""


class Granted(TypedDict):
    """A lock that executions share has been acquired, or a claim on a budget was answered.

    See `commands.Claim`.
    """

    type: Literal["granted"]
    at: int
    lock: str
    unit: int
    amounts: NotRequired[dict[str, int]]
    """Of a budget: the granted amounts, by meter."""
    lacks: NotRequired[dict[str, Plain]]
    """Of a budget that has too little left: the `meter`, and its `used` and `limit`."""


class CancelAsked(TypedDict):
    """A user requested to cancel the execution. `now` skips `finally` and compensation."""

    type: Literal["cancel"]
    at: int
    reason: str
    by: str
    via: NotRequired[str]
    entered_by: NotRequired[str]
    now: bool


class Ended(TypedDict):
    """The end of an attempt of another execution, which only `show` reports."""

    at: int
    error: ErrorData


class RetryAsked(TypedDict):
    """An operator restarts the failed part of a failed execution.

    The engine resets the state to before the first event by which something failed. It applies the
    later events that are not about failed work again and holds back the failures (`held_failures`).
    Then this event restarts the held work, and also `unit` regardless of its effect. Other attempts
    that were running when the execution failed were stopped and count as cut off. A fork begins
    with the same event, without `back`, because its journal has the events in the order in which
    they apply.
    """

    type: Literal["retry"]
    at: int
    back: NotRequired[int]
    """How many of the earlier events stay in force, in the order returned by `replay.line`."""
    kept: NotRequired[list[Plain]]
    """The numbers of the later events that are applied again. An entry is `[number, other]` if the
    record that the event is about has another number now, and `[number, *late]` for a `retry` with
    another `late`. Present whenever `back` is."""
    hold: NotRequired[dict[str, Plain]]
    """The records whose failures are held back during that time, see `State`, and that restart
    afterwards."""
    unit: int | None
    stays: NotRequired[bool]
    """The held work stays held until another `retry` event."""
    undone: NotRequired[list[str]]
    """Addresses of compensations that a fork does not repeat because the original execution ran
    them."""
    ended: NotRequired[Ended]
    """How the attempt of `unit` ended in the original execution. In the past of a fork at a
    compensation it is still running."""
    fresh: NotRequired[list[int]]
    """Units whose attempt never began outside the kernel."""
    late: NotRequired[list[int]]
    """Units whose result arrived after the failure, as the next event. If a later `retry` applies
    this event again, they include the units that were not running then, and the later event resumes
    them."""
    overdue: NotRequired[list[int]]
    """Timers of limits that start again: those that had expired when the execution failed because
    of another one. In a fork, the timer of the whole execution."""
    last: NotRequired[int]
    """The last number in use before the reset. No number is used twice."""
    by: str


class StateSet(TypedDict):
    """An operator or a fork wrote state."""

    type: Literal["state"]
    at: int
    values: dict[str, Plain]
    by: str


class Upgraded(TypedDict):
    """An operator moved the execution to another form of its flow. See `moving.upgrading`.

    `before` and `after` are the hashes of the two forms.
    """

    type: Literal["upgraded"]
    at: int
    before: str
    after: str
    mapping: dict[str, Plain]
    """See `pairing`."""
    version: str
    """The flow's own `version` after the upgrade."""
    by: str
    via: str


class Halted(TypedDict):
    """The new state cannot be stored, so the execution fails at once, without cleanups.

    It may have ended already, with outputs that cannot be stored.
    """

    type: Literal["halted"]
    at: int
    error: ErrorData


class Warned(TypedDict):
    """A problem outside the execution, possibly after its end.

    It is recorded and has no other effect.
    """

    type: Literal["warning"]
    at: int
    about: str
    """The subject: `environment`, `attempt` (it could not begin yet, or had begun before),
    `decision` (an attempted decision that was refused), or `budget` (it does not count an amount
    that is unknown)."""
    message: str


Event = (
    Started
    | Succeeded
    | Failed
    | Lost
    | Asked
    | Measured
    | Used
    | Described
    | CutOff
    | Unoffered
    | Offered
    | TimerFired
    | Decided
    | Handed
    | Revoked
    | Message
    | Granted
    | CancelAsked
    | RetryAsked
    | StateSet
    | Upgraded
    | Halted
    | Warned
)
