"""Commands: what the kernel wants done. An engine carries them out after the event is on disk."""

# Annotations are not postponed here: NamedTuple would compile each from its text, which makes
# importing this module, a part of every start, half as slow again.
from typing import TYPE_CHECKING, NamedTuple

from flowengine.kernel.graph.compiled import Plain

if TYPE_CHECKING:
    from flowengine.kernel.events import ErrorData


class Run(NamedTuple):
    """Run one attempt of a task; answer for the same unit and attempt.

    The answer is `succeeded` or `failed`; `lost`, if its environment is gone; `asked`, if it has
    not begun because somebody has to be asked about it first; `measured`, if it `measures`.
    """

    unit: int
    attempt: int
    step: int
    """Number of the step in the compiled flow; its `kind`, `task` and `effect` say what to run."""
    address: str
    args: Plain
    """Evaluated arguments of a call; may hold `SecretText` nowhere."""
    input: Plain
    """Evaluated input; may hold `SecretText`."""
    key: str | None
    """Idempotency key, if the tool names one; else the engine derives it from the address."""
    regions: tuple[int, ...] = ()
    """The map items, groups and subflows around it, by their units, the innermost first; of steps
    that get environments only."""
    environments: Plain = None
    """What is to be had for it: name → `{scope, spec}`; may hold `SecretText`."""
    state: dict[str, Plain] | None = None
    """The values of the state keys that the step `reads`, as they were when the attempt began. They
    are those of the state itself: who runs the attempt must not let anybody change them."""
    fallback: bool = False
    """A budget around it has reached its `fallback_at`: it is to spare what it uses."""
    approved: Plain = None
    """If people were asked about the call and said yes: what is kept of the answer."""
    measures: bool = False
    """The attempt does not begin yet: answer with `measured`, or `failed`."""
    granted: dict[str, int] | None = None
    """What budgets grant it: meter → amount as it is counted, of those meters that they bound."""


class Stop(NamedTuple):
    """Withdraw a running attempt: cancel it, kill its processes. Its late result is still told."""

    unit: int
    attempt: int


class OpenWait(NamedTuple):
    """A wait is open (or has changed: same id again). `record` is plain data for lists and pages.

    Keys: `id` (number in this execution), `kind` (`approval`, `ask`, `signal`, `timer`, `state`,
    `question`), `address`, `step`, `since` (ms), and where they apply `title`, `body`, `subject`,
    `edit`, `form`, `choices` (list of `{id, label, counts_as, comment}`), `assignees`, `exclude`,
    `need`, `votes`, `batch`, `attachments`, `due` (ms), `on_expire`, `signals` (list of
    `{signal, key}`), `chat` (it shows an answer), `environment` (name of what is opened if it is
    approved); of a call `tool`, `version`, `digest` of the call, `bound` (arguments that the flow
    fixes), `returns`, `rule`, `difference`, and what `described` has told.
    """

    record: dict[str, Plain]


class Consult(NamedTuple):
    """People are asked by `wait` about an environment or a call: a program may answer first.

    It is asked once, when the wait opens; its answer is a `decided` event like any other.
    """

    wait: int
    unit: int
    """Who asks."""
    step: int
    region: int
    """The map item, group or subflow that it belongs to, if it belongs to one; else 0."""
    environment: Plain
    """What is to be had: `{scope, spec}`; may hold `SecretText`. None: it is about a call."""
    reason: str | None
    """Why it is wanted."""
    required: bool
    """Only people may say yes."""


class CloseWait(NamedTuple):
    """A wait ended: `how` is `decided`, `expired`, `occurred` or `withdrawn`."""

    wait: int
    how: str
    result: Plain


class SetTimer(NamedTuple):
    """Tell the kernel with `timer` when `due` (ms) has come; `why` is as in `state.Timer`."""

    timer: int
    due: int
    why: str


class ClearTimer(NamedTuple):
    """The timer is no longer wanted."""

    timer: int


class Notify(NamedTuple):
    """Tell people about a wait: it opened, a reminder is due, it was escalated."""

    wait: int
    why: str
    to: list[str]


class Send(NamedTuple):
    """Send a signal to other executions; it is stored with the event that it follows from."""

    to: str
    """`all`: by its key; `parent`: this one has none; else the id of an execution."""
    signal: str
    key: str | None
    data: Plain
    id: str
    """The same on every replay."""


class Claim(NamedTuple):
    """Claim a lock that executions share; answer with `granted` when it is had.

    It is asked for with the event that it follows from, and held until it is given back or the
    execution has ended.
    """

    lock: str
    unit: int
    """Who claims it; 0: the execution as a whole."""
    permits: int
    """How many may hold it."""
    then: str
    """If it is not free: `queue`, `reject` the execution, or `cancel` those that hold it."""


class GiveBack(NamedTuple):
    """A claim is over: the lock goes to who is next."""

    lock: str
    unit: int


class ReleaseRegion(NamedTuple):
    """A map item, group or subflow has ended: give back the environments that belong to it."""

    region: int


class End(NamedTuple):
    """The execution ended: `succeeded`, `failed` or `cancelled`."""

    status: str
    outputs: dict[str, Plain] | None
    error: "ErrorData | None"


Command = (
    Run | Stop | OpenWait | Consult | CloseWait | SetTimer | ClearTimer | Notify | Send | Claim
    | GiveBack | ReleaseRegion | End
)  # fmt: skip


class Observation(NamedTuple):
    """What happened to an activation, for progress, `show` and subscribers; nothing depends on it.

    `status` is a step status of the docs/language.md: Crashes: `ready`, `running`, `waiting`,
    `uncertain`, `succeeded`, `skipped`, `failed`, `cancelled`; `retrying` when another attempt
    follows.
    """

    at: int
    address: str
    step: int
    status: str
    outcome: str | None
    attempt: int
    output: Plain
    error: "ErrorData | None"
    """What it failed with; if it has succeeded, the error that a handler took for that."""
    input: Plain
    to: tuple[int, ...] = ()
    """Where its tokens went, if it has ended: steps, `END`, `END_ALL`."""
    handler: int = -1
    """Number of the entry of its `on_error` that took the error."""
