"""Locks: steps that never run at the same time (F92, S22, S23, S26-S28)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from flowengine import FlowFileError
from flowengine.kernel import ENDED
from flowengine.testing.simulator import Fails, Simulator, unpacked
from tests.language.stage import Script, Stage


def played(
    stage: Stage, text: str, script: Script | None = None, *, seed: int = 0, **given: Any
) -> list[list[str]]:
    """Run a flow in a random order of ends. Return the tasks running together at each moment."""
    simulator = stage.simulator(text, script).start(given)
    draws = random.Random(seed)
    together = [_tasks(simulator)]
    while simulator.status not in ENDED:
        if simulator.running:
            simulator.end(draws.choice(list(simulator.running.values())))
        else:
            assert simulator.step(), simulator.state
        if draws.random() < 0.1:
            simulator.state = unpacked(simulator.state)
        together.append(_tasks(simulator))
    assert unpacked(simulator.replayed()) == unpacked(simulator.state)
    assert simulator.status == "succeeded", simulator.state["error"]
    return together


def _tasks(simulator: Simulator) -> list[str]:
    return sorted(run.address for run in simulator.running.values())


def most(together: list[list[str]], *steps: str) -> int:
    """Return the highest number of these steps that ran at once."""
    return max(sum(a.split("[")[0].split("/")[-1] in steps for a in one) for one in together)


COUNTER = """
state: {n: {type: integer, default: 0}}
steps:
  - {id: s, next: {all: [a, b]}}
  - id: a
    map: {over: 5, concurrency: 5}
    lock: counter
    python: "tools:act"
    set: {n: "${{ state.n + 1 }}"}
    next: end
  - id: b
    loop: {until: "${{ round.number == 4 }}", max: 4}
    lock: {key: counter}
    python: "tools:act"
    set: {n: "${{ state.n + 10 }}"}
    next: end
outputs: {n: "${{ state.n }}"}
"""


def test_a_counter_under_a_lock_counts(stage: Stage) -> None:
    for seed in range(20):
        assert most(played(stage, COUNTER, seed=seed), "a", "b") == 1
    assert stage.play(COUNTER).outputs == {"n": 45}
    assert stage.world.most == 1


def test_the_checker_sees_that_writes_under_one_lock_do_not_meet(stage: Stage) -> None:
    assert stage.warnings(COUNTER) == []
    assert stage.warnings(COUNTER.replace("{key: counter}", "other")) == ["W306"]


def test_a_write_under_another_lock_is_a_conflict(stage: Stage) -> None:
    text = """
state: {n: {type: integer, default: 0}}
steps:
  - {id: s, next: {all: [a, b]}}
  - {id: a, lock: one, set: {n: 1}, next: end}
  - {id: b, lock: other, set: {n: 2}, next: end}
"""
    assert stage.play(text).error_type == "StateConflict"
    assert stage.play(text.replace("other", "one")).status == "succeeded"


def test_it_is_held_over_all_attempts_and_their_pauses(stage: Stage) -> None:
    text = """
steps:
  - {id: s, next: {all: [a, b]}}
  - {id: a, lock: k, python: "tools:act", effect: pure, retry: {attempts: 2, delay: 1m}, next: end}
  - {id: b, lock: k, python: "tools:act", next: end}
"""
    script = {"a": lambda call: _fail_first(call.attempt)}
    simulator = stage.simulate(text, script, order="first")
    assert simulator.started == ["a", "a", "b"]


def _fail_first(attempt: int) -> None:
    if attempt == 1:
        raise Fails("Bad", retryable=True)


def test_the_queue_is_in_order_of_arrival(stage: Stage) -> None:
    text = """
steps: [{id: a, map: {over: 6, concurrency: 6}, lock: k, python: "tools:act"}]
"""
    for seed in range(6):
        started = [address for one in played(stage, text, seed=seed) for address in one]
        assert list(dict.fromkeys(started)) == [f"a[{i}]" for i in range(6)]


@pytest.mark.parametrize("permits", [1, 2, 3])
def test_at_most_so_many_as_there_are_permits(stage: Stage, permits: int) -> None:
    text = f"""
steps:
  - {{id: a, map: {{over: 8, concurrency: 8}}, lock: {{key: k, permits: {permits}}}, python: "tools:act"}}
"""  # noqa: E501
    assert {most(played(stage, text, seed=seed), "a") for seed in range(8)} == {permits}
    stage.run(text)
    assert stage.world.most == permits


def test_steps_with_other_keys_do_not_wait(stage: Stage) -> None:
    text = """
steps:
  - id: a
    map: {over: [x, x, y, y], concurrency: 4}
    lock: "${{ item }}"
    python: "tools:act"
"""
    for seed in range(8):
        together = played(stage, text, seed=seed)
        assert max(len(one) for one in together) == 2
        assert not any({"a[0]", "a[1]"} <= set(one) for one in together)


NESTED = """
steps:
  - {id: s, next: {all: [g, h]}}
  - id: g
    lock: A
    parallel:
      - {id: x, lock: A, python: "tools:act"}
      - {id: y, lock: A, python: "tools:act"}
      - {id: free, python: "tools:act"}
    next: end
  - {id: h, lock: A, python: "tools:act", next: end}
"""


def test_a_lock_held_around_is_taken_again_inside(stage: Stage) -> None:
    """The flow ends, the inner steps exclude one another, and no outer step gets in between."""
    for seed in range(20):
        together = played(stage, NESTED, seed=seed)
        assert most(together, "x", "y", "h") == 1
        assert most(together, "h", "free") == 1
    assert stage.play(NESTED).status == "succeeded"


def test_a_group_holds_it_over_its_cleanup(stage: Stage) -> None:
    text = """
steps:
  - {id: s, next: {all: [g, h]}}
  - id: g
    lock: A
    group: [{id: x, fail: {type: Bad}}]
    finally: [{id: tidy, lock: A, python: "tools:act"}]
    on_error: continue
    next: end
  - {id: h, lock: A, python: "tools:act", next: end}
"""
    for seed in range(6):
        assert most(played(stage, text, seed=seed), "tidy", "h") == 1


APPROVALS = """
state: {{n: {{type: integer, default: 0}}}}
steps:
  - {{id: s, next: {{all: [a, b]}}}}
  - {{id: a, lock: {lock}, approval: A?, set: {{n: "${{{{ state.n + 1 }}}}"}}, next: end}}
  - {{id: b, lock: {lock}, approval: B?, set: {{n: "${{{{ state.n + 1 }}}}"}}, next: end}}
outputs: {{n: "${{{{ state.n }}}}"}}
"""


def asked(simulator: Simulator) -> list[str]:
    return [wait["address"] for wait in simulator.waits()]


def test_an_approval_gives_the_lock_back_while_it_waits(stage: Stage) -> None:
    simulator = stage.simulator(APPROVALS.format(lock="k")).start()
    assert asked(simulator) == ["a", "b"]
    for address in ("b", "a"):
        simulator.decide(address, "approve")
    assert (simulator.status, simulator.state["outputs"]) == ("succeeded", {"n": 2})


def test_an_approval_that_holds_its_lock_is_the_only_one_open(stage: Stage) -> None:
    simulator = stage.simulator(APPROVALS.format(lock="{key: k, hold: true}")).start()
    assert (asked(simulator), simulator.status) == (["a"], "waiting")
    simulator.decide("a", "approve")
    assert asked(simulator) == ["b"]
    simulator.decide("b", "approve")
    assert simulator.state["outputs"] == {"n": 2}


def test_a_decision_stands_before_the_lock_is_had(stage: Stage) -> None:
    text = """
state: {n: {type: integer, default: 0}}
steps:
  - {id: s, next: {all: [work, ask]}}
  - {id: work, lock: k, python: "tools:act", set: {n: 1}, next: end}
  - {id: ask, lock: k, approval: Sure?, set: {n: "${{ state.n + 1 }}"}, next: end}
outputs: {n: "${{ state.n }}"}
"""
    simulator = stage.simulator(text).start()
    simulator.decide("ask", "approve")
    assert (asked(simulator), simulator.status) == ([], "running")
    simulator.finish("work")
    assert simulator.state["outputs"] == {"n": 2}


def test_who_is_withdrawn_leaves_the_queue_and_gives_back_what_it_has(stage: Stage) -> None:
    text = """
steps:
  - {id: s, next: {all: [a, b, c, stop]}}
  - {id: a, lock: k, python: "tools:act", next: end}
  - {id: b, lock: k, python: "tools:act", next: end}
  - {id: c, lock: k, python: "tools:act", next: end}
  - {id: stop, wait: {for: 1s}, next: kill}
  - {id: kill, cancel: [a, b], next: end}
"""
    simulator = stage.simulator(text).start()
    assert simulator.started == ["a"]
    timer = next(iter(simulator.state["timers"]))
    simulator.apply({"type": "timer", "at": simulator.now + 1000, "timer": timer})
    assert simulator.started == ["a", "c"]
    simulator.finish("c")
    assert simulator.status == "succeeded"


CIRCLE = """
inputs: {{a: {{type: string, default: A}}}}
steps:
  - {{id: s, next: {{all: [g, h]}}}}
  - id: g
    lock: {first}
    group: [{{id: g1, python: "tools:act"}}, {{id: g2, lock: B, python: "tools:act"}}]
    on_error: continue
    next: end
  - id: h
    lock: B
    group: [{{id: h1, python: "tools:act"}}, {{id: h2, lock: {first}, python: "tools:act"}}]
    on_error: continue
    next: end
outputs: {{g: "${{{{ steps.g.error.type }}}}", h: "${{{{ steps.h.error.type }}}}"}}
"""


def test_locks_taken_in_two_orders_are_refused(stage: Stage) -> None:
    with pytest.raises(FlowFileError) as refused:
        stage.compile(CIRCLE.format(first="A"))
    [found] = [d for d in refused.value.diagnostics if d.code == "E409"]
    assert "'g2' takes 'B' inside 'A', 'h2' takes 'A' inside 'B'" in found.message


def test_of_computed_locks_the_last_to_close_a_circle_gets_an_error(stage: Stage) -> None:
    text = CIRCLE.format(first='"${{ inputs.a }}"').split("outputs")[0]
    circles = 0
    for seed in range(12):
        simulator = stage.simulator(text).start({"a": "A"})
        draws = random.Random(seed)
        while simulator.status not in ENDED:
            simulator.end(draws.choice(list(simulator.running.values())))
        errors = [o.error["type"] for o in simulator.observations if o.error]
        assert set(errors) <= {"LockCycle"}
        circles += bool(errors)
        assert simulator.status == "succeeded"
    assert circles


def test_one_key_has_one_number_of_permits(stage: Stage) -> None:
    text = """
steps:
  - {id: a, lock: k}
  - {id: b, lock: {key: k, permits: 2}}
"""
    with pytest.raises(FlowFileError) as refused:
        stage.compile(text)
    assert [d.code for d in refused.value.diagnostics] == ["E103"]


def test_a_key_that_is_no_text_is_refused(stage: Stage) -> None:
    text = """
inputs: {key: {}}
steps: [{id: a, lock: "${{ inputs.key }}"}]
"""
    assert stage.play(text, inputs={"key": 7}).status == "succeeded"
    assert stage.play(text, inputs={"key": [1]}).error_type == "ValidationError"


def test_the_engine_goes_on_with_a_queue_after_its_process_has_died(stage: Stage) -> None:
    simulator = stage.simulator(COUNTER).start()
    simulator.end(next(iter(simulator.running.values())))
    simulator.crash()
    while simulator.status not in ENDED:
        for wait in simulator.waits():
            simulator.decide(wait["address"], "retry")
        if simulator.running:
            simulator.end(next(iter(simulator.running.values())))
    assert simulator.state["outputs"] == {"n": 45}


def test_why_says_who_has_the_lock(stage: Stage) -> None:
    result = stage.run(APPROVALS.format(lock="{key: k, hold: true}"))

    [queued] = [r for r in stage.engine.why(result.execution) if r["address"] == "b"]

    assert queued["what"] == "waiting for the lock 'k', which a holds"
    assert queued["wakes"] == "the end of a"


def test_locks_of_two_scopes_are_two_locks_and_are_ordered_too(stage: Stage) -> None:
    text = """
steps:
  - {id: s, next: {all: [g, h]}}
  - id: g
    lock: {key: a, scope: global}
    group: [{id: g1, lock: {key: a, scope: INNER}}]
    next: end
  - id: h
    lock: {key: a, scope: INNER}
    group: [{id: h1, lock: {key: a, scope: OUTER}}]
    next: end
"""
    assert not stage.warnings(text.replace("INNER", "flow").replace("OUTER", "execution"))
    with pytest.raises(FlowFileError, match=r"E409.*'a \(flow\)' inside 'a \(global\)'"):
        stage.compile(text.replace("INNER", "flow").replace("OUTER", "global"))
