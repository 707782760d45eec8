"""Runs flows given as text: in the kernel under many orders of events, and in the engine.

The engine uses a virtual clock: where a loop would sleep, time advances at once. The steps `python:
"tools:act"` follow a script of the test. Without one, they return their argument.
"""

from __future__ import annotations

import asyncio
import json
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from flowengine import (
    Decision,
    Engine,
    ExecutionResult,
    LoadedFlow,
    Sent,
    StepContext,
    StepError,
    load,
)
from flowengine.engines.executions.linked_flows import why_not
from flowengine.engines.executions.reducers import reducer
from flowengine.flow.compile import Compiled, compile_text
from flowengine.flow.expressions.evaluator import CelEvaluator
from flowengine.kernel import ENDED, Graph
from flowengine.kernel.commands import Run
from flowengine.sdk.python import user_code
from flowengine.sdk.python.imported_modules import import_function
from tests.flow.verdicts import compiled_if_accepted
from tests.replacing import homes
from tests.simulation.explorer import choosers
from tests.simulation.simulator import Fails, Simulator, unpacked

T = TypeVar("T")
OVER = {"succeeded", "skipped", "failed", "cancelled"}
START = 1_700_000_000_000
"""Start of the clock, in milliseconds since 1970."""

TOOLS = '''
"""The tools of a test; what they do is its script."""

from typing import Any

from flowengine import StepContext

world: Any = None


def use(one: Any) -> None:
    global world
    world = one


async def act(context: StepContext, value: Any = None) -> Any:
    return await world.act(context, value)


async def count(context: StepContext, value: int) -> int:
    return await world.act(context, value)


async def label(context: StepContext, value: str) -> str:
    return await world.act(context, value)


def longer(old: str, new: str) -> str:
    return max(old, new, key=len)


def broken(old: str, new: str) -> str:
    raise KeyError(new)
'''


class Call(NamedTuple):
    """One attempt of a step, as a script receives it."""

    address: str
    attempt: int
    value: Any

    @property
    def step(self) -> str:
        """ID of the step."""
        return self.address.split("/")[-1].split("[")[0].split("@")[0].split("#")[0]


Text = str | dict[str, Any]
"""The contents of a flow file below its head, as YAML or as data."""
Script = Mapping[str, Any]
"""Step or address → result: a value, a `Fails`, or a function of the `Call`."""


def perform(script: Script, call: Call) -> Any:
    """Return the result of a call according to a script, or raise its `Fails`."""
    found = script.get(call.address, script.get(call.step, call.value))
    if isinstance(found, Exception):
        raise found
    return found(call) if callable(found) else found


class Outcome(NamedTuple):
    """The state of an execution, reduced to what must not depend on the order of events."""

    status: str
    outputs: Any
    error: dict[str, Any] | None


def outcome_of(status: str, outputs: Any, error: Any) -> Outcome:
    """Return an outcome with those parts of the error that users see."""
    told = None
    if error is not None:
        told = {key: error.get(key) for key in ("type", "message", "data", "step")}
    return Outcome(status, outputs, told)


class World:
    """Behavior of the steps of one engine.

    Attributes:
        script: Results of the steps.
        order: Addresses that end in this order, each after those before it.
        held: Addresses that never end by themselves.
        started: Addresses in the order of their start.
        ended: Addresses in the order of their end.
        withdrawn: Addresses of cancelled attempts.
        keys: Address → idempotency keys of its calls.
        busy: Number of steps running now.
        most: Highest number of steps that ran at once.
    """

    def __init__(self) -> None:
        self.script: Script = {}
        self.order: list[str] = []
        self.held: set[str] = set()
        self.started: list[str] = []
        self.ended: list[str] = []
        self.withdrawn: list[str] = []
        self.keys: dict[str, set[str]] = {}
        self.busy = self.most = 0
        self._moved = asyncio.Condition()

    async def act(self, context: StepContext, value: Any) -> Any:
        """Return the scripted result, once `order` and `held` permit it."""
        address = context.address
        self.started.append(address)
        self.keys.setdefault(address, set()).add(context.idempotency_key)
        self.busy += 1
        self.most = max(self.most, self.busy)
        try:
            await asyncio.sleep(0.001)  # lets all steps of this moment start first
            async with self._moved:
                self._moved.notify_all()
                await self._moved.wait_for(lambda: self._may_end(address))
                self.ended.append(address)
                self._moved.notify_all()
            return perform(self.script, Call(address, context.attempt, value))
        except asyncio.CancelledError:
            self.withdrawn.append(address)
            async with self._moved:
                self._moved.notify_all()
            raise
        except Fails as failure:
            told = failure.error
            raise StepError(
                told["message"],
                type=told["type"],
                retryable=told.get("retryable"),
                data=told.get("data"),
            ) from None
        finally:
            self.busy -= 1

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for a condition that the steps will fulfill."""
        async with self._moved:
            await self._moved.wait_for(holds)

    def _may_end(self, address: str) -> bool:
        if address in self.held:
            return False
        if address not in self.order:
            return True
        return set(self.order[: self.order.index(address)]) <= set(self.ended)


class Clock(selectors.DefaultSelector):
    """A virtual clock for an event loop and an engine: it jumps to the loop's next wake-up."""

    def __init__(self, start: int = START) -> None:
        super().__init__()
        self.start = start
        self.seconds = 0.0  # since the start: small numbers keep additions exact
        self.threads = 0

    def now(self) -> int:
        """Return the time in milliseconds since 1970."""
        return self.start + round(self.seconds * 1000)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return ready events. If there are none, advance the clock instead of waiting."""
        if self.threads:
            return super().select(timeout)
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "nothing will ever happen"
            self.seconds += timeout
        return ready


class Loop(asyncio.SelectorEventLoop):
    """An event loop with a virtual clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._test_clock = clock

    def time(self) -> float:
        """Return the time in seconds."""
        return self._test_clock.seconds


_on_thread = user_code.on_thread


def counting(function: Any, outlast: Any = None) -> Awaitable[Any]:
    """Call a function on a thread. A virtual clock of the loop stands still meanwhile."""
    clock = getattr(asyncio.get_running_loop(), "_test_clock", None)
    return _on_thread(function, outlast) if clock is None else _counted(clock, function, outlast)


async def _counted(clock: Clock, function: Any, outlast: Any) -> Any:
    clock.threads += 1
    try:
        return await _on_thread(function, outlast)
    finally:
        clock.threads -= 1


# For good: a module that is imported during a test would keep what is undone after it.
for _home in homes("on_thread", _on_thread):
    vars(_home)["on_thread"] = counting


class Stage:
    """Runs flows, as described in the module's docstring.

    Args:
        folder: An empty folder for flow files and tools.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "tools.py").write_text(TOOLS)
        self.clock = Clock()
        self.loop = Loop(self.clock)
        self.world = World()
        self._compiled: dict[str, Compiled] = {}
        self._graphs: dict[int, Graph] = {}
        import_function("tools:use", str(folder))(self.world)
        self.engine = Engine(None, clock=self.clock, workdir=folder, ttl=1e6, user="user:ben")

    def close(self) -> None:
        """Stop everything that still runs."""
        self.do(self.engine.__aexit__())
        self.loop.close()

    # Compiling

    def compile(self, text: Text) -> Compiled:
        """Check and compile a flow."""
        return compile_text(_file(text), folder=self.folder)

    def compiled_if_accepted(self, text: Text) -> Compiled | None:
        """Return the compiled flow, or None if the checker rejects it."""
        return compiled_if_accepted(_file(text), self.folder)

    def flow(self, text: Text) -> LoadedFlow:
        """Load a flow like a user."""
        file = self.folder / "flow.yaml"
        file.write_text(_file(text))
        return load(file)

    def warnings(self, text: Text) -> list[str]:
        """Return the codes of the warnings of a flow."""
        return [one.code for one in self.compile(text).diagnostics]

    # In the kernel

    def simulator(
        self,
        text: Text | Compiled | LoadedFlow,
        script: Script | None = None,
        *,
        seed: int = 0,
        order: str = "random",
    ) -> Simulator:
        """Return a simulated execution that has not started."""
        graph = self._graph(text)
        by_step = {step["id"]: _scripted(script or {}) for step in graph.flow["steps"]}
        return Simulator(graph, by_step, seed=seed, order=order)

    def _graph(self, text: Text | Compiled | LoadedFlow) -> Graph:
        """Return the graph of a flow, compiling each text only once."""
        if isinstance(text, str | dict):
            written = _file(text)
            compiled = self._compiled.get(written) or self.compile(text)
            flow = self._compiled.setdefault(written, compiled).flow
        else:
            flow = text.compiled if isinstance(text, LoadedFlow) else text.flow
        if id(flow) not in self._graphs:
            evaluator = CelEvaluator(flow["expressions"], "flow")
            self._graphs[id(flow)] = Graph(flow, evaluator, why_not, reducer)
        return self._graphs[id(flow)]

    def simulate(
        self,
        text: Text | Compiled | LoadedFlow,
        script: Script | None = None,
        inputs: dict[str, Any] | None = None,
        *,
        seed: int = 0,
        order: str = "random",
    ) -> Simulator:
        """Run an execution until no event is possible. Its journal must restore its state."""
        simulator = self.simulator(text, script, seed=seed, order=order)
        return checked(simulator.start(inputs or {}).run())

    def orders(
        self,
        text: Text | Compiled | LoadedFlow,
        script: Script | None = None,
        inputs: dict[str, Any] | None = None,
        *,
        most: int = 12,
    ) -> Iterator[Simulator]:
        """Run an execution in all orders, or in `most` orders, half of them random."""
        ways = choosers()
        for way in islice(ways, most - most // 2):
            simulator = self.simulator(text, script).start(inputs or {})
            while can := simulator.possible():
                simulator.let(can[way.choose(len(can))])
            yield checked(simulator)
        if next(ways, None) is not None:
            for seed in range(most // 2):
                yield self.simulate(text, script, inputs, seed=seed)

    # In the engine

    def do(self, work: Coroutine[Any, Any, T] | Awaitable[T]) -> T:
        """Run an engine call on the loop with the virtual clock."""
        return self.loop.run_until_complete(work)

    def run(
        self, text: Text | LoadedFlow, inputs: dict[str, Any] | None = None, id: str | None = None
    ) -> ExecutionResult:
        """Run a flow until it ends or waits."""
        flow = text if isinstance(text, LoadedFlow) else self.flow(text)
        return self.do(self.engine.run_async(flow, inputs, id=id))

    def run_script(self, text: Text, script: Script) -> ExecutionResult:
        """Run a flow whose steps follow a script."""
        self.world.script = script
        return self.run(text)

    def run_meanwhile(
        self, text: Text, holds: Callable[[], bool], then: Callable[[], Awaitable[object]]
    ) -> ExecutionResult:
        """Run a flow as execution `it`, and call `then` once a condition holds during the run."""
        flow = self.flow(text)

        async def both() -> ExecutionResult:
            running = self.loop.create_task(self.engine.run_async(flow, id="it"))
            await self.world.until(holds)
            await then()
            return await running

        return self.do(both())

    def later(self, execution: str, seconds: float) -> ExecutionResult:
        """Resume an execution after a number of seconds."""
        self.clock.seconds += seconds
        return self.do(self.engine.resume_async(execution))

    def decide(self, address: str, choice: str, **answer: Any) -> Decision:
        """Decide on the open approval at an address."""
        [wait] = [w for w in self.engine.approvals.list().items if w["address"] == address]
        return self.do(self.engine.approvals.decide_async(wait["id"], choice, **answer))

    def signal(self, name: str, data: Any = None, **to: Any) -> Sent:
        """Send a signal."""
        return self.do(self.engine.signal_async(name, data, **to))

    def history(self, execution: str) -> list[tuple[str, str, str | None]]:
        """Return (address, status, outcome) of each activation, in order of their start."""
        steps = self.engine.executions.show(execution)["steps"]
        return [(step["address"], step["status"], step["outcome"]) for step in steps]

    # Both

    def play(
        self,
        text: Text,
        script: Script | None = None,
        inputs: dict[str, Any] | None = None,
        *,
        most: int = 12,
    ) -> Outcome:
        """Run a flow in up to `most` orders and in the engine. All outcomes must be equal."""
        flow = self.flow(text)
        self.world.script = script or {}
        result = self.run(flow, inputs)
        found = outcome_of(result.status, result.outputs, result.error)
        given = self.engine.executions.show(result.execution)["inputs"]
        for simulator in self.orders(flow, script, given, most=most):
            state = simulator.state
            other = outcome_of(state["status"], state["outputs"], state["error"])
            assert other == found, simulator.schedule
        return found


def _file(text: Text) -> str:
    if isinstance(text, str):
        return f"flowengine: 1\nid: flow\n{text}"
    return json.dumps({"flowengine": 1, "id": "flow", **text})


def _scripted(script: Script) -> Callable[[Run], Any]:
    def give(run: Run) -> Any:
        value = run.input.get("args", {}).get("value")
        return perform(script, Call(run.address, run.attempt, value))

    return give


def checked(simulator: Simulator) -> Simulator:
    """Return a simulator after checking its journal against its state, and its observers."""
    assert unpacked(simulator.replayed()) == unpacked(simulator.state)
    check_told(simulator)
    return simulator


def check_told(simulator: Simulator) -> None:
    """Check that observers received the end of everything that started."""
    if simulator.status in ENDED:
        left = {a: how for a, how in statuses(simulator).items() if how not in OVER}
        assert not left, f"not told how it ended: {left}"


def statuses(simulator: Simulator) -> dict[str, str]:
    """Return address → status of its activation."""
    return {seen.address: seen.status for seen in simulator.observations}
