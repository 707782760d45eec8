"""Shared and exclusive locks, in the order of arrival."""

from __future__ import annotations

import random
from typing import Any

import pytest

from flowengine.errors import FlowFileError
from flowengine.flow.compile import compile_text
from flowengine.kernel import ENDED
from flowengine.testing.simulator import Fails, Simulator
from tests.testing.graphs import Described, graph, step, v, x

ITEM = ["item", "index", "key"]
SHARED = v(x(lambda names: names["item"] == "r"))


def calls(kinds: str, scope: str = "execution", concurrency: int = 100, **more: Any) -> Described:
    """Return a map with an item for each letter: `r` locks shared, `w` exclusively."""
    lock = {"key": v("calls"), "permits": 1, "scope": scope, "shared": SHARED}
    over: Described = {"over": v(list(kinds)), "names": ITEM, "concurrency": v(concurrency)}
    over["on_item_error"] = "continue"
    return step(more.pop("name", "call"), map=over, lock=lock, **more)


def at_work(played: Simulator) -> list[str]:
    return sorted(run.address for run in played.running.values())


def end(played: Simulator, address: str) -> None:
    played.end(next(run for run in played.running.values() if run.address == address))


def test_who_shares_it_runs_together_and_others_alone_in_the_order_of_arrival() -> None:
    played = Simulator(graph(calls("rrwrrw"))).start()

    assert at_work(played) == ["call[0]", "call[1]"]
    end(played, "call[1]")
    assert at_work(played) == ["call[0]"]
    end(played, "call[0]")
    assert at_work(played) == ["call[2]"]
    end(played, "call[2]")
    assert at_work(played) == ["call[3]", "call[4]"]
    end(played, "call[3]")
    end(played, "call[4]")
    assert at_work(played) == ["call[5]"]
    end(played, "call[5]")
    assert played.status == "succeeded"
    assert played.started == [f"call[{number}]" for number in range(6)]


def test_one_that_fails_frees_its_place() -> None:
    played = Simulator(graph(calls("wr")), {"call[0]": Fails("Broken")}).start()
    end(played, "call[0]")

    assert at_work(played) == ["call[1]"]


def test_one_that_is_withdrawn_from_the_queue_lets_the_next_on() -> None:
    played = Simulator(
        graph(
            step("both", parallel=[
                step("a", lock={"key": v("k"), "shared": v(True)}),
                step("b", lock={"key": v("k")}),
                step("c", lock={"key": v("k"), "shared": v(True)}),
                step("stop", action="cancel", cancel={"targets": ["b"]}, join="each"),
            ])
        )
    ).start()  # fmt: skip

    assert at_work(played) == ["both/a", "both/c"]


def test_it_is_held_over_a_group() -> None:
    played = Simulator(graph(calls("rwr", group=[step("first"), step("second")]))).start()

    assert at_work(played) == ["call[0]/first"]
    end(played, "call[0]/first")
    assert at_work(played) == ["call[0]/second"]
    end(played, "call[0]/second")
    assert at_work(played) == ["call[1]/first"]


def test_a_crash_keeps_who_shares_it() -> None:
    played = Simulator(graph(calls("rrw", effect="pure"))).start()
    played.crash()

    assert at_work(played) == ["call[0]", "call[1]"]
    played.run()
    assert played.status == "succeeded"


def test_shared_is_true_or_false() -> None:
    lock: Any = {"key": v("k"), "shared": v("yes")}
    played = Simulator(graph(step("a", lock=lock))).start()

    assert played.error is not None
    assert played.error["type"] == "ValidationError"


def two_runs(scope: str) -> Simulator:
    one, two = (step(f"run{n}", action="flow", flow="f") for n in (1, 2))
    lock: Any = {"key": v("k"), "scope": scope}
    flows = {"f": {"steps": [step("a", parallel=[step("b", lock=lock), step("c", lock=lock)])]}}
    return Simulator(graph(step("both", parallel=[one, two]), flows=flows), order="first").start()


def test_a_lock_of_a_run_is_not_that_of_another_run() -> None:
    assert at_work(two_runs("execution")) == ["both/run1/a/b"]
    played = two_runs("run")

    assert at_work(played) == ["both/run1/a/b", "both/run2/a/b"]
    end(played, "both/run1/a/b")
    assert at_work(played) == ["both/run1/a/c", "both/run2/a/b"]


def test_a_lock_of_a_run_is_not_taken_again_in_a_run_inside() -> None:
    lock: Any = {"key": v("k"), "scope": "run"}
    inner = {"steps": [step("i", parallel=[step("b", lock=lock), step("c", lock=lock)])]}
    outer = [step("run", action="flow", flow="f", lock=lock), step("other", lock=lock)]
    played = Simulator(graph(step("o", parallel=outer), flows={"f": inner}), order="first").start()

    assert at_work(played) == ["o/run/i/b"]
    assert len(played.state["locks"]) == 2


def test_holders_that_share_a_lock_close_a_circle_by_one_of_them() -> None:
    """`a` shares k and wants m. `b` holds m and wants k exclusively, which it can never get."""
    share, alone = {"key": v("k"), "shared": v(True)}, {"key": v("k")}
    m: Any = {"key": v("m")}
    played = Simulator(
        graph(
            step("all", parallel=[
                step("free", lock=share),
                step("a", lock=share, group=[step("wait"), step("am", lock=m)]),
                step("b", lock=m, group=[step("bwait"), step("bk", lock=alone)]),
            ])
        ),
        order="first",
    ).start()  # fmt: skip
    end(played, "all/a/wait")
    end(played, "all/b/bwait")

    assert played.error is not None
    assert played.error["type"] == "LockCycle"


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(10))
def test_random_orders_keep_sharing_apart_from_holding_alone(block: int) -> None:
    for seed in range(block * 10, block * 10 + 10):
        play_random_calls(seed)


def play_random_calls(seed: int) -> None:
    """Run calls with shared and exclusive locks, with occasional crashes of the process."""
    draws = random.Random(seed)
    kinds = "".join(draws.choice("rrw") for _ in range(draws.randint(2, 12)))
    script = {"call": lambda _run: draws.choice([1, 2])}
    played = Simulator(graph(calls(kinds, draws.choice(["execution", "run"]))), script, seed=seed)
    played.start()
    while played.status not in ENDED:
        letters = [kinds[int(a.removeprefix("call[").rstrip("]"))] for a in at_work(played)]
        assert set(letters) <= {"r"} or letters == ["w"]
        if draws.random() < 0.05:
            played.crash()
        played.step()
    first = list(dict.fromkeys(played.started))
    assert first == [f"call[{number}]" for number in range(len(kinds))]


def test_only_so_many_at_once_in_the_order_of_the_calls() -> None:
    """100 calls of a tool that permits 4 at once. A failing call frees its slot."""
    lock: Any = {"key": v("tool"), "permits": 4}
    over: Described = {"over": v(100), "names": ITEM, "concurrency": v(100)}
    over["on_item_error"] = "continue"
    draws = random.Random(1)

    def fails(_run: Any) -> int:
        if draws.random() < 0.3:
            raise Fails("Broken", retryable=False)
        return 1

    played = Simulator(graph(step("call", map=over, lock=lock)), {"call": fails}, seed=3).start()
    while played.status not in ENDED:
        assert len(played.running) <= 4
        played.step()

    assert played.started == [f"call[{number}]" for number in range(100)]


FLOW = """flowengine: 1
id: f
state: {n: {type: integer, default: 0}}
steps:
  - {id: a, map: 3, lock: LOCK, set: {n: "${{ item }}"}}
"""


@pytest.mark.parametrize(
    ("lock", "message"),
    [
        ("{key: k, shared: true, permits: 2}", "a lock that is shared has no 'permits'"),
        ("{key: k, shared: true, scope: flow}", "a lock of scope 'flow' cannot be shared"),
        ("{key: k, shared: maybe}", "expected a condition, got 'maybe'"),
    ],
)
def test_what_is_shared_is_checked(lock: str, message: str) -> None:
    with pytest.raises(FlowFileError) as caught:
        compile_text(FLOW.replace("LOCK", lock))

    [error] = [one for one in caught.value.diagnostics if one.code != "W306"]
    assert (error.code, error.message) == ("E103", message)


@pytest.mark.parametrize(("lock", "warned"), [("k", False), ("{key: k, shared: true}", True)])
def test_a_lock_that_is_shared_protects_no_writes(lock: str, warned: bool) -> None:
    found = [one.code for one in compile_text(FLOW.replace("LOCK", lock)).diagnostics]

    assert ("W306" in found) == warned


def test_a_file_says_shared_by_a_condition() -> None:
    text = FLOW.replace("LOCK", '{key: k, scope: run, shared: "${{ item > 0 }}"}')
    [spec] = compile_text(text).flow["steps"]

    assert spec["lock"]["scope"] == "run"
    assert spec["lock"]["shared"][0] == "expr"


def test_locks_of_two_runs_are_taken_in_any_order() -> None:
    """They are different locks, so no deadlock is possible."""

    def flow(outer: str, inner: str) -> str:
        return (
            f"{{steps: [{{id: o{outer}, lock: {{key: {outer}, scope: run}}, "
            f"group: [{{id: i{inner}, lock: {{key: {inner}, scope: run}}}}]}}]}}"
        )

    compile_text(
        f"flowengine: 1\nid: f\nflows: {{one: {flow('x', 'y')}, two: {flow('y', 'x')}}}\n"
        "steps:\n  - {id: a, flow: one}\n  - {id: b, flow: two}\n"
    )
