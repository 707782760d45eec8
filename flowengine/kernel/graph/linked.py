"""The linked form of a compiled flow: nodes and bodies, created from the plain form on demand.

Linking a step reads only that step, so an execution of a flow with 10,000 steps pays only for the
steps it reaches. Properties of a whole body (can a step be activated twice, which joins can a token
still reach) are computed once per body when it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from flowengine.kernel.graph.compiled import (
    END,
    TRIGGER,
    Condition,
    Evaluator,
    Plain,
    Value,
    check_format,
    holds_secret,
    maker,
)
from flowengine.kernel.graph.specs import (
    BackgroundSpec,
    BodySpec,
    BudgetSpec,
    CancelSpec,
    CompiledFlow,
    EmitSpec,
    ExchangeSpec,
    HandlerSpec,
    JoinSpec,
    LockSpec,
    LoopSpec,
    MapSpec,
    RetrySpec,
    RuleSpec,
    SharedBudgetSpec,
    SplitSpec,
    StepSpec,
    TriggerSpec,
    WaitSpec,
)

_Part = TypeVar("_Part")

NONE = -1
"""The number of a missing step or body."""


ENTERING = frozenset({"sources", "join", "trigger", "when", "map", "loop", "deadline"})
"""Keys of a step that are read before its first attempt."""
ATTEMPTING = frozenset({"input", "args", "key", "tool", "counts", "caller_limit", "lock", "timeout",
                        "background", "asks", "approval", "rules", "environments",
                        "reads", "exchange"})  # fmt: skip
"""Keys that are read when an attempt of a task begins."""
ENDING = frozenset({"split", "emit", "retry", "output", "set", "on_error", "compensate", "raises",
                    "effect", "on_crash", "opaque", "named", "forgets", "carries",
                    "adapter"})  # fmt: skip
"""Keys that are read only after an attempt has ended."""
TELLING = frozenset({"id", "title", "teller", "ahead", "says", "body", "at",
                     "action", "kind", "task", "caller", "meters", "preview", "limits",
                     "within", "declared", "chat", "needs"})  # fmt: skip
"""Keys that describe a step, or that matter to other keys, to budgets or to users."""
BARE = TELLING | ENTERING | ENDING | {"input", "tool", "rules"}
"""Keys of a task whose attempts need only their input. A key in none of these sets disables this
shortcut."""
DIRECT = TELLING | ATTEMPTING | ENDING | {"sources", "join"}
"""Keys of a step that begins with its first attempt directly when a single token arrives."""


DEFAULT_LIMITS = {"activations": 1000, "steps": 10_000, "depth": 8, "stored": 1024**3}
"""Default limits of an execution (docs/language.md: Budgets)."""


class Node:
    """A step, with every key of its plain form as an attribute.

    Missing keys are class attributes, so the cost of linking depends only on the keys that are
    present.
    """

    id: str
    teller: str | None = None
    body = -1
    action = "none"
    kind: str
    task: dict[str, Plain] = {}  # noqa: RUF012 - nothing changes it
    needs: list[str] = []  # noqa: RUF012 - nothing changes it
    args: Value | None = None
    tool = ""
    counts = ""
    caller = ""
    caller_limit: list[Any] | None = None
    limits: dict[str, int] = {}  # noqa: RUF012 - nothing changes it
    environments = False
    meters: dict[str, Any] | None = None
    reads: list[str] = []  # noqa: RUF012 - nothing changes it
    asks = False
    chat = False
    background: BackgroundSpec | None = None
    approval: Value | None = None
    adapter: dict[str, Plain] | None = None
    rules: list[list[RuleSpec]] = []  # noqa: RUF012 - nothing changes it
    input: Value | None = None
    key: Value | None = None
    wait: WaitSpec | None = None
    cancel: CancelSpec | None = None
    child = -1
    exchange: ExchangeSpec | None = None
    sources: list[int] = []  # noqa: RUF012 - nothing changes it
    join: JoinSpec | None = None
    trigger: TriggerSpec | None = None
    split: SplitSpec | None = None
    when: Condition | None = None
    emit: list[EmitSpec] = []  # noqa: RUF012 - nothing changes it
    map: MapSpec | None = None
    each = False
    loop: LoopSpec | None = None
    lock: LockSpec | None = None
    retry: RetrySpec | None = None
    timeout: Value | None = None
    deadline: Value | None = None
    output: Value | None = None
    set: list[list[Any]] = []  # noqa: RUF012 - nothing changes it
    on_error: list[HandlerSpec] = []  # noqa: RUF012 - nothing changes it
    compensate = -1
    raises: dict[str, str] | None = None
    effect = "once"
    on_crash = "ask"
    opaque = False
    named: list[str] | None = None
    forgets: list[int] = []  # noqa: RUF012 - nothing changes it
    carries = False

    def __init__(self, index: int, spec: StepSpec, evaluator: Evaluator) -> None:
        self.__dict__.update(spec)
        self.index = index
        if "kind" not in spec:
            self.kind = self.action
        self.secret = self.input is not None and holds_secret(self.input)
        if self.map is not None:
            self.each = self.map.get("each", False)
        self.plain = not (self.when is not None or self.map or self.loop or self.deadline)
        self.fixed = (
            self.args is None
            and self.key is None
            and (self.input is None or self.input[0] == "const")
        )
        """The input of an attempt contains no expressions."""
        self.make_input = None if self.input is None else maker(evaluator, self.input)
        """Creates the input of an attempt, if its value can be prepared."""
        self.bare = (
            self.action == "task"
            and spec.keys() <= BARE
            and not self.secret
            and (self.input is None or self.make_input is not None)
        )
        """A task whose attempt needs only its input."""
        self.direct = (
            self.action in ("task", "none")
            and spec.keys() <= DIRECT
            and self.exchange is None
            and (self.join is None or self.join["kind"] == "each")
        )
        """It begins with its first attempt as soon as one token arrives."""
        split = self.split
        only = split["to"] if split is not None and split["kind"] == "one" else None
        self.targets = [END] if split is None else None if only is None else [only]
        """The targets of its token, regardless of the outcome. None: they depend on it."""


class GraphFlow:
    """The declarations of one of the flows in a compiled flow. Number 0 is the main flow.

    Attributes:
        limits: The declared limits, and defaults for the others.
        declared_limits: The declared limits.
    """

    def __init__(self, spec: Any, steps: tuple[int, int]) -> None:
        self.id: str = spec.get("id", "")
        self.steps = steps
        self.inputs: dict[str, Any] = spec.get("inputs", {})
        self.defaults: list[list[Any]] = spec.get("defaults", [])
        self.outputs: dict[str, Any] = spec.get("outputs", {})
        self.outcome: Value | None = spec.get("outcome")
        self.state: dict[str, Any] = spec.get("state", {})
        self.signals: dict[str, Any] = spec.get("signals", {})
        self.on_error: list[HandlerSpec] = spec.get("on_error", [])
        self.declared_limits: dict[str, Any] = spec.get("limits", {})
        self.limits: dict[str, Any] = {**DEFAULT_LIMITS, **self.declared_limits}
        self.counts_alone: bool = spec.get("counts_alone", False)
        self.budget: BudgetSpec | None = spec.get("budget")
        self.shared_budgets: list[SharedBudgetSpec] = spec.get("shared_budgets", [])
        self.budgeted: str = (self.budget or {}).get("called", self.id)
        """Whose budget it is, in messages."""
        self.result: str | None = spec.get("result")
        self.indexes: dict[str, int] = {}
        self._added: dict[str, dict[str, Any]] = {}

    def added(self, key: str) -> dict[str, Any]:
        """Return the schema of values appended to a state key."""
        if key not in self._added:
            schema = self.state[key].get("schema") or {}
            self._added[key] = {"type": "array", "items": schema.get("items", True)}
        return self._added[key]

    def received(self, key: str, data: Plain) -> tuple[dict[str, Any], Plain]:
        """Return the schema that a message to a state key must fit, and the value to validate."""
        if self.state[key].get("reducer") == "append":
            return self.added(key), data if isinstance(data, list) else [data]
        return self.state[key].get("schema") or {}, data


class Body:
    """A list of steps that runs as a scope.

    Attributes:
        flow: Number of the flow that it belongs to.
        repeats: Some step can be activated more than once in one scope.
        watched: Joins that count the tokens that can still reach them, in file order.
        ahead: Step → the watched joins that a path of one or more edges leads to, as bits. Cleanup
            steps are not included.
        bits: Watched join → its bit.
    """

    def __init__(self, index: int, spec: BodySpec, steps: list[StepSpec]) -> None:
        self.index = index
        self.flow: int = spec.get("flow", 0)
        self.kind = spec.get("kind", "group")
        self.owner = spec.get("owner", -1)
        self.start = spec["start"]
        self.steps = spec["steps"]
        self.output = spec.get("output")
        self.final = spec.get("final", -1)
        self.opens = spec.get("opens", -1)
        self.repeats = not self.start or may_repeat(self.steps, steps)
        self.watched = [
            i for i in self.steps if steps[i].get("join", {}).get("kind") in ("active", "count")
        ]
        self.bits = {join: 1 << n for n, join in enumerate(self.watched)}
        self.ahead = joins_ahead(self.bits, self.steps, steps) if self.bits else {}

    def reaches(self, step: int, join: int) -> bool:
        """Return whether a path of one or more edges leads from a step to a watched join."""
        return bool(self.ahead.get(step, 0) & self.bits[join])


def may_repeat(body: list[int], steps: list[StepSpec]) -> bool:
    """Return whether a step can be activated twice in one scope.

    The reason can be a cycle, a join that fires repeatedly, a map with `each`, or a trigger.
    """
    for index in body:
        step = steps[index]
        join = step.get("join")
        if join is not None and join["kind"] != "all":
            return True
        if step.get("map", {}).get("each") or "trigger" in step:
            return True
        if any(source >= index for source in step.get("sources", ())):
            return True
    return False


def joins_ahead(bits: dict[int, int], body: list[int], steps: list[StepSpec]) -> dict[int, int]:
    """Return for each step of a body the watched joins that it can reach, as bits."""
    place = {step: number for number, step in enumerate(body)}
    following: list[list[int]] = [[] for _ in body]
    for step in body:
        for source in steps[step].get("sources", ()):
            if source >= 0:
                following[place[source]].append(place[step])

    return dict(zip(body, reach(following, [bits.get(step, 0) for step in body]), strict=True))


class _Linked(dict[int, _Part]):
    """Parts of a flow by number, each linked on first use.

    Args:
        link: Links one part.
    """

    __slots__ = ("_link",)

    def __init__(self, link: Callable[[int], _Part]) -> None:
        self._link = link

    def __missing__(self, index: int) -> _Part:
        self[index] = part = self._link(index)
        return part


def takes_nothing(_schema: Plain, _value: Plain) -> None:
    """Accept every value."""


class Graph:
    """A compiled flow, ready to run.

    Args:
        flow: The compiled flow. It is not changed.
        evaluator: Evaluates its expressions.
        validate: Returns the reason why a value does not fit a JSON Schema, or None if it fits.
            Used for state, outputs, inputs of subflows, signals and arguments. By default values
            are not validated.
        function: Returns a reducer written in Python, from `{"python", "folder"}`. It raises only
            `ValueError`.

    Raises:
        OtherFormat: This kernel does not support the format of the flow.
    """

    def __init__(
        self,
        flow: CompiledFlow,
        evaluator: Evaluator,
        validate: Callable[[Plain, Plain], str | None] = takes_nothing,
        function: Callable[[dict[str, str]], Callable[[Plain, Plain], Plain]] | None = None,
    ) -> None:
        check_format(flow["format"])
        self.flow = flow
        self.evaluate = evaluator.evaluate
        self.text = evaluator.text
        self.composed = evaluator.composed
        self.validate = validate
        self.function = function
        self.regions = "region" in flow.get("environments", ())
        """Whether environments may belong to map items, groups and subflows."""
        self.triggers: dict[str, list[tuple[int, TriggerSpec]]] = {}
        """Signal → the steps that its messages trigger, in file order."""
        self.state_triggers: list[tuple[int, str]] = []
        """Steps that a write to a state key triggers, with the key."""
        self._specs = flow["steps"]
        subflows = flow.get("flows", [])
        first = subflows[0]["steps"][0] if subflows else len(self._specs)
        self.flows = [GraphFlow(flow, (0, first))]
        self.flows += [GraphFlow(spec, (spec["steps"][0], spec["steps"][1])) for spec in subflows]
        self.received: dict[str, dict[int, str]] = {}
        """Signal → number of a flow → its state key to which messages are written."""
        for number, spec in enumerate(self.flows):
            for key, declared in spec.state.items():
                if "signal" in declared:
                    self.received.setdefault(declared["signal"], {})[number] = key
        self.limits = self.flows[0].limits
        self.timed = any("wall_time" in (flow.budget or ()) for flow in self.flows)
        """Whether the budget of some flow limits its running time."""
        self.shares_budgets = any(flow.shared_budgets for flow in self.flows)
        """Whether executions share a budget of some flow."""
        self.nodes = _Linked(lambda index: Node(index, self._specs[index], evaluator))
        """The steps. Code that reads many of them uses this table directly to save a call."""
        self.bodies = _Linked(lambda index: Body(index, flow["bodies"][index], self._specs))
        self.followers = _Linked(self._follower)
        """Step → the only target of its token, if that begins directly, else None."""
        self._stored: set[str] | None = None
        self._after_triggers: set[int] | None = None
        for index in flow.get("triggered", ()):
            self._add_trigger(index, self._specs[index]["trigger"])

    def _follower(self, index: int) -> Node | None:
        node = self.nodes[index]
        if node.targets is None or len(node.targets) != 1 or node.targets[0] < 0:
            return None
        following = self.nodes[node.targets[0]]
        if node.action in ("group", "flow") or self.bodies[following.body].watched:
            return None
        return following if following.direct else None

    def _add_trigger(self, index: int, spec: TriggerSpec) -> None:
        for signal in spec.get("signals", ()):
            self.triggers.setdefault(signal, []).append((index, spec))
        if "state" in spec:
            self.state_triggers.append((index, spec["state"]))

    def node(self, index: int) -> Node:
        """Return a step, linked on first use."""
        return self.nodes[index]

    def body(self, index: int) -> Body:
        """Return a body, linked on first use."""
        return self.bodies[index]

    def step_index(self, name: str, flow: int = 0) -> int:
        """Return the number of the step named `name` in a flow, or -1."""
        indexes = self.flows[flow].indexes
        if not indexes:
            for index in range(*self.flows[flow].steps):
                if self._specs[index].get("body", -1) >= 0:
                    indexes[self._specs[index]["id"]] = index
        return indexes.get(name, NONE)

    def stores(self, signal: str) -> bool:
        """Return whether a wait, map or trigger takes messages of `signal` sent before it began."""
        if self._stored is None:
            self._stored = {
                alternative["signal"]
                for spec in self._specs
                for alternative in spec.get("wait", {}).get("alternatives", ())
                if "signal" in alternative and not alternative.get("transient")
            }
            self._stored.update(
                spec["map"]["more"] for spec in self._specs if "more" in spec.get("map", {})
            )
            self._stored.update(
                signal
                for signal, triggers in self.triggers.items()
                if not all(spec.get("transient") for _, spec in triggers)
            )
        return signal in self._stored

    def after_triggers(self) -> set[int]:
        """Return the steps that a token created by a trigger can reach."""
        if self._after_triggers is None:
            ahead: dict[int, list[int]] = {}
            for index in self.body(0).steps:
                for source in self._specs[index].get("sources", ()):
                    ahead.setdefault(source, []).append(index)
            nodes: set[int] = set()
            todo = list(ahead.get(TRIGGER, ()))
            while todo:
                step = todo.pop()
                if step not in nodes:
                    nodes.add(step)
                    todo.extend(ahead.get(step, ()))
            self._after_triggers = nodes
        return self._after_triggers


# Reachability in a directed graph, as sets of bits.


def components(graph: list[list[int]]) -> list[list[int]]:
    """Return the strongly connected components in reverse topological order.

    Args:
        graph: Successors by node.

    Returns:
        Components. Every edge between two components leads from a later one to an earlier one.
    """
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    result: list[list[int]] = []
    for root in range(len(graph)):
        if root in index:
            continue
        work = [(root, iter(graph[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            ahead = next(rest, None)
            if ahead is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    result.append(_pop_component(stack, on_stack, node))
            elif ahead not in index:
                index[ahead] = low[ahead] = len(index)
                stack.append(ahead)
                on_stack.add(ahead)
                work.append((ahead, iter(graph[ahead])))
            elif ahead in on_stack:
                low[node] = min(low[node], index[ahead])
    return result


def _pop_component(stack: list[int], on_stack: set[int], root: int) -> list[int]:
    """Remove a finished component from the stack."""
    component = []
    while True:
        node = stack.pop()
        on_stack.discard(node)
        component.append(node)
        if node == root:
            return component


def reach(graph: list[list[int]], marks: Sequence[int] = ()) -> list[int]:
    """Return, for each node, the set of nodes that one or more edges lead to, as bits.

    Args:
        graph: Successors by node.
        marks: The bit of each node, or 0 for nodes to ignore. Default: bit number n for node n.

    Returns:
        Bit sets by node.
    """
    own = marks or [1 << node for node in range(len(graph))]
    bits = [0] * len(graph)
    for component in components(graph):
        union = 0
        for node in component:
            for ahead in graph[node]:
                union |= bits[ahead] | own[ahead]
        if len(component) > 1:
            for node in component:
                union |= own[node]
        for node in component:
            bits[node] = union
    return bits
