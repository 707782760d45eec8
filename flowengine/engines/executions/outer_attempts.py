"""Constraints on executions that an attempt begins: enclosing budgets, rules and depth.

The function of a step or tool may run flows (`Engine`) or agents (`Runner`). Each becomes a
separate execution, on its own engine or the same one, and often on another thread. The enclosing
execution is read and written only on the thread that drives it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from flowengine.engines.executions.linked_flows import LinkedFlow
from flowengine.errors import FlowEngineError, UsageError
from flowengine.kernel.commands import Run
from flowengine.kernel.events import Event
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.graph.linked import DEFAULT_LIMITS
from flowengine.kernel.graph.rules import STRICTNESS, Called, Calls, Verdict, strictest
from flowengine.kernel.graph.specs import RuleSpec, StepSpec
from flowengine.kernel.state.records import State, Unit
from flowengine.kernel.view import MeterRest, View, left_around, total
from flowengine.sdk.steps.context import ExecutionContext

if TYPE_CHECKING:
    import asyncio

_Found = TypeVar("_Found")

_DEEPEST: int = DEFAULT_LIMITS["depth"]
"""Maximum number of nested executions, the same as for subflows."""
PATIENCE_SECONDS = 30.0
"""How long to wait for the thread that drives the enclosing execution."""


class AttemptOver(FlowEngineError):
    """The attempt that started a run is over, so the run must not begin anything else."""


class Driven(Protocol):
    """The part of an execution that this module uses."""

    context: ExecutionContext
    linked: LinkedFlow
    state: State
    queue: list[Event]
    outer: OuterAttempt | None
    depth: int


class OuterAttempt:
    """An attempt, as seen by the executions that it starts.

    Args:
        execution: The execution of the attempt.
        run: The attempt.
        loop: The event loop that drives the execution. None: the calling thread drives it.
        look: Makes the driver process the execution again. None: it is about to.
    """

    def __init__(
        self,
        execution: Driven,
        run: Run,
        loop: asyncio.AbstractEventLoop | None = None,
        look: Callable[[], None] | None = None,
    ) -> None:
        self._execution = execution
        self._run = run
        self._loop = loop
        self._look = look
        self._reported: Mapping[str, int] = {}
        self._room: dict[str, MeterRest] = {}
        self._withdrawn: AttemptOver | None = None
        self.inner = ""
        """Id of the execution that the enclosing budgets and rules apply to. Empty: none."""

    @property
    def depth(self) -> int:
        """How many executions enclose an execution that it starts."""
        return self._execution.depth + 1

    @property
    def execution(self) -> str:
        """Id of its execution."""
        return self._execution.context.id

    def is_within(self, execution: str) -> bool:
        """Return whether it is an attempt of an execution, or of one that encloses it."""
        outer: OuterAttempt | None = self
        while outer is not None and outer.execution != execution:
            outer = outer._execution.outer
        return outer is not None

    def check_depth(self) -> None:
        """Check that it may begin an execution.

        Raises:
            UsageError: Too many executions are nested already.
        """
        if self.depth >= _DEEPEST:
            raise UsageError(
                f"runs in steps and tools of runs are more than {_DEEPEST} levels deep",
                hint="use a subflow (flow: NAME). For an agent, use a handoff or make it a tool: "
                "agent.as_tool()",
            )

    def binding(self, inner: str) -> OuterAttempt:
        """Return this attempt, bound to an execution that its budgets and rules apply to.

        Args:
            inner: Id of the execution.
        """
        found = OuterAttempt(self._execution, self._run, self._loop, self._look)
        found.inner = inner
        return found

    def left(self) -> dict[str, int] | None:
        """Return the remaining amounts of the enclosing budgets, by meter. None: without budgets.

        Raises:
            AttemptOver: The attempt is over.
        """
        there = self._there(self._left)
        return (
            None if there is None else {meter: max(0, left.amount) for meter, left in there.items()}
        )

    def count(self, inner: Driven) -> None:
        """Count the amounts that the inner execution has used and reserved so far.

        The count is on disk before the inner execution carries out its next commands.
        """
        if inner.context.id != self.inner:
            return  # its part of the budget counts for the one that started it
        budget = inner.state.get("budget")
        amounts = self._reported if budget is None else total(budget)
        if amounts != self._reported and (self._reported or any(amounts.values())):
            self._reported = amounts
            try:
                self._room = self._there(partial(self._post, amounts, inner.state["now"]))
            except AttemptOver as error:  # the reserved amount stays counted
                self._withdrawn = error

    def short(self, own: Mapping[str, int]) -> tuple[str, MeterRest] | None:
        """Return the enclosing budget that was used up before a call of the inner execution.

        Args:
            own: Meter → the amount reserved for the call, already counted.

        Raises:
            AttemptOver: The attempt is over.
        """
        if self._withdrawn is not None:
            raise self._withdrawn
        for meter, amount in own.items():
            left = self._room.get(meter)
            if left is not None and left.amount <= 0:
                return meter, left
            if left is not None:
                self._room[meter] = left._replace(amount=left.amount - amount)
        return None

    def verdict(self, called: Called, subject: Mapping[str, Plain]) -> Verdict | None:
        """Return the verdict of the enclosing flows' rules on a call. It is never `allow`.

        Args:
            called: The call.
            subject: Its arguments.

        Raises:
            AttemptOver: The attempt is over.
        """
        step = self._execution.linked.compiled["steps"][self._run.step]
        own = (
            self._there(lambda: self._verdict(step, called, subject)) if "within" in step else None
        )
        outer = self._execution.outer
        further = None if outer is None else outer.verdict(called, subject)
        return stricter(own, further)

    def _verdict(
        self, step: StepSpec, called: Called, subject: Mapping[str, Plain]
    ) -> Verdict | None:
        state, evaluate = self._execution.state, self._execution.linked.graph.evaluate
        names = rule_names(state, subject)
        agent = step.get("caller", "")
        lists = [[rule for rule in rules if _fits(rule, called, agent)] for rules in step["within"]]
        verdict = strictest(lists, lambda number: bool(evaluate(number, names)), called.tool)
        if verdict is None or verdict.do == "allow":
            return None
        return verdict._replace(rule=f"{self._execution.context.flow}: {verdict.rule}")

    def _left(self) -> dict[str, MeterRest] | None:
        """Return the remaining amounts, less those posted and not applied yet."""
        left = left_around(View(self._execution.linked.graph, self._execution.state), self._unit())
        if left is None:
            return None
        units = self._execution.state["units"]
        posted: dict[tuple[int, str], Mapping[str, int]] = {}
        for event in self._execution.queue:
            if event["type"] == "used":
                posted[event["unit"], event["run"]] = event["amounts"]
        for (number, run), amounts in posted.items():
            before = units[number].get("runs", {}).get(run, {}) if number in units else {}
            for meter in amounts.keys() & left.keys():
                more = amounts[meter] - before.get(meter, 0)
                left[meter] = left[meter]._replace(amount=left[meter].amount - more)
        return left

    def _post(self, amounts: Mapping[str, int], now: int) -> dict[str, MeterRest]:
        """Post the amounts used by the inner execution, and return the amounts left before."""
        left = self._left()
        event: Any = {
            "type": "used", "at": now, "unit": self._run.unit, "attempt": self._run.attempt,
            "run": self.inner, "amounts": dict(amounts),
        }  # fmt: skip
        self._execution.queue.append(event)
        if self._look is not None:
            self._look()
        return left or {}

    def _unit(self) -> Unit:
        """Return the unit of the attempt.

        Raises:
            AttemptOver: The attempt is over.
        """
        unit = self._execution.state["units"].get(self._run.unit)
        if unit is None or unit["phase"] != "run" or unit["attempt"] != self._run.attempt:
            raise AttemptOver(f"{self._run.address}, which started this run, is over")
        return unit

    def _there(self, function: Callable[[], _Found]) -> _Found:
        """Call a function on the thread that drives the execution, and wait until it is on disk.

        Raises:
            AttemptOver: The execution is no longer driven.
        """
        loop = self._loop
        if loop is None:
            return function()
        from asyncio import _get_running_loop
        from concurrent.futures import Future

        if _get_running_loop() is loop:
            return function()
        ended: Future[_Found] = Future()

        def call() -> None:
            try:
                value = function()
            except BaseException as error:
                ended.set_exception(error)
            else:
                loop.call_soon(ended.set_result, value)  # after the turn that commits

        with suppress(RuntimeError, TimeoutError):  # the loop is closed or not running
            loop.call_soon_threadsafe(call)
            return ended.result(PATIENCE_SECONDS)
        raise AttemptOver(f"nothing drives {self._run.address} any more, which started this run")


OUTER: ContextVar[OuterAttempt | tuple[Driven, Run] | None] = ContextVar("outer", default=None)
"""The attempt in which this code runs. For a quick attempt, the arguments to create it, because it
is rarely needed."""


def outer_attempt() -> OuterAttempt | None:
    """Return the attempt in which this code runs, if any."""
    outer = OUTER.get()
    return OuterAttempt(*outer) if isinstance(outer, tuple) else outer


def stricter(first: Verdict | None, other: Verdict | None) -> Verdict | None:
    """Return the stricter of two verdicts on a call."""
    verdicts = [verdict for verdict in (first, other) if verdict is not None]
    return max(verdicts, key=lambda verdict: STRICTNESS.index(verdict.do), default=None)


def rule_names(state: State, subject: Mapping[str, Plain]) -> dict[str, Plain]:
    """Return the names in rules about a call that is not a call of an agent in this execution."""
    inputs, execution = state["inputs"], state["execution"]
    return {"args": dict(subject), "calls": {}, "inputs": inputs, "execution": execution}


def _fits(rule: RuleSpec, called: Called, agent: str) -> bool:
    """Return whether a rule matches a call in a run, made by its agent or by the enclosing one."""
    calls = rule["calls"]
    verdict = rule["do"], calls["glob"]
    about = Calls(verdict, calls.get("agent"), calls.get("effect"), calls.get("environment"))
    return called.is_of(about) or called._replace(agent=agent).is_of(about)
