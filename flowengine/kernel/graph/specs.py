"""The plain form of a compiled flow: `CompiledFlow`, and the types of its parts.

Absent keys mean "none". Steps and bodies are referred to by their position in `CompiledFlow.steps`
and `.bodies`, expressions by their position in `CompiledFlow.expressions`. All of it is data, so
modules that only read it import these types for type checking alone.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, Required, TypedDict

from flowengine.kernel.graph.compiled import Condition, Plain, Value


class JoinSpec(TypedDict, total=False):
    """How incoming tokens meet. Absent on a step that at most one token can reach."""

    kind: Literal["each", "all", "active", "count"]
    need: Value
    late: Literal["ignore", "cancel", "queue"]


class BudgetSpec(TypedDict, total=False):
    """The limits of a flow. `then` is always present."""

    tool_calls: int
    wall_time: str
    """A duration."""
    tokens: int
    cost_usd: float
    fallback_at: int
    """Percentage of `tokens` or `cost_usd` from which on steps should save resources."""
    then: Literal["stop", "ask"]
    assignees: list[str]
    """The approvers. Absent: anyone."""
    called: str
    """Whose budget it is, in messages. Absent: that of the flow, by its id."""


class SharedBudgetSpec(TypedDict, total=False):
    """A budget that executions with the same key share."""

    key: Required[Value]
    period: Literal["day", "month"]
    """Absent: all time."""
    tool_calls: int
    tokens: int
    cost_usd: float


class BackgroundSpec(TypedDict):
    """The bounds on the executions that a flow starts in the background."""

    at_once: int
    total: int


class SplitEntry(TypedDict, total=False):
    """One target of a split, with `when`, with `otherwise`, or unconditional."""

    to: int
    when: Condition
    otherwise: bool


class SplitSpec(TypedDict, total=False):
    """The targets of a token.

    `one`: `to`. `all`, `first`: by `entries`. `outcome`: by `outcomes`, else `otherwise`.
    """

    kind: Literal["one", "all", "first", "outcome"]
    to: int
    entries: list[SplitEntry]
    outcomes: dict[str, int]
    otherwise: int


class MapSpec(TypedDict, total=False):
    """Run once per item. `names` are the names of item, index and key in expressions."""

    over: Value
    names: list[str]
    key: Value
    concurrency: Value
    on_item_error: Required[Literal["stop", "wait", "continue"]]
    max_failures: Value
    need: Value
    late: Literal["ignore", "cancel"]
    each: bool
    """`join: none`: every item continues along `next` as a separate token."""
    more: str
    """A signal. Each message adds its data as an item while the map runs."""
    watches: list[str]
    """State keys that `need` names. Absent: none."""


class LoopSpec(TypedDict, total=False):
    """Repeat while or until a condition holds. `every` waits between rounds."""

    until: Condition
    before: Condition
    """`while`: tested before each round."""
    max: Value
    every: Value
    backoff: float
    max_delay: str
    keep: bool
    """The output is a list of the outputs of all rounds."""


class LockSpec(TypedDict, total=False):
    """Exclude other holders of the same key in the same scope."""

    key: Value
    scope: Literal["run", "execution", "flow", "global"]
    """`run`: the flow that the step is in. Absent: `execution`."""
    permits: Required[int]
    shared: Value
    """If true, together with other holders that share it. Absent: false."""
    hold: bool
    ordered: bool
    """Its place in the queue is determined by its first attempt rather than by the permission to
    begin it: it holds or awaits the lock during the questions about the attempt. Used only by
    generated flows."""


class RetrySpec(TypedDict):
    """Total number of attempts, and delays as durations."""

    attempts: int
    delay: str
    backoff: float
    max_delay: NotRequired[str]
    """Absent: one minute, or `delay` if that is longer. Also under `every`."""
    jitter: Literal["full", "none"] | float
    only: NotRequired[list[str]]
    when: NotRequired[Condition]


class EmitSpec(TypedDict, total=False):
    """A signal sent after success."""

    signal: str
    key: Value
    data: Value
    to: Value


class HandlerSpec(TypedDict, total=False):
    """One entry of `on_error`, or the expanded form of `continue` and `compensate`.

    If `types` is absent, it handles every error except `Cancelled`. `do` is the action: `next`
    continues at `to`, `output` uses `output` as the result, `fail` raises `fail` (a value `{type,
    message, data, retryable}`), `continue` continues as failed, `raise` raises the error again.
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
    """An alternative of a wait: exactly one of `after`, `until`, `signal`, `when`."""

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
    """State keys that `when` names. Absent: it could name any."""


class WaitSpec(TypedDict, total=False):
    """`first` or `all` of the alternatives. A simple wait is `first` of one, with the id `ok`."""

    mode: Literal["first", "all"]
    alternatives: list[AlternativeSpec]


class TriggerSpec(TypedDict, total=False):
    """Starts a token at a step: a message of one of `signals`, or a write to `state`."""

    signals: list[str]
    all: bool
    """It takes a message of each of `signals`."""
    match: Condition
    """For a single message."""
    transient: bool
    """Takes messages only when they arrive, so none is kept for it."""
    state: str


class CancelSpec(TypedDict, total=False):
    """Withdraws instances of `targets` (step numbers), or the whole execution."""

    targets: list[int]
    execution: bool
    outcome: Required[Literal["cancelled", "succeeded", "failed"]]
    reason: Value


class ToolsSpec(TypedDict):
    """The tools of a server that a rule applies to, for steps that may call any of them."""

    glob: str
    before: list[str]
    """Prefixes of the tool's name, in the names that the glob can match."""


class CallsSpec(TypedDict, total=False):
    """The calls that a rule applies to, if they are not known when its flow is compiled."""

    glob: Required[str]
    agent: str
    effect: str
    environment: str


class RuleSpec(TypedDict, total=False):
    """A rule about a call."""

    do: Literal["allow", "ask", "deny"]
    rule: str
    """Its name for users."""
    when: Condition
    """Can read `args`, and the inputs of the main flow."""
    tools: ToolsSpec
    calls: CallsSpec
    """Of a rule in `within`."""


class ExchangeSpec(TypedDict):
    """How a task makes calls.

    Its result is a map. With `calls`, a list of `CallData`, another round follows. Without, the
    task ends with the `outcome` that it names (`ok`), or with the `error` of an earlier round. Its
    output is null: results are those of its rounds. If
    it `waits`, another round follows after the `wait` of its step.
    """

    callees: dict[str, int]
    """Name → the step that carries out a call, in the body `child`."""
    keeps: list[list[str]]
    """`[key, part]`: parts of its result, and the state keys that they are written to."""
    answers: str
    """The state key to which the answers to calls with an `entry` are added."""
    about: list[str]
    """Names of the parts of `about` of a call."""
    heeds: list[str]
    """State keys that it reads. If one was written during an attempt that ends the task, another
    round follows instead."""
    catches: list[str]
    """Types of errors that the next round receives, or `*` for all."""


class CallData(TypedDict, total=False):
    """A call in the result of a task."""

    callee: Required[str]
    """Name of the callee."""
    args: dict[str, Plain]
    """Arguments, visible in the callee's step as `call.args`."""
    beside: bool
    """It may run together with calls next to it that may, too."""
    ends: bool
    """An error of it withdraws the other calls that are running."""
    entry: dict[str, Plain]
    """Kept in the state, together with the answer: `output` or `error`, and `approval`."""
    into: str
    """The state key that it is kept in. Absent: `answers` of the step."""
    about: list[str | int | None]
    """The context of the call for its approvers, under the names that the step has for its parts:
    texts, and places of messages in its state key `answers`."""
    asks: bool
    """Approvers are asked about the call, unless a rule allows it."""


class StepSpec(TypedDict, total=False):
    """One step. `action` is its meaning for the kernel, and `kind` is the keyword in the file."""

    id: str
    title: str
    teller: str
    """The step kind that describes the step's output in one line. This key and `says` are
    for display, and not part of the structural hash."""
    ahead: bool
    """Its step kind may load its dependencies when an execution begins. Not part of the structural
    hash."""
    chat: bool
    """It shows an answer to its users and uses their reply as their next message."""
    says: str
    """Its label in diagrams, in place of its settings. Empty: they do not contain it."""
    body: int
    at: list[int]
    """Line and column in the file. Not part of the structural hash."""
    action: Literal["none", "task", "group", "flow", "wait", "approval", "fail", "cancel"]
    kind: str
    """`python`, `http`, `run`, `shell`, `std`, ...: for a task the step kind that runs it. `ask`
    for an approval that is a question, whose answer is the output, `session` if it is
    the next message of a session."""
    needs: list[str]
    """Labels that the process which runs an attempt of a task must offer, sorted."""
    task: dict[str, Plain]
    """Constant part of a task, opaque to the kernel and passed to the runner."""
    tool: str
    """Name of the called tool. Not part of the structural hash."""
    declared: str
    """Its name in its declaration, if an agent uses another one."""
    caller: str
    """The agent that makes the call."""
    args: Value
    """Arguments (`with`) of a call, evaluated first and visible as `args` in `input`. For a `flow`,
    the values of its inputs."""
    input: Value
    """The input of a task, an approval or a fail, evaluated once per attempt."""
    environments: bool
    """`input` is a map with two keys: `input`, and `environments` with the required environments by
    name."""
    meters: dict[str, dict[str, Plain]]
    """The usage of budgets by a call: meter → `{"reserved": path, "used": [path]}`, with paths into
    its input and its result. Absent: one of `tool_calls`."""
    background: BackgroundSpec
    """The execution that it starts belongs to the flow, see `limits.background`."""
    reads: list[str]
    """State keys that a task may read. They are passed by reference and are not part of its
    input."""
    preview: dict[str, Plain]
    """`{"function", "folder"}`: describes the effect of a call, for the runner."""
    limits: dict[str, int]
    """Limits of a call: `output`, the bytes of its result, for the runner, and `calls`, the maximum
    number of calls per execution."""
    counts: str
    """Identifies the tool. Its calls are counted, see `call_counts`."""
    caller_limit: list[Any]
    """`[identity, calls]`: the calling agent, and its maximum number of calls per execution."""
    adapter: dict[str, Plain]
    """`{"kind", "task"}`: the step kind that converts the result of a task to its output."""
    asks: bool
    """Some of these environments may need an approval, see `permissions`."""
    approval: Value
    """The approval of a task's or flow's call, a map whose expressions can read `args`: `tool`,
    `version` of its declaration, `schema` of the caller's arguments, `bind`, `returns`, `when` it
    is required, `edit` with the editable arguments, and the `fields` of an approval. See
    `call_questions`."""
    rules: list[list[RuleSpec]]
    """The rules that could match the call, in the order of evaluation. In each list the first match
    applies, and of these the strictest. `approval` defines the question."""
    within: list[list[RuleSpec]]
    """For a step that may start agents: the rules of the surrounding files, for the calls of those
    agents. See `engines.executions.outer_attempts`."""
    key: Value
    """`idempotency_key` of the tool."""
    wait: WaitSpec
    cancel: CancelSpec
    exchange: ExchangeSpec
    """The calls of a task that makes some."""
    child: int
    """The body of a group or subflow, or with the callees of a task."""
    sources: list[int]
    """Steps with an edge to this one, each once, in file order, including `START` and `TRIGGER`."""
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
    opaque: bool
    """Its result has an internal form, so no operator can supply it in place of an interrupted
    attempt."""
    named: list[str]
    """Fields of `steps.<id>` that some expression names: `output`, `status`, `items`, ... Other
    fields are not stored in the state."""
    forgets: list[int]
    """Steps that no expression names any more for a token that has left this one. Absent: none,
    so all records are kept."""
    carries: bool
    """Some target names `join.output` or `join.outputs`, so its tokens carry the output."""


class BodySpec(TypedDict, total=False):
    """A list of steps that runs as a scope: the flow, a group, a finally."""

    owner: int
    """The group step, also of its `finally`. -1 for a flow and its `finally`."""
    kind: Literal["flow", "group", "finally"]
    flow: int
    """Number of its flow in `CompiledFlow.flows`, from 1. Absent: the main flow."""
    start: list[int]
    """Steps that receive a token when the scope starts: the first one, or all of a `parallel`. None
    of those that only calls activate."""
    steps: list[int]
    output: Value
    """The result of a group whose step has no `output`: that of its last step, or the map of a
    `parallel`. Its expressions can read the steps inside."""
    final: int
    """Number of a step with `body` -1: a group whose child is the body of `finally`."""
    opens: int
    """Of a flow: number of a step with `body` -1 that runs before its first steps, with the
    environments that must be open from the start."""


class FlowSpec(TypedDict, total=False):
    """A flow that others run as a step.

    Its steps, bodies and expressions are stored with the others.

    Keys that it shares with `CompiledFlow` have the same meaning, for this flow alone.
    """

    id: str
    version: str
    body: int
    """Its body."""
    notifies: list[int]
    """Numbers of the flows that send its notifications. Absent: none."""
    triggered: list[int]
    steps: list[int]
    """The range of its steps: the first one, and the one after the last. Also for bodies and
    expressions."""
    bodies: list[int]
    expressions: list[int]
    inputs: dict[str, Plain]
    defaults: list[list[Any]]
    outputs: dict[str, Plain]
    outcome: Value
    """The outcome of the step that runs it, as text. Absent: `ok`."""
    state: dict[str, Plain]
    signals: dict[str, Plain]
    on_error: list[HandlerSpec]
    limits: dict[str, Plain]
    counts_alone: bool
    """Its activations count for its own `limits.steps` rather than for those of the flows around
    it."""
    budget: BudgetSpec
    result: str
    """The output that becomes the output of the step that runs it. The others are fields of
    `steps.x`."""


class EndNoticeSpec(TypedDict):
    """A notification at the end of an execution."""

    flow: str
    """Id of the flow that sends it."""
    on: list[str]
    """The statuses for which it is sent."""


class CompiledFlow(TypedDict, total=False):
    """A whole flow in plain form."""

    format: int
    id: str
    version: str
    title: str
    """The text shown for the flow, with an ellipsis for each of its expressions."""
    titled: Value
    """The title of an execution, if it has expressions. They can read `execution` and `inputs`."""
    bodies: list[BodySpec]
    """Number 0 is the flow's own."""
    flows: list[FlowSpec]
    """The subflows that it runs, directly or through others, numbered from 1. Absent: none. Each
    exists once, regardless of the number and depth of its runs."""
    steps: list[StepSpec]
    expressions: list[Plain]
    inputs: dict[str, Plain]
    """Name → JSON Schema."""
    defaults: list[list[Any]]
    """`[name, value]` of the inputs with a computed default, in the order of evaluation. Their
    expressions can read `execution` and `inputs`. The `default` in the schema is the text of the
    file."""
    outputs: dict[str, Plain]
    """Name → `{"value": value, "schema": JSON Schema?}`."""
    outcome: Value
    """As in `FlowSpec`. An execution itself has no outcome."""
    state: dict[str, Plain]
    """Name → `{"schema", "default", "reducer"}`. The reducer is a name or `{"python": path}`."""
    signals: dict[str, Plain]
    """Name → `{"key": value?, "data": JSON Schema?}`."""
    secrets: dict[str, Plain]
    """Name → reference, never a value."""
    environments: list[str]
    """The scopes of the environments that its steps use. Absent: none."""
    on_error: list[HandlerSpec]
    """Handlers of the whole flow."""
    notifies: list[int]
    """Numbers of the flows that send its notifications. Absent: none."""
    triggered: list[int]
    """Steps with a trigger. Absent: none."""
    start: list[dict[str, Plain]]
    """`{"signal", "with": {input: value}}` of each signal that starts executions, and `{"schedule",
    "timezone", "missed": "once" | "skip", "jitter": ms, "with"}` of each schedule. Absent: none."""
    end_notices: list[EndNoticeSpec]
    """Absent: none."""
    concurrency: dict[str, Plain]
    """`key` (optional), `max`, and `then`: queue, reject, skip or cancel. Absent: no limit."""
    counts_alone: bool
    """As in `FlowSpec`. It has no effect for the main flow."""
    limits: dict[str, Plain]
    """`activations`, `steps`, `depth` (numbers), `duration`, `finally`, `idle` (durations)."""
    result: str
    """As in `FlowSpec`, before it is linked."""
    budget: BudgetSpec
    """Absent: no limit."""
    shared_budgets: list[SharedBudgetSpec]
    """Absent: none."""
