"""A simulator of executions: the kernel alone, on virtual time, in an order drawn from a seed.

Nothing sleeps and nothing runs outside: results of tasks come from a script, timers fire when the
simulator lets time pass. One seed decides everything, so a seed that fails repeats the failure.
After every event the invariants hold, and the state survives being packed and unpacked.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from flowengine.journal.format import pack, unpack
from flowengine.kernel import ENDED, Graph, advance, new_state, running
from flowengine.kernel.commands import Command, End, Observation, Run, Stop
from flowengine.kernel.events import ErrorData, Event
from flowengine.kernel.graph import Plain
from flowengine.kernel.joins import held_arrivals, number_held
from flowengine.kernel.state import State

Result = Callable[[Run], Plain]
"""What a task gives: a value, or an `ErrorData` wrapped in `Fails` to fail with."""


class Fails(Exception):
    """A scripted failure of a task.

    Args:
        type: The error's type.
        message: Its message.
        retryable: Whether it may be tried again; by default what the type says.
        data: For handlers.
    """

    def __init__(
        self, type: str, message: str = "", *, retryable: bool | None = None, data: Plain = None
    ) -> None:
        super().__init__(message or type)
        self.error: ErrorData = {"type": type, "message": message or type, "data": data}
        if retryable is not None:
            self.error["retryable"] = retryable


class Simulator:
    """One execution under simulation.

    Args:
        graph: The flow.
        script: Step id → what its task gives: a function of the `Run`, or a value. A step that is
            not named gives None.
        seed: Decides the order in which what can happen happens.
        order: `random`, or `first`: always the oldest that can happen; time passes last.

    Attributes:
        state: The state.
        journal: All events so far.
        observations: What happened to each activation.
        started: Addresses of the tasks in the order of their start.
    """

    def __init__(
        self,
        graph: Graph,
        script: Mapping[str, Any] | None = None,
        *,
        seed: int = 0,
        order: str = "random",
    ) -> None:
        self.graph = graph
        self.script = dict(script or {})
        self.random = random.Random(seed)
        self.order = order
        self.state: State = new_state()
        self.journal: list[Event] = []
        self.observations: list[Observation] = []
        self.started: list[str] = []
        self.commands: list[Command] = []
        self.running: dict[tuple[int, int], Run] = {}
        self.ends = 0

    @property
    def now(self) -> int:
        """Virtual time in milliseconds."""
        return self.state["now"]

    @property
    def status(self) -> str:
        """Status of the execution."""
        return self.state["status"]

    def start(self, inputs: dict[str, Plain] | None = None, at: int = 1_000_000) -> Simulator:
        """Begin the execution.

        Args:
            inputs: Its inputs.
            at: The time (ms).

        Returns:
            The simulator itself.
        """
        execution: dict[str, Plain] = {
            "id": "simulated", "flow": self.graph.flow.get("id"), "version": "0",
            "started_at": "1970-01-01T00:16:40Z", "scheduled_at": None, "started_by": "user:test",
            "parent": None, "labels": {},
        }  # fmt: skip
        self.apply({"type": "started", "at": at, "inputs": inputs or {}, "execution": execution})
        return self

    def apply(self, event: Event) -> list[Command]:
        """Apply an event, and check that all is well after it.

        Args:
            event: What happens.

        Returns:
            The commands that follow.
        """
        self.journal.append(event)
        commands = advance(self.graph, self.state, event, self.observations)
        for command in commands:
            if isinstance(command, Run):
                self.running[command.unit, command.attempt] = command
                self.started.append(command.address)
            elif isinstance(command, Stop):
                self.running.pop((command.unit, command.attempt), None)
            elif isinstance(command, End):
                self.ends += 1
        self.commands += commands
        check_invariants(self.state)
        if event["type"] != "cut":
            assert set(self.running) == set(running(self.state)), "what runs is what the state says"
        assert self.ends <= 1, "an execution ends once"
        return commands

    def possible(self) -> list[tuple[str, Any]]:
        """Return what can happen now: a task ends, or time passes to the next timer."""
        choices: list[tuple[str, Any]] = [("end", run) for run in self.running.values()]
        timers = self.state["timers"]
        if timers and (self.order == "random" or not choices):
            choices.append(("timer", min(timers, key=lambda n: (timers[n]["due"], n))))
        return choices

    def step(self) -> bool:
        """Let one thing happen.

        Returns:
            False if nothing can happen by itself.
        """
        choices = self.possible()
        if not choices or self.status in ENDED:
            return False
        what, which = choices[0] if self.order == "first" else self.random.choice(choices)
        if what == "end":
            self.end(which)
        else:
            due = self.state["timers"][which]["due"]
            self.apply({"type": "timer", "at": max(due, self.now), "timer": which})
        return True

    def end(self, run: Run) -> None:
        """Let the task of a `Run` end as the script says.

        Args:
            run: One that runs.
        """
        del self.running[run.unit, run.attempt]
        script = self.script.get(self.graph.node(run.step).id)
        try:
            value = script(run) if callable(script) else script
        except Fails as failure:
            error: ErrorData = {**failure.error}
            self.apply(
                {"type": "failed", "at": self.now, "unit": run.unit, "attempt": run.attempt,
                 "error": error}
            )  # fmt: skip
        else:
            self.apply(
                {"type": "succeeded", "at": self.now, "unit": run.unit, "attempt": run.attempt,
                 "value": value}
            )  # fmt: skip

    def finish(self, address: str) -> None:
        """Let the task at an address end now.

        Args:
            address: Of a task that runs.
        """
        self.end(next(run for run in self.running.values() if run.address == address))

    def run(self, limit: int = 100_000) -> Simulator:
        """Let things happen until nothing can by itself.

        Args:
            limit: Number of events at which a run counts as endless.

        Returns:
            The simulator itself.

        Raises:
            AssertionError: It does not come to rest.
        """
        for _ in range(limit):
            if not self.step():
                return self
        raise AssertionError(f"still not at rest after {limit} events")

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
        event = {"type": "decided", "at": self.now, "wait": wait, "choice": choice}
        self.apply(cast(Event, {**event, "by": "user:test", "via": "test", **more}))

    def crash(self) -> None:
        """Lose the process: the state comes back from bytes, what ran is cut off."""
        self.state = unpacked(self.state)
        self.running.clear()
        for unit, attempt in running(self.state):
            event: Event = {"type": "cut", "at": self.now, "unit": unit, "attempt": attempt}
            self.apply(event)

    def replayed(self) -> State:
        """Return the state that the journal gives when it is applied from the start."""
        state = new_state()
        for event in self.journal:
            advance(self.graph, state, unpacked(event))
        return state

    def story(self) -> list[str]:
        """Return `address status` of all observations, for tests to compare."""
        return [f"{o.address} {o.status}" for o in self.observations]


def unpacked(value: Any) -> Any:
    """Return data as it comes back from a store."""
    return unpack(pack(value))


def check_invariants(state: State) -> None:
    """Check what must hold after every event.

    Args:
        state: The state of an execution.
    """
    if state["status"] in ENDED:
        for table in ("scopes", "acts", "units", "waits", "timers", "undos", "cuts", "layers",
                      "listening", "watching"):  # fmt: skip
            assert not state[table], f"{table} open after the end: {state[table]}"
        assert "cleanups" not in state, "nothing is being cleaned up after the end"
        assert "locks" not in state, "no lock is held after the end"
        assert not state["running"]
        return
    for number, unit in state["units"].items():
        act = state["acts"][unit["act"]]
        assert number in act["units"], "a unit belongs to its activation"
        assert ("wait" in unit) == (unit["phase"] in ("wait", "ask"))
        assert ("scope" in unit) == (unit["phase"] == "scope")
    for number, act in state["acts"].items():
        scope = state["scopes"][act["scope"]]
        assert scope["live"][number] == act["step"]
        assert act["busy"] == sum(act["units"].values())
        assert all(n in state["units"] for n in act["units"])
    for scope in state["scopes"].values():
        assert all(number in state["acts"] for number in scope["live"])
        assert not scope["unit"] or state["units"][scope["unit"]]["scope"] == scope["id"]
        assert scope["held"] == sum(map(number_held, scope["joins"].values()))
    for wait in state["waits"].values():
        assert not wait["unit"] or state["units"][wait["unit"]]["wait"] == wait["id"]
        assert all(timer in state["timers"] for timer in wait["timers"])
    _check_cleanups(state)
    _check_locks(state)
    working = [u for u in state["units"].values() if u["phase"] == "run"]
    settling = [c for c in state["cuts"].values() if c.get("running")]
    assert state["running"] == len(working) + len(settling)
    _check_layers(state)


def _check_cleanups(state: State) -> None:
    """What is due is waited for, or the flow still has to end; what runs is due to somebody."""
    cleanups = state.get("cleanups", {})
    for number, cleanup in cleanups.items():
        owners: Any = {"unit": state["units"], "act": state["acts"], "scope": state["scopes"]}
        if "kind" in cleanup:
            owner = owners[cleanup["kind"]][cleanup["of"]]
            assert cleanup["kind"] == "scope" or owner["cleanup"] == number
        assert not cleanup.get("over") or not cleanup["todo"]
    for act in state["acts"].values():
        assert "final" not in act or act["final"] in cleanups
    for number, scope in state["scopes"].items():
        waited = [c for c in cleanups.values() if c.get("kind") == "scope" and c["of"] == number]
        assert scope.get("cleaning", 0) == len(waited)


def _check_locks(state: State) -> None:
    """Who has a lock or is queued for it says so, and nobody is queued for one that is free."""
    units = state["units"]
    locks = state.get("locks", {})
    for name, lock in locks.items():
        assert lock["holders"], "a lock that nobody holds is gone"
        assert all(units[n]["lock"] == name and units[n]["held"] for n in lock["holders"])
        assert all(units[n]["lock"] == name for n in lock["queue"])
        assert all(units[n]["phase"] == "lock" for n in lock["queue"])
    for number, unit in units.items():
        assert (unit["phase"] == "lock") == ("then" in unit)
        if "lock" in unit:
            lock = locks[unit["lock"]]
            assert number in (lock["holders"] if unit.get("held") else lock["queue"])


def _check_layers(state: State) -> None:
    """Each layer is referred to as often as it says."""
    counted: dict[int, int] = {}
    for layer in _references(state):
        if layer:
            counted[layer] = counted.get(layer, 0) + 1
    actual = {number: layer[2] for number, layer in state["layers"].items()}
    assert actual == counted, f"layers {actual} are referred to {counted}"


def _references(state: State) -> Iterator[int]:
    """Yield every reference to a layer that a state holds."""
    yield from (layer[0] for layer in state["layers"].values())
    dones = [d for undo in state["undos"].values() for d in undo["todo"]]
    dones += [undo["current"] for undo in state["undos"].values() if "current" in undo]
    yield from (unit.get("seen", 0) for unit in state["units"].values())
    for act in state["acts"].values():
        yield act["past"]
        dones += act.get("done", [])
    for scope in state["scopes"].values():
        yield scope["past"]
        yield from (past for _line, past in scope["ended"])
        dones += scope["done"]
        for join in scope["joins"].values():
            yield from (arrival["past"] for arrival in held_arrivals(join))
    owners: list[Any] = [*state["units"].values(), *state["acts"].values()]
    finals = [f for owner in [*owners, *state["scopes"].values()] for f in owner.get("finals", ())]
    for cleanup in state.get("cleanups", {}).values():
        finals += cleanup["todo"]
        yield cleanup.get("past", 0)
    yield from (final["past"] for final in finals if "past" in final)
    yield from (done["past"] for done in dones)
    yield from (cut["past"] for cut in state["cuts"].values())
