"""State passed to attempts by reference: its visible content, and the absence of copies."""

from __future__ import annotations

from typing import Any

from flowengine.journal.encoding import pack
from flowengine.kernel.commands import Run
from tests.simulation.simulator import Simulator
from tests.testing.graphs import graph, step, v, x

LOG = {"log": {"default": [], "reducer": "append"}}


def reading(effect: str = "idempotent") -> Any:
    return graph(
        step("both", parallel=[
            step("look", reads=["log", "mark"], effect=effect),
            step("write", set=[["log", v("b")], ["mark", v(2)]]),
        ]),
        state={**LOG, "mark": {"default": 1}},
    )  # fmt: skip


def of(played: Simulator, step: str) -> Run:
    return next(run for run in played.running.values() if run.address.endswith(step))


def test_an_attempt_is_handed_the_values_themselves() -> None:
    played = Simulator(reading()).start()
    run = of(played, "look")

    assert run.state == {"log": [], "mark": 1}
    assert run.state["log"] is played.state["vars"]["log"][0]
    assert "log" not in (run.input or {})


def test_an_attempt_after_a_crash_sees_what_it_saw_before() -> None:
    played = Simulator(reading()).start()
    played.end(of(played, "write"))
    assert played.state["vars"]["log"][0] == ["b"]
    played.crash()

    assert of(played, "look").state == {"log": [], "mark": 1}
    assert of(played, "look").attempt == 2
    played.run()
    assert "reading" not in played.state


def test_an_attempt_that_a_person_has_run_again_sees_what_it_saw_before() -> None:
    played = Simulator(reading("once")).start()
    played.crash()
    played.end(of(played, "write"))
    [wait] = played.waits()
    played.decide(wait["address"], "retry")

    assert of(played, "look").state == {"log": [], "mark": 1}


def test_an_attempt_of_a_retry_sees_the_state_of_now() -> None:
    from tests.simulation.simulator import Fails

    played = Simulator(
        graph(
            step("both", parallel=[
                step("look", reads=["log"], retry={"attempts": 2, "delay": "1s"}),
                step("write", set=[["log", v("b")]]),
            ]),
            state=LOG,
        ),
        {"look": Fails("Busy", retryable=True)},
    ).start()  # fmt: skip
    played.end(of(played, "write"))
    played.end(of(played, "look"))
    played.pass_time()

    assert of(played, "look").state == {"log": ["b"]}


def grown(length: int) -> Simulator:
    """An execution in a loop that has written that many entries."""
    entry = v(x(lambda names: {"role": "user", "content": "x" * 20}))
    looped = graph(
        step("turn", reads=["log"], set=[["log", entry]], next="turn"),
        state=LOG,
        limits={"activations": 10_000},
    )
    played = Simulator(looped).start()
    for _ in range(length):
        played.step()
    return played


def test_a_snapshot_holds_what_is_read_once() -> None:
    played = grown(300)
    alone = len(pack({"vars": played.state["vars"]}))

    assert len(pack(played.state)) < alone + 2_000
