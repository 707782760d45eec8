"""Steps as handles for declarations, for the next steps, and for expressions.

A `Chain` is a piece of the graph with one entry and several ends. A `Step` is the shortest one. The
result of every method can therefore be a target, and can be continued.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any, Literal, Protocol, Self, TypeAlias, TypedDict, Unpack

from flowengine.errors import UsageError
from flowengine.flow.building.expressions import Expr
from flowengine.flow.building.origins import DeclarationSite, here


class StepHandle:
    """A step, or a piece of the graph that begins with one."""


class FlowHandle:
    """A flow built in Python."""


class StepGraph(Protocol):
    """The interface of the flow that steps belong to."""

    def target(self, target: Target) -> Chain | str:
        """Return the step or id of a target, declaring a step for a function that has none yet."""

    def step(
        self, what: str | Callable[..., Any], /, *, id: str | None = None, **words: Unpack[Words]
    ) -> Step:
        """Declare a step."""

    def group(self, id: str, /, **words: Unpack[Modifiers]) -> Scope:
        """Declare a group."""

    def enter(self, steps: list[Step]) -> None:
        """Add the steps that are declared from here on to a scope."""

    def leave(self) -> None:
        """End the scope that `enter` began."""

    def block(self, steps: list[Step]) -> AbstractContextManager[None]:
        """Add the steps declared in a `with` block to a scope."""

    def changed(self) -> None:
        """Discard cached results after a change to the flow."""


class Chain(StepHandle):
    """A piece of the graph.

    Args:
        flow: The flow that it belongs to.
        entry: The first step. None if there is none yet.
        ends: The steps after which the next piece is put.
    """

    def __init__(self, flow: StepGraph, entry: Step | None, ends: list[Step]) -> None:
        self._flow = flow
        self._entry = entry
        self._ends = ends

    @property
    def entry(self) -> Step:
        """The first step."""
        if self._entry is None:
            raise UsageError("the chain has no step to start with")
        return self._entry

    @property
    def last(self) -> Step:
        """The single last step, for `last.output`."""
        if len(self._ends) != 1:
            raise UsageError(f"the chain ends in {len(self._ends)} steps, not in one")
        return self._ends[0]

    # Ways

    def to(self, *targets: Target) -> Chain:
        """Continue with a step, or with several at the same time.

        Args:
            *targets: Steps, functions that become steps, or ids - also of steps that are declared
                later, `end` and `end_all`.

        Returns:
            The piece up to there, to continue from.
        """
        return self._lead("to", targets, list)

    def first(self, *cases: tuple[Condition, Target], otherwise: Target | None = None) -> Chain:
        """Continue with the first case whose condition holds.

        Args:
            *cases: Conditions with their targets, in this order.
            otherwise: The target if no condition holds. Without it, this is the error `NoBranch`.

        Returns:
            The piece with all cases, to continue from their ends.
        """
        return self._split("first", "first", cases, otherwise)

    def match(
        self, value: Expr, cases: Mapping[Any, Target], otherwise: Target | None = None
    ) -> Chain:
        """Continue by a value, with the first case that equals it.

        Args:
            value: An expression, such as `sort.output.kind`.
            cases: Value → target.
            otherwise: The target if no case equals it.

        Returns:
            The piece with all cases, to continue from their ends.
        """
        pairs = [(value == case, target) for case, target in cases.items()]
        return self.first(*pairs, otherwise=otherwise)

    def fork(
        self, *ways: Target | tuple[Condition, Target], otherwise: Target | None = None
    ) -> Chain:
        """Continue along every way whose condition holds, at the same time.

        Args:
            *ways: Targets, or conditions with their targets.
            otherwise: The target if no condition holds.

        Returns:
            The piece with all ways. The next step needs a `join`.
        """
        pairs = [way if isinstance(way, tuple) else (None, way) for way in ways]
        return self._split("fork", "all", pairs, otherwise)

    def _split(
        self, word: str, key: str, ways: Sequence[tuple[Any, Target]], otherwise: Target | None
    ) -> Chain:
        conditions = [condition for condition, _ in ways]
        targets = [target for _, target in ways] + ([] if otherwise is None else [otherwise])
        return self._lead(word, targets, lambda names: {key: _entries(conditions, names)})

    def on(self, outcomes: Mapping[str, Target] | None = None, /, **more: Target) -> Chain:
        """Continue by the outcome of the action, such as the choice of an approval.

        Args:
            outcomes: Outcome → target. `else` covers all other outcomes.
            **more: The same as keywords: `ask.on(approve=pay, reject="end")`.

        Returns:
            The piece with all ways, to continue from their ends.
        """
        ways: dict[str, Target] = {**(outcomes or {}), **more}
        return self._lead(
            "on",
            list(ways.values()),
            lambda names: {"outcome": dict(zip(ways, names, strict=True))},
        )

    def end(self) -> Chain:
        """End this branch. Other branches continue."""
        return self.to("end")

    def end_all(self) -> Chain:
        """End the whole scope here, and withdraw its other tokens."""
        return self.to("end_all")

    def for_each(
        self,
        body: Callable[..., Any] | str,
        over: Any = None,
        *,
        as_: str = "item",
        **more: Any,
    ) -> Any:
        """Continue with a step or group for each item of a list.

        The results are collected in the order of the items.

        Args:
            body: A function, which receives an item through the parameter named by `as_`, or the id
                of a group, whose steps are declared in a `with` block.
            over: The list. Default: the output of the previous step.
            as_: The name of an item.
            **more: Other keys of `map`: `concurrency=4`, `on_item_error="continue"`.

        Returns:
            The step or group.
        """
        spec = {"over": self.last.output if over is None else over, "as": as_, **more}
        if isinstance(body, str):
            inner: Step = self._flow.group(body, map=spec)
        else:
            inner = self._flow.step(body, map=spec)
        self.to(inner)
        return inner

    def emit(self, signal: str, data: Any = None, *, key: Text | None = None) -> Self:
        """Send a signal to this execution after success.

        Args:
            signal: Its name.
            data: The message.
            key: The key, in place of the declared one.

        Returns:
            The same piece.
        """
        message: dict[str, Any] = {"signal": signal}
        message |= {} if data is None else {"data": data}
        message |= {} if key is None else {"key": key}
        for step in self._ends:
            given = step.spec.get("emit", [])
            step.say("emit", [*(given if isinstance(given, list) else [given]), message], here())
        return self

    def _lead(
        self, word: str, targets: Any, spec: Callable[[list[str]], list[str] | dict[str, Any]]
    ) -> Chain:
        """Put the ways after all ends."""
        if not self._ends:
            raise UsageError(f"'{word}' has nothing to continue from: the chain has ended")
        chains = [self._flow.target(target) for target in targets]
        names = [chain if isinstance(chain, str) else chain.entry.id for chain in chains]
        place = here()
        for step in self._ends:
            step.lead(word, spec(names), place)
        ends = [end for chain in chains if isinstance(chain, Chain) for end in chain._ends]
        return Chain(self._flow, self._entry, list(dict.fromkeys(ends)))


class Step(Chain):
    """A step of a flow.

    Its attributes `output`, `status`, `outcome`, `error`, `items` … are expressions. Calling it
    calls its function directly, without the flow.

    Args:
        flow: The flow that it belongs to.
        id: Its name.
        spec: Its keys, as in a flow file, with Python values.
        place: Place of its declaration.
        function: The function that it calls, if a function was given.
    """

    def __init__(
        self,
        flow: StepGraph,
        id: str,
        spec: dict[str, Any],
        place: DeclarationSite,
        function: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(flow, self, [self])
        self.id = id
        self.spec = spec
        self.place = place
        self.places: dict[str, DeclarationSite] = {}
        """Places of keys that were added after the declaration of the step."""
        self.blocks: dict[str, list[Step]] = {}
        """Its inner steps: those of a `group` or `parallel`, and of its `finally`."""
        self.function = function
        if function is not None:
            self.__wrapped__ = function
            self.__doc__ = function.__doc__
            self.__name__ = getattr(function, "__name__", id)
            self.__flowengine_quick__ = getattr(function, "__flowengine_quick__", False)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the step's function directly, for tests and other code, without the flow."""
        if self.function is None:
            raise TypeError(f"step {self.id!r} has no Python function to call")
        return self.function(*arguments, **named)

    def __repr__(self) -> str:
        return f"<step {self.id}>"

    # Expressions

    @property
    def ref(self) -> Expr:
        """The step in expressions: `steps.<id>`."""
        return Expr(f"steps.{self.id}")

    @property
    def output(self) -> Expr:
        """Its result."""
        return self.ref.output

    @property
    def status(self) -> Expr:
        """Its status: `succeeded`, `failed`, `skipped`, `cancelled`."""
        return self.ref.status

    @property
    def outcome(self) -> Expr:
        """Its outcome: `ok`, or the choice or the alternative."""
        return self.ref.outcome

    @property
    def error(self) -> Expr:
        """Its error, or null."""
        return self.ref.error

    @property
    def items(self) -> Expr:
        """For a map: `{key, index, status, output, error}` of each item."""
        return self.ref.items

    # Declaring

    def say(self, key: str, value: Any, place: DeclarationSite) -> None:
        """Add a key to the step.

        Args:
            key: The key in a flow file.
            value: Its value.
            place: The place of the call.
        """
        self.spec[key] = value
        self.places[key] = place
        self._flow.changed()

    def lead(self, word: str, ways: list[str] | dict[str, Any], place: DeclarationSite) -> None:
        """Set the next steps. Several calls of `to` add up.

        Args:
            word: The method that sets them.
            ways: The targets of `to`, or the value of `next`.
            place: The place of the call.

        Raises:
            UsageError: The next steps were already set by another method.
        """
        given = self.spec.get("next")
        if given is None:
            self.say("next", ways, place)
        elif isinstance(given, list) and isinstance(ways, list):
            self.say("next", [*given, *ways], place)
        else:
            at = self.places.get("next", self.place).position(("next",))
            raise UsageError(
                f"'{word}' sets the next steps of {self.id!r}, but {at.file}:{at.line} "
                "already does",
                hint="name all targets in one call: to(a, b), first(...), fork(...) or on(...)",
            )


class Scope(Step):
    """A group or parallel steps. It contains the steps declared in its `with` block."""

    def __enter__(self) -> Self:
        self._flow.enter(self.blocks[next(iter(self.blocks))])
        return self

    def __exit__(self, *_: object) -> None:
        self._flow.leave()

    @contextmanager
    def finally_(self) -> Iterator[None]:
        """Declare, in a `with` block, the steps that clean up when the scope has ended."""
        with self._flow.block(self.blocks.setdefault("finally", [])):
            yield


class BranchOpening(Chain):
    """The beginning of a branch that a signal or a write to state starts."""

    def __init__(self, flow: StepGraph, trigger: str | Spec) -> None:
        super().__init__(flow, None, [])
        self._trigger = trigger

    def to(self, *targets: Target) -> Chain:
        """Start a token at a step.

        Args:
            *targets: One step, or a function that becomes one.

        Returns:
            The piece, to continue from.

        Raises:
            UsageError: There is not exactly one step.
        """
        chain = self._flow.target(targets[0]) if len(targets) == 1 else "several"
        if isinstance(chain, str):
            raise UsageError(
                "'when' starts one step that is declared before or by 'to'",
                hint="let it lead to others: flow.when(...).to(begin).to(a, b)",
            )
        chain.entry.say("trigger", self._also(chain.entry), here())
        return Chain(self._flow, chain.entry, chain._ends)

    def _also(self, step: Step) -> Any:
        """Return the present trigger of a step combined with this one.

        Raises:
            UsageError: One of them has more than names of signals.
        """
        given = step.spec.get("trigger")
        if given is None:
            return self._trigger
        names = [_signals(given), _signals(self._trigger)]
        if [] in names:
            at = step.places.get("trigger", step.place).position(("trigger",))
            raise UsageError(
                f"{step.id!r} has a trigger already, at {at.file}:{at.line}",
                hint="only signals without 'match' and 'transient' add up: "
                "flow.when(signal=[...], match=...)",
            )
        return {"signal": list(dict.fromkeys(names[0] + names[1]))}


def _signals(trigger: Any) -> list[str]:
    """Return the signals of a trigger that starts a token for each message, else []."""
    if isinstance(trigger, str):
        return [trigger]
    if trigger.keys() != {"signal"}:
        return []
    signal = trigger["signal"]
    return [signal] if isinstance(signal, str) else list(signal)


def _entries(conditions: list[Any], names: list[str]) -> list[Any]:
    """Return the entries of a split. A name without a condition is that of `else`."""
    pairs = zip(conditions, names, strict=False)
    entries = [
        name if condition is None else {"when": condition, "to": name} for condition, name in pairs
    ]
    return entries + [{"else": name} for name in names[len(conditions) :]]


def step(**words: Unpack[Modifiers]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Attach modifiers to a function, for every step made of it: `@step(retry=3)`.

    Args:
        **words: Modifiers. Those of the step itself take precedence.

    Returns:
        A decorator that returns the same function.
    """

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        function.__flowengine_step__ = dict(words)  # type: ignore[attr-defined]
        return function

    return mark


# The keyword arguments of a step, which are the keys of the language, for editors and mypy.

Text = str | Expr
"""Text that may contain `${{ … }}`, or an expression."""
Condition = str | Expr
Duration = str | timedelta | Expr
Function = str | Callable[..., Any]
"""A function, or its name as `module:function`."""
Spec = Mapping[str, Any]
"""The value of a key in a flow file, which may contain expressions, steps, functions and types."""
Target: TypeAlias = StepHandle | Callable[..., Any] | str


class Modifiers(TypedDict, total=False):
    """Modifiers of the action of a step. See the reference of the language."""

    title: Text
    join: int | str | Expr | Spec
    trigger: str | Spec
    when: Condition
    map: int | str | Expr | Sequence[Any] | Spec
    loop: Spec
    lock: Text | Spec
    retry: int | Spec
    timeout: Duration
    deadline: Duration
    effect: Literal["pure", "idempotent", "once"]
    on_crash: Literal["ask", "retry", "fail"]
    needs: Sequence[str]
    output: Any
    set: Spec
    emit: str | Spec | Sequence[str | Spec]
    on_error: Literal["fail", "continue", "compensate"] | Sequence[Spec]
    compensate: Spec
    next: StepHandle | Callable[..., Any] | str | Spec
    in_: str | Mapping[str, Any]
    environments: Sequence[str | Mapping[str, Any]] | Mapping[str, Any]


class Words(Modifiers, total=False):
    """All keywords of a step: at most one action, and modifiers."""

    call: Function
    python: Function | Spec
    http: str | Spec
    web_search: str | Spec
    run: str | Spec
    agent: object
    """The name of an agent, an `Agent`, or `{"name": …, "max_turns": 5}` with one of these."""
    flow: str | FlowHandle
    background: bool
    wait: Duration | Spec
    approval: Text | Spec
    group: Sequence[Spec]
    parallel: Sequence[Spec]
    fail: Text | Spec
    cancel: str | Sequence[Any] | Spec
    with_: Spec
    action: Spec
    """An action provided by another package: `action={"sql": {...}}`."""
