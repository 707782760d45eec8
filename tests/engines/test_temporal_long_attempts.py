# Shows D7
"""Attempts in Temporal that are at work for longer than a run of their workflow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payloads
from temporalio.api.enums.v1 import EventType, TimeoutType
from temporalio.api.failure.v1 import Failure, TimeoutFailureInfo
from temporalio.api.history.v1 import HistoryEvent
from temporalio.bridge.proto.workflow_completion import Success, WorkflowActivationCompletion
from temporalio.client import WorkflowHistory
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails

from flowengine import Engine
from flowengine.engines.temporal import past
from flowengine.engines.temporal.connection import connect, read_address
from flowengine.engines.temporal.heartbeat import VARIABLE as HEARTBEAT
from flowengine.engines.temporal.objects import VARIABLE as OBJECTS
from flowengine.engines.temporal.past import _replayed
from flowengine.engines.temporal.payloads import converter
from flowengine.engines.temporal.requests import ATTEMPT, WATCH, beat_of
from flowengine.engines.temporal.workflow import WorkflowDriver
from flowengine.journal.shapes import unpack_event
from tests.engines import world
from tests.engines.temporal_server import RunningWorker, StoreNamed
from tests.engines.test_temporal import replay
from tests.engines.test_temporal_faults import cuts, taken
from tests.replacing import patches_everywhere

pytestmark = pytest.mark.endurance

PASSING_BY = """
steps:
  - id: all
    parallel:
      - {id: once_long, python: "effects:stay_and_log"}
      - {id: each, map: {over: 100, concurrency: 4}, python: "effects:act"}
    output: "${{ steps.once_long.output }}"
outputs: {long: "${{ steps.all.output }}"}
"""


SHORT = "5s"
"""A heartbeat. On a busy machine, a worker with a shorter one is silent for so long that its
attempts count as lost, or that its guard ends it and nobody continues."""


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HEARTBEAT, SHORT)


def runs(address: str, id: str) -> list[list[Any]]:
    """Return the histories of an execution's runs, the oldest first."""

    async def read() -> list[list[Any]]:
        client = await connect(read_address(address))
        run: str | None = client.get_workflow_handle(id).run_id
        found: list[list[Any]] = []
        while run != "":
            handle = client.get_workflow_handle(id, run_id=run)
            found.insert(0, [*(await handle.fetch_history()).events])
            start = found[0][0].workflow_execution_started_event_attributes
            run = start.continued_execution_run_id
        return found

    return asyncio.run(read())


def watches(history: list[Any]) -> int:
    """Return how many watching activities a run has begun."""
    return sum(
        event.activity_task_scheduled_event_attributes.activity_type.name == WATCH
        for event in history
    )


def test_a_long_attempt_outlives_runs_and_delays_no_other(
    server: StoreNamed, tmp_path: Path
) -> None:
    address, file = server("long"), world.make(tmp_path, PASSING_BY)
    with RunningWorker(address) as worker, Engine(address) as engine:
        engine.start(file, id="passed")
        world.until(lambda: len(world.effects(tmp_path)) == 100, pause=0.1)
        (tmp_path / "go").touch()
        assert engine.resume("passed").outputs == {"long": "rested"}
        assert worker.stop() == 0
    histories = runs(address, "passed")
    assert len(histories) > 4
    assert [watches(one) for one in histories[1:]] == [1] * (len(histories) - 1)
    with Engine(address) as engine:
        ends = [one for one in engine.executions.events("passed") if one["type"] == "succeeded"]
    assert len(ends) == 101
    [logs] = [one["log"] for one in ends if one["address"] == "all/once_long"]  # in any order
    assert [line[-1] for line in logs["lines"]] == ["began"]
    asyncio.run(replay(address, "passed"))


TWO = """
steps:
  - id: all
    parallel:
      - {id: once_long, python: "effects:stay"}
      - {id: again, python: "effects:stay", effect: idempotent}
      - {id: each, map: {over: 30, concurrency: 2}, python: "effects:act", effect: idempotent}
"""
PHASES: dict[str, Callable[[list[list[Any]]], bool]] = {
    "first activities": bool,
    "watched": lambda histories: len(histories) == 1 and watches(histories[-1]) == 2,
    "continued": lambda histories: len(histories) > 1,
}


def begin(address: str, folder: Path, id: str, phase: str, engine: Engine) -> None:
    """Start an execution with two long attempts, and wait until they are in a phase."""
    text = TWO if phase == "continued" else TWO.replace("over: 30", "over: 2")
    engine.start(world.make(folder, text), id=id)
    world.until(lambda: len(world.effects(folder)) >= 2, pause=0.1)
    world.until(lambda: PHASES[phase](runs(address, id)), pause=0.1)


def rested(folder: Path) -> list[str]:
    """Return the steps whose long attempts have taken effect."""
    return sorted(step for step, _, result in world.effects(folder) if result == "rested")


@pytest.mark.parametrize("phase", PHASES)
def test_long_attempts_of_a_killed_worker_are_cut_off(
    phase: str, server: StoreNamed, tmp_path: Path
) -> None:
    address, id = server("long"), f"killed-{phase.replace(' ', '-')}"
    with Engine(address) as engine:
        with RunningWorker(address) as worker:
            begin(address, tmp_path, id, phase, engine)
            worker.kill()
        with RunningWorker(address) as worker:
            world.until(lambda: len(cuts(engine, id)) >= 2, pause=0.1)
            world.until(lambda: any("step=all/again" in line for line in taken(worker)))
            [asked] = engine.approvals.list(execution=id).items
            assert (asked["address"], asked["ran"]) == ("all/once_long", "maybe")
            (tmp_path / "go").touch()
            engine.approvals.decide(asked["id"], "result", value="decided")
            assert engine.resume(id).status == "succeeded"
    assert rested(tmp_path) == ["all/again"]


@pytest.mark.parametrize("phase", PHASES)
def test_a_cancelled_execution_ends_after_its_long_attempts(
    phase: str, server: StoreNamed, tmp_path: Path
) -> None:
    address, id = server("long"), f"cancelled-{phase.replace(' ', '-')}"
    with RunningWorker(address) as worker, Engine(address) as engine:
        begin(address, tmp_path, id, phase, engine)
        assert engine.executions.cancel(id).status == "cancelled"
        (tmp_path / "go").touch()
        assert worker.stop() == 0
    assert rested(tmp_path) == []
    asyncio.run(replay(address, id))


def test_watched_attempts_end_while_their_worker_drains(server: StoreNamed, tmp_path: Path) -> None:
    address = server("long")
    with RunningWorker(address) as worker, Engine(address) as engine:
        begin(address, tmp_path, "drained", "watched", engine)
        worker.process.terminate()
        world.until(lambda: any("draining" in line for line in worker.log))
        with RunningWorker(address):
            (tmp_path / "go").touch()
            assert engine.resume("drained").status == "succeeded"
            assert worker.drained() == 0
        assert cuts(engine, "drained") == []
    assert rested(tmp_path) == ["all/again", "all/once_long"]


def ends_of(step: str, engine: Engine, id: str) -> list[str]:
    """Return how the attempts of a step have ended."""
    events = [event for event in engine.executions.events(id) if event.get("address") == step]
    return [event["type"] for event in events if event["type"] in ("succeeded", "cut")]


# Shows D13
def test_a_draining_worker_is_asked_by_each_further_run(server: StoreNamed, tmp_path: Path) -> None:
    slow = '"effects:nap", with: {seconds: 0.2}'
    text = PASSING_BY.replace("over: 100", "over: 2000").replace('"effects:act"', slow)
    address, file = server("long"), world.make(tmp_path, text)
    with RunningWorker(address) as worker, Engine(address) as engine:
        engine.start(file, id="asked")
        world.until(lambda: any(watches(history) for history in runs(address, "asked")), pause=0.5)
        with RunningWorker(address):
            worker.process.terminate()
            world.until(lambda: any("draining" in line for line in worker.log))
            begun = len(runs(address, "asked"))
            world.until(lambda: len(runs(address, "asked")) > begun + 1, pause=0.5)
            (tmp_path / "go").touch()
            world.until(lambda: "all/once_long" in rested(tmp_path))
            assert worker.drained() == 0
            world.until(lambda: ends_of("all/once_long", engine, "asked"), pause=0.5)
            assert ends_of("all/once_long", engine, "asked") == ["succeeded"]
            engine.executions.cancel("asked")


def test_a_worker_that_stops_cuts_off_watched_attempts(server: StoreNamed, tmp_path: Path) -> None:
    address = server("long")
    with RunningWorker(address, "--drain", "10ms") as worker, Engine(address) as engine:
        begin(address, tmp_path, "stopped", "watched", engine)
        assert worker.stop() == 0
        (tmp_path / "go").touch()
        with RunningWorker(address):
            [asked] = engine.resume("stopped").waits
            assert (asked["address"], asked["ran"]) == ("all/once_long", "maybe")
            engine.executions.cancel("stopped")
    assert rested(tmp_path) == ["all/again"]


def are_watched(address: str, id: str, count: int) -> bool:
    """Return whether at least as many attempts of an execution are watched."""
    return watches(runs(address, id)[-1]) >= count


@pytest.mark.endurance(sample=100)
@pytest.mark.parametrize("block", range(5))
# Shows D13
def test_results_of_attempts_that_have_just_become_long_outlive_their_worker(
    block: int, server: StoreNamed, tmp_path: Path
) -> None:
    """It stops while some of them have no watch yet."""
    address, file = server("long"), world.make(tmp_path, TWO.replace("over: 30", "over: 1"))
    ids = [f"replaced-{block}-{number}" for number in range(10)]
    with RunningWorker(address) as worker, Engine(address) as engine:
        for id in ids:
            engine.start(file, id=id)
        first = ids[2 * block]
        world.until(lambda: are_watched(address, first, 1))
        (tmp_path / "go").touch()
        world.until(lambda: len(rested(tmp_path)) == 2 * len(ids))
        assert worker.stop() == 0
        with RunningWorker(address):
            assert {engine.resume(id).status for id in ids} == {"succeeded"}
            assert [cuts(engine, id) for id in ids] == [[]] * len(ids)
    assert len(rested(tmp_path)) == 2 * len(ids)


WITH_TIMER = """
steps:
  - {id: long, python: "effects:stay", timeout: 1h}
"""


@pytest.fixture(scope="module")
def watched(server: StoreNamed, tmp_path_factory: pytest.TempPathFactory) -> list[HistoryEvent]:
    """The history of an execution that watches an attempt with a timer."""
    address, folder = server("long"), tmp_path_factory.mktemp("watched")
    with patches_everywhere() as patch:
        patch.setenv(HEARTBEAT, SHORT)
        patch.delenv(OBJECTS)
        with RunningWorker(address), Engine(address) as engine:
            engine.start(world.make(folder, WITH_TIMER), id="watched")
            world.until(lambda: watches(runs(address, "watched")[0]), pause=0.1)
            [history] = runs(address, "watched")
            engine.executions.cancel("watched")
    return history


class Lasting(UnsandboxedWorkflowRunner):
    """Keeps a replayed workflow as its last task has left it: the library ends it afterwards."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        instance = super().create_instance(det)
        activate = instance.activate

        def last(act: Any) -> Any:
            if any(job.HasField("remove_from_cache") for job in act.jobs):
                return WorkflowActivationCompletion(run_id=act.run_id, successful=Success())
            return activate(act)

        instance.activate = last  # type: ignore[method-assign]
        return instance


class Ending:
    """Another end of a history, and what its workflow does.

    Args:
        history: The history.
        last: Type of the event after which the end begins.
        activity: Type of the activity that this event is about.
    """

    def __init__(self, history: list[HistoryEvent], last: str, activity: str) -> None:
        self.scheduled = next(
            event.event_id
            for event in history
            if event.activity_task_scheduled_event_attributes.activity_type.name == activity
        )
        kind = EventType.Value(f"EVENT_TYPE_ACTIVITY_TASK_{last}")
        about = history[self.scheduled - 1 :]
        last_id = next(one.event_id for one in about if one.event_type == kind)
        self.events = deepcopy(history[:last_id])
        self.activities: list[tuple[str, bool]] = []
        """Type of each activity, and whether it is to stop the attempt."""

    def add(self, kind: str, *, before: int = 0, **attributes: Any) -> None:
        """Add an event before the last ones."""
        event = HistoryEvent(event_time=self.events[-1].event_time)
        event.event_time.seconds += 3600  # when the timer is due
        event.event_type = EventType.ValueType(EventType.Value(f"EVENT_TYPE_{kind}"))
        part = getattr(event, f"{kind.lower()}_event_attributes")
        part.SetInParent()
        for name, value in attributes.items():
            if isinstance(value, Failure | Payloads):
                getattr(part, name).CopyFrom(value)
            else:
                setattr(part, name, value)
        self.events.insert(len(self.events) - before, event)
        for number, one in enumerate(self.events, 1):
            one.event_id = number

    def fire_timer(self, *, before: int = 0) -> None:
        """Let the timer of the step fire."""
        [timer] = [one for one in self.events if one.HasField("timer_started_event_attributes")]
        id = timer.timer_started_event_attributes.timer_id
        self.add("TIMER_FIRED", before=before, timer_id=id, started_event_id=timer.event_id)

    def take(self) -> None:
        """Let a worker take the task with the added events."""
        self.add("WORKFLOW_TASK_SCHEDULED")
        self.add("WORKFLOW_TASK_STARTED", scheduled_event_id=len(self.events))

    def time_out(self, kind: str, *beat: Any) -> None:
        """Let the activity time out."""
        type = TimeoutType.ValueType(TimeoutType.Value(f"TIMEOUT_TYPE_{kind}"))
        info = TimeoutFailureInfo(timeout_type=type)
        if beat:
            payloads = asyncio.run(converter(None).encode([*beat]))
            info.last_heartbeat_details.CopyFrom(Payloads(payloads=payloads))
        failure = Failure(message="timed out", timeout_failure_info=info)
        self.add("ACTIVITY_TASK_TIMED_OUT", scheduled_event_id=self.scheduled, failure=failure)

    def driver(self) -> WorkflowDriver:
        """Return the execution as its workflow leaves it."""
        # What a workflow asks the server for, and no server plays these histories.
        begin, self.activities = WorkflowDriver._begun_activity, []

        def begun(
            driver: Any, run: Any, activity: str, given: list[Any], *rest: Any, **by: Any
        ) -> Any:
            self.activities.append((activity, given[-1] is True))
            return begin(driver, run, activity, given, *rest, **by)

        with patches_everywhere() as patch:
            patch.setattr(WorkflowDriver, "_begun_activity", begun)
            patch.setattr(past, "UnsandboxedWorkflowRunner", Lasting)
            return _replayed(WorkflowHistory("watched", self.events), converter(None))


@pytest.mark.parametrize("before", [0, 1])
def test_an_attempt_that_is_stopped_in_the_task_with_its_result_is_still_ended(
    before: int, watched: list[HistoryEvent]
) -> None:
    """The library drops the result, which says that the attempt is at work, and where."""
    ending = Ending(watched, "COMPLETED", ATTEMPT)
    ending.fire_timer(before=before)
    ending.take()
    driver = ending.driver()
    assert ending.activities == [(ATTEMPT, False), (WATCH, True)]
    assert driver.at_work
    assert not driver.may_continue


def test_an_outcome_that_the_watches_of_two_runs_bring_is_recorded_once(
    watched: list[HistoryEvent],
) -> None:
    """That of the earlier run sends a message, because the server refuses its result."""
    ending = Ending(watched, "SCHEDULED", WATCH)
    result: dict[str, Any] = {"type": "succeeded", "value": "rested"}
    unit = next(iter(ending.driver().execution.work))
    late, brought = (
        Payloads(payloads=asyncio.run(converter(None).encode([one])))
        for one in ([unit, 1, result], result)
    )
    ending.add("ACTIVITY_TASK_STARTED", scheduled_event_id=ending.scheduled)
    started = len(ending.events)
    by: dict[str, Any] = {"scheduled_event_id": ending.scheduled, "started_event_id": started}
    ending.add("ACTIVITY_TASK_COMPLETED", result=brought, **by)
    ending.add("WORKFLOW_EXECUTION_SIGNALED", signal_name="late", input=late)
    ending.take()
    driver = ending.driver()
    assert not driver.at_work
    events = [unpack_event(one.payload, "") for one in driver.store.events("watched")]
    assert [event["type"] for event in events] == ["started", "succeeded"]


def test_an_attempt_that_is_stopped_before_its_watch_has_arrived_is_still_ended(
    watched: list[HistoryEvent],
) -> None:
    ending = Ending(watched, "SCHEDULED", WATCH)
    assert ending.driver().may_continue
    ending.fire_timer()
    ending.take()
    task = len(ending.events)
    ending.add("WORKFLOW_TASK_COMPLETED", scheduled_event_id=task - 1, started_event_id=task)
    done: dict[str, Any] = {"workflow_task_completed_event_id": task + 1}
    for shown in ("UPSERT_WORKFLOW_SEARCH_ATTRIBUTES", "WORKFLOW_PROPERTIES_MODIFIED"):
        ending.add(shown, **done)
    ending.add("ACTIVITY_TASK_CANCEL_REQUESTED", scheduled_event_id=ending.scheduled, **done)
    ending.add("ACTIVITY_TASK_CANCELED", scheduled_event_id=ending.scheduled)
    ending.take()
    driver = ending.driver()
    assert ending.activities == [(ATTEMPT, False), (WATCH, False), (WATCH, True)]
    assert driver.at_work
    assert not driver.may_continue


@pytest.mark.parametrize(
    ("timeout", "beat", "is_cut"),
    [
        ("HEARTBEAT", [], False),  # no worker has received it, and the attempt may be at work
        ("HEARTBEAT", beat_of(None), True),
        ("SCHEDULE_TO_START", [], True),
    ],
)
def test_only_an_activity_that_reached_its_worker_tells_that_it_is_dead(
    timeout: str, beat: list[Any], is_cut: bool, watched: list[HistoryEvent]
) -> None:
    ending = Ending(watched, "SCHEDULED", WATCH)
    ending.time_out(timeout, *beat)
    ending.take()
    driver = ending.driver()
    assert driver.at_work is not is_cut
    assert driver.execution.state["status"] == ("stalled" if is_cut else "running")
    assert ending.activities == [(ATTEMPT, False), *[(WATCH, False)] * (1 if is_cut else 2)]
