"""Comparison of two executions: where their histories diverge (F76)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.inspection import diff
from flowengine.errors import NotFound
from tests.engines import world

REVIEW = """
inputs:
  text: {type: string}
state:
  level: {type: integer, default: 1}
steps:
  - id: read
    output: "${{ inputs.text }} read"
  - id: review
    approval: {title: "${{ steps.read.output }}?"}
    next: {outcome: {approve: publish, reject: end}}
  - id: publish
    output:
      text: ${{ steps.read.output }}
      level: ${{ state.level }}
      at: ${{ execution.id }}
outputs: {published: "${{ steps.publish.output }}"}
"""


def decided(
    engine: Engine, flow: Any, choice: str = "approve", text: str = "a", **more: Any
) -> str:
    """Run a flow with one approval to its end, and return the execution's ID."""
    (wait,) = engine.run(flow, {"text": text}).waits
    engine.decide(wait["id"], choice, **more)
    return wait["execution"]


def test_executions_that_did_the_same_are_the_same_whatever_their_ids_and_times(
    tmp_path: Path,
) -> None:
    flow = world.make(tmp_path, REVIEW)
    with Engine(None) as engine:
        found = engine.diff(decided(engine, flow), decided(engine, flow))
    assert found["same"]
    assert found["parting"] is None
    assert (found["steps"], found["outputs"], found["inputs"]) == ([], [], [])
    assert found["shared"] == found["left"]["facts"] == found["right"]["facts"]


ORDERED = """
inputs: {given: {}}
steps:
  - {id: pass_on, output: "${{ inputs.given }}"}
outputs: {given: "${{ steps.pass_on.output }}"}
"""


def test_the_order_of_keys_is_no_difference_and_the_type_of_a_value_is_one(tmp_path: Path) -> None:
    flow = world.make(tmp_path, ORDERED)
    with Engine(tmp_path / "store") as engine:
        first, turned, other = (
            engine.run(flow, {"given": given}).execution
            for given in ({"a": 1, "b": [2]}, {"b": [2], "a": 1}, {"a": True, "b": [2]})
        )
        assert engine.diff(first, turned)["same"]
        found = engine.diff(first, other)
        assert found["outputs"] == [{"path": "given.a", "left": 1, "right": True}]
        assert found["shared"] == 0


def test_what_is_alike_is_compared_as_bytes_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine(tmp_path / "store") as engine:
        flow = world.make(tmp_path, REVIEW)
        first, other = decided(engine, flow), decided(engine, flow)
        monkeypatch.setattr(diff, "_sorted", lambda _: pytest.fail("values are sorted"))
        monkeypatch.setattr(diff, "_compare", lambda *_: pytest.fail("values are searched"))
        assert engine.diff(first, other)["same"]


def test_the_first_point_is_the_decision_and_what_follows_differs_too(tmp_path: Path) -> None:
    flow = world.make(tmp_path, REVIEW)
    with Engine(None) as engine:
        found = engine.diff(decided(engine, flow), decided(engine, flow, "reject", comment="no"))
    point = found["parting"]
    assert point is not None
    assert (point["address"], point["what"]) == ("review", "end")
    assert point["left"] is not None
    assert point["right"] is not None
    assert (point["left"]["outcome"], point["right"]["outcome"]) == ("approve", "reject")
    assert {"path": "output.comment", "left": None, "right": "no"} in point["differ"]
    publish = found["steps"][-1]
    assert (publish["address"], publish["right"]) == ("publish", None)
    assert not found["same"]


def test_other_inputs_are_where_they_part(tmp_path: Path) -> None:
    flow = world.make(tmp_path, REVIEW)
    with Engine(None) as engine:
        found = engine.diff(decided(engine, flow), decided(engine, flow, text="b"))
    assert found["parting"] is not None
    assert found["parting"]["what"] == "inputs"
    assert found["inputs"] == [{"path": "text", "left": "a", "right": "b"}]


def test_one_that_has_not_come_as_far_parts_where_it_stands(tmp_path: Path) -> None:
    flow = world.make(tmp_path, REVIEW)
    with Engine(None) as engine:
        done = decided(engine, flow)
        waiting = engine.run(flow, {"text": "a"}).execution
        found, mirrored = engine.diff(done, waiting), engine.diff(waiting, done)
    assert found["parting"] is not None
    assert mirrored["parting"] is not None
    assert found["parting"]["right"] is mirrored["parting"]["left"] is None
    assert found["parting"]["address"] == mirrored["parting"]["address"] == "review"


def test_a_fork_tells_where_it_comes_from_and_that_its_past_is_the_same(tmp_path: Path) -> None:
    flow = world.make(tmp_path, REVIEW)
    with Engine(None) as engine:
        old = decided(engine, flow)
        (wait,) = engine.fork(old, from_step="review", set={"level": 2}).waits
        engine.approve(wait["id"])
        found = engine.diff(old, wait["execution"])
        (wait,) = engine.fork(old, from_step="review").waits
        engine.approve(wait["id"])
        same = engine.diff(old, wait["execution"])
    assert found["fork"] == {"side": "right", "at": "review", "past": 2, "same": True}
    assert found["parting"] is not None
    assert found["parting"]["what"] == "state that was written"
    assert found["parting"]["left"] is None
    assert found["outputs"] == [{"path": "published.level", "left": 1, "right": 2}]
    assert same["same"]


def test_parallel_branches_may_end_in_any_order(tmp_path: Path) -> None:
    flow = world.make(
        tmp_path,
        """
signals: {a: {data: {type: integer}}, b: {data: {type: integer}}}
steps:
  - id: both
    parallel:
      - {id: a, wait: {signal: a}}
      - {id: b, wait: {signal: b}}
outputs: {a: "${{ steps.both.output.a.data }}"}
""",
    )
    with Engine(None) as engine:
        ids = []
        for order in ("ab", "ba"):
            id = engine.run(flow).execution
            for name in order:
                engine.signal(name, ord(name), execution=id)
            ids.append(id)
        orders = [[entry["type"] for entry in engine.events(id)] for id in ids]
        assert orders[0] == orders[1] == ["started", "message", "message"]
        assert engine.diff(*ids)["same"]
        other = engine.run(flow).execution
        engine.signal("b", 7, execution=other)
        engine.signal("a", ord("a"), execution=other)
        found = engine.diff(ids[0], other)
    assert found["parting"] is not None
    assert found["parting"]["what"] == "signal b"
    assert found["parting"]["differ"] == [{"path": "data", "left": 98, "right": 7}]


def test_attempts_that_were_cut_off_are_no_difference(tmp_path: Path) -> None:
    """A crash in between changes attempts and their numbers, but no results."""
    flow = world.make(
        tmp_path,
        """
steps:
  - {id: a, run: {argv: [echo, "1"]}, effect: pure, in: host}
  - {id: b, output: "${{ steps.a.output.stdout }}"}
outputs: {b: "${{ steps.b.output }}"}
""",
    )
    with Engine(None) as engine:
        whole = engine.run(flow).execution
        cut = engine.start(flow)
        found = engine._driving.loaded(cut)
        found.apply_queue()
        assert engine._host.journals.commit([found.take(release=True)]) == [
            None
        ]  # the process dies here
        engine._host.keeper.released(cut)
        engine.resume(cut)
        assert [one["type"] for one in engine.events(cut)] == ["started", "cut", "succeeded"]
        assert engine.diff(whole, cut)["same"]


def test_secrets_stay_masked_and_unknown_ids_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "sesame-open")
    flow = world.make(
        tmp_path,
        """
inputs: {n: {type: integer}}
secrets: {token: {env: TOKEN}}
steps:
  - id: show
    run: {script: 'echo "$N $TOKEN"', env: {N: "${{ inputs.n }}", TOKEN: "${{ secrets.token }}"}}
    in: host
""",
    )
    with Engine(None) as engine:
        one, other = (engine.run(flow, {"n": n}).execution for n in (1, 2))
        text = str(engine.diff(one, other))
        assert "***" in text
        assert "sesame" not in text
        with pytest.raises(NotFound):
            engine.diff(one, "nothing")
