"""A simulator of executions: the kernel alone, in virtual time and in a controlled order.

Nothing sleeps and nothing runs outside: results of tasks come from a script, timers fire when the
simulator lets time pass. `possible` lists the next possible happenings, from which a seed, a
caller or `flowengine.testing.explore` chooses. The same choices lead to the same execution, so a
failing order can be replayed (`follow`). The invariants are checked after every event
(`tests.simulation.invariants`).

    played = Simulator("flow.yaml", {"fetch": [1, 2], "send": Fails("Timeout")}, seed=7)
    assert played.start({"name": "Ada"}).run().status == "failed"
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any, NamedTuple, cast

from flowengine.engines.flows import LoadedFlow
from flowengine.journal.encoding import pack, unpack
from flowengine.kernel import ENDED, Graph, advance, new_state, running
from flowengine.kernel.commands import Claim, Command, End, GiveBack, Observation, Run, Stop
from flowengine.kernel.events import ErrorData, Event, Upgraded
from flowengine.kernel.graph.compiled import OPENING, Plain
from flowengine.kernel.state.records import State
from tests.simulation.invariants import check_now
from tests.simulation.shared_locks import SharedLocks

START = 1_000_000
"""Start time of a simulated execution (ms since 1970)."""


class Fails(Exception):
    """A scripted failure of a task.

    Args:
        type: The error's type.
        message: Its message.
        retryable: Whether it may be tried again. Default: depends on the type.
        data: The error's data, for handlers.
    """

    def __init__(
        self, type: str, message: str = "", *, retryable: bool | None = None, data: Plain = None
    ) -> None:
        super().__init__(message or type)
        self.error: ErrorData = {"type": type, "message": message or type, "data": data}
        if retryable is not None:
            self.error["retryable"] = retryable


class Asks:
    """A scripted question: the attempt does not begin, because it needs an approval first.

    Once the call is approved, its result is `value`.

    Args:
        rule: The rule that requires the approval.
        value: The result after the approval.
    """

    def __init__(self, rule: str, value: Plain = None) -> None:
        self.rule = rule
        self.value = value


class Measures(NamedTuple):
    """A task whose kind measures the budget usage of an attempt before it begins."""

    needs: Callable[[Run], Mapping[str, Sequence[float]]]
    """Returns it: meter → `[least, most, beyond]`."""
    value: Any
    """The result of the task, as for any other task."""


class OneOf(NamedTuple):
    """A task that may end in several ways. Each of them is a separate choice.

    Each way is a value or a `Fails`.
    """

    ways: Sequence[Any]


class Happening(NamedTuple):
    """One thing that may happen next."""

    name: str
    """A description, unique among the happenings that are possible at that moment."""
    do: Callable[[], None]


Outside = Callable[["Simulator"], list[Happening]]
"""The possible actions of users and other systems at a moment. See "
"`tests.simulation.explorer`."""


class Simulator:
    """One execution under simulation.

    Args:
        flow: A flow, the path of its file, or a graph.
        script: Step id or address → what its task gives: a value, a `Fails`, a `OneOf`, or a
            function of the kernel's `Run` that returns a value or raises a `Fails`. The result of
            other steps is None.
        seed: Determines the order of the possible happenings.
        order: `random`, or `first`: always the oldest possible happening. Time passes last.
        outside: The possible actions of users and other systems.

    Attributes:
        state: The kernel's state.
        journal: All events so far.
        observations: The observations of each activation.
        started: Addresses of the tasks in the order of their start.
        schedule: Names of the happenings so far, in order.
        running: (unit, attempt) → the running task.
        locks: Shared locks.
        claims: Shared lock → its open claims, in order.
        commands: All commands so far.
        ends: Number of `End` commands.
        retries: Number of retries of the failed execution.
        stopped: (unit, attempt) → the tasks that were stopped while running.
        done: (unit, address) of the tasks with effect `once` that have succeeded.
        again: Those of them that have run again since.
        calls: Number of begun attempts that count as tool calls.
        forward: Number of calls that are not part of compensation or cleanup.
    """

    def __init__(
        self,
        flow: Graph | LoadedFlow | str | PathLike[str],
        script: Mapping[str, Any] | None = None,
        *,
        seed: int = 0,
        order: str = "random",
        outside: Sequence[Outside] = (),
    ) -> None:
        self.graph = flow if isinstance(flow, Graph) else graph_of(flow)
        self._forms = [self.graph]
        self._flows: Any = _Forms(self._forms)
        self.script = dict(script or {})
        self.random = random.Random(seed)
        self.order = order
        self.outside = list(outside)
        self.state: State = new_state()
        self.journal: list[Event] = []
        self.observations: list[Observation] = []
        self.started: list[str] = []
        self.schedule: list[str] = []
        self.commands: list[Command] = []
        self.running: dict[tuple[int, int], Run] = {}
        self.locks = SharedLocks()
        self.claims = self.locks.claims
        self.retries = 0
        self.stopped: dict[tuple[int, int], Run] = {}
        self.done: set[tuple[int, str]] = set()
        self.again: list[str] = []
        self.ends = 0
        self.calls = 0
        self.forward = 0

    @property
    def upgraded(self) -> bool:
        """Whether it has been moved to another form of its flow."""
        return len(self._forms) > 1

    @property
    def now(self) -> int:
        """Virtual time in milliseconds."""
        return self.state["now"]

    @property
    def status(self) -> str:
        """Status of the execution."""
        return self.state["status"]

    @property
    def outputs(self) -> dict[str, Plain] | None:
        """Outputs of the flow, if it has succeeded."""
        return self.state["outputs"]

    @property
    def error(self) -> ErrorData | None:
        """The error, if the execution has failed."""
        return self.state["error"]

    # What happens

    def start(self, inputs: dict[str, Plain] | None = None, at: int = START) -> Simulator:
        """Begin the execution.

        Args:
            inputs: All its inputs, including those with defaults. They are not checked here.
            at: The time (ms).

        Returns:
            The simulator itself.
        """
        execution: dict[str, Plain] = {
            "id": "simulated", "flow": self.graph.flow.get("id"), "version": "0",
            "started_at": "1970-01-01T00:16:40Z", "scheduled_at": None, "started_by": "user:test",
            "parent": None, "labels": {}, "identity": "simulated",
        }  # fmt: skip
        self.apply({"type": "started", "at": at, "inputs": inputs or {}, "execution": execution})
        return self

    def apply(self, event: Event) -> list[Command]:
        """Apply an event, and check the invariants.

        Args:
            event: What happens.

        Returns:
            The commands that follow.
        """
        self.journal.append(event)
        if event["type"] in ("lost", "asked", "measured", "unoffered"):
            one: Any = event
            run = self.running.pop((one["unit"], one["attempt"]), None)
            if run is not None and one.get("ran", "no") == "no" and self._is_tool_call(run):
                self.calls -= 1
                self.forward -= self._is_forward(run)
        return self._follow(advance(self.graph, self.state, event, self.observations))

    def upgrade(
        self,
        flow: Graph | LoadedFlow | str | PathLike[str],
        mapping: Mapping[str, Any] | None = None,
    ) -> list[Command]:
        """Move the execution to another version of its flow, while running attempts continue.

        Args:
            flow: The other form, against which `moving.obstacles` finds nothing.
            mapping: What is called otherwise in it, see `flowengine.kernel.moving.counterparts`.

        Returns:
            The commands that follow.
        """
        old, self.graph = self.graph, flow if isinstance(flow, Graph) else graph_of(flow)
        self._forms.append(self.graph)
        event: Upgraded = {
            "type": "upgraded", "at": self.now, "before": str(len(self._forms) - 2),
            "after": str(len(self._forms) - 1), "mapping": dict(mapping or {}), "version": "",
            "by": "user:test", "via": "test",
        }  # fmt: skip
        self.journal.append(event)
        commands = advance(old, self.state, event, self.observations, after=self.graph)
        state: Any = self.state
        for (unit, attempt), run in list(self.running.items()):
            acts, units, cuts = state["acts"], state["units"], state["cuts"]
            step = acts[units[unit]["act"]]["step"] if unit in units else cuts[unit]["step"]
            self.running[unit, attempt] = run._replace(step=step)
        return self._follow(commands)

    def _follow(self, commands: list[Command]) -> list[Command]:
        """Record the commands, and check the invariants."""
        calls: dict[int, bool] = {}
        new: set[int] = set()
        for command in commands:
            if isinstance(command, Run):
                self.running[command.unit, command.attempt] = command
                self.started.append(command.address)
                new.add(command.unit)
                if (command.unit, command.address) in self.done:
                    self.again.append(command.address)
                if self._is_tool_call(command):
                    calls[command.unit] = self._is_forward(command)
            elif isinstance(command, Stop):
                stopped = self.running.pop((command.unit, command.attempt), None)
                if stopped is not None and command.unit not in new:
                    self.stopped[command.unit, command.attempt] = stopped
                new.discard(command.unit)  # it does not begin any more
                calls.pop(command.unit, None)
            elif isinstance(command, Claim | GiveBack):
                self.locks.note(command)
            elif isinstance(command, End):
                self.ends += 1
                self.locks.claims.clear()
        self.calls += len(calls)
        self.forward += sum(calls.values())
        self.commands += commands
        check_now(self)
        return commands

    def possible(self) -> list[Happening]:
        """Return the possible happenings: a task ends, time passes to a timer, an outside action.

        Returns:
            Nothing once the execution has ended.
        """
        if self.status in ENDED:
            return []
        happenings = [
            Happening(f"{lock} is granted to {unit}", partial(self._grant, lock, unit))
            for lock, unit in self.locks.untold()
        ]
        for run in self.running.values():
            happenings += self._endings(run)
        timers = self.state["timers"].values()
        moves = any(timer["why"] != "remind" for timer in timers)  # reminders are repeated forever
        if moves and (self.order == "random" or not happenings):
            happenings.append(Happening("time passes", self.pass_time))
        for may in self.outside:
            happenings += may(self)
        return happenings

    def step(self) -> bool:
        """Make one thing happen.

        Returns:
            Whether anything could happen.
        """
        choices = self.possible()
        if not choices:
            return False
        self.let(choices[0] if self.order == "first" else self.random.choice(choices))
        return True

    def run(self, limit: int = 100_000) -> Simulator:
        """Play until nothing more can happen.

        Args:
            limit: Maximum number of events, after which a run counts as endless.

        Returns:
            The simulator itself.

        Raises:
            AssertionError: Something can still happen after that.
        """
        for _ in range(limit):
            if not self.step():
                return self
        raise AssertionError(f"still not at rest after {limit} events")

    def follow(self, schedule: Sequence[str]) -> Simulator:
        """Play the happenings of a schedule, in its order.

        Args:
            schedule: Names as in `Simulator.schedule`.

        Returns:
            The simulator itself.

        Raises:
            AssertionError: A happening is not possible at its turn.
        """
        for number, name in enumerate(schedule):
            choices = {happening.name: happening for happening in self.possible()}
            if name not in choices:
                can = "; ".join(choices) or "nothing"
                raise AssertionError(f"{number}: '{name}' cannot happen now, possible are: {can}")
            self.let(choices[name])
        return self

    def let(self, happening: Happening) -> None:
        """Make one of the `possible` things happen."""
        self.schedule.append(happening.name)
        happening.do()

    def pass_time(self) -> None:
        """Fire the next timer."""
        timers = self.state["timers"]
        number = min(timers, key=lambda n: (timers[n]["due"], n))
        due = timers[number]["due"]
        self.apply({"type": "timer", "at": max(due, self.now), "timer": number})

    def end(self, run: Run) -> None:
        """End the task of a `Run` by the script, with a random choice among several results.

        Args:
            run: One that runs.
        """
        given = self._given(run)
        if isinstance(given, OneOf):
            given = self.random.choice(given.ways)
        self._end(run, given)

    def finish(self, address: str) -> None:
        """End the task at an address now.

        Args:
            address: Of a task that runs.
        """
        self.end(next(run for run in self.running.values() if run.address == address))

    def send(self, signal: str, data: Plain = None, key: str | None = None, id: str = "m") -> None:
        """Send a signal to the execution."""
        self.apply(
            {"type": "message", "at": self.now, "signal": signal, "key": key, "data": data,
             "id": id, "by": "user:test"}
        )  # fmt: skip

    def waits(self) -> list[dict[str, Plain]]:
        """Return the records of the open waits, oldest first."""
        return [wait["record"] for wait in self.state["waits"].values()]

    def decide(self, address: str, choice: str, **more: Any) -> None:
        """Decide on the approval, or answer the question, at an address."""
        wait = next(w["id"] for w in self.waits() if w["address"] == address)
        unit = self.state["units"].get(self.state["waits"][wait]["unit"])
        if choice == "result" and unit is not None and not _tidies(address):
            self.done.add((unit["id"], address))
        event = {"type": "decided", "at": self.now, "wait": wait, "choice": choice}
        self.apply(cast(Event, {**event, "by": "user:test", "via": "test", **more}))

    def crash(self) -> None:
        """Lose the process: the state is restored from bytes, and running attempts are cut off."""
        self.state = unpacked(self.state)
        self.running.clear()
        for unit, attempt in running(self.state):
            event: Event = {"type": "cut", "at": self.now, "unit": unit, "attempt": attempt}
            self.apply(event)

    def end_late(self, run: Run, value: Plain = None) -> None:
        """Deliver the result of a task that was stopped when the execution failed.

        Args:
            run: One of `stopped`.
            value: Its result.
        """
        del self.stopped[run.unit, run.attempt]
        self._note_done(run)
        self.apply(
            {"type": "succeeded", "at": self.now, "unit": run.unit, "attempt": run.attempt,
             "value": value}
        )  # fmt: skip

    def retry(self, step: str | None = None) -> None:
        """Start the execution again after it has failed, as `flowengine retry` does.

        Args:
            step: Address of the step that begins again. None: all that failed.

        Raises:
            Conflict: It cannot be.
        """
        from flowengine.engines.interventions.retracing import (
            event_of,
            past_of_all,
            retrace,
            within,
        )

        last, steps = self.state["last"], [] if step is None else [step]
        past = past_of_all(self._flows, str(len(self._forms) - 1), unpacked(self.journal))
        held = retrace(past, steps)
        self.retries += 1
        if step is not None:  # all that is in it is asked to run again
            self.done = {unit for unit in self.done if not within(unit[1], step)}
        self.state = held.state
        self.running.clear()
        late: list[Any] = held.late
        for result in late:  # it ran, and its result is the next event
            ran = held.state["units"][result["unit"]]
            place = held.state["acts"][ran["act"]]["step"]
            run = Run(ran["id"], ran["attempt"], place, "", None, None, None)
            self.running[ran["id"], ran["attempt"]] = run
        self.stopped.clear()
        self.locks.claim_again(self.state)
        self.apply(event_of(held, self.now, last, "user:test"))
        for result in late:
            self.running.pop((result["unit"], result["attempt"]), None)  # unless it failed again
            result["at"] = self.now
            self.apply(result)

    # The history

    def replayed(self) -> State:
        """Return the state that the journal gives when it is applied from the start."""
        from flowengine.engines.executions.linked_flows import line, replayed

        journal = line(unpacked(self.journal), len(self.journal))
        return replayed(self._flows, self._flows.by_hash("0").graph, new_state(), journal)[1]

    def story(self) -> list[str]:
        """Return `address status` of all observations, for tests to compare."""
        return [f"{o.address} {o.status}" for o in self.observations]

    # Inside

    def _note_done(self, run: Run) -> None:
        """Record that a task succeeded that must not run again."""
        if self.graph.node(run.step).effect == "once" and self._is_forward(run):
            self.done.add((run.unit, run.address))

    def _is_tool_call(self, run: Run) -> bool:
        """Return whether an attempt counts for `tool_calls`."""
        node = self.graph.node(run.step)
        return node.kind != OPENING and (node.meters is None or "tool_calls" in node.meters)

    def _is_forward(self, run: Run) -> bool:
        """Return whether budgets limit a task.

        They do not limit compensation, cleanup, settling an attempt, or learning that one is used
        up.
        """
        if run.unit in self.state["cuts"] or _tidies(run.address):
            return False
        return "unlimited" not in self.state["units"].get(run.unit, ())

    def _grant(self, lock: str, unit: int) -> None:
        event = self.locks.event(lock, unit, self.now)
        self.locks.tell(lock, unit)
        self.apply(event)

    def _measure(self, run: Run, given: Any) -> None:
        meters = self.graph.node(run.step).meters or {}
        stated = {meter: value["needs"] for meter, value in meters.items() if "needs" in value}
        needs = given.needs(run) if isinstance(given, Measures) else stated
        self.apply(
            {"type": "measured", "at": self.now, "unit": run.unit, "attempt": run.attempt,
             "needs": {meter: [*need] for meter, need in needs.items()}}
        )  # fmt: skip

    def _given(self, run: Run) -> Any:
        by_step = self.script.get(self.graph.node(run.step).id)
        return self.script.get(run.address, by_step)

    def _endings(self, run: Run) -> list[Happening]:
        """Return the ways in which a task can end now."""
        given = self._given(run)
        if not isinstance(given, OneOf):
            return [Happening(f"{run.address} ends", partial(self._end, run, given))]
        return [
            Happening(f"{run.address} {_said(way)}", partial(self._end, run, way))
            for way in given.ways
        ]

    def _ask(self, run: Run, given: Asks) -> None:
        self.apply(
            {"type": "asked", "at": self.now, "unit": run.unit, "attempt": run.attempt,
             "tool": self.graph.node(run.step).id, "version": "1", "subject": run.input,
             "rule": given.rule}
        )  # fmt: skip

    def _end(self, run: Run, given: Any) -> None:
        if run.measures:
            self._measure(run, given)
            return
        if isinstance(given, Measures):
            given = given.value
        if isinstance(given, Asks):
            if run.approved is None and run.unit in self.state["units"]:
                self._ask(run, given)
                return
            given = given.value
        del self.running[run.unit, run.attempt]
        try:
            value = given(run) if callable(given) else given
            if isinstance(value, Fails):
                raise value
        except Fails as failure:
            error: ErrorData = {**failure.error}
            self.apply(
                {"type": "failed", "at": self.now, "unit": run.unit, "attempt": run.attempt,
                 "error": error}
            )  # fmt: skip
        else:
            self._note_done(run)
            self.apply(
                {"type": "succeeded", "at": self.now, "unit": run.unit, "attempt": run.attempt,
                 "value": value}
            )  # fmt: skip


class _Forms:
    """The forms of a simulated execution's flow, for code that reads journals."""

    def __init__(self, graphs: list[Graph]) -> None:
        self._graphs = graphs
        self.graph = graphs[0]

    def by_hash(self, number: str) -> _Forms:
        """Return a form by its hash, which is its number."""
        return _Forms([self._graphs[int(number)]])


def graph_of(flow: LoadedFlow | str | PathLike[str]) -> Graph:
    """Return the linked graph of a flow.

    Args:
        flow: A flow, or the path of its file.

    Returns:
        The graph, with expressions and reducers as in the engine.
    """
    from flowengine.engines.executions.linked_flows import LinkedFlow
    from flowengine.engines.flows import LANGUAGE, load

    loaded = flow if isinstance(flow, LoadedFlow) else load(flow)
    return LinkedFlow(loaded.compiled, loaded.form, LANGUAGE).graph


def _tidies(address: str) -> bool:
    """Return whether a task at an address undoes or cleans up."""
    return not {"compensate", "finally"}.isdisjoint(re.split(r"[/\[@#]", address))


def unpacked(value: Any) -> Any:
    """Return data as it comes back from a store."""
    return unpack(pack(value))


def _said(way: Any) -> str:
    return f"fails: {way.error['type']}" if isinstance(way, Fails) else f"gives {way!r}"
