"""Steps as handles: what is declared, what comes behind it, and what expressions say of it.

A `Chain` is a piece of the graph with one way in and some ways out; a `Step` is the shortest one.
So whatever a call returns can be a target, and can be gone on from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, Self, Unpack

from flowengine.errors import UsageError
from flowengine.flow.building.expressions import Expr
from flowengine.flow.building.handles import StepHandle
from flowengine.flow.building.origins import Place, here

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from flowengine.flow.building.step_keywords import (
        Condition,
        Modifiers,
        Spec,
        Target,
        Text,
        Words,
    )


class Graph(Protocol):
    """What steps ask of the flow that they belong to."""

    def target(self, target: Target) -> Chain | str:
        """Return what a target means, declaring a step for a function that has none yet."""

    def step(
        self, what: str | Callable[..., Any], /, *, id: str | None = None, **words: Unpack[Words]
    ) -> Step:
        """Declare a step."""

    def group(self, id: str, /, **words: Unpack[Modifiers]) -> Scope:
        """Declare a group."""

    def enter(self, steps: list[Step]) -> None:
        """Add the steps that are declared from here on to a scope."""

    def leave(self) -> None:
        """End what `enter` began."""

    def block(self, steps: list[Step]) -> AbstractContextManager[None]:
        """Add the steps declared in a `with` block to a scope."""

    def changed(self) -> None:
        """Forget what was compiled before."""


class Chain(StepHandle):
    """A piece of the graph.

    Args:
        flow: Whose.
        entry: Where it begins; None: nowhere yet.
        ends: The steps that whatever comes next is put behind.
    """

    def __init__(self, flow: Graph, entry: Step | None, ends: list[Step]) -> None:
        self._flow = flow
        self._entry = entry
        self._ends = ends

    @property
    def entry(self) -> Step:
        """The step where it begins."""
        if self._entry is None:
            raise UsageError("the chain has no step to start with")
        return self._entry

    @property
    def last(self) -> Step:
        """The one step where it ends, for `last.output`."""
        if len(self._ends) != 1:
            raise UsageError(f"the chain ends in {len(self._ends)} steps, not in one")
        return self._ends[0]

    # Ways

    def to(self, *targets: Target) -> Chain:
        """Go on to a step; to several at the same time.

        Args:
            *targets: Steps, functions that become steps, or ids - also of steps that are declared
                later, `end` and `end_all`.

        Returns:
            The piece up to there, to go on from.
        """
        return self._lead("to", targets, list)

    def first(self, *cases: tuple[Condition, Target], otherwise: Target | None = None) -> Chain:
        """Go on along the first case that holds.

        Args:
            *cases: Conditions with their targets, in this order.
            otherwise: Where to if none holds; without it that is the error `NoBranch`.

        Returns:
            The piece with all cases, to go on from where they end.
        """
        conditions = [condition for condition, _ in cases]
        return self._lead(
            "first",
            [target for _, target in cases] + ([] if otherwise is None else [otherwise]),
            lambda names: {"first": _entries(conditions, names)},
        )

    def match(
        self, value: Expr, cases: Mapping[Any, Target], otherwise: Target | None = None
    ) -> Chain:
        """Go on by a value: the first case that equals it.

        Args:
            value: An expression, such as `sort.output.kind`.
            cases: Value → target.
            otherwise: Where to if no case equals it.

        Returns:
            The piece with all cases, to go on from where they end.
        """
        pairs = [(value == case, target) for case, target in cases.items()]
        return self.first(*pairs, otherwise=otherwise)

    def fork(
        self, *ways: Target | tuple[Condition, Target], otherwise: Target | None = None
    ) -> Chain:
        """Go on along every way that holds, at the same time.

        Args:
            *ways: Targets, or conditions with their targets.
            otherwise: Where to if no condition holds.

        Returns:
            The piece with all ways; what comes behind it needs a `join`.
        """
        pairs = [way if isinstance(way, tuple) else (None, way) for way in ways]
        conditions = [condition for condition, _ in pairs]
        return self._lead(
            "fork",
            [target for _, target in pairs] + ([] if otherwise is None else [otherwise]),
            lambda names: {"all": _entries(conditions, names)},
        )

    def on(self, outcomes: Mapping[str, Target] | None = None, /, **more: Target) -> Chain:
        """Go on by the outcome of the action: the choice of an approval, what ended a wait.

        Args:
            outcomes: Outcome → target; `else` takes those not named.
            **more: The same as keywords: `ask.on(approve=pay, reject="end")`.

        Returns:
            The piece with all ways, to go on from where they end.
        """
        ways: dict[str, Target] = {**(outcomes or {}), **more}
        return self._lead(
            "on",
            list(ways.values()),
            lambda names: {"outcome": dict(zip(ways, names, strict=True))},
        )

    def end(self) -> Chain:
        """End here: the token goes nowhere; other branches go on."""
        return self.to("end")

    def end_all(self) -> Chain:
        """End everything of the scope here; its other tokens are withdrawn."""
        return self.to("end_all")

    def for_each(
        self,
        body: Callable[..., Any] | str,
        over: Any = None,
        *,
        as_: str = "item",
        **more: Any,
    ) -> Any:
        """Go on with something for each item of a list; the results are collected in its order.

        Args:
            body: A function, which gets an item by a parameter called as in `as_`; or the id of a
                group, whose steps are declared in a `with` block.
            over: The list; default: the output of the step before.
            as_: What an item is called.
            **more: Other words of `map`: `concurrency=4`, `on_item_error="continue"`.

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
            key: In place of the declared one.

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
        """Put the ways behind all ends."""
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

    Its attributes `output`, `status`, `outcome`, `error`, `items` … are expressions; called, it
    calls its function, as if nothing had been declared.

    Args:
        flow: Whose.
        id: Its name.
        spec: What it says, as in a flow file, with Python values.
        place: Where it is declared.
        function: What it calls, if that was given as a function.
    """

    def __init__(
        self,
        flow: Graph,
        id: str,
        spec: dict[str, Any],
        place: Place,
        function: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(flow, self, [self])
        self.id = id
        self.spec = spec
        self.place = place
        self.places: dict[str, Place] = {}
        """Where words stand that were said later than the step."""
        self.blocks: dict[str, list[Step]] = {}
        """Its own steps: of a `group` or `parallel`, and of its `finally`."""
        self.function = function
        if function is not None:
            self.__wrapped__ = function
            self.__doc__ = function.__doc__
            self.__name__ = getattr(function, "__name__", id)
            self.__flowengine_quick__ = getattr(function, "__flowengine_quick__", False)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the step's function, for tests and other code; the flow is not involved."""
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
        """What it gave."""
        return self.ref.output

    @property
    def status(self) -> Expr:
        """How it ended: `succeeded`, `failed`, `skipped`, `cancelled`."""
        return self.ref.status

    @property
    def outcome(self) -> Expr:
        """Its outcome: `ok`, or the choice, the alternative."""
        return self.ref.outcome

    @property
    def error(self) -> Expr:
        """Its error, or null."""
        return self.ref.error

    @property
    def items(self) -> Expr:
        """Of a map: `{key, index, status, output, error}` of each item."""
        return self.ref.items

    # Declaring

    def say(self, key: str, value: Any, place: Place) -> None:
        """Add a word to the step.

        Args:
            key: The key in a flow file.
            value: What stands behind it.
            place: Where it is said.
        """
        self.spec[key] = value
        self.places[key] = place
        self._flow.changed()

    def lead(self, word: str, ways: list[str] | dict[str, Any], place: Place) -> None:
        """Say where the step leads; several calls of `to` add up.

        Args:
            word: The method that says it.
            ways: The targets of `to`, or what stands behind `next`.
            place: Where it is said.

        Raises:
            UsageError: The ways were said already in another manner.
        """
        given = self.spec.get("next")
        if given is None:
            self.say("next", ways, place)
        elif isinstance(given, list) and isinstance(ways, list):
            self.say("next", [*given, *ways], place)
        else:
            at = self.places.get("next", self.place).position(("next",))
            raise UsageError(
                f"'{word}' says where {self.id!r} leads; {at.file}:{at.line} already does",
                hint="name all targets in one call: to(a, b), first(...), fork(...) or on(...)",
            )


class Scope(Step):
    """A group or parallel steps; what is declared in its `with` block belongs to it."""

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


class Opening(Chain):
    """The beginning of a branch that a signal or a write to state starts."""

    def __init__(self, flow: Graph, trigger: str | Spec) -> None:
        super().__init__(flow, None, [])
        self._trigger = trigger

    def to(self, *targets: Target) -> Chain:
        """Start a token at a step.

        Args:
            *targets: One step, or a function that becomes one.

        Returns:
            The piece, to go on from.

        Raises:
            UsageError: It is not exactly one step.
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
        """Return the trigger of a step that may have one: a message of either starts a token.

        Raises:
            UsageError: One of them says more than names of signals.
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
                "flow.when(any=[...], match=...)",
            )
        return {"any": list(dict.fromkeys(names[0] + names[1]))}


def _signals(trigger: Any) -> list[str]:
    """Return the signals of a trigger of which each message starts a token; [] of another one."""
    if isinstance(trigger, str):
        return [trigger]
    if trigger.keys() == {"signal"}:
        return [trigger["signal"]]
    return list(trigger["any"]) if trigger.keys() == {"any"} else []


def _entries(conditions: list[Any], names: list[str]) -> list[Any]:
    """Return the entries of a split; a name more than conditions is that of `else`."""
    pairs = zip(conditions, names, strict=False)
    entries = [
        name if condition is None else {"when": condition, "to": name} for condition, name in pairs
    ]
    return entries + [{"else": name} for name in names[len(conditions) :]]


def step(**words: Unpack[Modifiers]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a function modifiers that every step made of it has: `@step(retry=3)`.

    Args:
        **words: Modifiers; what the step itself says wins.

    Returns:
        A decorator that returns the same function.
    """

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        function.__flowengine_step__ = dict(words)  # type: ignore[attr-defined]
        return function

    return mark
