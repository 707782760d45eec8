"""Votes are ordered by their commits, in every view."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from flowengine.engines.engine import Engine
from flowengine.engines.results import WaitInfo
from flowengine.errors import Conflict
from tests.engines import world

FLOW = """
steps:
  - {id: sign, approval: {title: Sure?, need: 3}}
outputs: {sign: "${{ steps.sign.output }}"}
"""
BESIDE = """
steps:
  - {id: begin, next: {all: [sign, last]}}
  - {id: sign, approval: {title: Sure?, need: 2}, next: both}
  - {id: last, approval: Ready?, next: act}
  - {id: act, python: "effects:fail_until", effect: pure, next: both}
  - {id: both, join: all}
outputs: {sign: "${{ steps.sign.output }}"}
"""
VOTERS = [f"user:{name}" for name in ("ana", "ben", "cleo", "dan")]


def seen(engine: Engine, wait: str) -> list[tuple[list[str], str]]:
    """Return voters and decider as shown by the wait, the waits, the journal and the outputs."""
    view = engine.approvals.show(wait)
    execution = view["execution"]
    (listed,) = engine.approvals.list(execution=execution, status="closed").items
    events = [event for event in engine.executions.events(execution) if event["type"] == "decided"]
    output = (engine.executions.result(execution).outputs or {})["sign"]
    journal = [event["by"] for event in events]
    return [
        (by(view), view["decision"]["by"]),
        (by(listed), listed["decision"]["by"]),
        (journal, journal[-1]),
        (by(output), output["by"]),
    ]


def by(votes: WaitInfo | dict[str, Any]) -> list[str]:
    return [vote["by"] for vote in votes["votes"]]


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(10))
def test_votes_that_come_at_once_have_one_order(tmp_path: Path, block: int) -> None:
    file = world.make(tmp_path, FLOW)
    with ThreadPoolExecutor(len(VOTERS)) as pool:
        for _ in range(5):
            with Engine(tmp_path / "store") as engine:
                wait = engine.run(file).waits[0]["id"]
            together = Barrier(len(VOTERS), timeout=60)

            def vote(user: str, wait: str = wait, together: Barrier = together) -> bool:
                with Engine(tmp_path / "store") as engine:
                    together.wait()
                    try:
                        return engine.approvals.approve(wait, by=user).first
                    except Conflict:
                        return False

            counted = list(pool.map(vote, VOTERS))
            with Engine(tmp_path / "store") as engine:
                engine.resume(engine.approvals.show(wait)["execution"])
                first, *others = seen(engine, wait)

            assert counted.count(True) == 3
            assert set(first[0]) == {user for user, did in zip(VOTERS, counted, strict=True) if did}
            assert others == [first] * 3
            assert first[1] == first[0][-1]


@pytest.fixture(params=["file", "memory"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    place = tmp_path / "store" if request.param == "file" else None
    with Engine(place, durability=None if place is None else "process") as engine:
        yield engine


@pytest.mark.parametrize("how", ["retry", "fork"])
def test_a_vote_of_the_moment_of_failure_counts_after_a_retry(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The vote was recorded but not journaled, and a fork has only the journal."""
    result = engine.run(world.make(tmp_path, BESIDE))
    sign, last = (wait["id"] for wait in result.waits)
    store: Any = engine.store
    commit = store.commit
    voted: list[bool] = []

    def vote_first(appends: Any) -> Any:
        if any(one.head and one.head.status == "failed" for one in appends):
            voted.append(engine.approvals.approve(sign, by="user:ana", resume=False).first)
        return commit(appends)

    with monkeypatch.context() as patched:
        patched.setattr(engine.store, "commit", vote_first)
        failed = engine.approvals.approve(last, by="user:ana").result
    assert failed is not None
    assert failed.status == "failed"
    assert voted == [True]
    if how == "fork":
        [wait] = engine.executions.fork(result.execution, from_step="act").waits
        assert by(wait) == []
        engine.approvals.approve(wait["id"], by="user:ana")
    else:
        [wait] = engine.executions.retry(result.execution).waits
        assert by(wait) == ["user:ana"]
    ended = engine.approvals.approve(wait["id"], by="user:ben").result

    assert ended is not None
    assert by((ended.outputs or {})["sign"]) == ["user:ana", "user:ben"]
