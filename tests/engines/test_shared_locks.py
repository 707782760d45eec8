# Shows F92
"""Locks across executions, and limits on concurrent executions (F92)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import sleep

import pytest

from flowengine.engines.engine import Engine
from flowengine.engines.running.driving import SYNC_SECONDS
from flowengine.journal.encoding import pack
from tests.engines import child, world
from tests.testing.faulty_store import FaultyStore, ProcessDied

HOLDS = """
inputs: {key: {type: string, default: a}}
steps:
  - id: g
    lock: {key: "${{ inputs.key }}", scope: SCOPE, max: PERMITS}
    group: [{id: sure, approval: Sure?}]
"""
BOUND = """
inputs: {repo: {type: string, default: r}}
concurrency: {key: "${{ inputs.repo }}", max: 1, then: THEN}
steps: [{id: sure, approval: Sure?}]
"""
WORKS = 'id: work, python: "effects:leave_slowly", effect: idempotent'


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine(None, user="user:me", linger=0) as engine:
        yield engine


def flow(folder: Path, text: str, name: str = "flow") -> Path:
    file = world.make(folder / name, text)
    file.write_text(file.read_text().replace("id: flow", f"id: {name}"))
    return file


def holds(folder: Path, scope: str, permits: int = 1, name: str = "flow") -> Path:
    return flow(folder, HOLDS.replace("SCOPE", scope).replace("PERMITS", str(permits)), name)


def asked(engine: Engine, execution: str) -> bool:
    """Return whether an execution has reached its approval, and so holds the lock."""
    return bool(engine.executions.result(execution).waits)


def approve(engine: Engine, execution: str) -> None:
    engine.approvals.approve(engine.executions.result(execution).waits[0]["id"])


def test_a_holder_that_is_only_interrupted_holds_it_still(tmp_path: Path) -> None:
    """After kill -9, the execution still holds its durable lock, and `why` reports it to others."""
    store, file = tmp_path / "store", holds(tmp_path, "global")
    text = file.read_text().replace(
        "approval: Sure?", 'python: "effects:block", with: {seconds: 60}, effect: idempotent'
    )
    busy = flow(tmp_path, "steps: []", "busy")
    busy.write_text(text.replace("id: flow", "id: busy"))
    process = child.start(child.begin, str(store), busy, "e0")
    with Engine(store, linger=0) as engine:
        world.until(lambda: bool(engine.store.claims("global:a")))
        world.until(lambda: engine.store.events("e0")[1:])
        assert child.kill(process)
        engine.run(file, id="e1")
        [reason] = engine.executions.why("e1")
        assert "which execution e0 holds" in reason["what"]
        assert reason["command"] == "flowengine resume e0"
        engine.executions.cancel("e0", now=True)
        assert asked(engine, "e1")


def test_what_was_sent_before_the_lock_came_free_is_taken_before_it(tmp_path: Path) -> None:
    """This holds even if the process that releases the lock also drives the waiting execution."""
    text = HOLDS.replace("SCOPE", "global").replace("PERMITS", "1") + "signals: {go: {}}\n"
    file = flow(tmp_path, text)

    async def main() -> list[str]:
        async with Engine(tmp_path / "store", linger=3600) as engine:
            await engine.run_async(file, id="e0")
            waits = asyncio.create_task(engine.run_async(file, id="e1"))
            while len(engine.store.claims("global:a")) < 2:  # noqa: ASYNC110 - no event to await
                await asyncio.sleep(0)
            message = pack({"type": "message", "at": 0, "signal": "go", "key": None, "data": None,
                            "id": "m", "by": "user:me"})  # fmt: skip
            engine.store.send("e1", message, 0, "go m")  # like another process
            await engine.approvals.approve_async(engine.executions.result("e0").waits[0]["id"])
            waits.cancel()
            return [event["type"] for event in engine.executions.events("e1")]

    assert asyncio.run(main()) == ["started", "message", "granted"]


# Shows V13
def test_the_next_one_begins_when_the_attempts_of_the_cancelled_one_have_ended(
    tmp_path: Path,
) -> None:
    """Also its `finally`: until then two would be at work with the same key."""
    text = BOUND.replace("THEN", "cancel").replace("id: sure, approval: Sure?", WORKS)
    file = flow(tmp_path, text)

    def notes() -> list[str]:
        return [result for _, _, result in world.effects(file.parent)]

    async def until(holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(300):
            while not holds():  # noqa: ASYNC110 - no event to await
                await asyncio.sleep(0.01)

    async def main() -> None:
        store = tmp_path / "store"
        async with Engine(store, linger=0) as engine, Engine(store, linger=0) as other:
            first = asyncio.create_task(engine.run_async(file, id="e0"))
            await until(lambda: notes() == ["entered"])
            other.start(file, id="e1")
            await until(lambda: other.executions.result("e0").status == "cancelled")
            claims = other.store.claims("concurrency flow:r")
            assert [(one.execution, one.held) for one in claims] == [("e0", True), ("e1", False)]
            assert (await other.resume_async("e1")).status == "waiting"
            (file.parent / "go").touch()
            await until(lambda: len(notes()) == 3)
            other.executions.cancel("e1", resume=False)
            await first  # it has driven the next one too

    asyncio.run(main())
    assert notes() == ["entered", "left", "entered", "left"]


@pytest.mark.parametrize("then", ["queue", "cancel"])
# Shows V13
def test_a_crash_at_any_write_of_a_start_blocks_no_later_one(tmp_path: Path, then: str) -> None:
    """An execution whose start was only half recorded would have its place for ever."""
    file = flow(tmp_path, BOUND.replace("THEN", then))
    for crash in range(20):
        store = FaultyStore(faults={crash: "die after" if crash % 2 else "die before"})
        with suppress(ProcessDied), Engine(store, linger=0) as engine:
            engine.start(file, id="e0")
        writes, store.faults = store.writes, {}
        store.restart()
        with Engine(store, linger=0) as engine:
            engine.start(file, id="e1")
            while due := engine.due():
                engine.resume(due[0].execution)
            while waits := engine.approvals.list().items:
                engine.approvals.approve(waits[0]["id"])
            found = engine.executions.list().items
            ends = {one["execution"]: one["status"] for one in found}
        first = {} if "e0" not in ends else {"e0": {"queue": "succeeded"}.get(then, "cancelled")}
        assert ends == {**first, "e1": "succeeded"}, crash
        if writes <= crash:
            return
    raise AssertionError("it never came through")


def test_on_a_slow_disk_too_who_wants_a_lock_that_is_held_gets_to_wait(tmp_path: Path) -> None:
    def write(_number: int, method: str) -> None:
        if method == "commit":  # the claim must be on disk when the loop takes over
            sleep(2 * SYNC_SECONDS)

    with Engine(FaultyStore(on_write=write), linger=0) as engine:
        for id in ("e0", "e1"):
            assert engine.run(holds(tmp_path, "global"), id=id).status == "waiting"
        assert (
            engine.executions.why("e1")[0]["what"]
            == "waiting for the lock 'a', which execution e0 holds"
        )


CIRCLE = """
inputs: {one: {type: string}, other: {type: string}}
signals: {go: {}}
steps:
  - id: g
    lock: {key: "${{ inputs.one }}", scope: global}
    group:
      - {id: w, wait: {signal: go}}
      - {id: within, lock: {key: "${{ inputs.other }}", scope: global}, output: 1}
"""


def test_a_circle_over_executions_is_told_with_the_way_out(engine: Engine, tmp_path: Path) -> None:
    file = flow(tmp_path, CIRCLE)
    keys = ["a", "b", "c"]
    for n in range(3):
        engine.run(file, {"one": keys[n], "other": keys[(n + 1) % 3]}, id=f"e{n}")
    for n in range(2):
        engine.signal("go", execution=f"e{n}")
    [reason] = engine.executions.why("e0")
    assert reason["what"] == "waiting for the lock 'b', which execution e1 holds"
    assert reason["command"] == "flowengine why e1"

    engine.signal("go", execution="e2")
    [reason] = engine.executions.why("e0")
    assert reason["what"].endswith(
        "This is a deadlock: e1 and e2 wait, in the end, for what this one holds"
    )
    assert reason["command"] == "flowengine cancel e0"
    engine.executions.cancel("e0")
    assert [engine.executions.result(f"e{n}").status for n in range(3)] == ["cancelled"] + [
        "succeeded"
    ] * 2


RENAMED = ("  - id: g\n", "  - {id: before, output: 1}\n  - id: g\n    title: It holds the lock\n")


@pytest.mark.parametrize("scope", ["flow", "global"])
def test_who_holds_one_and_who_waits_for_one_are_moved_to_another_form(
    engine: Engine, tmp_path: Path, scope: str
) -> None:
    """The lock keeps its holder and its queue. Later requests come after them."""
    file = holds(tmp_path, scope)
    for id in ("e0", "e1"):
        engine.run(file, id=id)
    text = file.read_text()
    file.write_text(text.replace(*RENAMED))

    moved = engine.executions.upgrade(file)
    assert [(one["execution"], one["moved"]) for one in moved] == [("e0", True), ("e1", True)]
    engine.run(file, id="e2")
    assert [asked(engine, id) for id in ("e0", "e1", "e2")] == [True, False, False]
    for id in ("e0", "e1", "e2"):
        approve(engine, id)
        assert engine.executions.result(id).status == "succeeded"
    assert engine.store.claims("global:a") == engine.store.claims("flow flow:a") == []


@pytest.mark.parametrize(
    ("into", "why"),
    [
        ("    lock: {key: a, scope: flow}\n", "the scope of its lock changed"),
        ("    lock: a\n", "the scope of its lock changed"),
        ("", "'lock' was added or removed"),
    ],
)
def test_what_would_tear_a_lock_from_who_holds_or_awaits_it_is_told(
    engine: Engine, tmp_path: Path, into: str, why: str
) -> None:
    file = holds(tmp_path, "global")
    for id in ("e0", "e1"):
        engine.run(file, id=id)
    text = file.read_text()
    lock = '    lock: {key: "${{ inputs.key }}", scope: global, max: 1}\n'
    assert lock in text
    file.write_text(text.replace(lock, into))

    for told in engine.executions.upgrade(file):
        assert (told["verdict"], told["moved"]) == ("cannot", False)
        assert why in told["obstacles"][0]["why"]
