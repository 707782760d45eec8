"""Commands: actions that the kernel requests.

An engine carries them out once the event is on disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from flowengine.kernel.events import ErrorData
from flowengine.kernel.graph.compiled import Plain

ENDED, CANCEL = "agent.ended", "agent.cancel"
"""Signals between an execution and those that it starts in the background. Names in a file have no
dot."""


class Run(NamedTuple):
    """Run one attempt of a task and report the result for the same unit and attempt.

    The result is `succeeded` or `failed`. It is `lost` if the environment has ended, `asked` if the
    attempt needs an approval before it begins, or input, and `measured` if `measures` is set.
    """

    unit: int
    attempt: int
    step: int
    """Number of the step in the compiled flow. Its `kind`, `task` and `effect` define what to
    run."""
    address: str
    args: Plain
    """Evaluated arguments of a call. They contain no `SecretText`."""
    input: Plain
    """Evaluated input. It can contain `SecretText`."""
    key: str | None
    """Idempotency key, if the tool names one. Otherwise the engine derives it from the address."""
    regions: tuple[int, ...] = ()
    """The units of the surrounding map items, groups and subflows, innermost first. Only for steps
    with environments."""
    environments: Plain = None
    """Required environments: name → `{scope, spec}`. It can contain `SecretText`."""
    state: dict[str, Plain] | None = None
    """The values of the state keys that the step `reads`, as of the start of the attempt. They are
    the state's own objects, so the engine must prevent changes to them."""
    fallback: bool = False
    """A surrounding budget has reached its `fallback_at`, so the attempt should save resources."""
    approved: Plain = None
    """The recorded answer, if the call was submitted for approval and approved."""
    measures: bool = False
    """The attempt does not begin yet. The result is `measured` or `failed`."""
    granted: dict[str, int] | None = None
    """Amounts granted by budgets: meter → amount in the budget's unit, for meters with a limit."""
    at: int = 0
    """When the attempt begins (ms), as in the observation of it."""
    child: Mapping[str, Plain] | None = None
    """The `state.records.Child` of the execution that it starts in the background."""
    inputs: Plain = None
    """Answers to questions of earlier attempts of the call: see `input_questions.given`."""
    answers: list[Any] | None = None
    """The answers to the calls of the attempt before, see `steps.exchanges`. None: it is the
    first."""
    caught: ErrorData | None = None
    """The error of its last round, if it catches it."""


class Stop(NamedTuple):
    """Withdraw a running attempt: cancel it and kill its processes.

    Its late result is still reported.
    """

    unit: int
    attempt: int


class OpenWait(NamedTuple):
    """Open a wait, or report a change of one with the same id. `record` is plain data for display.

    Keys: `id` (number in this execution), `kind` (`approval`, `ask`, `signal`, `timer`, `state`,
    `question`, `session`), `address`, `step`, `since` (ms), and where they apply `title`, `body`,
    `subject`, `edit`, `form`, `choices` (list of `{id, label, counts_as, comment}`), `assignees`,
    `exclude`, `need`, `votes`, `batch`, `attachments`, `due` (ms), `on_expire`, `signals` (list of
    `{signal, key}`), `chat` (it shows an answer), `environment` (name of the environment to open on
    approval). For a call also `tool`, `version`, `digest` of the call, `bound` (arguments fixed by
    the flow), `returns`, `rule`, `difference`, and the contents of `described`.
    """

    record: dict[str, Plain]


class Consult(NamedTuple):
    """Ask a program to decide `wait`, about a call, before the approvers do.

    The request is made once, when the wait opens. The answer is a `decided` event like any other.
    """

    wait: int
    unit: int
    """The requesting unit."""
    step: int
    required: bool
    """Only a human may approve."""


class CloseWait(NamedTuple):
    """Close a wait. `how` is `decided`, `expired`, `occurred` or `withdrawn`."""

    wait: int
    how: str
    result: Plain


class SetTimer(NamedTuple):
    """Send the event `timer` to the kernel when `due` (ms) has come.

    `why` is as in `state.records.Timer`.
    """

    timer: int
    due: int
    why: str


class ClearTimer(NamedTuple):
    """Clear a timer that is no longer needed."""

    timer: int


class Notify(NamedTuple):
    """Notify users: a wait has opened, is escalated or due for a reminder, or all has ended."""

    wait: int
    """0: the execution has ended."""
    why: str
    to: list[str]
    flows: list[str]
    """Ids of the flows that send the notification."""
    number: int
    """1, 2, …: the position among those of the wait that flows send. 0: no flow sends it. At the
    end, the number of events. It distinguishes the ends of an execution that was retried."""


class Send(NamedTuple):
    """Send a signal to other executions. It is stored together with the event that caused it."""

    to: str
    """`all`: by the signal's key. `parent`: this execution has none. Otherwise the id of an
    execution."""
    signal: str
    key: str | None
    data: Plain
    id: str
    """The same id on every replay."""
    step: str | None = None
    """Address of the subflow whose state receives it. None: any receiver."""


class Claim(NamedTuple):
    """Claim a lock or a part of a budget that executions share. The event `granted` reports it.

    The claim is stored together with the event that caused it. The lock is held until it is
    released or the execution ends.
    """

    lock: str
    unit: int
    """The claiming unit, or 0 for the whole execution."""
    permits: int
    """How many claimants may hold the lock at once."""
    then: str
    """If the lock is taken: `queue`, `reject` the execution, or `cancel` its holders."""
    needs: Mapping[str, Sequence[int | None]] | None = None
    """Of a budget: meter → `[limit, least, most, beyond]`, as `Unit.needs`, and the limit or None.
    None: it is a lock."""


class GiveBack(NamedTuple):
    """Release a claim. The lock passes to the next claimant."""

    lock: str
    unit: int
    used: Mapping[str, int] | None = None
    """Of a budget: the amounts used, by meter."""


class ReleaseRegion(NamedTuple):
    """Release the environments of a map item, group or subflow that has ended."""

    region: int


class End(NamedTuple):
    """End the execution as `succeeded`, `failed` or `cancelled`."""

    status: str
    outputs: dict[str, Plain] | None
    error: ErrorData | None


Command = (
    Run | Stop | OpenWait | Consult | CloseWait | SetTimer | ClearTimer | Notify | Send | Claim
    | GiveBack | ReleaseRegion | End
)  # fmt: skip


class Observation(NamedTuple):
    """A change of an activation, for progress, `show` and subscribers. Nothing depends on it.

    `status` is a step status from docs/language.md: Crashes: `ready`, `running`, `waiting`,
    `uncertain`, `succeeded`, `skipped`, `failed`, `cancelled`, or `retrying` before another
    attempt.
    """

    at: int
    address: str
    step: int
    status: str
    outcome: str | None
    attempt: int
    output: Plain
    error: ErrorData | None
    """The error of a failed activation. If the activation succeeded, the error that a handler
    replaced."""
    input: Plain
    to: tuple[int, ...] = ()
    """The targets of its tokens, if it has ended: steps, `END`, `END_ALL`."""
    handler: int = -1
    """Index of the `on_error` entry that handled the error."""
    items: tuple[int, int] | None = None
    """Of an item of a map: how many items had ended before, and how many there are."""
