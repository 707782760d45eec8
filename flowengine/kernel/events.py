"""Events: facts that happened. The journal is a list of these; only these change a state.

An event is plain data. `at` is milliseconds since 1970-01-01T00:00Z. One that names a unit,
attempt, wait or timer that is no longer open is kept in the journal and changes nothing. `reduced`,
in any event, has what reducers written in Python gave when it was applied first; see `reducers`.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from flowengine.kernel.graph.compiled import Plain


class ErrorData(TypedDict, total=False):
    """An error as data. `type` is a name of the docs/language.md: Errors, or `package.Class`."""

    type: str
    message: str
    data: Plain
    step: str
    """Address of the activation it came from."""
    attempt: int
    retryable: bool
    """Absent: what its type says."""
    retry_after: int
    """Milliseconds that the other side asked to wait."""
    cause: ErrorData | None


class Evidence(TypedDict, total=False):
    """What shows people why an attempt failed; nothing is decided by it."""

    traceback: list[str]
    """`FILE:LINE in FUNCTION: CODE`, innermost last; a line `after ERROR` begins an earlier one."""
    stdout: str
    """The end of what it printed."""
    stderr: str


class Started(TypedDict):
    """The execution was created. First event of every journal."""

    type: Literal["started"]
    at: int
    inputs: dict[str, Plain]
    """Validated, defaults filled in."""
    execution: dict[str, Plain]
    """`id flow version started_at scheduled_at started_by parent labels`; times as RFC 3339."""
    message: NotRequired[dict[str, Plain]]
    """`{name, key, id, data}` of the signal that began it, if one did: for the history, and to
    tell whether another of the same id says the same."""
    budget: NotRequired[dict[str, int]]
    """Meter → what the execution around it had left, whose attempt has started it, as budgets count
    it; absent: nothing bounds it from outside."""


class Succeeded(TypedDict):
    """An attempt of a task ended well."""

    type: Literal["succeeded"]
    at: int
    unit: int
    attempt: int
    value: Plain


class Failed(TypedDict):
    """An attempt of a task failed."""

    type: Literal["failed"]
    at: int
    unit: int
    attempt: int
    error: ErrorData
    evidence: NotRequired[Evidence]
    began: NotRequired[bool]
    """False: it was refused right before it began, so budgets do not count it."""


class Lost(TypedDict):
    """An environment of an attempt is gone: whether the attempt acted is open, or it never began.

    `ran` is `maybe`: the environment ended while the attempt worked in it. `no`: the execution had
    it before and cannot have it again now, so the attempt has not begun.
    """

    type: Literal["lost"]
    at: int
    unit: int
    attempt: int
    ran: Literal["no", "maybe"]
    error: ErrorData
    evidence: NotRequired[Evidence]


class Asked(TypedDict):
    """The attempt of a call did not begin: somebody has to be asked at the point of execution."""

    type: Literal["asked"]
    at: int
    unit: int
    attempt: int
    tool: str
    """What is called; of a call that its flow asks about, as its question names it."""
    version: str
    """Digest of what is called, and how."""
    subject: Plain
    """What it is given, as people may see it."""
    rule: NotRequired[str]
    """The rule of the host that asks."""
    difference: NotRequired[str]
    """What has changed of the tool since the call was approved."""
    found: NotRequired[Plain]
    """What the attempt found that it would do, and to what: `action` and `target`."""


class Measured(TypedDict):
    """An attempt has not begun: its kind has worked out what it may use of the budgets."""

    type: Literal["measured"]
    at: int
    unit: int
    attempt: int
    needs: dict[str, list[float]]
    """Meter → `[least, most, beyond]`, as of `flowengine.sdk.Need`."""


class Used(TypedDict):
    """A run that an attempt has started has used, or reserved, something of the budgets."""

    type: Literal["used"]
    at: int
    unit: int
    attempt: int
    run: str
    """Id of its execution."""
    amounts: dict[str, int]
    """Meter → how much it is in all, as budgets count it."""


class Described(TypedDict):
    """What only the engine knows of a call that people are asked about."""

    type: Literal["described"]
    at: int
    wait: int
    source: NotRequired[str]
    """Digest of the text of the tool: a yes is for just this."""
    preview: NotRequired[str]
    """What the call would do, as its tool says."""
    note: NotRequired[str]
    """Why there is no preview."""


class CutOff(TypedDict):
    """A process died while an attempt ran: whether it acted is open."""

    type: Literal["cut"]
    at: int
    unit: int
    attempt: int


class TimerFired(TypedDict):
    """A timer is due. `at` is when it was noticed, at or after the due time."""

    type: Literal["timer"]
    at: int
    timer: int
    evidence: NotRequired[Evidence]
    """What the attempt had printed that it ends."""


class Decided(TypedDict, total=False):
    """A person, or a policy, decided on an approval or answered a question.

    `choice` of a question about a step that is uncertain, or has no environment: `retry`, `result`
    (with `value`) or `fail`.
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
    """With a decision about a call, for the model that made it: `data:` URLs."""
    by: str
    via: str
    entered_by: str
    """Who really did it, where it was done in the name of somebody else (`by`)."""
    value: Plain
    """Of a policy that answers whether an environment may be opened: `{policy}`, narrower rules
    that it says yes to; `{refused: True}`, so the error is `Refused`."""
    grant: Plain
    """With a yes to a call: `{args, uses, until, scope}`, so that it answers for later calls like
    it, too; see `grants`."""
    granted: str
    """Id of the grant for all executions of the flow that it comes from."""
    sent: int
    """When it was made (ms), if it was recorded before it was journaled."""


class Revoked(TypedDict):
    """Somebody ended a grant."""

    type: Literal["revoked"]
    at: int
    grant: int
    by: str
    via: NotRequired[str]
    entered_by: NotRequired[str]
    sent: NotRequired[int]


class Handed(TypedDict, total=False):
    """A person claimed an approval, gave it back, or handed it on to `to`."""

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


class Granted(TypedDict):
    """A lock that executions share is had now: see `commands.Claim`."""

    type: Literal["granted"]
    at: int
    lock: str
    unit: int


class CancelAsked(TypedDict):
    """Somebody asked to cancel the execution. `now` skips `finally` and compensation."""

    type: Literal["cancel"]
    at: int
    reason: str
    by: str
    via: NotRequired[str]
    entered_by: NotRequired[str]
    now: bool


class RetryAsked(TypedDict):
    """An operator starts a failed execution again from what failed.

    The engine takes the state back to before the first event by which something failed, and applies
    those events of then on again that concern what did not fail, holding back the failures
    (`held_failures`). Then this event begins anew what is held, and `unit`, whatever its effect.
    Other attempts that ran when the execution failed were stopped, and are taken as cut off. A fork
    begins with the same event, without `back`: its journal holds the events in the order in which
    they apply.
    """

    type: Literal["retry"]
    at: int
    back: NotRequired[int]
    """How many of the events before it stand, as `replay.line` returns them."""
    kept: NotRequired[list[Plain]]
    """The numbers of those after that are applied again; `[number, other]` where what the event is
    about has another number now, `[number, *late]` for a `retry` that has another `late`. There is
    one wherever there is `back`."""
    hold: NotRequired[dict[str, Plain]]
    """Whose failure is held back meanwhile, see `State`, and what begins anew then."""
    unit: int | None
    stays: NotRequired[bool]
    """What is held stays so until another such event."""
    undone: NotRequired[list[str]]
    """Addresses of compensations that a fork of one does not run again: the old execution did."""
    fresh: NotRequired[list[int]]
    """Units whose attempt never began outside."""
    late: NotRequired[list[int]]
    """Units whose result came after the failure; it is the next event. If a later `retry` applies
    this one again, also those that did not run then: that later one goes on with them."""
    overdue: NotRequired[list[int]]
    """Timers of bounds that begin anew: those that were over when the execution failed for another
    one; in a fork the one of the whole execution."""
    last: NotRequired[int]
    """The last number that was used before going back; none is used twice."""
    by: str


class StateSet(TypedDict):
    """An operator, or a fork, wrote state."""

    type: Literal["state"]
    at: int
    values: dict[str, Plain]
    by: str


class Upgraded(TypedDict):
    """An operator moved the execution to another form of its flow; see `moving.upgrading`.

    `before` and `after` are the hashes of its forms.
    """

    type: Literal["upgraded"]
    at: int
    before: str
    after: str
    mapping: dict[str, Plain]
    """See `pairing`."""
    version: str
    """The flow's own `version` after it."""
    evaluator: str
    """Version of the expression evaluator that it goes on under."""
    by: str
    via: str


class Warned(TypedDict):
    """Something went wrong beside the execution, also after its end; it is noted at most."""

    type: Literal["warning"]
    at: int
    about: str
    """What it is about: `environment`; `decision`, one that somebody tried and could not make;
    `budget`, one that does not count what nobody knows."""
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
    | Warned
)
