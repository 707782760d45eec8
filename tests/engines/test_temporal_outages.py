"""What does not work for a while at a worker in Temporal loses no execution, and no result."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from temporalio.service import RPCError, RPCStatusCode

from flowengine import Engine, registry
from flowengine.engines.executions.execution import Execution
from flowengine.engines.temporal import worker, workflow
from flowengine.engines.temporal.attempts import Attempts
from flowengine.engines.temporal.objects import VARIABLE
from flowengine.engines.temporal.payloads import Codec
from flowengine.engines.temporal.placing import Placing
from flowengine.errors import StoreError
from tests.engines.temporal_server import RunningWorker, StoreNamed
from tests.engines.world import until
from tests.replacing import Limits
from tests.temporal_stores import running_worker, unguarded

pytestmark = pytest.mark.endurance

STEPS = """\
import os
from pathlib import Path


def note(name: str) -> None:
    with open(Path(__file__).with_name(name), "a") as file:
        file.write("x")


def away(objects: str) -> str:
    note("made")
    os.rename(objects, objects + ".away")
    Path(objects).write_text("no directory")
    return "y" * 300_000


def use(text: str) -> int:
    note("used")
    return len(text)
"""
FLOW = """\
flowengine: 1
id: f
inputs: {text: {type: string, default: ""}, objects: {type: string, default: ""}}
tools:
  away: {python: "steps:away", effect: once}
  use: {python: "steps:use", effect: EFFECT}
steps:
"""
USE = "  - {id: use, call: use, with: {text: '${{ inputs.text }}'}}\n"
LARGE = {"text": "z" * 200_000}


@pytest.fixture
def address(server: StoreNamed, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store whose objects are in a directory of the test."""
    monkeypatch.setenv(VARIABLE, str(folder / "objects"))
    return server("outages")


@pytest.fixture
def engine(address: str, monkeypatch: pytest.MonkeyPatch, limits: Limits) -> Iterator[Engine]:
    """An engine over a store with a worker in this process."""
    monkeypatch.setattr(worker, "guarded", unguarded)
    limits(workflow, _AGAIN=0.1)
    with running_worker(address), Engine(address) as engine:
        yield engine


def write(steps: str, effect: str = "once") -> Path:
    Path("steps.py").write_text(STEPS)
    Path("flow.yaml").write_text(FLOW.replace("EFFECT", effect) + steps)
    return Path("flow.yaml")


def fails_at_first(
    fault: Exception, function: Callable[..., Any], calls: Iterator[int] | None = None
) -> Callable[..., Any]:
    """Return a coroutine function that raises an error the first two times, then works."""
    calls = count() if calls is None else calls

    async def calling(*args: Any, **named: Any) -> Any:
        if next(calls) < 2:
            raise fault
        return await function(*args, **named)

    return calling


def warnings(engine: Engine, id: str) -> list[tuple[str, str]]:
    events = engine.executions.events(id)
    return [(event["about"], event["message"]) for event in events if event["type"] == "warning"]


# Shows D6
def test_a_result_waits_for_the_object_store(address: str, tmp_path: Path) -> None:
    objects = tmp_path / "objects"
    flow = write(
        "  - {id: away, call: away, with: {objects: '${{ inputs.objects }}'}}\n"
        "outputs: {size: '${{ size(steps.away.output) }}'}\n"
    )
    with (
        ThreadPoolExecutor(1) as threads,
        RunningWorker(address) as running,
        Engine(address) as engine,
    ):
        going = threads.submit(engine.run, flow, {"objects": str(objects)}, id="away")
        until(lambda: any("cannot be kept yet" in line for line in running.log), bound=60)
        objects.unlink()
        os.rename(tmp_path / "objects.away", objects)
        result = going.result()
    assert result.outputs == {"size": 300_000}
    assert Path("made").read_text() == "x"


FAULTS: dict[str, tuple[Exception, str]] = {
    "flow": (StoreError("the store is away"), "the store is away"),
    "server": (RPCError("no connection", RPCStatusCode.UNAVAILABLE, b""), "no connection"),
    "input": (StoreError("the objects are away"), "the objects are away"),
}
"""What does not answer at first → its error, and what the warning says of it."""


@pytest.mark.parametrize("fault", FAULTS)
# Shows D6
def test_an_attempt_that_cannot_begin_yet_begins_later(
    fault: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    error, said = FAULTS[fault]
    if fault == "input":
        monkeypatch.setattr(Codec, "decode", undecoded_at_first(error))
    else:
        # Neither a store nor a server can be made to fail for this read alone.
        monkeypatch.setattr(Attempts, "_flow", fails_at_first(error, Attempts._flow))

    result = engine.run(write(USE), LARGE, id=fault)

    assert result.status == "succeeded", result.error
    assert Path("used").read_text() == "x"
    [(about, message)] = warnings(engine, fault)
    assert about == "attempt"
    assert message.startswith("attempt 1 of use could not begin yet: ")
    assert said in message


def undecoded_at_first(error: Exception) -> Callable[..., Any]:
    """Return `Codec.decode`, but of inputs of attempts, the first two are not readable."""
    calls, decode = count(), Codec.decode

    async def decoding(codec: Codec, payloads: Any) -> Any:
        found = await decode(codec, payloads)
        is_input = len(found) == 1 and found[0].metadata["encoding"] == b"binary/plain"
        if is_input and next(calls) < 2:
            raise error
        return found

    return decoding


@pytest.mark.parametrize("error", [StoreError("the store is away"), TypeError("wrong")])
def test_what_is_to_begin_again_can_be_cancelled(
    error: Exception, engine: Engine, monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    failed = threading.Event()

    async def never(*_: Any) -> None:
        failed.set()
        raise error

    monkeypatch.setattr(Attempts, "_flow", never)
    limits(workflow, _AGAIN=600.0)
    engine.start(write(USE), LARGE, id=type(error).__name__)
    assert failed.wait(60)

    assert engine.executions.cancel(type(error).__name__).status == "cancelled"
    assert not Path("used").exists()


@pytest.mark.parametrize(("effect", "attempts_made"), [("once", 1), ("idempotent", 3)])
# Shows D3
def test_an_error_of_the_engine_during_an_attempt_counts_as_an_interruption(
    effect: str, attempts_made: int, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = fails_at_first(TypeError("wrong"), Attempts._outcome)  # no known fault remains there
    monkeypatch.setattr(Attempts, "_outcome", fault)

    result = engine.run(write(USE, effect), LARGE, id=effect)

    [step] = engine.executions.show(effect, step="use")["steps"]
    lines = [line["text"] for one in step["tries"] for line in one.get("log", {}).get("lines", ())]
    assert step["attempts"] == attempts_made
    assert lines == ["error of the engine: TypeError: wrong"] * min(attempts_made, 2)
    if effect == "once":
        [question] = result.waits
        assert (result.status, question["ran"]) == ("stalled", "maybe")
    else:
        assert (result.status, Path("used").read_text()) == ("succeeded", "x")


@pytest.mark.parametrize("part", ["kernel", "attempt"])
# Shows D7
def test_an_error_of_the_engine_fails_a_workflow_task_and_not_the_execution(
    part: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker with another version can continue."""
    calls, apply, queue_for = count(), Execution.apply_queue, Placing.queue_for

    def applying(execution: Execution) -> Any:
        if any(event["type"] == "succeeded" for event in execution.queue) and next(calls) < 2:
            raise KeyError("wrong")
        return apply(execution)

    if part == "kernel":
        monkeypatch.setattr(Execution, "apply_queue", applying)
    else:
        fault = fails_at_first(KeyError("wrong"), queue_for, calls)
        monkeypatch.setattr(Placing, "queue_for", fault)

    result = engine.run(write(USE), LARGE, id=part)

    assert (result.status, Path("used").read_text()) == ("succeeded", "x")
    assert next(calls) > 2


KIND = """\
from flowengine.sdk import StepKind


class Shout(StepKind):
    effect = "pure"

    @classmethod
    def configuration(cls):
        return {"type": "object", "properties": {"text": {"type": "string"}}}

    async def execute(self, context, task, input):
        return input["text"].upper()
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a package with a step kind, which this process has installed."""
    site = tmp_path / "site"
    info = site / "shouting-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[flowengine.nodes]\nshout = shouting:Shout\n")
    (site / "shouting.py").write_text(KIND)
    monkeypatch.syspath_prepend(str(site))
    for cache in ("_points", "_kinds"):
        monkeypatch.setattr(registry, cache, {})
    return site


# Shows D1
def test_a_worker_without_the_package_of_a_kind_leaves_the_attempt_to_another(
    address: str, package: Path
) -> None:
    """As while workers are replaced one after the other."""
    flow = write("  - {id: a, shout: {text: hello}}\noutputs: {said: '${{ steps.a.output }}'}\n")
    with Engine(address) as engine, RunningWorker(address) as older:
        engine.start(flow, id="shout")
        until(lambda: bool(warnings(engine, "shout")))
        [(about, message)] = warnings(engine, "shout")
        assert about == "attempt"
        assert f"could not begin yet: the worker {older.process.pid}@" in message
        assert "cannot run it: there is no step kind 'shout'; installed are" in message
        assert message in str(engine.executions.show("shout")["warnings"])
        with RunningWorker(address, via=["env", f"PYTHONPATH={package}"]):
            until(lambda: engine.executions.result("shout").status == "succeeded", bound=240)
        assert engine.executions.result("shout").outputs == {"said": "HELLO"}


LATER = """\
def use(text: str) -> int:
    return len(text)


def longer(old: str, new: str) -> str:
    return max(old, new, key=len)
"""
REDUCED = """\
state: {longest: {type: string, default: "", reducer: {python: "later:longer"}}}
steps:
  - {id: a, python: "later:use", effect: once, with: {text: abc}, set: {longest: "abc"}}
outputs: {size: "${{ steps.a.output }}", longest: "${{ state.longest }}"}
"""


@pytest.mark.parametrize("lacks", ["", "import nothing_there\n", LATER.partition("\n\n\n")[2]])
# Shows D3
def test_what_a_worker_lacks_for_a_function_fails_nothing(
    lacks: str, address: str, tmp_path: Path
) -> None:
    """The module, what it imports, or the function in it."""
    (tmp_path / "later.py").write_text(LATER)
    (tmp_path / "flow.yaml").write_text(f"flowengine: 1\nid: later\n{REDUCED}")
    id = f"later{len(lacks)}"
    with Engine(address) as engine:
        engine.start(tmp_path / "flow.yaml", id=id)
        if lacks:
            (tmp_path / "later.py").write_text(lacks)
        else:
            (tmp_path / "later.py").unlink()
        with RunningWorker(address) as older:
            until(lambda: bool(warnings(engine, id)))
            assert older.stop() == 0
        (tmp_path / "later.py").write_text(LATER)
        with RunningWorker(address):
            until(lambda: engine.executions.result(id).status == "succeeded", bound=120)
        assert engine.executions.result(id).outputs == {"size": 3, "longest": "abc"}
