"""The state of an execution: plain data, changed only by `advance`.

Records refer to one another by number. What events name - scopes, activations, units, waits,
timers - is counted by `State["last"]`: a change of the kernel that gives these other numbers gives
old journals another meaning. What only the state itself names - layers of pasts and the subflows
above them, undos, cleanups - is counted by `State["inner"]`. So a state follows from its events
alone. Everything that is looped over is a list or an insertion-ordered dict, never a set.

    execution ─ scopes ─ activations ─ units ─ (child scope | wait | running attempt)

A *scope* runs a body: a flow or a group. An *activation* is one entry of a token into a step of a
scope. A *unit* is what performs the step's action: one for a plain step, one per item under `map`.
Tokens under way exist only inside one `advance`; between events a token is an activation, or an
arrival held at a join.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from typing_extensions import ReadOnly  # what says a state: only `moves.py` changes it

    from flowengine.kernel.events import ErrorData
    from flowengine.kernel.graph.compiled import Plain
    from flowengine.kernel.state.phases import CutPhase, Owner, Phase, RoundState, ScopeState, Why


PlaceKind = Literal["unit", "act", "scope"]
"""A place of an execution is a unit, an activation or a scope, by its number."""


class Arrival(TypedDict, total=False):
    """A token under way, or held at a join."""

    scope: int
    step: int
    """Where it goes."""
    source: int
    """The step it came from, `START` or `TRIGGER`."""
    output: Plain
    """What the source gave, where a target names `join.output`."""
    past: int
    line: list[int]
    """Line of descent: which entry of each split it took; orders tokens as the file does."""
    marks: dict[int, int]
    """Counting join → the round of it that this token left through."""
    message: dict[str, Plain]
    """`signal`: the message that began the token, if one did."""
    knows: dict[str, int]
    """Which writes to state happened before it; see `causality`. Absent while there are none."""


class JoinState(TypedDict, total=False):
    """What a join holds."""

    arrivals: dict[int, list[Arrival]]
    """By source: those that wait for others, or for the next round."""
    phase: ReadOnly[RoundState]
    round: ReadOnly[int]
    need: ReadOnly[int]
    """How many tokens the round needs; absent while that has no value."""
    counted: list[Arrival]
    """Those that the round has counted so far."""
    sources_seen: dict[int, bool]
    """Sources that have sent a token in this round."""
    kept: list[Arrival]
    """Those of the next round."""
    upstream: int
    """Number of live positions of the scope that can still reach this join, while it is armed."""


class Scope(TypedDict, total=False):
    """A body at work."""

    id: int
    body: int
    unit: int
    """The group's unit that opened it; 0 for the flow."""
    frame: int
    """What the flow it belongs to has of its own, see `Frame`; absent for the main flow."""
    path: str
    """Prefix of the addresses inside."""
    past: int
    """The past at entry."""
    knows: dict[str, int]
    """Which writes to state happened before it or in it."""
    ended: list[list[Any]]
    """`[line, past]` of the tokens that ended inside and had a past of their own."""
    live: dict[int, int]
    """Activation → step, by birth."""
    at_joins: int
    """Number of arrivals that wait at joins."""
    at: dict[int, int]
    """Step → number of live positions there; kept in bodies that have counting joins."""
    joins: dict[int, JoinState]
    counts: dict[int, int]
    """Step → number of its activations; kept where there can be more than one."""
    hits: dict[int, int]
    """As `counts`, but starting anew when a wait has ended: for `limits.activations`."""
    mapped: bool
    """Inside a map item: its activations do not count for `limits.steps`."""
    done: list[Done]
    """What can be undone, in order of completion."""
    cut: list[int]
    """Units that were cut off while running and can be undone; see `Cut`."""
    finals: list[Final]
    """What is to be cleaned up before somebody goes on here; so of activations and units."""
    error: ErrorData | None
    """How it has ended, while it is taken out; absent of one that is withdrawn."""
    cleaning: int
    """Cleanups that nothing but the end of the scope waits for; absent if none."""
    phase: ReadOnly[ScopeState]
    resumes: Literal["queued"]
    """Of one that is held and was queued: what it is when it begins again."""
    rescued: ReadOnly[bool]
    """The flow's own handler has led back into this scope once."""
    timer: int
    """Of a subflow: that of its `limits.duration`."""
    idle: int
    """Of the flow, while it has no token: the timer that ends it."""
    then: ReadOnly[list[Any]]
    """What follows, for the agenda, when it begins again after a failure; see `held_failures`."""


class Activation(TypedDict, total=False):
    """One entry of a token into a step."""

    id: int
    scope: int
    step: int
    number: int
    """1, 2, …: which activation of the step in its scope."""
    arrivals: list[list[Any]]
    """`[source, output]` of each arrival taken, in the order of the edges."""
    past: int
    line: list[int]
    marks: dict[int, int]
    knows: dict[str, int]
    message: dict[str, Plain]
    at: int
    """When it was activated (ms)."""
    deadline: int
    """Its timer."""
    units: dict[int, bool]
    """Live units; True while it holds one of the places of `concurrency`."""
    over: list[Plain]
    """Under `map`, named like its key: the items. An activation with it is that of a map."""
    keys: list[str]
    """Their keys."""
    next: int
    """The next item to begin."""
    places: int
    """How many items may be at work at once."""
    busy: int
    """How many are."""
    results: list[list[Any] | None]
    """By item: `[status, output, error]` once it has ended."""
    failed: int
    max_failures: int
    """How many items may fail, if the map declares it."""
    succeeded: int
    need: int
    """Under `map.join`: how many have to succeed for the map to go on."""
    writes: dict[int, list[list[Any]]]
    """By item: state writes that are made when the map ends."""
    left_early: bool
    """The token has left; items that still run change nothing outside the map."""
    rounds: int
    attempts: int
    """Of the last unit that ended, for `steps.x`."""
    facts: dict[str, Plain]
    """What the flow that it ran gave beside its result; of the last unit too."""
    undo: int
    """Set on the activation of a compensation: which undo it is part of."""
    final: int
    """Set on the activation of a `finally`: which cleanup it is part of."""
    opens: bool
    """Set on the activation that opens what is to be open from the start of its flow."""
    finals: list[Final]
    cleanup: int
    """The cleanup that it waits for before its error is handled."""
    frame: int
    """On a compensation or `finally` that is at work in the scope of another flow: its frame."""
    address: str
    """On a compensation or `finally`: behind the address of what it is about."""
    local: dict[str, Plain]
    """On these: the names that the step saw (`item`, `round`, `output`), and `error`."""
    done: list[Done]
    cut: list[int]
    """Of a group: what its attempts and rounds so far leave to be undone, as in a scope."""
    then: list[Any]
    """As in a scope."""


class Grant(TypedDict, total=False):
    """A yes to a call that answers the questions about later calls like it; see `grants`."""

    tool: str
    version: str
    args: dict[str, Plain]
    """Those of the call that was approved."""
    patterns: dict[str, str]
    """Argument → what it may be; the others have to be the same as in `args`."""
    source: str
    """Digest of the text of the tool."""
    people: dict[str, Plain]
    """`assignees` and `exclude` of the question; others are asked about calls of other people."""
    uses: int
    """How many calls it answers for; absent: any number."""
    until: int
    """When it ends (ms)."""
    used: int
    by: str
    at: int
    revoked: str
    """Who has ended it."""


class Unit(TypedDict, total=False):
    """What performs the action: of a plain step the only one, of a map one per item."""

    id: int
    act: int
    item: int
    """Index of the item; -1 without a map."""
    knows: dict[str, int]
    """Of an item: which writes to state happened before it, or are its own."""
    phase: ReadOnly[Phase]
    round: int
    last: Plain
    """Output of the round before."""
    outputs: list[Plain]
    """Under `loop.keep`: those of all rounds so far."""
    seen: int
    """Past of the tokens of the round before, which the `while` of a group sees."""
    max: int
    attempt: int
    """Number of the attempt: goes up by each start, also after a crash."""
    tries: int
    """Attempts that count for `retry`."""
    args: Plain
    input: Plain
    secrets: list[Plain]
    """Places in `input` where text with secrets goes: `[path, parts]`."""
    key: str | None
    facts: dict[str, Plain]
    """What the flow that it ran gave beside its result."""
    fallback: bool
    """A budget had reached its `fallback_at` when the attempt began."""
    replaced_reads: dict[str, Plain]
    """State that its attempt reads and that was written since: key → the value that it read."""
    timer: int
    """Of `timeout`, or of the pause."""
    wait: int
    asks: list[int]
    """The open questions that it waits for before its attempt begins: numbers of waits; see
    `permissions`."""
    shown: bool
    """People were asked about its call as it was about to be made: its `input` stays as it is."""
    counted: dict[str, Any]
    """Its call as it was counted: `of` which tool, `by` which agent if that is bounded, the size of
    the `numbers` among its arguments, and what rules about it see: `count` and `totals` up to it.
    """
    responded: bool
    """Its call was not made: somebody gave the result in its place."""
    scope: int
    finals: list[Final]
    cleanup: int
    """The cleanup that it waits for."""
    lock: str
    """The lock that it has, or for which it is queued; see `locks`."""
    across: str
    """The scope of that lock, if it is not `execution`."""
    shares: bool
    """It shares the lock with others, or will."""
    has_lock: bool
    budget: int
    """Whose budget it waits for: a frame, or 0."""
    needs: dict[str, list[int]]
    """What its attempt may use of budgets: meter → `[least, most, beyond]`; see `meters`."""
    granted: dict[str, int]
    """What it may use of them while it runs, of the meters that some budget bounds."""
    runs: dict[str, dict[str, int]]
    """Execution that its attempts have started → meter → what budgets have counted of it. Absent
    while there is none."""
    then: list[Any]
    """What follows, for the agenda, once it has the lock, or the budget may have been raised, or
    it begins again."""


class Lock(TypedDict):
    """Who has a lock, and who waits for it."""

    holders: list[int]
    queue: dict[int, bool]
    """Units, in order of arrival."""


class Left(TypedDict, total=False):
    """What a step or scope leaves to be done after it, with what was seen there."""

    step: int
    address: str
    local: dict[str, Plain]
    """The names of items, rounds and messages."""
    past: int
    frame: int
    """Of which subflow; absent for the main flow."""


class Done(Left, total=False):
    """A step that succeeded and says how it is undone."""

    output: Plain


class Cut(Left, total=False):
    """An attempt that was cut off while it ran: whether its step acted is open."""

    attempt: int
    args: Plain
    input: Plain
    secrets: list[Plain]
    key: str | None
    granted: dict[str, int]
    """As of the unit."""
    phase: ReadOnly[CutPhase]
    wait: int
    """The question about it."""
    outcome: str
    """`succeeded`, `failed` or `unknown`, once it is settled."""
    value: Plain


class Final(Left, total=False):
    """A `finally` that is due: `step` is the hidden one; or a cleanup that nobody waits for now."""

    knows: dict[str, int]
    error: ErrorData | None
    """What its scope ended with; absent if the scope was withdrawn."""
    cleanup: int


class Cleanup(TypedDict, total=False):
    """What is run, one after the other, before somebody goes on."""

    kind: PlaceKind
    """Who waits; absent once nobody does."""
    of: int
    todo: list[Final]
    """What is due, without the one that runs."""
    then: list[Any] | None
    """What follows: `[what, *arguments]` for the agenda."""
    past: int
    """A past that `then` refers to."""
    knows: dict[str, int]
    """What it has written itself."""
    cause: ErrorData | None
    failure: ErrorData
    """The first error of a `finally`."""
    waiter: int
    """The cleanup that waits for this one."""
    over: bool
    """It is over, and nobody has taken note yet."""


class Timer(TypedDict):
    """A timer: when, for whom, and why."""

    due: int
    why: Why
    ref: int
    """The unit, activation, wait or scope; of a budget its frame, or 0."""
    arg: int
    """Which alternative, which step of an escalation."""


class Wait(TypedDict, total=False):
    """An open wait."""

    id: int
    owner: Owner
    """Whose it is: who goes on when it ends."""
    unit: int
    """Of a step or one of its attempts: the unit that waits; else 0."""
    kind: str
    """`approval`, `ask`, `signal`, `timer`, `state`, `question`."""
    since: int
    event: int
    """Which event opened it."""
    record: dict[str, Plain]
    """What lists and pages show; see `commands.OpenWait`."""
    shown: ReadOnly[bool]
    """It is known outside: a wait that ends at once never is."""
    timers: list[int]
    alternatives: list[dict[str, Plain]]
    """By alternative of a `wait`: `{left, messages, key, due}` as far as they apply."""
    escalate: list[Plain]
    remind: int
    """Milliseconds between reminders."""
    field: str | None
    """Of an `ask` whose form is not the flow's own: the field of it that is the answer."""
    cut: int
    """Of a question asked before a scope compensates: the attempt it is about."""
    budget: int
    """Of a question whether a budget is raised: its frame, or 0."""
    asks: list[Any]
    """Of a question asked before attempts: what it asks about, `[owner, digest]`; see `answers`.
    About a call it is `[unit, "call"]`."""
    units: dict[int, bool]
    """Of such a question: the units that wait for it, by age."""


class Undo(TypedDict, total=False):
    """A scope being compensated: attempts that were cut off are settled first."""

    scope: int
    """The scope in which the compensations run."""
    todo: list[Done]
    """What is still to be undone; the last one is next."""
    current: Done
    """What is being undone."""
    cut: list[int]
    """Attempts still to be settled."""
    cause: ErrorData | None
    failures: list[ErrorData]
    then: list[Any]
    """What follows: `[what, *arguments]` for the agenda."""


class Budget(TypedDict, total=False):
    """What a flow at work may use, and what it has used; see `budgets`."""

    limits: dict[str, int]
    """`tool_calls`, `wall_time` (ms), `tokens`, `cost_usd` (see `meters`), as far as it has them;
    answers have raised them."""
    used: int
    """Tool calls whose attempts are over."""
    calls: dict[int, bool]
    """Units whose calls run; False for what nothing bounds."""
    reserved: dict[int, dict[str, int]]
    """Of these, who is no tool call → meter → what it may use at most. Absent while there is
    none."""
    amounts: dict[str, int]
    """Meter → what calls have used that are over; absent: nothing."""
    estimated: dict[str, int]
    """Meter → how much of that was only reserved: nobody knows what the calls used."""
    spent: int
    """How long calls have run (ms), up to when the last of them ended."""
    since: int
    """While a call runs: since when, without the time that was skipped."""
    timer: int
    """For when the time is over."""
    waiting: dict[int, bool]
    """Units that wait for the answer, in order of arrival."""
    queue: dict[int, bool]
    """Units that wait until calls that run are over, as these have reserved what is left. Absent
    while there is none."""
    wait: int
    """The open question."""
    refused: dict[str, Plain]
    """`{by, comment}`: somebody has rejected it, so nobody is asked any more."""


class Frame(TypedDict, total=False):
    """What a subflow at work has of its own, beside its scope.

    Its number is that of the lowest layer of every past inside it; it is there as long as something
    refers to such a past, so what undoes or cleans up after the subflow still sees it.
    """

    flow: int
    """Which flow of the compiled flow."""
    up: int
    """The frame of who runs it, which may be gone by now; 0: the main flow."""
    depth: int
    """How many subflows there are inside one another down to this one."""
    inputs: dict[str, Plain]
    vars: dict[str, list[Plain]]
    """As in `State`."""
    keys: dict[str, str]
    room: int
    """How many more may run inside one another, by `limits.depth`."""
    steps: int
    """Activations so far, if it bounds them itself."""
    budget: Budget
    bounds: list[int]
    """Whose budgets hold inside, the innermost first: frames, 0 for the main flow; absent: none."""


class State(TypedDict, total=False):
    """The state of one execution."""

    format: int
    status: str
    now: int
    last: int
    """The last number given to a scope, activation, unit, wait or timer."""
    inner: int
    """The last one given to a layer, undo or cleanup."""
    events: int
    inputs: dict[str, Plain]
    execution: dict[str, Plain]
    vars: dict[str, list[Plain]]
    """State key → `[value, writer]`: an activation. Of a key that is replaced `[value, number]`,
    and the locks under which it was written, if any: which of its writes it was, or 0 or less if
    the value comes from outside; see `causality`."""
    scopes: dict[int, Scope]
    acts: dict[int, Activation]
    units: dict[int, Unit]
    waits: dict[int, Wait]
    timers: dict[int, Timer]
    undos: dict[int, Undo]
    cuts: dict[int, Cut]
    """By the unit that was cut off."""
    grants: dict[int, Grant]
    """By the question that they were given with. Absent while there is none."""
    answers: dict[int, dict[str, Any]]
    """Unit of the step or region, or 0 for the execution → digest of what was asked about → the
    number of the question while it is open, then the answer. Absent while there is none."""
    locks: dict[str, Lock]
    """`unit:key` → lock; the unit is who holds the same key around it, else 0. Absent while there
    is none."""
    claims: dict[int, str]
    """Unit, or 0 for all of it → the lock that executions share for which it waits. Absent while
    there is none."""
    bound: list[Any]
    """`[lock, max, then]`: what bounds how many such executions there are at once, as it was when
    this one began; absent without a bound."""
    cleanups: dict[int, Cleanup]
    """Absent while there is none."""
    keys: dict[str, str]
    """Signal → the key by which this execution is found."""
    layers: dict[int, list[Any]]
    """See `expressions.provenance`."""
    frames: dict[int, Frame]
    """By their layer. Absent while there is none."""
    listening: dict[str, dict[int, int]]
    """Signal, with a key `signal\\nkey` → waits, with their units, and maps that listen, by age."""
    watching: dict[str, dict[int, bool]]
    """State key → waits whose condition, and maps whose `need` names it; `frame/key` of a
    subflow."""
    reading: dict[str, dict[int, bool]]
    """State key → units whose attempt reads it by reference and has seen its present value;
    `frame/key` of a subflow. Absent while there are none."""
    kept: dict[str, list[Plain]]
    """Signal → messages that nobody has taken yet."""
    triggered: int
    """How many tokens triggers have begun; absent in a flow without."""
    steps: int
    """Activations so far, those in map items not counted."""
    calls: dict[str, dict[str, Any]]
    """Tool, or agent whose calls are bounded → the `count` of its calls, and the `totals` of their
    numbers; see `limits.call_counts`. Absent before the first."""
    budget: Budget
    """Of the main flow; absent if it has none."""
    warned: dict[str, bool]
    """Messages of the warnings about budgets, each of which is given once. Absent before the first.
    """
    skipped: int
    """Time (ms) in which no process was there, for budgets that count it; absent: none."""
    running: int
    """Units whose attempt runs."""
    cancelling: str
    hold: dict[str, Any]
    """`unit`, `act`, `scope` → those whose failure is held back, `at` → the address of what is held
    before it begins. Absent but within a `retry` or fork; see `held_failures`."""
    outputs: dict[str, Plain] | None
    error: ErrorData | None
