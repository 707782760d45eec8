# Shows F32
"""One engine in several threads: the driving thread keeps an execution, others send to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from flowengine.engines.engine import Engine
from flowengine.engines.results import ExecutionResult
from flowengine.engines.running.local import Local
from flowengine.errors import Conflict, UsageError
from tests.engines import child, world

SLOW = """
steps:
  - {id: nap, python: effects:stay, effect: idempotent}
  - {id: after, python: effects:act, effect: idempotent}
"""
BESIDE = """
signals: {paid: {}}
steps:
  - {id: begin, next: {all: [nap, paid, sign]}}
  - {id: nap, python: effects:stay, next: both}
  - {id: paid, wait: {signal: paid}, next: both}
  - {id: sign, approval: Sure?, next: both}
  - {id: both, join: all}
"""
LATER = "steps:\n  - {id: later, wait: {for: 1h}}\n"


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def at_work(engine: Engine, file: Path) -> None:
    """Wait until the execution `it` is driven."""
    world.until(lambda: any("running in process" in reason["what"] for reason in why(engine)))


def why(engine: Engine) -> list[Any]:
    with suppress(Exception):
        return list(engine.executions.why("it"))
    return []


def run(engine: Engine, file: Path) -> ExecutionResult:
    return engine.run(file, id="it")


def run_on_loop(engine: Engine, file: Path) -> ExecutionResult:
    return asyncio.run(engine.run_async(file, id="it"))


@pytest.mark.parametrize("drive", [run, run_on_loop])
def test_cancelling_from_another_thread_ends_a_run_that_stays(
    tmp_path: Path, threads: ThreadPoolExecutor, drive: Callable[[Engine, Path], ExecutionResult]
) -> None:
    file = world.make(tmp_path, LATER)
    with Engine(tmp_path / "store", linger=7200) as engine:
        running = threads.submit(drive, engine, file)
        world.until(lambda: engine.executions.list().items)
        engine.executions.cancel("it")
        assert running.result(60).status == "cancelled"


def test_cancelling_from_another_process_ends_the_run(tmp_path: Path) -> None:
    file = world.make(tmp_path, SLOW)
    with ThreadPoolExecutor(1) as pool, Engine(tmp_path / "store") as engine:
        running = pool.submit(run, engine, file)
        at_work(engine, file)
        other = child.start(cancel, tmp_path / "store")
        assert running.result(60).status == "cancelled"
        other.join()


def cancel(store: Path) -> None:
    with Engine(store) as engine:
        engine.executions.cancel("it")


@pytest.mark.parametrize("drive", [run, run_on_loop])
def test_what_other_threads_send_is_taken_by_who_drives(
    tmp_path: Path, threads: ThreadPoolExecutor, drive: Callable[[Engine, Path], ExecutionResult]
) -> None:
    file = world.make(tmp_path, BESIDE)
    with Engine(tmp_path / "store", user="user:me") as engine:
        running = threads.submit(drive, engine, file)
        world.until(lambda: engine.approvals.list().items)
        at_work(engine, file)
        assert engine.signal("paid", execution="it").result is None
        (wait,) = (wait for wait in engine.approvals.list().items if wait["kind"] == "approval")
        assert engine.approvals.approve(wait["id"]).result is None
        with pytest.raises(Conflict, match="another call of this engine is running"):
            engine.resume("it")
        (tmp_path / "go").touch()
        assert running.result(60).status == "succeeded"
        assert engine.resume("it").status == "succeeded", "its lease was released"


def test_a_second_run_of_an_id_leaves_the_first_its_lease(
    tmp_path: Path, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both find no execution with the ID. The second one is rejected, and only the second."""
    file = world.make(tmp_path, SLOW)
    with Engine(tmp_path / "store") as first, Engine(tmp_path / "store") as second:
        begun: list[Any] = []
        store: Any = second.store
        commit = store.commit

        def late(appends: Any) -> Any:
            begun.append(threads.submit(run, first, file))
            at_work(first, file)
            return commit(appends)

        with monkeypatch.context() as patched:
            patched.setattr(second.store, "commit", late)
            with pytest.raises(Conflict):
                second.run(file, id="it")
        (tmp_path / "go").touch()
        assert begun[0].result(60).status == "succeeded"


def test_a_call_that_would_block_a_loop_keeps_no_lease(tmp_path: Path) -> None:
    file = world.make(tmp_path, "steps:\n  - {id: sign, approval: Sure?}\n")

    async def refused(call: Callable[[], object]) -> None:
        with pytest.raises(UsageError, match="an event loop is running in this thread"):
            call()

    with Engine(tmp_path / "store", user="user:me") as engine:
        asyncio.run(refused(lambda: engine.run(file, id="it")))
        assert engine.run(file, id="it").status == "waiting"
        asyncio.run(refused(lambda: engine.resume("it")))
        with Engine(tmp_path / "store") as other:
            assert other.resume("it").status == "waiting"


def test_many_threads_cancel_one_execution_at_once(
    tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    file = world.make(tmp_path, SLOW)
    with Engine(tmp_path / "store") as engine, ThreadPoolExecutor(4) as others:
        running = threads.submit(run, engine, file)
        at_work(engine, file)
        ready = Event()

        def ask(_: int) -> str:
            ready.wait(60)
            try:
                return str(engine.executions.cancel("it").status)
            except Conflict:
                return "ended"

        asked = [others.submit(ask, number) for number in range(4)]
        ready.set()
        assert running.result(60).status == "cancelled"
        assert {each.result(60) for each in asked} <= {"running", "cancelled", "ended"}


def test_a_loop_keeps_its_driver_while_another_thread_begins_to_use_the_engine(
    tmp_path: Path, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = world.make(tmp_path, "steps:\n  - {id: told, output: done}\n")
    found = Local.is_here
    others: list[str] = []

    with Engine(tmp_path / "store") as engine:

        def is_here(local: Local) -> bool:
            here = found(local)
            if not others:  # the other thread comes between this look and what follows it
                others.append("other")
                others.append(threads.submit(run_on_loop, engine, file).result(60).status)
            return here

        async def main() -> list[str]:
            first = await engine.run_async(file, id="first")
            monkeypatch.setattr(Local, "is_here", is_here)
            second = await engine.run_async(file, id="second")
            return [first.status, second.status]

        assert asyncio.run(main()) == ["succeeded", "succeeded"]
    assert others == ["other", "succeeded"]
