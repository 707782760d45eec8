# Shows V2
"""The execution that a worker takes next (V2)."""

from __future__ import annotations

from flowengine.journal.records import Due
from flowengine.worker.backlog import Backlog


def due(id: str, flow: str = "a", since: int = 0, deaths: int = 0) -> Due:
    return Due(id, flow, since, "timer", deaths)


def taken(backlog: Backlog, now: float = 0.0) -> list[str]:
    """Take as many as may run."""
    found = []
    while (one := backlog.next(now)) is not None:
        found.append(one.execution)
    return found


def test_as_many_run_as_may_at_once_and_of_one_flow() -> None:
    backlog = Backlog(concurrency=3, per_flow=2)
    backlog.fill([due("a1"), due("a2"), due("a3"), due("b1", "b"), due("b2", "b")])

    first = taken(backlog)

    assert len(first) == 3
    assert sorted(one[0] for one in first) in (["a", "a", "b"], ["a", "b", "b"])
    assert backlog.is_full
    backlog.done(next(one for one in first if one[0] == "a"))
    assert len(taken(backlog)) == 1


def test_a_flow_with_many_does_not_keep_out_a_flow_with_few() -> None:
    backlog = Backlog(concurrency=1)
    backlog.fill([*(due(f"many{i}", "many") for i in range(100)), due("few", "few", since=9)])
    order = []
    for _ in range(3):
        order += taken(backlog)
        backlog.done(order[-1])

    assert "few" in order[:2]


def test_within_a_flow_those_that_wait_longest_are_next() -> None:
    backlog = Backlog(concurrency=1, window=1)
    backlog.fill([due("old", since=1), due("new", since=2)])

    assert taken(backlog) == ["old"]


def test_the_next_whose_process_died_begins_once_the_last_one_is_through() -> None:
    backlog = Backlog(concurrency=5)
    backlog.fill([due("a", deaths=1), due("b", deaths=1)])
    [first] = taken(backlog)

    backlog.done(first)

    assert len(taken(backlog)) == 1
