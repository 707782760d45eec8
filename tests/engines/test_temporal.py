# Shows D1, D4, D5, D7, D12, F60, V51
"""Executions in Temporal: same flows and histories as with a store in a folder."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from inspect import getsource
from itertools import count, islice
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker._workflow import _WorkflowWorker

from flowengine import Agent, Engine, ExecutionResult, Runner, Sessions
from flowengine.engines.executions.linked_flows import LinkedFlows
from flowengine.engines.flows import LANGUAGE, load
from flowengine.engines.host import SystemClock
from flowengine.engines.temporal import driving, past
from flowengine.engines.temporal.connection import connect, read_address
from flowengine.engines.temporal.keys import VARIABLE as KEYS
from flowengine.engines.temporal.objects import VARIABLE, objects
from flowengine.engines.temporal.requests import QUEUE, WORKFLOW
from flowengine.engines.temporal.store import TemporalStore
from flowengine.engines.temporal.support import check_started, check_supported
from flowengine.errors import Conflict, FlowFileError, NotFound, StoreError, UsageError
from flowengine.journal.encoding import pack, unpack
from flowengine.journal.records import ENDED, WaitFilter
from flowengine.journal.store import ExecutionCopy
from flowengine.kernel import advance, new_state
from flowengine.kernel.commands import Run
from flowengine.sdk import import_function
from flowengine.tool_environment import CallbackAuthority
from tests.alive import alive
from tests.command_line import flowengine
from tests.engines.conftest import Temporal
from tests.engines.temporal_server import RunningWorker, StoreNamed, command_line
from tests.engines.world import host_of, until
from tests.flow import examples
from tests.replacing import Limits
from tests.testing.random_flows import Author

pytestmark = pytest.mark.endurance

WELCOME = Path(__file__).parents[2] / "examples" / "welcome.yaml"
PAGE = Path(__file__).parents[2] / "docs" / "temporal.md"
HEAD = "flowengine: 1\nid: f\n"
RANDOM_FLOWS = 100
"""How many flows without races, and how many with races, in each of ten cases."""
SEEDS = 1000
"""Numbers from which the flows of a case are drawn. The checker accepts about one of two, and of
those with races about one of three."""
TIMES = {"at", "took", "sent", "started_at", "ended_at", "due", "since", "asked", "ready"}


def without_times(value: Any) -> Any:
    """Return data without its times."""
    if isinstance(value, dict):
        return {key: without_times(one) for key, one in value.items() if key not in TIMES}
    if isinstance(value, list):
        return [without_times(one) for one in value]
    return value


def shown(engine: Engine, id: str) -> tuple[Any, Any]:
    """Return the results of `show` and `events`, without times."""
    return without_times(engine.executions.show(id)), [
        *map(without_times, engine.executions.events(id))
    ]


@pytest.mark.endurance(sample=1)
# Shows D9, V61
def test_a_flow_outlives_its_worker_and_shows_the_same_as_in_a_folder(
    server: StoreNamed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    old, new = (f"{name}:{b64encode(os.urandom(64)).decode()}" for name in ("old", "new"))
    monkeypatch.setenv(KEYS, old)
    address, folder = server("killed"), tmp_path / "store"
    begun = ("run", WELCOME, "-i", "name=Ada", "--id", "ada", "--no-interactive")
    with RunningWorker(address):
        in_temporal = command_line("--store", address, *begun)
    in_folder = flowengine("--store", folder, *begun)
    assert (in_temporal.code, in_folder.code) == (4, 4), in_temporal.err

    with Engine(address) as engine, Engine(folder) as other:
        for read in (lists, waits_of, Engine.open_executions):  # no worker is running
            assert read(engine) == read(other)
    monkeypatch.setenv(KEYS, f"{new},{old}")
    with RunningWorker(address):
        wait = in_temporal.ids[-1]
        approved = command_line("--store", address, "approve", wait)
        fails = write_flow(tmp_path, "steps: [{id: a, call: needs, with: {name: private}}]\n")
        with Engine(address) as engine:
            assert "private" in str(engine.run(fails, id="fails").error)
    with Engine(address) as engine:
        there = shown(engine, "ada")  # nor here
        with pytest.raises(Conflict, match="was already approved by "):
            engine.approvals.reject(wait)
        with pytest.raises(Conflict, match="has succeeded"):
            engine.executions.cancel("ada")
    assert b"Ada" not in asyncio.run(history_of(address, "ada"))
    assert b"private" not in asyncio.run(history_of(address, "fails"))
    monkeypatch.setenv(KEYS, new)
    with Engine(address) as engine, pytest.raises(StoreError, match="with the key 'old'"):
        engine.executions.show("ada")
    assert (approved.code, approved.out) == (0, "sent: Ada.txt\n"), approved.err
    assert Path("Ada.txt").read_text() == "Dear Ada, welcome aboard!"
    Path("Ada.txt").unlink()
    flowengine("--store", folder, "approve", in_folder.ids[-1])
    with Engine(folder, durability="power") as engine:
        assert there == shown(engine, "ada")


def lists(engine: Engine) -> Any:
    """Return what `list` tells."""
    return [
        {name: value for name, value in without_times(row).items() if name != "due"}
        for row in engine.executions.list(flow="welcome", status="waiting").items
    ]


def waits_of(engine: Engine) -> Any:
    """Return what `approvals list` tells."""
    page = engine.approvals.list(kinds=["approval"], flow="welcome", assignee=None)
    return [without_times(wait) for wait in page.items]


MODULE = """\
import time
from pathlib import Path

from flowengine.sdk import StepContext

def double(n: int) -> int:
    return 2 * n

def fail() -> None:
    raise ValueError("no")

def hold(name: str, context: StepContext) -> str:
    context.log.info("attempt %d", context.attempt)
    held = Path(name)
    if not held.exists():
        held.touch()
        while not held.with_suffix(".free").exists():
            time.sleep(0.02)
    return "done"

def long(size: int) -> str:
    return "x" * size

def needs(name: str) -> str:
    return Path(name).read_text()

def told(context: StepContext, size: int) -> str:
    context.log.info("attempt %d", context.attempt)
    if context.attempt == 1:
        raise ConnectionError("later")
    return "x" * size
"""
TOOLS = """\
tools:
  double: {python: "temporal_tools:double", effect: pure}
  fail: {python: "temporal_tools:fail", effect: idempotent}
  again: {python: "temporal_tools:hold", effect: idempotent}
  once: {python: "temporal_tools:hold", effect: once}
  long: {python: "temporal_tools:long", effect: pure}
  fee: {python: "temporal_tools:double", approval: required}
  needs: {python: "temporal_tools:needs", effect: pure}
  told: {python: "temporal_tools:told", effect: idempotent}
"""


def write_flow(folder: Path, steps: str) -> Path:
    (folder / "temporal_tools.py").write_text(MODULE)
    path = folder / "flow.yaml"
    path.write_text(HEAD + TOOLS + steps)
    return path


async def replay(store: str, id: str) -> None:
    """Replay a history in this process, which has another hash seed than the worker."""
    from temporalio.worker import Replayer

    from flowengine.engines.temporal.worker import runner_of_workflows
    from flowengine.engines.temporal.workflow import FlowExecution

    client = await connect(read_address(store), objects())
    history = await client.get_workflow_handle(id).fetch_history()
    with past.TasksWithoutLimit(max_workers=1) as executor:
        replayer = Replayer(
            workflows=[FlowExecution],
            workflow_runner=runner_of_workflows(),
            workflow_task_executor=executor,
            data_converter=client.data_converter,
        )
        await replayer.replay_workflow(history)


def test_an_execution_whose_key_is_gone_hides_no_others(
    server: StoreNamed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its data cannot be read, but it is listed, and so are the others and their waits."""
    address = server("sealed")
    flow = write_flow(tmp_path, "steps: [{id: ask, approval: {title: A?}}]\n")
    for key in "ABC":
        monkeypatch.setenv(KEYS, f"{key}:{key * 43}=")
        with RunningWorker(address), Engine(address) as engine:
            engine.start(flow, id=f"with-{key}", labels={"key": key})
            wait_until(lambda id=f"with-{key}": engine.executions.result(id).status == "waiting")  # type: ignore[misc]
    monkeypatch.setenv(KEYS, f"B:{'B' * 43}=")
    with Engine(address) as engine:
        listed = {item["execution"]: item["status"] for item in engine.executions.list().items}
        assert listed == {f"with-{key}": "waiting" for key in "ABC"}
        assert [wait["execution"] for wait in engine.approvals.list().items] == ["with-B"]
        with pytest.raises(StoreError, match="encrypted with the key 'A'"):
            engine.executions.show("with-A")


# Shows D3
def test_what_a_lost_worker_leaves_follows_the_effect(
    server: StoreNamed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE)
    address = server("lost")
    held, free = tmp_path / "a", tmp_path / "a.free"
    flow = write_flow(
        tmp_path,
        "steps:\n  - id: both\n    parallel:\n"
        f"      - {{id: x, call: again, with: {{name: {held}}}}}\n"
        f"      - {{id: y, call: once, with: {{name: {tmp_path / 'b'}}}}}\n"
        f"      - {{id: z, run: 'test -e {tmp_path}/c || {{ echo $$ >{tmp_path}/c; sleep 600; }}',"
        " effect: idempotent}\n",
    )
    short = ("--heartbeat", "3s")
    with Engine(address) as engine:
        with RunningWorker(address, *short):
            engine.start(flow, id="lost")
            until = time.monotonic() + 60
            while (
                not all((tmp_path / name).exists() for name in "abc")
                or not (tmp_path / "c").read_text()
            ):
                assert time.monotonic() < until
                time.sleep(0.02)
            program = int((tmp_path / "c").read_text())
            assert alive(program)
            wait_until(lambda: asyncio.run(beats_with_details(address, "lost")) == 2)
        free.touch()
        wait_until(lambda: not alive(program))  # its guard has ended it
        with RunningWorker(address) as worker:
            result = engine.resume("lost")
            tries = {
                step["address"]: step["attempts"]
                for step in engine.executions.show("lost")["steps"]
            }
            assert lines_of(engine, "lost", "both/x") == [["attempt 1"], ["attempt 2"]]
            assert lines_of(engine, "lost", "both/y") == [["attempt 1"]]
            [question] = result.waits
            assert (result.status, question["ran"]) == ("stalled", "maybe")
            assert (tries["both/x"], tries["both/z"]) == (2, 2)
            answered = engine.approvals.decide(question["id"], "result", value="seen").result
            assert answered is not None
            assert answered.status == "succeeded"
            large = write_flow(tmp_path, "steps: [{id: a, call: long, with: {size: 1000000}}]\n")
            failed = engine.run(large)
            assert failed.error is not None
            assert (failed.status, failed.error["type"]) == ("failed", "LimitExceeded")
            with pytest.raises(UsageError, match="need an object store"):
                engine.store.put_artifact("lost", b"x", "x")
            assert worker.stop() == 0
    taken = "taken    execution=lost flow=f why=attempt step=both/x\n"
    assert taken in [line.partition("Z ")[2] for line in worker.log]


def test_attempts_of_a_stopped_worker_have_their_lines(server: StoreNamed, tmp_path: Path) -> None:
    address, held = server("lost"), tmp_path / "held"
    flow = write_flow(tmp_path, f"steps: [{{id: a, call: once, with: {{name: {held}}}}}]\n")
    with Engine(address) as engine:
        with RunningWorker(address, "--drain", "0s") as worker:
            engine.start(flow, id="stopped")
            wait_until(held.exists)
            assert worker.stop() == 0
        with RunningWorker(address):
            assert engine.resume("stopped").status == "stalled"
            [[first, warning]] = lines_of(engine, "stopped", "a")
    assert (first, warning[:9]) == ("attempt 1", "cancelled")


def lines_of(engine: Engine, id: str, step: str) -> list[list[str]]:
    """Return the texts that each attempt of a step has logged."""
    [shown] = engine.executions.show(id, step=step)["steps"]
    return [[line["text"] for line in one["log"]["lines"]] for one in shown["tries"]]


async def beats_with_details(store: str, id: str) -> int:
    """Return how many attempts of an execution have sent what they have logged."""
    described = await (await connect(read_address(store))).get_workflow_handle(id).describe()
    pending = described.raw_description.pending_activities
    return sum(len(activity.heartbeat_details.payloads) > 0 for activity in pending)


def test_without_a_worker_an_execution_is_recorded_and_that_is_said(
    server: StoreNamed, monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    limits(driving, WORKER_SECONDS=0)
    with Engine(server("idle")) as engine:
        assert (engine.executions.list().items, engine.approvals.list().items) == (
            [],
            [],
        )  # nor ever was one
        with pytest.raises(StoreError, match=r"is recorded, and \S+/idle-\w+ has no worker"):
            engine.run(WELCOME, {"name": "Bob"})
        monkeypatch.setattr(TemporalStore, "may_rest", interrupt)
        with pytest.raises(KeyboardInterrupt, match="continues in Temporal"):
            engine.run(WELCOME, {"name": "Bob"}, labels={"who": "bob"}, id="held")
        [row] = engine.executions.list(labels={"who": "bob"}).items
        assert (row["execution"], row["status"]) == ("held", "recorded")


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_workflow_task_that_fails_again_and_again_is_an_error(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Histories that do not match the code cause this. Here, the input is not a flow."""

    async def start() -> None:
        client = await connect(read_address(store))
        await client.start_workflow(WORKFLOW, {}, id="unfit", task_queue=QUEUE)

    monkeypatch.setattr("flowengine.engines.temporal.store.TRIES", 2)  # from 3 on, it takes seconds
    asyncio.run(start())
    with Engine(store) as engine:
        remote = engine.store
        assert isinstance(remote, TemporalStore)
        failing = (
            r"its workflow task fails again and again \(attempt \d+\): TypeError: FlowExecution"
        )
        with pytest.raises(StoreError, match=failing):
            watch(remote, "unfit")


def watch(store: TemporalStore, execution: str) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        assert not store.may_rest(execution)
        time.sleep(0.05)


def test_executions_that_have_ended_are_pruned(store: str, tmp_path: Path) -> None:
    """With all their runs: one that was retried does not come back as failed."""
    made = tmp_path / "made"
    flow = write_flow(
        tmp_path,
        f"steps:\n  - {{id: a, call: needs, with: {{name: {made}}}}}\n"
        "  - {id: sign, approval: {title: Go on?}}\n",
    )
    flow.write_text(flow.read_text().replace("id: f", "id: pruned"))
    with Engine(store) as engine:
        for id in ("pruned-failed", "pruned-open", "pruned-cancelled"):
            assert engine.run(flow, id=id).status == "failed"
        made.write_text("done")
        assert engine.executions.retry("pruned-open").status == "waiting"
        assert engine.executions.retry("pruned-cancelled").status == "waiting"
        engine.executions.cancel("pruned-cancelled")
        before = int(time.time() * 1000) + 60_000

        def left() -> set[str]:
            return {one["execution"] for one in engine.executions.list(flow="pruned").items}

        wait_until(lambda: engine.store.prune(before, ["cancelled"]).executions > 0)
        assert engine.store.prune(1) == (0, 0, 0, 0)
        engine.store.prune(before, ["failed"])
        wait_until(lambda: left() == {"pruned-open"}, 240, pause=1)  # it takes half a minute
        wait_until(lambda: is_gone(engine, "pruned-cancelled"), 240, pause=1)
        with pytest.raises(NotFound, match="there is no execution 'pruned-cancelled'"):
            engine.executions.show("pruned-cancelled")
        assert engine.executions.cancel("pruned-open").status == "cancelled"


def is_gone(engine: Engine, id: str) -> bool:
    """Return whether the server and its index have forgotten an execution."""
    try:
        engine.executions.find(id)
    except NotFound:
        return True
    return False


def test_an_attempt_that_is_stopped_as_it_begins_is_not_at_work(
    server: StoreNamed, tmp_path: Path
) -> None:
    """One workflow task takes the message that begins it, and the one that cancels it."""
    flow = write_flow(
        tmp_path,
        "signals: {go: {}}\nsteps: [{id: go, wait: {signal: go}}, "
        "{id: late, call: double, with: {n: 1}}]\n",
    )
    address = server("killed")
    with Engine(address) as engine:
        with RunningWorker(address):
            engine.run(flow, id="stopped")
        engine.signal("go", execution="stopped", resume=False)
        with ThreadPoolExecutor(1) as threads:
            cancelling = threads.submit(engine.executions.cancel, "stopped", resume=False)
            until(lambda: asyncio.run(signals_of(address, "stopped")) == 2, pause=0.1)
            with RunningWorker(address):
                assert cancelling.result().status == "cancelled"
                until(lambda: asyncio.run(is_closed(address, "stopped")), pause=0.1)
    asyncio.run(replay(address, "stopped"))


async def signals_of(store: str, id: str) -> int:
    """Return how many signals a workflow has received."""
    handle = (await connect(read_address(store))).get_workflow_handle(id)
    history = await handle.fetch_history()
    return sum(
        event.HasField("workflow_execution_signaled_event_attributes") for event in history.events
    )


async def is_closed(store: str, id: str) -> bool:
    client = await connect(read_address(store))
    return (
        await client.get_workflow_handle(id).describe()
    ).status != WorkflowExecutionStatus.RUNNING


LOOP = """\
steps:
  - id: each
    map: {over: 25, concurrency: 1}
    call: double
    with: {n: "${{ item }}"}
  - {id: sign, approval: {title: Go on?}}
  - {id: made, call: needs, with: {name: MADE}}
  - {id: last, call: double, with: {n: "${{ size(steps.each.output) }}"}}
outputs: {n: "${{ steps.last.output }}"}
"""


def test_long_histories_are_continued_in_other_runs(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, replays = tmp_path / "made", []
    flow = write_flow(tmp_path, LOOP.replace("MADE", str(made)))
    with Engine(store) as there, Engine(tmp_path / "store") as here:
        for engine in (there, here):
            waits = engine.run(flow, id="long").waits
            engine.approvals.approve(waits[0]["id"])
            assert engine.executions.result("long").status == "failed"
        made.write_text("done")
        for engine in (there, here):
            engine.executions.retry("long")
        runs = asyncio.run(runs_of(store, "long"))
        assert runs > 3
        assert there.executions.result("long").outputs == here.executions.result("long").outputs
        assert shown(there, "long") == shown(here, "long")
        assert len(there.executions.list(flow="f", status="succeeded").items) > 0

    async def counted(client: Any, execution: str, run: str) -> Any:
        replays.append(run)
        return await real(client, execution, run)

    async def begun(client: Any, execution: str, run: str | None = None) -> Any:
        start = await first_input(client, execution, run)
        start.get("past", {}).pop("events", None)
        return start

    real, first_input = past.replayed, past.first_input
    monkeypatch.setattr(past, "replayed", counted)
    read = []
    with Engine(store) as there:
        assert there.executions.result("long").outputs == {"n": 50}
        assert [reason["what"] for reason in there.executions.why("long")] == ["succeeded"]
        read.append((shown(there, "long"), [*there.executions.events("long")]))
    assert replays == []
    # If nothing was left for readers, each run is replayed once, if it is needed.
    monkeypatch.setattr(past, "_left", lambda *_: asyncio.sleep(0))
    monkeypatch.setattr(past, "first_input", begun)
    with Engine(store) as there:
        assert there.executions.result("long").outputs == {"n": 50}
        assert len(replays) == 1
        events = [*there.executions.events("long")]
        assert 1 < len(replays) == len({*replays}) <= runs
        read.append((shown(there, "long"), events))
    assert read[0] == read[1]


async def runs_of(store: str, id: str) -> int:
    client = await connect(read_address(store))
    return len([row async for row in client.list_workflows(f"WorkflowId = '{id}'")])


MANY_AT_ONCE = """\
flowengine: 1
id: many
steps: [{id: each, map: {over: 40000, concurrency: 50}, output: "${{ item }}"}]
outputs: {n: "${{ size(steps.each.output) }}"}
"""


def test_steps_without_attempts_have_no_events_in_the_history(store: str, tmp_path: Path) -> None:
    """One event begins and ends 40,000 of them, which takes longer than the library allows."""
    (tmp_path / "flow.yaml").write_text(MANY_AT_ONCE)
    with Engine(store) as engine:
        assert engine.run(tmp_path / "flow.yaml", id="many").outputs == {"n": 40_000}
    assert len(asyncio.run(history_of(store, "many"))) < 4_000


def test_there_is_a_limit_on_tasks_to_change() -> None:
    """It has no option, so the worker sets an attribute of the library."""
    assert "self._deadlock_timeout_seconds = " in getsource(_WorkflowWorker)


def wait_until(is_so: Callable[[], bool], seconds: float = 60, *, pause: float = 0.02) -> None:
    """Wait until the index of the server has caught up, with a pause (s) between looks."""
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until
        time.sleep(pause)


ORDER = """\
inputs: {order: {type: string}}
signals:
  paid: {key: "${{ inputs.order }}", data: {type: integer}}
  stop: {}
start: [{signal: paid, with: {order: "${{ signal.key }}"}}]
steps:
  - {id: first, wait: {signal: paid}}
  - {id: second, wait: {signal: stop}}
outputs: {n: "${{ steps.first.output.data }}"}
"""


SCHEDULED = """\
inputs: {at: {type: string}, way: {type: string}}
start:
  - {schedule: "* * * * *", with: {at: "${{ execution.scheduled_at }}", way: each}}
  - {schedule: 0 0 1 1 *, with: {at: "${{ execution.scheduled_at }}", way: rare}}
steps: [{id: note, output: "${{ inputs.way }} ${{ inputs.at }}"}]
outputs: {said: "${{ steps.note.output }}"}
"""


def test_schedules_start_executions(store: str, tmp_path: Path) -> None:
    """Workers start each time once, wherever the flow was deployed, and when nobody looks."""
    flow = write_flow(tmp_path, SCHEDULED)
    flow.write_text(flow.read_text().replace("id: f", "id: timed"))

    class Past(SystemClock):
        """A clock that is late, so that a time of the schedule is due at once."""

        def now(self) -> int:
            return super().now() - 60_000

    with Engine(store) as engine:
        host_of(engine).clock = Past()
        engine.flows.deploy(flow)
        wait_until(lambda: len(engine.executions.list(flow="timed").items) >= 1)
        engine.flows.pause("timed")
        first = engine.executions.list(flow="timed").items
        assert {row["started_by"] for row in first} == {"schedule"}
        said = [engine.resume(row["execution"]).outputs for row in first]
        assert {str(one)[:15] for one in said} == {"{'said': 'each "}
        assert len({str(one) for one in said}) == len(first)
        assert ["next" in one for one in engine.flows.starts("timed")] == [False, False]
        begun = engine.flows.trigger("timed", schedule="0 0 1 1 *")
        assert str(engine.resume(begun).outputs).startswith("{'said': 'rare ")
        engine.flows.resume("timed")
        assert ["next" in one for one in engine.flows.starts("timed")] == [True, True]
        [rare, _] = engine.store.schedules()
        moved = [engine.store.move_schedule(rare, rare.time + 1, None) for _ in range(2)]
        assert moved == [True, False]
        assert engine.flows.undeploy("timed") == ["timed@0"]
        assert (engine.flows.starts("timed"), engine.flows.start_due()) == ([], [])


@pytest.mark.parametrize("block", range(10))
# Shows V13
def test_of_two_first_messages_one_starts_the_execution(
    block: int, store: str, tmp_path: Path
) -> None:
    flow = write_flow(tmp_path, ORDER)
    with Engine(store) as one, Engine(store) as other:
        one.flows.deploy(flow)
        keys = [f"race{block}-{n}" for n in range(20)]
        with ThreadPoolExecutor(20) as threads:
            sent = [
                threads.submit(engine.signal, "paid", 1, key=key, resume=False)
                for key in keys
                for engine in (one, other)
            ]
            found = [future.result() for future in sent]
        for first, second in zip(found[::2], found[1::2], strict=True):
            assert first.execution == second.execution
            assert first.began != second.began


SIGNED = """\
steps:
  - id: each
    map: 25
    group:
      - id: sign
        approval: {title: "${{ 'Item ' + string(item) }}"}
        on_error: [{type: Rejected, output: {choice: reject}}]
    output: "${{ steps.sign.output.choice }}"
outputs: {signed: "${{ steps.each.output }}"}
"""


@pytest.mark.endurance(sample=100)
@pytest.mark.parametrize("block", range(10))
def test_of_two_decisions_one_takes_effect(block: int, store: str, tmp_path: Path) -> None:
    flow = write_flow(tmp_path, SIGNED)

    def decide(engine: Engine, choice: str, wait: str) -> str:
        """Decide, and return the decision that takes effect as this caller learns it."""
        try:
            engine.approvals.decide(wait, choice, resume=False)
        except Conflict as refusal:
            return "approve" if "was already approved by" in str(refusal) else "reject"
        return choice

    with Engine(store) as one, Engine(store) as other, ThreadPoolExecutor(10) as threads:
        for number in range(4):
            result = one.run(flow, id=f"raced{block}-{number}")
            told = [
                (
                    threads.submit(decide, one, "approve", wait["id"]),
                    threads.submit(decide, other, "reject", wait["id"]),
                )
                for wait in result.waits
            ]
            learned = [{one.result() for one in pair} for pair in told]
            assert [len(pair) for pair in learned] == [1] * 25
            taken = [choice for pair in learned for choice in pair]
            assert one.resume(result.execution).outputs == {"signed": taken}


def test_what_temporal_refuses_for_the_moment_is_repeated(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes only a few queries and updates of one workflow at a time, and none between runs."""
    flow = write_flow(tmp_path, SIGNED.replace("25", "1"))
    busy = RPCError("consistent query buffer is full", RPCStatusCode.RESOURCE_EXHAUSTED, b"")
    # What an update is told whose run is continued in another one before it is accepted.
    gone = RPCError("workflow execution already completed", RPCStatusCode.NOT_FOUND, b"")
    left = {"query": [busy] * 3, "execute_update": [busy, gone, busy, gone]}

    def refused_at_first(name: str) -> Any:
        request = getattr(WorkflowHandle, name)

        async def asked(*arguments: Any, **options: Any) -> Any:
            if left[name]:
                raise left[name].pop()
            return await request(*arguments, **options)

        return asked

    with Engine(store) as engine:
        [wait] = engine.run(flow, id="busy").waits
        for name in left:
            monkeypatch.setattr(WorkflowHandle, name, refused_at_first(name))
        result = engine.approvals.decide(wait["id"], "approve").result
    assert left == {"query": [], "execute_update": []}
    assert result is not None
    assert result.status == "succeeded"


REPLIES = """\
- {calls: [{name: double, arguments: {n: 21}}]}
- {text: It is 42.}
- {text: You are welcome.}
"""


# Shows G5
def test_agents_in_python_run_at_workers(store: str, folder: Path) -> None:
    """Their functions must be importable there."""

    def local(n: int) -> int:
        return 2 * n

    (folder / "temporal_tools.py").write_text(MODULE)
    (folder / "replies.yaml").write_text(REPLIES)
    double = import_function("temporal_tools:double", str(folder))
    agent = Agent(name="clerk", model="scripted/replies.yaml", functions=[double])
    with Engine(store, workdir=folder) as engine:
        runner = Runner(engine)
        assert runner.run(agent, "What is 2 times 21?", session="ada").output == "It is 42."
        assert runner.run(agent, "Thanks.", session="ada").output == "You are welcome."

        assert len(Sessions(engine).read("ada").messages) == 6

        with pytest.raises(UsageError, match="does not support objects of the caller for steps"):
            runner.run(Agent(name="clerk", functions=[local]), "What is 2 times 21?")


def happened(engine: Engine, id: str) -> list[tuple[str, str]]:
    return [(event["type"], event.get("address", "")) for event in engine.executions.events(id)]


SECRET = """\
secrets: {KEY: {file: FILE}}
steps:
  - id: a
    run: {script: 'echo "$KEY" | wc -c; echo $KEY', env: {KEY: "${{ secrets.KEY }}"}}
outputs: {printed: "${{ steps.a.output.stdout }}"}
"""


# Shows D9
def test_secrets_stay_references(store: str, tmp_path: Path) -> None:
    """A worker resolves them, and nothing of them is in a history."""
    (tmp_path / "key").write_text("hidden-value")
    flow = write_flow(tmp_path, SECRET.replace("FILE", str(tmp_path / "key")))
    with Engine(store) as engine:
        result = engine.run(flow, id="secret")
    assert result.outputs == {"printed": "13\n***\n"}
    assert b"hidden-value" not in asyncio.run(history_of(store, "secret"))


async def history_of(store: str, id: str) -> bytes:
    handle = (await connect(read_address(store))).get_workflow_handle(id)
    return b"".join([event.SerializeToString() async for event in handle.fetch_history_events()])


# Shows D11
def test_temporals_own_page_names_flows_and_steps(
    temporal: Temporal, store: str, tmp_path: Path
) -> None:
    """By the requests of the page. It decodes only JSON, and leaves the rest to a codec server."""
    flow = write_flow(
        tmp_path,
        "steps:\n  - {id: pause, wait: 10ms}\n"
        "  - {id: each, map: 2, call: double, with: {n: '${{ item }}'}}\n",
    )
    namespace = store.rpartition("/")[2]
    with Engine(store) as engine:
        assert engine.run(flow, id="named").status == "succeeded"

        def asked(path: str) -> Any:
            address = f"{temporal.page}/api/v1/namespaces/{namespace}/workflows/named{path}"
            return httpx.get(address).raise_for_status().json()

        history = asked("/history")["history"]["events"]
        summaries = [
            event["userMetadata"]["summary"] for event in history if "userMetadata" in event
        ]
        assert [*map(as_page_decodes, summaries)] == [
            "flow f", "timer of pause", "each[0] #1", "each[1] #1",
        ]  # fmt: skip
        found = asked("")["workflowExecutionInfo"]
        columns = found["searchAttributes"]["indexedFields"]
        assert as_page_decodes(columns["FlowengineFlow"]) == "f"
        assert as_page_decodes(columns["FlowengineStatus"]) == "succeeded"
        memo = found["memo"]["fields"]
        decoded = engine.decode_payloads([*memo.values()], namespace)
        head = dict(zip(memo, map(as_page_decodes, decoded), strict=True))["head"]
        assert head[0] == "succeeded"


def as_page_decodes(payload: Any) -> Any:
    """Return a payload as Temporal's page shows it."""
    assert b64decode(payload["metadata"]["encoding"]) == b"json/plain"
    return json.loads(b64decode(payload["data"]))


def consulted(store: Any) -> None:
    with Engine(store.location) as engine, engine.approvals.consulting("one", cast("Any", print)):
        pass


REFUSED: Mapping[str, Sequence[Callable[[Any], object]]] = {
    "environments that are given to a single execution": [
        lambda store: check_started({"execution": {"environments": {"box": {}}}}),
        lambda store: check_started({"execution": {"resources": ["pool"]}}),
        lambda store: Engine(store.location, runtime_resources={"pool": object()}),
        lambda store: Engine(store.location).environments,
        lambda store: Engine(store.location, tool_authority=CallbackAuthority(lambda call: True)),
        consulted,
    ],
    "steps with more than 4 labels": [
        lambda store: check_supported(flow_with(needs=["a", "b", "c", "d", "e"]))
    ],
    "labels of the caller": [lambda store: Engine(store.location, offers=["gpu"])],
    "a clock of the caller": [lambda store: Engine(store.location, clock=SystemClock())],
    "functions that run flows or agents": [
        lambda store: check_started({"execution": {"outer": "one"}})
    ],
    "closed waits of several executions": [
        lambda store: store.waits(WaitFilter(state="closed")),
        lambda store: store.number_events(),
    ],
    "files that no execution refers to yet": [lambda store: store.hold_artifact(b"", "x")],
}
"""Beginning of a row of the page → what it names."""


def flow_with(**step: object) -> Any:
    return {"steps": [{"id": "a", "action": "task", **step}]}


def test_all_that_is_listed_as_refused_is_refused_before_it_runs() -> None:
    text = PAGE.read_text().partition("## What is refused")[2].partition("\n## ")[0]
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(REFUSED)
    with Engine("temporal://127.0.0.1:1/own") as engine:
        for row, (begin, attempts) in zip(rows, REFUSED.items(), strict=True):
            assert row.startswith(begin)
            for attempt in attempts:
                with pytest.raises(UsageError, match=r"in Temporal(,| does not support)"):
                    attempt(engine.store)


ACT = """
def act(value):
    if len(str(value)) % 4 == 0:
        raise ValueError("no")
    return len(str(value))
"""


def random_flow(seed: int, folder: Path, *, wild: bool = False) -> Path | None:
    """Write a random flow whose waits are short. None: the checker refuses it."""
    (folder / "tools.py").write_text(ACT)
    flow = {"flowengine": 1, "id": f"random{seed}", **Author(seed, wild=wild).flow()}
    path = folder / f"{seed}.yaml"
    text = json.dumps(flow)
    path.write_text(re.sub(r'"([12])s"', r'"\g<1>0ms"', text))
    try:
        load(path)
    except FlowFileError:
        return None
    return path


def random_flows(
    first: int, tenth: int | None, folder: Path, *, wild: bool = False
) -> dict[int, Path]:
    """Write random flows until the checker has accepted those of a case, or of a tenth of it.

    Returns:
        The files, by their seeds.
    """
    step = 1 if tenth is None else 10
    seeds = count(first + (tenth or 0), step)
    drawn = ((seed, random_flow(seed, folder, wild=wild)) for seed in seeds)
    accepted = ((seed, path) for seed, path in drawn if path is not None)
    return dict(islice(accepted, RANDOM_FLOWS // step))


@pytest.mark.parametrize("block", range(10))
# Shows D2, D3
def test_random_flows_do_the_same_as_in_a_folder(
    block: int, tenth: int | None, store: str, tmp_path: Path
) -> None:
    flows = random_flows(SEEDS * block, tenth, tmp_path)
    inputs = {"p": True, "q": False, "r": True}
    with Engine(store) as there, Engine(tmp_path / "store") as here:
        for seed, path in flows.items():
            there.start(path, inputs, id=f"random{seed}")
        for seed, path in flows.items():
            id = f"random{seed}"
            found, wanted = there.resume(id), here.run(path, inputs, id=id)
            assert (found.status, found.outputs) == (wanted.status, wanted.outputs), id
            assert Counter(happened(there, id)) == Counter(happened(here, id)), id
    for seed in flows:  # the hash seed of this process is not that of the worker
        asyncio.run(replay(store, f"random{seed}"))


@pytest.mark.endurance(sample=100)
@pytest.mark.parametrize("block", range(10))
# Shows D2
def test_random_flows_with_races_end_and_a_folder_reads_the_same(
    block: int, tenth: int | None, store: str, tmp_path: Path
) -> None:
    """With messages, triggers, shared locks, bounds, budgets and compensation.

    Which of two things comes first differs from run to run. A folder with the order that Temporal
    has recorded must come to the same end.
    """
    flows = random_flows(10_000 + SEEDS * block, tenth, tmp_path, wild=True)
    with Engine(store) as engine:
        for seed, path in flows.items():
            engine.start(path, dict.fromkeys("pqr", True), id=f"wild{seed}")
        for seed in flows:
            with suppress(Conflict):  # it has ended
                engine.signal("go", execution=f"wild{seed}", resume=False)
                engine.signal("more", 3, execution=f"wild{seed}", resume=False)
        results = ended(engine, [f"wild{seed}" for seed in flows])
        with Engine(tmp_path / "store") as here:
            for result in results:
                id = result.execution
                copy_to(here.store, engine.store, id)
                read = here.executions.result(id)
                assert (read.status, read.outputs) == (result.status, result.outputs), id
                (found, events), (wanted, recorded) = shown(here, id), shown(engine, id)
                assert events == recorded, id
                for name in ("status", "inputs", "steps"):
                    assert found[name] == wanted[name], (id, name)
                check_began(here, id)
    kinds = {result.error["type"] for result in results if result.error is not None}
    assert kinds.isdisjoint({"EngineError", "StoreError"})


def ended(engine: Engine, ids: list[str]) -> list[ExecutionResult]:
    """Return the results of executions, after cancelling those that stall.

    One that stalls keeps its locks until an operator answers, and others wait for them.
    """
    results: dict[str, ExecutionResult] = {}
    store: Any = engine.store

    def are_over() -> bool:
        for id in ids:
            if id not in results and store.may_rest(id):
                found = engine.executions.result(id)
                if found.status in ENDED:
                    results[id] = found
                elif found.status == "stalled":
                    with suppress(Conflict):  # it goes on after all
                        engine.executions.cancel(id, resume=False)
        return len(results) == len(ids)

    until(are_over, pause=0.1)
    return [results[id] for id in ids]


def copy_to(folder: Any, store: Any, id: str) -> None:
    """Copy the events of an execution to a folder, whose kernel computes the rest from them."""
    left = store._call(store._ended(id))  # the driver of the workflow, which no method gives out
    data = left.store.copy(id) | {"claims": []}
    events = [[*entry] for entry in store.events(id)]
    data["journal"] |= {"first": 0, "entries": events, "snapshot": None, "lists": []}
    flows = {left.start["new"][2]: pack(left.start["flow"])}
    folder.hold_copy(ExecutionCopy(data, flows, [], []))
    assert folder.drive_copy(id)


def check_began(engine: Engine, id: str) -> None:
    """Check that the kernel of a folder begins each attempt that Temporal has run."""
    record = engine.store.execution(id)
    graph = LinkedFlows(engine.store, LANGUAGE).by_hash(record.hash).graph
    state, begun = new_state(), set()
    for entry in engine.store.events(id):
        event = unpack(entry.payload)
        if event["type"] in ("succeeded", "failed"):
            assert (event["unit"], event["attempt"]) in begun, event
        for command in advance(graph, state, event):
            if isinstance(command, Run):
                begun.add((command.unit, command.attempt))


@pytest.mark.endurance(sample=1)
def test_every_example_runs() -> None:
    for path in examples.FILES:
        check_supported(examples.compiled(path).flow)


@pytest.mark.parametrize("text", ["one", "one:short", ":" + "A" * 88, "one:" + "A" * 88 + ",two"])
def test_keys_are_checked(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEYS, text)
    wrong = pytest.raises(UsageError, match="each key is NAME:BASE64")
    with Engine("temporal://127.0.0.1:1/own") as engine, wrong:
        engine.executions.show("one")


@pytest.mark.parametrize("text", ["temporal://host/name", "temporal://host:1", "temporal://:1/a b"])
def test_addresses_are_checked(text: str) -> None:
    with pytest.raises(UsageError, match="temporal://HOST:PORT/NAMESPACE"):
        Engine(text)


def test_without_a_server_it_says_so() -> None:
    with Engine("temporal://127.0.0.1:1/default") as engine, pytest.raises(StoreError) as caught:
        engine.executions.show("one")
    assert "cannot connect to Temporal at 127.0.0.1:1" in caught.value.message


def test_credentials_are_those_of_temporals_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    async def no_connection(**arguments: Any) -> None:
        given.update(arguments)
        raise RuntimeError("none")

    monkeypatch.setattr("temporalio.client.Client.connect", no_connection)
    monkeypatch.setenv("TEMPORAL_API_KEY", "hidden")
    monkeypatch.setenv("TEMPORAL_ADDRESS", "elsewhere:1")
    with pytest.raises(StoreError, match="cannot connect"):
        asyncio.run(connect(read_address("temporal://here:2/own")))
    assert (given["target_host"], given["namespace"]) == ("here:2", "own")
    assert (given["api_key"], given["tls"]) == ("hidden", True)


def test_a_worker_does_not_begin_with_broken_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "flowengine").mkdir()
    (tmp_path / "flowengine" / "rules.yaml").write_text("rules: [}\n")
    refused = flowengine("--store", "temporal://127.0.0.1:1/default", "worker")
    assert (refused.code, "rules.yaml:1" in refused.err) == (3, True), refused.err
