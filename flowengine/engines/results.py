"""Results of the public API, as named tuples, so that callers read them field by field."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, NamedTuple, NotRequired, Required, TypedDict

from flowengine.journal.records import ENDED as ENDED  # noqa: PLC0414 - for those who see only the engine
from flowengine.kernel.commands import Observation
from flowengine.kernel.events import ErrorData
from flowengine.kernel.notation.times import format_time
from flowengine.util.loops import is_interrupt

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
