# Shows D3, D13
"""What happens to executions in Temporal when workers, the server or the network fail."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.results import WaitInfo
from flowengine.engines.temporal import connection
from flowengine.engines.temporal.connection import connect, read_address
from flowengine.engines.temporal.heartbeat import VARIABLE as HEARTBEAT
from flowengine.engines.temporal.heartbeat import is_too_long, patience_with_task, task_time
from flowengine.engines.temporal.requests import RESTING
from flowengine.errors import Conflict, NoWorker, UsageError
from tests.engines import flows, world
from tests.engines.own_network import OwnNetwork
from tests.engines.temporal_server import RunningWorker, StoreNamed, free_port, start_server

pytestmark = pytest.mark.endurance

SHORT = ("--heartbeat", "4s")  # busy machines miss shorter ones
KILLS = 2
MANY = """
steps:
  - id: each
    map: {over: 12, concurrency: 4}
    group:
      - {id: once_a, python: "effects:act_on_thread", with: {value: "${{ item }}"}}
      - id: b
        python: effects:act_on_thread
        effect: idempotent
        with: {value: "${{ steps.once_a.output }}"}
    output: "${{ steps.b.output }}"
outputs: {all: "${{ steps.each.output }}"}
"""
"""At each moment, four of its attempts are at work."""
ASKING = "flowengine: 1\nid: asks\nsteps: [{id: ask, approval: Sure?}]\n"


def cuts(engine: Engine, id: str) -> list[Any]:
    """Return the events of attempts that a lost worker has cut off."""
    return [event for event in engine.executions.events(id) if event["type"] == "cut"]


def is_cut_short(worker: RunningWorker, folder: Path) -> bool:
    """Stop a worker. Unless an attempt is at work in it, let it continue."""
    os.kill(worker.process.pid, signal.SIGSTOP)
    if any(folder.glob(f"*/working.{worker.process.pid}.*")):
        return True
    os.kill(worker.process.pid, signal.SIGCONT)
    return False


@pytest.mark.parametrize("block", range(10))
# Shows F60
def test_killed_workers_lose_nothing_and_repeat_no_step_that_runs_once(
    block: int, server: StoreNamed, tmp_path: Path
) -> None:
    texts = {**flows.ALL, **{f"many{number}": MANY for number in range(2)}}
    calm = {}
    with Engine(tmp_path / "store") as engine:
        for name, text in {**flows.ALL, "many": MANY}.items():
            world.finish(engine, world.make(tmp_path / "calm" / name, text), name)
            calm[name] = world.outcome(engine, name)
    for name, text in texts.items():
        world.make(tmp_path / name, text)
        (tmp_path / name / "slowly").write_text("0.05" if text == MANY else "")
    draw, address = random.Random(block), server("faults")
    ids = {name: f"{name}-killed{block}" for name in texts}

    def progress() -> int:
        return sum(len(world.effects(tmp_path / name)) for name in texts)

    ends: dict[str, Future[world.Outcome]] = {}

    def is_over() -> bool:
        return all(end.done() for end in ends.values())

    workers = [RunningWorker(address, *SHORT) for _ in range(2)]
    try:
        with Engine(address) as engine, ThreadPoolExecutor(len(texts)) as threads:

            def finish(name: str) -> world.Outcome:
                while True:
                    with suppress(NoWorker):  # none was there for long
                        world.finish(engine, tmp_path / name / "flow.yaml", ids[name])
                        return world.outcome(engine, ids[name])

            ends |= {name: threads.submit(finish, name) for name in texts}
            for _ in range(KILLS):
                reached = progress() + draw.randrange(5, 30)
                while progress() < reached and not is_over():
                    time.sleep(0.01)
                world.until(lambda: is_cut_short(workers[0], tmp_path) or is_over())
                workers.pop(0).kill()
                workers.append(RunningWorker(address, *SHORT))
            for name, end in ends.items():
                assert end.result() == calm[name.rstrip("0123456789")], name
                world.check_effects(tmp_path / name)
            assert any(cuts(engine, id) for id in ids.values())
    finally:
        for worker in workers:
            worker.kill()


PAUSE = """
signals: {go: {}}
steps:
  - {id: pause, wait: 300ms}
  - {id: hear, wait: {signal: go}}
"""


def test_a_query_beside_a_lost_worker_does_not_change_times(
    server: StoreNamed, tmp_path: Path
) -> None:
    """The other worker answers before it has taken the end of the pause."""
    address, file = server("faults"), world.make(tmp_path, PAUSE)
    with RunningWorker(address) as one, RunningWorker(address) as other, Engine(address) as engine:
        engine.start(file, id="asked")
        world.until(lambda: "TIMER_STARTED" in history(address, "asked"))
        [who] = {line for line in identities(address, "asked") if line}
        (one if who.startswith(f"{one.process.pid}@") else other).kill()
        while len(engine.executions.show("asked")["steps"]) < 2:
            engine.executions.events("asked")
        assert history(address, "asked").count("TIMER_STARTED") == 1


def history(address: str, id: str) -> list[str]:
    """Return the types of the events of a workflow."""
    from temporalio.api.enums.v1 import EventType

    names = [EventType.Name(event.event_type) for event in asyncio.run(recorded(address, id))]
    return [name.removeprefix("EVENT_TYPE_") for name in names]


def identities(address: str, id: str) -> list[str]:
    """Return which workers have completed its workflow tasks."""
    events = asyncio.run(recorded(address, id))
    return [event.workflow_task_completed_event_attributes.identity for event in events]


async def recorded(address: str, id: str) -> list[Any]:
    client = await connect(read_address(address))
    return [*(await client.get_workflow_handle(id).fetch_history()).events]


OPEN = """
signals: {go_on: {}}
steps:
  - id: all
    parallel:
      - {id: once_stay, python: "effects:stay"}
      - {id: again, python: "effects:stay", effect: idempotent}
      - {id: pause, wait: 50ms}
      - {id: sign, wait: {signal: go_on}}
  - {id: once_end, python: "effects:act"}
"""
COUNT = 8
"""The number of open executions."""


class Open:
    """Open executions, each with two attempts at work, and a wait.

    Args:
        address: The store.
        folder: Contains the flow and its effects.
        count: The number of executions.
    """

    def __init__(self, address: str, folder: Path, count: int = COUNT) -> None:
        self.address = address
        self.folder = folder
        self.ids = [f"{folder.name}-{number}" for number in range(count)]
        self.engine = Engine(address)
        self._labels = {"test": folder.name}
        self._file = world.make(folder, OPEN)

    def begin(self, worker: RunningWorker) -> None:
        """Start them, and wait until a worker is at work on all of their attempts."""
        for id in self.ids:
            self.engine.start(self._file, id=id, labels=self._labels)
        world.until(lambda: len(taken(worker)) >= 2 * len(self.ids))

    def go(self) -> None:
        """Let the attempts end."""
        (self.folder / "go").touch()

    def finish(self) -> None:
        """Answer all waits, and check that nothing was lost or done twice."""
        with self.engine, ThreadPoolExecutor(10) as threads:
            world.until(lambda: self._have_ended(threads), pause=0.25)
        keys = [key for _, key, _ in world.effects(self.folder)]
        assert len(keys) == len(set(keys)) == 3 * len(self.ids)

    def _have_ended(self, threads: ThreadPoolExecutor) -> bool:
        """Return whether all have ended. One list costs less than a poll of each."""
        rows = self.engine.executions.list(labels=self._labels, limit=len(self.ids)).items
        statuses = {row["execution"]: row["status"] for row in rows}
        assert {*statuses.values()} <= {"running", *RESTING, "succeeded"}
        list(threads.map(self._answer, [id for id in statuses if statuses[id] in RESTING]))
        return [*statuses.values()] == ["succeeded"] * len(self.ids)

    def _answer(self, id: str) -> None:
        """Answer the waits of an execution. No attempt of these tests was cut off after its effect,
        so that the folder need not have any."""
        waits: list[WaitInfo] = []
        with suppress(NoWorker):  # the server gave the query to a connection that is lost
            waits = self.engine.executions.result(id).waits
        for wait in waits:
            with suppress(Conflict):  # the list was late
                world.answer(self.engine, wait, self.folder / id)

    def cuts(self) -> int:
        """Return how many attempts were cut off."""
        return sum(len(cuts(self.engine, id)) for id in self.ids)


def taken(worker: RunningWorker) -> list[str]:
    """Return the lines about attempts that a worker has begun."""
    return [line for line in worker.log if " why=attempt " in line]


def test_a_stopped_worker_ends_its_attempts_and_another_continues(
    server: StoreNamed, tmp_path: Path
) -> None:
    opened = Open(server("faults"), tmp_path)
    with RunningWorker(opened.address) as worker:
        opened.begin(worker)
        worker.process.terminate()
        world.until(lambda: any("draining" in line for line in worker.log))
        with RunningWorker(opened.address) as other:
            opened.go()
            opened.finish()
            assert worker.drained() == 0
            assert {line.partition("step=")[2] for line in taken(other)} == {"once_end\n"}


def test_attempts_of_a_killed_worker_are_known_to_be_lost_soon(
    server: StoreNamed, tmp_path: Path
) -> None:
    opened = Open(server("faults"), tmp_path)
    heartbeat = ("--heartbeat", "3s")
    with RunningWorker(opened.address, *heartbeat) as worker:
        opened.begin(worker)
        worker.kill()
    killed = time.time()
    with RunningWorker(opened.address, *heartbeat):
        world.until(lambda: opened.cuts() >= 2 * COUNT)
        last = max(event["at"] for id in opened.ids for event in cuts(opened.engine, id))
        # Without heartbeats, they would never be known.
        assert datetime.fromisoformat(last).timestamp() - killed < 3 + 2 + 60
        opened.go()
        opened.finish()


def test_a_worker_that_dies_during_a_workflow_task_is_noticed_as_soon(
    server: StoreNamed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the setting, Temporal would wait for ten seconds."""
    monkeypatch.setenv(HEARTBEAT, "3s")
    opened = Open(server("faults"), tmp_path, 1)
    [id] = opened.ids
    with RunningWorker(opened.address) as worker:
        opened.begin(worker)
        with RunningWorker(opened.address):
            worker.process.send_signal(signal.SIGSTOP)  # it takes a task, and does not answer
            opened.engine.signal("go_on", execution=id, resume=False)
            world.until(lambda: history(opened.address, id)[-1] == "WORKFLOW_TASK_STARTED")
            worker.kill()
            killed = time.time()
            world.until(lambda: opened.cuts() == 2)
            assert "WORKFLOW_TASK_TIMED_OUT" in history(opened.address, id)
            times = [event["at"] for event in cuts(opened.engine, id)]
            last = datetime.fromisoformat(max(times)).timestamp()
            assert last - killed < 3 + 2 + 2  # the last for a busy machine
            opened.go()
            opened.finish()


# Shows D7
def test_short_workflow_tasks_bound_what_a_worker_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    assert task_time(0.2) == timedelta(seconds=1)
    assert not is_too_long(4096, task_time(60))  # here, Temporal suggests another run
    times = [task_time(seconds).total_seconds() for seconds in (3, 30, 60, 600)]
    assert times == [3, 10, 60, 120]
    assert [patience_with_task(seconds) for seconds in (3, 10, 60)] == [9, 9, 54]
    assert (is_too_long(1229, task_time(3)), is_too_long(1231, task_time(3))) == (False, True)
    monkeypatch.setenv(HEARTBEAT, "soon")
    with pytest.raises(UsageError, match="'soon' is not a duration"):
        Engine("temporal://127.0.0.1:1/own")


def test_executions_are_cancelled_with_their_attempts(server: StoreNamed, tmp_path: Path) -> None:
    opened = Open(server("faults"), tmp_path)
    with RunningWorker(opened.address, *SHORT) as worker, opened.engine as engine:
        opened.begin(worker)
        with ThreadPoolExecutor(10) as threads:
            list(threads.map(engine.executions.cancel, opened.ids))
        assert {engine.executions.result(id).status for id in opened.ids} == {"cancelled"}
        opened.go()
        assert worker.stop() == 0
    assert world.effects(tmp_path) == []


def test_a_worker_without_network_stops_its_attempts_before_others_begin_them_again(
    server: StoreNamed, tmp_path: Path
) -> None:
    """The network stays cut until TCP gives up. Once it is back, the worker works again."""
    opened = Open(server("faults"), tmp_path)
    # After half of it, the worker has an eighth to end its attempts. Else its guard ends it.
    beat = ("--heartbeat", "15s")
    with OwnNetwork() as network, RunningWorker(opened.address, *beat, via=network.via) as lonely:
        opened.begin(lonely)
        network.cut()
        with RunningWorker(opened.address, *beat) as worker:
            world.until(lambda: len(taken(worker)) >= COUNT)  # the idempotent ones
            opened.go()
            world.until(lambda: len(world.effects(tmp_path)) == COUNT)
            world.until(lambda: not network.is_connected())
            assert worker.stop() == 0
        network.mend()
        opened.finish()
        assert len(taken(lonely)) == 4 * COUNT, "what it began, and the two others of each"
        assert lonely.stop() == 0


# Shows F60
def test_executions_outlive_the_server(tmp_path: Path) -> None:
    port, file = free_port(), tmp_path / "server"
    server = start_server(port, "restarted", file=file)
    opened = Open(f"temporal://127.0.0.1:{port}/restarted", tmp_path)
    try:
        # On a busy machine, the server may be away for longer than the default permits.
        with RunningWorker(opened.address, "--heartbeat", "60s") as worker:
            opened.begin(worker)
            server.kill()
            server.wait()
            server = start_server(port, "restarted", file=file)
            opened.go()
            opened.finish()
            assert worker.stop() == 0
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="session")
def wrong_clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that replaces the clock of the programs that load it."""
    if shutil.which("cc") is None:
        pytest.skip("no compiler: apt-get install gcc libc6-dev")
    library = tmp_path_factory.mktemp("clock") / "wrong_clock.so"
    source = Path(__file__).with_name("wrong_clock.c")
    subprocess.run(["cc", "-O", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def test_times_are_those_of_the_server(
    server: StoreNamed, wrong_clock: Path, tmp_path: Path
) -> None:
    """The clock of the worker is wrong by an hour, in both directions."""
    opened = Open(server("faults"), tmp_path)
    begun = datetime.now(UTC)
    for ahead in (-3600, 3600):
        via = ["env", f"LD_PRELOAD={wrong_clock}", f"SECONDS_AHEAD={ahead}"]
        with RunningWorker(opened.address, via=via) as worker:
            if ahead < 0:
                opened.begin(worker)
                opened.go()
                world.until(lambda: len(world.effects(tmp_path)) == 2 * COUNT)
                assert worker.stop() == 0
            else:
                opened.finish()
    with Engine(opened.address) as engine:
        times = [event["at"] for id in opened.ids for event in engine.executions.events(id)]
    assert begun <= datetime.fromisoformat(min(times))
    assert datetime.fromisoformat(max(times)) <= datetime.now(UTC)


def test_a_request_without_a_worker_ends_soon_and_with_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that was killed counts as one for 75 s. Temporal's library would ask forever."""
    for name in ("PATIENCE", "_SEEN"):
        monkeypatch.setattr(connection, name, timedelta(seconds=3))
    (tmp_path / "flow.yaml").write_text(ASKING)
    port = free_port()
    process = start_server(port, "never", "killed", workers=False)
    try:
        address = f"temporal://127.0.0.1:{port}"
        with RunningWorker(f"{address}/killed"):
            pass
        for namespace in ("never", "killed"):
            with Engine(f"{address}/{namespace}") as engine:
                for request in (
                    lambda: engine.signal("go", key="k"),
                    lambda: engine.flows.deploy(tmp_path / "flow.yaml"),
                    engine.flows.versions,
                ):
                    begun = time.monotonic()
                    with pytest.raises(NoWorker, match=f"no worker of {address}/{namespace}"):
                        request()
                    assert time.monotonic() - begun < 25
        assert not caplog.records
    finally:
        process.kill()
        process.wait()
