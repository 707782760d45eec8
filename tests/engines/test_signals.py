"""External messages: addressed, keyed, validated, stored before they are acknowledged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine.engines.engine import Engine
from flowengine.errors import Conflict, InputError, NotFound, UsageError
from tests.engines import world
from tests.engines.world import Clock

ORDER = """
inputs:
  order: {type: string, default: "7"}
signals:
  paid:
    key: ${{ inputs.order }}
    data: {type: object, properties: {n: {type: integer}}, required: [n]}
  stop: {}
steps:
  - id: pay
    wait: {first: [{id: paid, signal: paid}, {id: stopped, signal: stop}]}
    next: {outcome: {paid: done, stopped: end}}
  - {id: done, output: "${{ steps.pay.output.data.n }}"}
outputs: {n: "${{ steps.done.output }}"}
"""


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine(None, user="user:me") as engine:
        yield engine


def test_message_to_an_execution_moves_it(engine: Engine, tmp_path: Path) -> None:
    result = engine.run(world.make(tmp_path, ORDER))
    assert result.waits[0]["signals"] == [
        {"signal": "paid", "key": "7"},
        {"signal": "stop", "key": None},
    ]
    sent = engine.signal("paid", {"n": 5}, execution=result.execution)
    assert sent.result is not None
    assert sent.result.outputs == {"n": 5}
    (entry,) = [e for e in engine.events(result.execution) if e["type"] == "message"]
    assert (entry["signal"], entry["by"], entry["data"]) == ("paid", "user:me", {"n": 5})


def test_misspelled_signal_is_recognized_by_its_key(engine: Engine, tmp_path: Path) -> None:
    id = engine.run(world.make(tmp_path, ORDER)).execution
    with pytest.raises(NotFound, match="no open execution takes signal 'piad'") as refused:
        engine.signal("piad", {"n": 1}, key="7")
    assert refused.value.hint == "an open execution takes signal 'paid' with this key"
    for name, key in (("piad", "8"), ("parcel", "7")):
        with pytest.raises(NotFound) as refused:
            engine.signal(name, {"n": 1}, key=key)
        assert (refused.value.hint or "").startswith("it may have ended")
    with pytest.raises(InputError) as unknown:
        engine.signal("piad", {"n": 1}, execution=id)
    assert unknown.value.hint == "did you mean 'paid'?"


@pytest.mark.parametrize("where", ["execution", "key"])
@pytest.mark.parametrize("taken", [False, True], ids=["in the inbox", "taken"])
def test_message_of_the_same_id_with_other_data_is_a_conflict(
    tmp_path: Path, where: str, taken: bool
) -> None:
    for place in (None, tmp_path / "store"):
        with Engine(place, user="user:me") as engine:
            id = engine.run(world.make(tmp_path, ORDER)).execution
            to: dict[str, Any] = {"execution": id} if where == "execution" else {"key": "7"}
            first = engine.signal("paid", {"n": 1}, id="m1", resume=taken, **to)
            again = engine.signal("paid", {"n": 1}, id="m1", resume=False, by="user:ana", **to)
            assert (first.first, again.first, again.execution) == (True, False, id)
            with pytest.raises(
                Conflict, match=r"'m1' of signal 'paid' .*: 'n' is 1 there and 2 here"
            ) as caught:
                engine.signal("paid", {"n": 2}, id="m1", **to)
            assert f"flowengine show {id}" in (caught.value.hint or "")
            with pytest.raises(Conflict, match="'more' is missing there and true here"):
                engine.signal("paid", {"n": 1, "more": True}, id="m1", **to)
            assert engine.resume(id).outputs == {"n": 1}


def test_data_that_is_no_mapping_is_compared_too(engine: Engine, tmp_path: Path) -> None:
    id = engine.run(world.make(tmp_path, ORDER)).execution
    for _ in range(2):
        engine.signal("stop", [1, [2, 3]], execution=id, id="m1", resume=False)
    with pytest.raises(Conflict, match=r"'data' is \[1, \[2, 3\]\] there and null here"):
        engine.signal("stop", execution=id, id="m1")
    assert engine.signal("paid", {"n": 1}, execution=id, id="m1").first, "another signal"


def test_message_that_does_not_fit_is_refused(engine: Engine, tmp_path: Path) -> None:
    id = engine.run(world.make(tmp_path, ORDER)).execution
    with pytest.raises(InputError, match="no signal 'payed'"):
        engine.signal("payed", execution=id)
    with pytest.raises(InputError):
        engine.signal("paid", {"n": "x"}, execution=id)
    with pytest.raises(InputError):
        engine.signal("paid", {}, key="7")
    with pytest.raises(UsageError):
        engine.signal("paid", {"n": 1})
    with pytest.raises(UsageError):
        engine.signal("paid", {"n": 1}, execution=id, key="7")
    assert engine.result(id).status == "waiting"


def test_message_to_an_ended_execution_is_refused(engine: Engine, tmp_path: Path) -> None:
    id = engine.run(world.make(tmp_path, ORDER)).execution
    engine.signal("stop", execution=id)
    with pytest.raises(Conflict, match="has succeeded"):
        engine.signal("stop", execution=id)


def test_messages_and_timers_of_a_downtime_are_taken_in_order_of_time(tmp_path: Path) -> None:
    text = """
signals: {paid: {}}
steps:
  - id: pay
    wait: {first: [{id: paid, signal: paid}, {id: late, for: 100ms}]}
    next: {outcome: {paid: good, late: bad}}
  - {id: good, output: good, next: end}
  - {id: bad, output: bad}
outputs: {good: "${{ steps.good.output }}", bad: "${{ steps.bad.output }}"}
"""
    clock = Clock(0)
    with Engine(tmp_path / "store", clock=clock, linger=0) as engine:
        flow = engine.load(world.make(tmp_path, text))
        for sent, outputs in (
            (50, {"good": "good", "bad": None}),
            (150, {"good": None, "bad": "bad"}),
        ):
            clock.time = 1_000_000
            id = engine.run(flow).execution
            clock.time += sent
            engine.signal("paid", execution=id, resume=False)
            clock.time += 1000
            assert engine.resume(id).outputs == outputs


def due(engine: Engine) -> list[str]:
    return [one.execution for one in engine.due()]


def test_what_is_due_is_what_can_move_and_nobody_holds(tmp_path: Path) -> None:
    clock = Clock(10**12)  # leases have their own clock, which must not be mixed up with it
    with Engine(tmp_path / "store", clock=clock, linger=0) as engine:
        flow = world.make(tmp_path, "steps: [{id: nap, wait: 10s}]\n")
        for id in ("early", "late"):
            assert engine.run(flow, id=id).status == "waiting"
            clock.time += 4000
        assert due(engine) == []
        clock.time += 2000
        assert due(engine) == ["early"]
        clock.time += 4000
        assert due(engine) == ["early", "late"]
        with Engine(tmp_path / "store", clock=clock) as other:
            epoch = other._host.keeper.acquire("early")
            assert due(engine) == ["late"]
            other._host.keeper.release([("early", epoch)])
        assert [engine.resume(id).status for id in due(engine)] == ["succeeded", "succeeded"]
        assert due(engine) == []


def test_clock_that_jumps_back_does_not_turn_history_round(tmp_path: Path) -> None:
    clock = Clock(0)
    with Engine(tmp_path / "store", clock=clock) as engine:
        clock.time = 1_000_000
        id = engine.run(world.make(tmp_path, ORDER)).execution
        clock.time = 500_000
        assert engine.signal("paid", {"n": 1}, execution=id).result is not None
        times = [entry["at"] for entry in engine.events(id)]
    assert times == sorted(times)
