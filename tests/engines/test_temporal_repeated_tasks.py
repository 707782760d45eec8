# Shows D3
"""What an execution in Temporal asks of others follows from its history, and from nothing else.

A workflow task that fails, or whose worker dies, is given to a worker again, with the events that
have come since. A signal among them is taken before the others, so the execution may decide
otherwise than in the task that is not part of its history.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from temporalio import activity
from temporalio.worker import Worker

from flowengine import Engine
from flowengine.engines.temporal import worker, workflow
from flowengine.engines.temporal.requests import SHARE
from flowengine.engines.temporal.sharing import Sharing
from flowengine.errors import NotFound, StoreError
from tests.engines import flows
from tests.engines.temporal_server import StoreNamed
from tests.engines.world import check_effects, finish, make, outcome, until
from tests.temporal_stores import running_worker, unguarded

pytestmark = pytest.mark.endurance(sample=100)

CLAIMS = """
signals: {go: {}}
steps:
  - id: all
    parallel:
      - id: early
        group:
          - {id: first, python: "effects:act"}
          - {id: one, lock: {key: two-claims, scope: global}, python: "effects:act"}
      - id: late
        group:
          - {id: hear, wait: {signal: go}}
          - {id: two, lock: {key: two-claims, scope: global}, python: "effects:act"}
"""
CLAIM = """
steps:
  - {id: first, python: "effects:act"}
  - {id: one, lock: {key: one-claim, scope: global}, group: [{id: sure, approval: Sure?}]}
"""
KEY = """
signals: {go: {}, paid: {}}
steps:
  - id: all
    parallel:
      - {id: early, wait: {first: [{id: paid, signal: paid, key: key}, {id: over, for: 1ms}]}}
      - id: late
        group: [{id: hear, wait: {signal: go}}, {id: two, wait: {signal: paid, key: key}}]
"""
"""It has the key all the time."""
MESSAGE = """
signals: {said: {}}
steps:
  - {id: early, python: "effects:act", emit: {signal: said, to: repeated-listener}}
  - {id: hear, wait: {signal: said}}
"""
LISTENER = """
signals: {said: {}}
steps: [{id: hear, wait: {signal: said}}]
"""


class FailingTasks:
    """Lets each workflow task fail in which an execution has asked something of others.

    Args:
        patch: Changes the worker of this process, which must begin later.
        what: Execution → what it asks then.
    """

    def __init__(self, patch: pytest.MonkeyPatch, what: Mapping[str, str]) -> None:
        self.asked: set[str] = set()
        """Executions whose tasks fail."""
        self.mended: set[str] = set()
        """Those whose tasks succeed again."""
        share, rest = Sharing.share, workflow.WorkflowDriver._rest

        @activity.defn(name=SHARE)
        async def sharing(own: Sharing, requests: list[Any]) -> list[Any]:
            refused: list[Any] = await share(own, requests)
            self.asked |= {
                one["execution"] for one in requests if what.get(one["execution"]) == one["do"]
            }
            return refused

        def resting(driver: workflow.WorkflowDriver) -> None:
            if driver.execution.id in self.asked - self.mended:
                raise LookupError("this worker fails")
            rest(driver)

        patch.setattr(worker, "guarded", unguarded)
        patch.setattr(Sharing, "share", sharing)
        patch.setattr(workflow.WorkflowDriver, "_rest", resting)


class Case(NamedTuple):
    """What an execution asks in the workflow task that is repeated, and what it must lead to."""

    flow: str
    asks: str
    then: Callable[[Engine, str], object]
    """Happens before the task is repeated."""
    ends: Callable[[Engine, str, Path], bool]
    """Returns whether it has led to the right end, which may come later."""


def goes_on(engine: Engine, id: str) -> object:
    return engine.signal("go", execution=id, resume=False)


def is_cancelled(engine: Engine, id: str) -> object:
    return engine.executions.cancel(id, resume=False)


def succeeds(engine: Engine, id: str, file: Path) -> bool:
    return engine.executions.summary(id)["status"] == "succeeded"


def frees_the_lock(engine: Engine, id: str, file: Path) -> bool:
    return bool(engine.run(file, id=f"{id}-next").waits)


def has_the_key(engine: Engine, id: str, file: Path) -> bool:
    engine.signal("paid", key="key", id="once", resume=False)
    return succeeds(engine, id, file)


def has_said_what_it_knows_of(engine: Engine, id: str, file: Path) -> bool:
    early = engine.executions.show(id)["steps"][0]["status"]
    return (early == "succeeded") == succeeds(engine, "repeated-listener", file)


CASES = {
    "repeated-claims": Case(CLAIMS, "claim", goes_on, succeeds),
    "repeated-claim": Case(CLAIM, "claim", is_cancelled, frees_the_lock),
    "repeated-key": Case(KEY, "leave", goes_on, has_the_key),
    "repeated-message": Case(MESSAGE, "deliver", is_cancelled, has_said_what_it_knows_of),
}


def test_what_was_asked_in_a_task_that_failed_counts_as_the_history_says(
    server: StoreNamed, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, files = server("outages"), {}
    tasks = FailingTasks(monkeypatch, {id: case.asks for id, case in CASES.items()})
    with running_worker(store), Engine(store) as engine:
        engine.run(make(folder / "listener", LISTENER), id="repeated-listener")
        for id, case in CASES.items():
            files[id] = make(folder / id, case.flow)
            engine.start(files[id], id=id)
            until(partial(tasks.asked.__contains__, id))
            case.then(engine, id)
            tasks.mended.add(id)
        for id in CASES:
            until(partial(has_ended, engine, id, files[id]), pause=0.1)


def has_ended(engine: Engine, id: str, file: Path) -> bool:
    """Return whether the end of a case has come."""
    with suppress(NotFound, StoreError):  # the execution is not known by its key yet, or its task
        return CASES[id].ends(engine, id, file)  # not repeated
    return False


def test_executions_do_the_same_when_each_task_replays_all_before_it(
    server: StoreNamed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So each beginning of their histories leads to the commands that came after it.

    Without a cache, the library cancels what an execution asks of others at the end of each task.
    One that waits for it would ask for ever, so none of these asks.
    """
    monkeypatch.setattr(worker, "guarded", unguarded)
    monkeypatch.setattr(worker, "Worker", partial(Worker, max_cached_workflows=0))
    store = server("outages")
    with running_worker(store), Engine(store) as there, Engine(None) as here:
        for name, text in flows.ALL.items():
            ends = []
            for engine, place in ((here, "here"), (there, "there")):
                file = make(tmp_path / place / name, text)
                finish(engine, file, f"replayed-{name}")
                ends.append((outcome(engine, f"replayed-{name}"), check_effects(file.parent)))
            assert ends[0] == ends[1], name
