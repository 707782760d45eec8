"""The plain form of a compiled flow: `CompiledFlow`, and the types of what it consists of.

Absent keys mean "none". Steps and bodies are named by their position in `CompiledFlow.steps` and
`.bodies`; expressions by their position in `CompiledFlow.expressions`. All of this is data, so
whatever only reads it imports these types for type checking alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict

if TYPE_CHECKING:
    from flowengine.kernel.graph.compiled import Condition, Plain, Value


class JoinSpec(TypedDict, total=False):
    """How incoming tokens meet; absent on a step where at most one token can come."""

    kind: Literal["each", "all", "active", "count"]
    need: Value
    late: Literal["ignore", "cancel", "queue"]


class BudgetSpec(TypedDict, total=False):
    """What a flow may use. `then` is always there."""

    tool_calls: int
    wall_time: str
    """A duration."""
    tokens: int
    cost_usd: float
    fallback_at: int
    """Percent of `tokens` or `cost_usd` from which on steps are told to spare them."""
    then: Literal["stop", "ask"]
    assignees: list[str]
    """Who is asked; absent: anyone."""


class SplitEntry(TypedDict, total=False):
    """One way out. Exactly one of `when`, `otherwise` or neither (unconditional)."""

    to: int
    when: Condition
    otherwise: bool


class SplitSpec(TypedDict, total=False):
    """Where the token goes.

    `one`: along `to`. `all`, `first`: by `entries`. `outcome`: by `outcomes`, else `otherwise`.
    """

    kind: Literal["one", "all", "first", "outcome"]
    to: int
    entries: list[SplitEntry]
    outcomes: dict[str, int]
    otherwise: int


class MapSpec(TypedDict, total=False):
    """Once per item. `names` are the names of item, index and key in expressions."""

    over: Value
    names: list[str]
    key: Value
    concurrency: Value
    on_item_error: Literal["stop", "wait", "continue"]
    max_failures: Value
    need: Value
    late: Literal["ignore", "cancel"]
    each: bool
    """`join: none`: every item goes along `next` as a token of its own."""
    more: str
    """A signal: each message adds its data as an item while the map runs."""
    watches: list[str]
    """State keys that `need` names; absent: none."""


class LoopSpec(TypedDict, total=False):
    """Again while or until. `every` waits between rounds."""

    until: Condition
    before: Condition
    """`while`: tested before each round."""
    max: Value
    every: Value
    backoff: float
    max_delay: str
    keep: bool
    """Gives the outputs of all rounds as a list."""


class LockSpec(TypedDict, total=False):
    """Never at the same time as another holder of the same key in the same scope."""

    key: Value
    scope: Literal["run", "execution", "flow", "global"]
    """`run`: of the flow that the step is in; absent: `execution`."""
    permits: int
    shared: Value
    """Beside other holders that share it, if true; absent: false."""
    hold: bool
    ordered: bool
    """Its place in the queue is that of its first attempt, not of the permission to begin it: it
    has or awaits the lock while people are asked. Only generated flows say so."""


class RetrySpec(TypedDict, total=False):
    """Attempts in all; delays as duration texts. Defaults: 1, `1s`, 2, `1m`, `full`."""

    attempts: int
    delay: str
    backoff: float
    max_delay: str
    jitter: Literal["full", "none"] | float
    only: list[str]
    exclude: list[str]
    when: Condition


class EmitSpec(TypedDict, total=False):
    """A signal sent after success."""

    signal: str
    key: Value
    data: Value
    to: Value


class HandlerSpec(TypedDict, total=False):
    """One entry of `on_error`, or the short forms `continue` and `compensate` written out.

    `types` absent: every error but `Cancelled`. `do` says what follows: `next` follows `to`,
    `output` gives `output` as the result, `fail` raises `fail` (a value giving
    `{type, message, data, retryable}`), `continue` goes on as failed, `raise` raises again.
    """

    types: list[str]
    when: Condition
    compensate: bool
    set: list[list[Any]]
    emit: list[EmitSpec]
    do: Literal["next", "output", "fail", "continue", "raise"]
    to: int
    output: Value
    fail: Value


class AlternativeSpec(TypedDict, total=False):
    """One thing a wait waits for: exactly one of `after`, `until`, `signal`, `when`."""

    id: str
    after: Value
    """`for`: a duration."""
    until: Value
    signal: str
    key: Value
    match: Condition
    count: Value
    transient: bool
    when: Condition
    watches: list[str]
    """State keys that `when` names; absent: it may be any."""


class WaitSpec(TypedDict, total=False):
    """`first` or `all` of the alternatives; a bare wait is `first` of one, with the id `ok`."""

    mode: Literal["first", "all"]
    alternatives: list[AlternativeSpec]


class TriggerSpec(TypedDict, total=False):
    """What starts a token at a step: a message of one of `signals`, or a write to `state`."""

    signals: list[str]
    all: bool
    """It takes a message of each of `signals`."""
    match: Condition
    """Of a single message."""
    transient: bool
    """Takes messages only when they arrive, so none is kept for it."""
    state: str


class CancelSpec(TypedDict, total=False):
    """Withdraws instances of `targets` (step numbers), or the whole execution."""

    targets: list[int]
    execution: bool
    outcome: Literal["cancelled", "succeeded", "failed"]
    reason: Value


class ToolsSpec(TypedDict):
    """Of which tools of a server a rule is, where a step may call any of them."""

    glob: str
    before: list[str]
    """What stands before the name of the tool, in the names that the glob may fit."""


class CallsSpec(TypedDict, total=False):
    """Which calls a rule is about, where these are not known when its flow is compiled."""

    glob: Required[str]
    agent: str
    effect: str
    environment: str


class RuleSpec(TypedDict, total=False):
    """A rule about a call."""

    do: Literal["allow", "ask", "deny"]
    rule: str
    """Names it for people."""
    when: Condition
    """Sees `args`, and the inputs of the main flow."""
    tools: ToolsSpec
    calls: CallsSpec
    """Of a rule in `within`."""


class StepSpec(TypedDict, total=False):
    """One step. `action` is what the kernel does with it; `kind` is the word in the file."""

    id: str
    title: str
    plumbing: bool
    """It only holds a generated flow together: not shown to people unless something is wrong."""
    teller: str
    """The step kind that says in a line what its output means. This, `says` and `ways` are for
    people, and not part of the structural hash."""
    ahead: bool
    """Its step kind is asked to load what it needs when an execution begins; not part of the
    structural hash either."""
    says: str
    """What a picture says of it, in place of its settings."""
    ways: list[str]
    """What a picture says of its ways out, in their order."""
    body: int
    at: list[int]
    """Line and column in the file; not part of the structural hash."""
    action: Literal["none", "task", "group", "flow", "wait", "approval", "fail", "cancel"]
    kind: str
    """`python`, `http`, `run`, `shell`, `std`, ...: for a task the step kind that runs it. Of an
    approval `ask`, if it is a question whose answer is the output."""
    task: dict[str, Plain]
    """Constant part of a task, opaque to the kernel; handed to the runner."""
    tool: str
    """Name of the tool that is called; not part of the structural hash."""
    declared: str
    """Its name where it is declared, if an agent knows it by another one."""
    caller: str
    """The agent in whose name it is called."""
    args: Value
    """Arguments (`with`) of a call; evaluated first, visible as `args` in `input`. Of a `flow` what
    its inputs are given."""
    input: Value
    """What a task, an approval or a fail gets; evaluated once per attempt."""
    environments: bool
    """`input` is a map of two: `input`, and under `environments` what is to be had, by name."""
    meters: dict[str, dict[str, Plain]]
    """What a call uses of budgets: meter → `{"reserved": path, "used": [path]}`, paths into its
    input and its result; absent: one of `tool_calls`."""
    reads: list[str]
    """State keys that a task may read: handed over by reference, not part of its input."""
    preview: dict[str, Plain]
    """`{"function", "folder"}`: says what a call would do; for the runner."""
    limits: dict[str, int]
    """Bounds of a call: `output`, the bytes of its result, for the runner; `calls`, how many an
    execution may make."""
    counts: str
    """Tells the tool from others: its calls are counted; see `call_counts`."""
    caller_limit: list[Any]
    """`[identity, calls]`: which agent calls, and how many calls it may make in an execution."""
    adapter: dict[str, Plain]
    """`{"kind", "task"}`: the step kind that makes what a task returned into its output."""
    asks: bool
    """People may be asked before some of these are opened; see `environment_questions`."""
    approval: Value
    """What people are asked before the call of a task or flow, a map; sees `args`. `tool`,
    `version` of its declaration, `schema` of what a caller gives, `bind`, `returns`; `when` they
    are asked, `edit`: which arguments they may change, and the `fields` of an approval. See
    `call_questions`."""
    about: Value
    """What people who are asked about the call are shown of what led to it, a map of texts;
    evaluated when they are asked."""
    policies: list[list[RuleSpec]]
    """The rules that may fit the call, in the order in which they are looked at; of each list the
    first that fits counts, and of these the strictest. `approval` says what is asked."""
    within: list[list[RuleSpec]]
    """The rules of the files around a step that may start agents: for the calls that those make;
    see `engines.executions.outer_attempts`."""
    key: Value
    """`idempotency_key` of the tool."""
    wait: WaitSpec
    cancel: CancelSpec
    child: int
    """The body of a group or subflow."""
    sources: list[int]
    """Steps with an edge to this one, each once, in file order; `START`, `TRIGGER` too."""
    join: JoinSpec
    trigger: TriggerSpec
    split: SplitSpec
    when: Condition
    map: MapSpec
    loop: LoopSpec
    lock: LockSpec
    retry: RetrySpec
    timeout: Value
    deadline: Value
    output: Value
    set: list[list[Any]]
    """`[key, value]` pairs."""
    emit: list[EmitSpec]
    on_error: list[HandlerSpec]
    compensate: int
    """Number of a step with `body` -1: the action that undoes this one."""
    raises: dict[str, str]
    """Outcome → error type, for outcomes that raise unless `split.outcomes` routes them."""
    effect: Literal["pure", "idempotent", "once"]
    on_crash: Literal["ask", "retry", "fail"]
    named: list[str]
    """Fields of `steps.<id>` that some expression names: `output`, `status`, `items`, ...
    What nobody names is not kept in the state."""
    forgets: list[int]
    """Steps that no expression names any more for a token that has left this one. A compiled flow
    without the key, of an earlier release, forgets nothing."""
    carries: bool
    """Some target names `join.output` or `join.outputs`: its tokens carry the output along."""


class BodySpec(TypedDict, total=False):
    """A list of steps that runs as a scope: the flow, a group, a finally."""

    owner: int
    """The group step, also of its `finally`; -1 for a flow and its own."""
    kind: Literal["flow", "group", "finally"]
    flow: int
    """Which flow it belongs to: a number of `CompiledFlow.flows`, from 1; absent: the main one."""
    start: list[int]
    """Steps that get a token when the scope starts: the first one, or all of a `parallel`."""
    steps: list[int]
    output: Value
    """A group's own result when its step has no `output`: of its last step, or the map of a
    `parallel`. Sees the steps inside."""
    final: int
    """Number of a step with `body` -1: a group whose child is the body of `finally`."""
    opens: int
    """Of a flow: number of a step with `body` -1 that runs before its first ones. It gets the
    environments that are to be open from the start."""


class FlowSpec(TypedDict, total=False):
    """A flow that others run as a step; its steps, bodies and expressions are among the others.

    The keys that it shares with `CompiledFlow` mean the same, each for this flow alone.
    """

    id: str
    version: str
    body: int
    """Its own body."""
    triggered: list[int]
    steps: list[int]
    """The first of its steps, and the first behind them; so for bodies and expressions."""
    bodies: list[int]
    expressions: list[int]
    inputs: dict[str, Plain]
    defaults: list[list[Any]]
    outputs: dict[str, Plain]
    outcome: Value
    """How it has ended, as text: the outcome of the step that runs it; absent: `ok`."""
    state: dict[str, Plain]
    signals: dict[str, Plain]
    on_error: list[HandlerSpec]
    limits: dict[str, Plain]
    counts_alone: bool
    """Activations in it count for its own `limits.steps` and not for those of flows around it."""
    budget: BudgetSpec
    result: str
    """The output that is that of the step which runs it; the others are fields of `steps.x`."""


class CompiledFlow(TypedDict, total=False):
    """A whole flow in plain form."""

    format: int
    evaluator: str
    """Version of the expression evaluator that it was compiled for."""
    id: str
    version: str
    title: str
    bodies: list[BodySpec]
    """Number 0 is the flow's own."""
    flows: list[FlowSpec]
    """The subflows that it runs, directly or through others; number 1 is the first. Absent: none.
    Each is there once, however often and deep it is run."""
    steps: list[StepSpec]
    expressions: list[Plain]
    inputs: dict[str, Plain]
    """Name → JSON Schema."""
    defaults: list[list[Any]]
    """`[name, value]` of the inputs whose default is computed, in the order of evaluation; they
    see `execution` and `inputs`. The `default` in the schema is then the text of the file."""
    outputs: dict[str, Plain]
    """Name → `{"value": value, "schema": JSON Schema?}`."""
    outcome: Value
    """As in `FlowSpec`: an execution itself has none."""
    state: dict[str, Plain]
    """Name → `{"schema", "default", "reducer"}`; reducer is a word or `{"python": path}`."""
    signals: dict[str, Plain]
    """Name → `{"key": value?, "data": JSON Schema?}`."""
    secrets: dict[str, Plain]
    """Name → reference; never a value."""
    environments: list[str]
    """The scopes of the environments that its steps get; absent: none gets any."""
    on_error: list[HandlerSpec]
    """Handlers of the whole flow."""
    triggered: list[int]
    """Steps with a trigger; absent: none."""
    start: list[dict[str, Plain]]
    """`{"signal", "with": {input: value}}` of each signal that begins executions; absent: none."""
    concurrency: dict[str, Plain]
    """`{"key": value?, "max": number, "then": "queue" | "reject" | "cancel"}`; absent: no bound."""
    counts_alone: bool
    """As in `FlowSpec`; nothing is around an execution."""
    limits: dict[str, Plain]
    """`activations`, `steps`, `depth` (numbers), `duration`, `finally`, `idle` (durations)."""
    result: str
    """As in `FlowSpec`, before it is linked."""
    budget: BudgetSpec
    """Absent: no bound."""
