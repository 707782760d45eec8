"""The state of an execution: plain data that only `advance` changes.

Records refer to each other by number. `State["last"]` counts the records that events name: scopes,
activations, units, waits and timers. A change to the kernel that assigns them different numbers
would change the meaning of existing journals. `State["inner"]` counts the records that only the
state names: layers of pasts, the subflows above them, undos and cleanups. A state therefore depends
only on its events. All collections that are iterated are lists or insertion-ordered dicts, never
sets.

    execution ─ scopes ─ activations ─ units ─ (child scope | wait | running attempt)

A *scope* runs a body: a flow or a group. An *activation* is one entry of a token into a step of a
scope. A *unit* performs the step's action: one for a plain step, one per item under `map`. Moving
tokens exist only within one `advance`. Between events, a token is an activation or an arrival held
at a join.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict

from flowengine.kernel.events import ErrorData, ProcessData
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.state.phases import CutPhase, Owner, Phase, RoundState, ScopeState, Why

if TYPE_CHECKING:
    from typing_extensions import ReadOnly  # for state fields, which only `moves.py` changes


PlaceKind = Literal["unit", "act", "scope"]
"""A place of an execution is a unit, an activation or a scope, by its number."""


class Arrival(TypedDict, total=False):
    """A token that is moving, or held at a join."""

    scope: int
    step: int
    """Its target."""
    source: int
    """The step it came from, `START` or `TRIGGER`."""
    output: Plain
    """The output of the source, if a target names `join.output`."""
    past: int
    line: list[int]
    """Line of descent: the entry it took at each split. It orders tokens as in the file."""
    marks: dict[int, int]
    """Counting join → the round in which this token left it."""
    message: dict[str, Plain]
    """`signal`: the message that started the token, if any."""
    knows: dict[str, int]
    """The writes to state that happened before it, see `causality`. Absent while there are none."""


class JoinState(TypedDict, total=False):
    """The state of a join."""

    arrivals: dict[int, list[Arrival]]
    """By source: the arrivals that wait for others or for the next round."""
    phase: ReadOnly[RoundState]
    round: ReadOnly[int]
    need: ReadOnly[int]
    """How many tokens the round needs. Absent while that has no value."""
    counted: list[Arrival]
    """The tokens counted in this round so far."""
    sources_seen: dict[int, bool]
    """Sources that have sent a token in this round."""
    kept: list[Arrival]
    """The tokens kept for the next round."""
    upstream: int
    """Number of live positions of the scope that can still reach this join, while it is armed."""


class Scope(TypedDict, total=False):
    """A running body."""

    id: int
    body: int
    unit: int
    """The group's unit that opened it, or 0 for the flow."""
    frame: int
    """The frame of its flow, see `Frame`. Absent for the main flow."""
    path: str
    """Prefix of the addresses inside."""
    past: int
    """The past at entry."""
    knows: dict[str, int]
    """The writes to state that happened before it or in it."""
    ended: list[list[Any]]
    """`[line, past]` of the tokens that ended inside, if their past differs from that at entry."""
    live: dict[int, int]
    """Activation → step, oldest first."""
    at_joins: int
    """Number of arrivals that wait at joins."""
    at: dict[int, int]
    """Step → number of live positions there. Kept in bodies with joins `active` or `count`."""
    joins: dict[int, JoinState]
    counts: dict[int, int]
    """Step → number of its activations. Kept where there can be more than one."""
    hits: dict[int, int]
    """As `counts`, but reset when a wait has ended: for `limits.activations`."""
    mapped: bool
    """Inside a map item: its activations do not count for `limits.steps`."""
    done: list[Done]
    """The steps that can be undone, in order of completion."""
    cut: list[int]
    """Units that were cut off while running and can be undone, see `Cut`."""
    finals: list[Final]
    """The `finally` steps that are due before the scope continues. Also in activations and
    units."""
    error: ErrorData | None
    """The error with which it ended, while it is removed. Absent if the scope is withdrawn."""
    cleaning: int
    """Number of cleanups that only the end of the scope waits for. Absent if there are none."""
    phase: ReadOnly[ScopeState]
    resumes: Literal["queued"]
    """Of a scope that was queued when it was held: its state when it begins again."""
    rescued: ReadOnly[bool]
    """A handler of the flow has reopened this scope once."""
    timer: int
    """Of a subflow: the timer of its `limits.duration`."""
    idle: int
    """Of the flow, while it has no token: the timer that ends it."""
    then: ReadOnly[list[Any]]
    """The entry to process when it begins again after a failure, see `held_failures`."""


class Activation(TypedDict, total=False):
    """One entry of a token into a step."""

    id: int
    scope: int
    step: int
    number: int
    """1, 2, …: the position among the activations of the step in its scope."""
    arrivals: list[list[Any]]
    """`[source, output]` of each arrival, in the order of the edges."""
    past: int
    line: list[int]
    marks: dict[int, int]
    knows: dict[str, int]
    message: dict[str, Plain]
    at: int
    """Time of the activation (ms)."""
    deadline: int
    """Its timer."""
    units: dict[int, bool]
    """Live units. True while the unit holds one of the places of `concurrency`."""
    over: list[Plain]
    """Under `map`, the items, named like the key of `map`. Only maps have it."""
    keys: list[str]
    """The keys of the items."""
    next: int
    """The next item to begin."""
    places: int
    """How many items may run at once."""
    busy: int
    """How many items run."""
    results: list[list[Any] | None]
    """By item: `[status, output, error]` once it has ended."""
    failed: int
    max_failures: int
    """How many items may fail, if the map declares it."""
    succeeded: int
    need: int
    """Under `map.join`: how many items must succeed for the map to continue."""
    writes: dict[int, list[list[Any]]]
    """By item: state writes that are made when the map ends."""
    left_early: bool
    """The token has left. Items that still run change nothing outside the map."""
    rounds: int
    attempts: int
    """Of the last unit that ended, for `steps.x`."""
    facts: dict[str, Plain]
    """Facts beside the result of its subflow. Also of the last unit."""
    call: int
    """Set on the activation of a callee: which of the calls of the round around it."""
    approval: Plain
    """The recorded approval of this call."""
    undo: int
    """Set on the activation of a compensation: the undo that it belongs to."""
    final: int
    """Set on the activation of a `finally`: the cleanup that it belongs to."""
    opens: bool
    """Set on the activation that opens the initial environments of its flow."""
    finals: list[Final]
    cleanup: int
    """The cleanup that it waits for before it continues or its error is handled."""
    frame: int
    """On a compensation or `finally` that runs in the scope of another flow: its frame."""
    address: str
    """Set on hidden steps, and on running steps that an upgrade has renamed."""
    local: dict[str, Plain]
    """On a callee: `call`. On a compensation or `finally`: the names visible to its step, such as
    `item` or `output`, and `error`."""
    done: list[Done]
    cut: list[int]
    """Of a group: the work of its attempts and rounds so far that must be undone, as in a scope."""
    then: list[Any]
    """As in a scope."""


class Grant(TypedDict, total=False):
    """An approval of a call that also covers later calls like it, see `grants`."""

    tool: str
    version: str
    args: dict[str, Plain]
    """The arguments of the approved call."""
    patterns: dict[str, str]
    """Argument → its permitted values. The other arguments must be equal to those in `args`."""
    source: str
    """Digest of the text of the tool."""
    people: dict[str, Plain]
    """`assignees` and `exclude` of the question. Calls with other approvers are not covered."""
    uses: int
    """How many calls it covers. Absent: any number."""
    until: int
    """When it ends (ms)."""
    used: int
    by: str
    at: int
    revoked: str
    """The user who revoked it."""


class Calls(TypedDict):
    """The calls of a round, see `steps.exchanges`."""

    made: list[Any]
    """Each as `graph.specs.CallData`."""
    next: int
    """The next call to begin."""
    open: dict[int, bool]
    """Those that have begun and are not answered."""
    answers: list[Any]
    """By call: `output` or `error`, and `approval` if it was approved. None: not answered yet."""


class Unit(TypedDict, total=False):
    """Performs the action: the only unit of a plain step, or one per item of a map."""

    id: int
    act: int
    item: int
    """Index of the item, or -1 without a map."""
    knows: dict[str, int]
    """Of an item: the writes to state that happened before it, and its own."""
    phase: ReadOnly[Phase]
    round: int
    last: Plain
    """Output of the previous round."""
    outputs: list[Plain]
    """Under `loop.keep`: the outputs of all rounds so far."""
    seen: int
    """Past of the tokens of the previous round, for the `while` of a group."""
    max: int
    attempt: int
    """Number of the attempt. It increases with each start, including after a crash."""
    tries: int
    """Attempts that count for `retry`."""
    args: Plain
    input: Plain
    secrets: list[Plain]
    """Places in `input` for text with secrets: `[path, parts]`."""
    key: str | None
    facts: dict[str, Plain]
    """Facts beside the result of its subflow."""
    fallback: bool
    """A budget had reached its `fallback_at` when the attempt began."""
    replaced_reads: dict[str, Plain]
    """State that its attempt reads and that was written since then: key → the value that it
    read."""
    timer: int
    """Of `timeout`, or of the pause."""
    wait: int
    asks: list[int]
    """The open questions that it waits for before its attempt begins: numbers of waits, see
    `permissions`."""
    shown: bool
    """Its call was submitted for approval right before execution, so its `input` does not
    change."""
    counted: dict[str, Any]
    """Its call as it was counted: `of` which tool, `by` which agent if that is limited, the size of
    the `numbers` among its arguments, and the `count` and `totals` that rules about it can read,
    including it."""
    responded: bool
    """Its call was not made. An approver provided the result instead."""
    scope: int
    calls: Calls
    """The calls of its last round, until all are answered."""
    answers: list[Any]
    """The answers that its round receives. Absent in its first."""
    caught: ErrorData
    """The error of the round before, which it receives."""
    unlimited: bool
    """Budgets do not limit its round, which learns that one is used up."""
    finals: list[Final]
    cleanup: int
    """The cleanup that it waits for."""
    lock: str
    """The lock that it has, or for which it is queued, see `locks`."""
    across: str
    """The scope of that lock, if it is not `execution`."""
    shares: bool
    """It shares the lock with others, or will."""
    has_lock: bool
    budget: int
    """The budget that it waits for: a frame, or 0."""
    needs: dict[str, list[int]]
    """The amounts that its attempt may use of budgets: meter → `[least, most, beyond]`, see
    `meters`."""
    granted: dict[str, int]
    """The amounts it may use while it runs, for meters that some budget limits."""
    runs: dict[str, dict[str, int]]
    """Execution started by its attempts → meter → the amount that budgets have counted for it.
    Absent while there is none."""
    then: list[Any]
    """The entry to process once it has the lock, the budget may have been raised, or it begins
    again."""


class Lock(TypedDict):
    """The holders of a lock and the units that wait for it."""

    holders: list[int]
    queue: dict[int, bool]
    """Units, in order of arrival."""


class Left(TypedDict, total=False):
    """Work to be done after a step or scope, with the names that were visible there."""

    step: int
    address: str
    local: dict[str, Plain]
    """The names of items, rounds and messages."""
    past: int
    frame: int
    """The frame of its subflow. Absent for the main flow."""


class Done(Left, total=False):
    """A step that succeeded and declares how it is undone."""

    output: Plain


class Cut(Left, total=False):
    """An attempt that was cut off while it ran, so its outcome is unknown."""

    attempt: int
    args: Plain
    input: Plain
    secrets: list[Plain]
    key: str | None
    granted: dict[str, int]
    """As in the unit."""
    phase: ReadOnly[CutPhase]
    wait: int
    """The question about it."""
    process: ProcessData
    """As in `CutOff`."""
    outcome: str
    """`succeeded`, `failed` or `unknown`, once it is settled."""
    value: Plain


class Final(Left, total=False):
    """A `finally` that is due, with the hidden step as `step`, or a cleanup without a waiter."""

    knows: dict[str, int]
    error: ErrorData | None
    """The error of its scope. Absent if the scope was withdrawn."""
    cleanup: int


class Cleanup(TypedDict, total=False):
    """The steps that run, one after the other, before a place continues."""

    kind: PlaceKind
    """The kind of the waiting place. Absent once none waits."""
    of: int
    todo: list[Final]
    """The steps that are due, except the running one."""
    then: list[Any] | None
    """The next entry: `[name, *arguments]`."""
    past: int
    """A past that `then` refers to."""
    knows: dict[str, int]
    """Its own writes."""
    cause: ErrorData | None
    failure: ErrorData
    """The first error of a `finally`."""
    waiter: int
    """The cleanup that waits for this one."""
    over: bool
    """It has ended, and its waiter has not been resumed yet."""


class Timer(TypedDict):
    """The due time, owner and reason of a timer."""

    due: int
    why: Why
    ref: int
    """The unit, activation, wait or scope. For a budget its frame, or 0."""
    arg: int
    """Index of the alternative, or of the escalation step."""


class Wait(TypedDict, total=False):
    """An open wait."""

    id: int
    owner: Owner
    """The owner, which continues when the wait ends."""
    unit: int
    """Of a step or one of its attempts: the waiting unit, else 0."""
    kind: str
    """`approval`, `ask`, `signal`, `timer`, `state`, `question`."""
    since: int
    event: int
    """Number of the event that opened it."""
    record: dict[str, Plain]
    """The data for display, see `commands.OpenWait`."""
    shown: ReadOnly[bool]
    """It was reported outside the kernel. A wait that ends at once is not."""
    timers: list[int]
    alternatives: list[dict[str, Plain]]
    """By alternative of a `wait`: `{left, messages, key, due}` as far as they apply."""
    escalate: list[Plain]
    remind: int
    """Milliseconds between reminders."""
    notify: list[str]
    """Ids of the flows that send its notifications. Absent if there is none."""
    notified: int
    """How many notifications they were asked to send."""
    field: str | None
    """Of an `ask` with a generated form: the field that contains the answer."""
    cut: int
    """Of a question asked before a scope compensates: the attempt it is about."""
    budget: int
    """Of a question whether a budget is raised: its frame, or 0."""
    asks: list[Any]
    """Of a question asked before attempts: its topic as `[owner, digest]`, see `answers`. For a
    call it is `[unit, "call"]`."""
    units: dict[int, bool]
    """Of such a question: the units that wait for it, oldest first."""
    opens: list[Any]
    """Of a question about a call: the topics of the environments that are approved with it."""


class Undo(TypedDict, total=False):
    """A compensation in progress. Cut-off attempts are settled first."""

    scope: int
    """The scope in which the compensations run."""
    todo: list[Done]
    """The steps to be undone. The last one is next."""
    current: Done
    """The step that is being undone."""
    cut: list[int]
    """The attempts to be settled."""
    cause: ErrorData | None
    failures: list[ErrorData]
    then: list[Any]
    """The next entry: `[name, *arguments]`."""


class Budget(TypedDict, total=False):
    """The limits and usage of a running flow, see `budgets`."""

    limits: dict[str, int]
    """`tool_calls`, `wall_time` (ms), `tokens`, `cost_usd` (see `meters`), if they are
    limited. Approvals can have raised them."""
    used: int
    """Tool calls whose attempts have ended."""
    calls: dict[int, bool]
    """Units whose calls run. False for calls without a limit."""
    reserved: dict[int, dict[str, int]]
    """For those that are not tool calls → meter → the maximum that it may use. Absent while there
    is none."""
    amounts: dict[str, int]
    """Meter → the amount used by calls that have ended. Absent: nothing."""
    estimated: dict[str, int]
    """Meter → the part of that amount that was only reserved, because the actual use is unknown."""
    spent: int
    """Time (ms) during which any call ran, up to the end of the last one."""
    since: int
    """While a call runs: its start time, adjusted for downtime."""
    timer: int
    """The timer for the end of the time."""
    waiting: dict[int, bool]
    """Units that wait for the answer, in order of arrival."""
    queue: dict[int, bool]
    """Units that wait for running calls to end, because these have reserved the rest. Absent while
    there is none."""
    wait: int
    """The open question."""
    shared: list[list[Any]]
    """`[key, period or None, limits]` of each budget shared with other executions. Absent: none."""
    refused: dict[str, Plain]
    """`{by, comment}`: the user who rejected it. No further question is asked."""


class Reservation(TypedDict, total=False):
    """The need of a call from a budget that executions share, see `shared_budgets`."""

    needs: Required[dict[str, list[int | None]]]
    """Meter → `[limit, least, most, beyond]`. No limit is None, and neither is the rest of a meter
    that the call does not use."""
    granted: dict[str, int]
    """Meter → the reserved amount. Absent until the claim is granted."""


class Frame(TypedDict, total=False):
    """The data of a running subflow besides its scope.

    Its number is that of the lowest layer of every past inside it. It exists as long as a record
    refers to such a past, so compensations and cleanups of the subflow can still read it.
    """

    flow: int
    """Index of the flow in the compiled flow."""
    up: int
    """The frame of the caller, which may have ended. 0: the main flow."""
    depth: int
    """Nesting depth of the subflow."""
    inputs: dict[str, Plain]
    vars: dict[str, list[Plain]]
    """As in `State`."""
    keys: dict[str, str]
    room: int
    """How many more subflows may be nested, according to `limits.depth`."""
    steps: int
    """Activations so far, if the subflow limits them itself."""
    budget: Budget
    bounds: list[int]
    """The frames whose budgets apply inside, innermost first, with 0 for the main flow. Absent:
    none."""


class Child(TypedDict, total=False):
    """An execution in the background that a flow has started."""

    frame: int
    """The frame of the flow, or 0 for the main flow."""
    step: str
    """Address of the step that runs the flow. Empty for the main flow."""
    room: int
    """How much deeper executions in the background may be nested inside it."""
    part: dict[str, int]
    """Meter → amount reserved for it in the budgets around the flow. Absent without budgets."""
    shared: list[list[Any]]
    """The `Budget.shared` of all budgets around the flow, which count its calls. Absent: none."""
    ended: bool
    """Absent while it runs."""


class State(TypedDict, total=False):
    """The state of one execution."""

    format: int
    status: str
    now: int
    last: int
    """The last number assigned to a scope, activation, unit, wait or timer."""
    inner: int
    """The last number assigned to a layer, undo or cleanup."""
    events: int
    inputs: dict[str, Plain]
    execution: dict[str, Plain]
    vars: dict[str, list[Plain]]
    """State key → `[value, writer]`, where the writer is an activation. For a key that is replaced,
    `[value, number]`, and the locks under which it was written, if any. The number counts the
    writes of the key. It is 0 or less if the value comes from outside, see `causality`."""
    scopes: dict[int, Scope]
    acts: dict[int, Activation]
    units: dict[int, Unit]
    waits: dict[int, Wait]
    timers: dict[int, Timer]
    undos: dict[int, Undo]
    cuts: dict[int, Cut]
    """By the unit that was cut off."""
    grants: dict[int, Grant]
    """By the question that created it. Absent while there is none."""
    answers: dict[int, dict[str, Any]]
    """Unit of the step or region, or 0 for the execution → digest of the topic → the number of the
    question while it is open, then the answer. Absent while there is none."""
    locks: dict[str, Lock]
    """`unit:key` → lock. The unit is the one around it that holds the same key, else 0. Absent
    while there is none."""
    claims: dict[int, str]
    """Unit, or 0 for the whole execution → the lock shared by executions that it waits for. Absent
    while there is none."""
    reserved: dict[int, dict[str, Reservation]]
    """Unit → name of a budget that executions share → its reservation. Absent while there is
    none."""
    bound: list[Any]
    """`[lock, max, then]`: the limit on concurrent executions, as of the start of this one. Absent
    without a limit."""
    cleanups: dict[int, Cleanup]
    """Absent while there is none."""
    keys: dict[str, str]
    """Signal → the key that addresses this execution."""
    layers: dict[int, list[Any]]
    """See `expressions.provenance`."""
    frames: dict[int, Frame]
    """By their layer. Absent while there is none."""
    listening: dict[str, dict[int, int]]
    """Signal, with a key `signal\\nkey` → waits, with their units, and maps that listen, by age."""
    watching: dict[str, dict[int, bool]]
    """State key → waits with a condition on it, and maps whose `need` names it. `frame/key` in a
    subflow."""
    reading: dict[str, dict[int, bool]]
    """State key → units whose attempt reads it by reference and has read its present value.
    `frame/key` in a subflow. Absent while there are none."""
    children: dict[str, Child]
    """Id → an execution in the background that a running flow has started. Absent while there is
    none."""
    kept: dict[str, list[Plain]]
    """Signal → messages that have not been taken yet."""
    triggered: int
    """Number of tokens created by triggers. Absent in a flow without triggers."""
    steps: int
    """Activations so far, not counting those in map items."""
    calls: dict[str, dict[str, Any]]
    """Tool, or agent with limited calls → the `count` of its calls, and the `totals` of their
    numbers, see `limits.call_counts`. Absent before the first."""
    budget: Budget
    """Of the main flow. Absent if it has none."""
    warned: dict[str, bool]
    """Warnings about budgets that were issued. Each is issued once. Absent before the first."""
    skipped: int
    """Time (ms) in which no process was driving the execution, for budgets that count it. Absent:
    none."""
    running: int
    """Number of units whose attempt runs."""
    cancelling: str
    hold: dict[str, Any]
    """`unit`, `act`, `scope` → those whose failure is held back. `at` → the address of work that is
    held before it begins. Present only during a `retry` or fork, see `held_failures`."""
    outputs: dict[str, Plain] | None
    error: ErrorData | None
