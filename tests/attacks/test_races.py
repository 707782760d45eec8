"""Two processes act on one execution at once: in sequence, without duplicate calls or leftovers.

The tool keeps the bill outside of the engine: one line per payment.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.cli import main
from flowengine.errors import Conflict, FlowEngineError
from tests.engines import child
from tests.engines.world import host_of

ACTS = """
import os
from pathlib import Path
from flowengine.sdk import StepContext

HERE = Path(__file__).parent

def pay(amount: int, context: StepContext) -> str:
    file = os.open(HERE / "bill", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{context.execution.id} {context.address} {amount}\\n".encode())
    os.close(file)
    return "paid"

def deliver() -> str:
    if not (HERE / "repaired").exists():
        raise ValueError("the van is broken")
    return "delivered"
"""
HEAD = """
flowengine: 1
id: f
signals: {stop: {}}
tools:
  pay: {python: "acts:pay", effect: once, approval: {assignees: [user:ana, user:ben]}}
  pay_at_once: {python: "acts:pay", effect: once}
steps:
"""
TWICE = f"""{HEAD}
  - {{id: a, call: pay, with: {{amount: 1}}}}
  - {{id: b, call: pay, with: {{amount: 2}}}}
"""
BRANCHES = f"""{HEAD}
  - {{id: start, set: {{}}, next: {{all: [a, s]}}}}
  - {{id: a, call: pay, with: {{amount: 1}}, next: j}}
  - {{id: s, wait: {{signal: stop}}, next: j}}
  - {{id: j, join: {{need: 1, late: cancel}}, set: {{}}, next: b}}
  - {{id: b, call: pay, with: {{amount: 2}}}}
"""
BROKEN = f"""{HEAD}
  - {{id: a, call: pay_at_once, with: {{amount: 1}}}}
  - {{id: b, python: "acts:deliver"}}
  - {{id: c, call: pay_at_once, with: {{amount: 3}}}}
"""
DOES: dict[str, Callable[[Engine, str], Any]] = {
    "approve": lambda engine, wait: engine.approvals.approve(wait, by="user:ana"),
    "delegate": lambda engine, wait: engine.approvals.delegate(wait, "user:cleo", by="user:ben"),
    "cancel": lambda engine, wait: engine.executions.cancel("e"),
    "stop": lambda engine, wait: engine.signal("stop", {}, execution="e"),
    "retry": lambda engine, wait: engine.executions.retry("e"),
    "fork": lambda engine, wait: engine.executions.fork("e", from_step="b", id="g"),
    "upgrade": lambda engine, wait: engine.executions.upgrade("other.yaml", "e"),
}
pytestmark = pytest.mark.usefixtures("folder")
FILES = {"acts.py": ACTS}


def write(text: str) -> None:
    Path("flow.yaml").write_text(text)
    Path("other.yaml").write_text(text.replace("amount: 2", "amount: 22"))


def bill() -> list[str]:
    file = Path("bill")
    return file.read_text().splitlines() if file.exists() else []


def act(folder: str, barrier: Any, queue: Any, what: str, rounds: int) -> None:
    """Perform an action in each round, together with another process, and report the result."""
    with chdir(folder):
        for number in range(rounds):
            barrier.wait(60)
            with Engine(f"store{number}", durability="process") as engine:
                wait = Path("wait").read_text()
                barrier.wait(60)
                try:
                    DOES[what](engine, wait)
                    queue.put((what, "done"))
                except FlowEngineError as error:
                    queue.put((what, type(error).__name__))


@pytest.mark.parametrize(
    ("flow", "one", "other", "paid", "statuses"),
    [
        (TWICE, "approve", "cancel", {"a"}, {"cancelled"}),
        (TWICE, "approve", "delegate", {"a"}, {"waiting"}),
        (TWICE, "approve", "upgrade", {"a"}, {"waiting"}),
        (BRANCHES, "approve", "stop", {"a"}, {"waiting"}),
        (BROKEN, "retry", "retry", {"a", "c"}, {"succeeded"}),
        (BROKEN, "fork", "fork", {"a", "c"}, {"failed"}),
    ],
    ids=lambda value: value if isinstance(value, str) and "\n" not in value else "",
)
def test_two_processes_at_the_same_moment_are_one_after_the_other(
    flow: str, one: str, other: str, paid: set[str], statuses: set[str], folder: Path
) -> None:
    write(flow)
    rounds = 2
    barrier, queue = child.CONTEXT.Barrier(3), child.CONTEXT.Queue()
    both = [child.start(act, str(folder), barrier, queue, what, rounds) for what in (one, other)]
    for number in range(rounds):
        for name in ("bill", "repaired"):
            Path(name).unlink(missing_ok=True)
        with Engine(f"store{number}", durability="process") as engine:
            waits = engine.run("flow.yaml", id="e").waits
            Path("wait").write_text(waits[0]["id"] if waits else "")
        Path("repaired").touch()
        barrier.wait(60)
        barrier.wait(60)
        came = [queue.get(timeout=60) for _ in both]
        with Engine(f"store{number}") as engine:
            shown = engine.executions.show("e")
        calls = Counter(bill())
        told = (came, shown["status"], calls)
        assert max(calls.values(), default=1) == 1, told
        assert {line.split()[1] for line in calls} <= paid, told
        # Every acknowledged decision has been applied: none is left for a later resume.
        assert shown["status"] in statuses, told
        ended = {step["address"]: step["status"] for step in shown["steps"]}
        acted = {line.split()[1] for line in calls if line.startswith("e ")}
        # All payments belong to succeeded steps, except for steps that the other process
        # interrupted.
        cut_off = {"cancelled"} if other in {"cancel", "stop"} else set()
        assert {ended.get(name) for name in acted} <= {"succeeded"} | cut_off, told
        assert acted >= {name for name in paid if ended.get(name) == "succeeded"}, told
        if one == other:
            assert sorted(how for _, how in came) == ["Conflict", "done"], told
    for process in both:
        process.join(60)
        assert process.exitcode == 0


@pytest.mark.parametrize(
    ("engines", "moment"),
    # A commit has released the lease for other engines before its own engine lets go.
    [
        (1, "taken"),
        (1, "noting"),
        (1, "releasing"),
        (1, "released"),
        (2, "noting"),
        (2, "released"),
    ],
)
def test_a_decision_made_while_another_hand_is_noted_is_taken(
    engines: int, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delegation holds the execution for a moment, without driving it.

    The decision meets it from when the lease is taken until it is released, and looks whether to
    try again only after that.
    """
    write(TWICE)
    with Engine("store") as first, Engine("store") as second:
        wait = first.run("flow.yaml", id="e").waits[0]["id"]
        decides = first if engines == 1 else second
        refused, is_held = threading.Event(), threading.Event()
        hand = threading.Thread(target=DOES["delegate"], args=(first, wait))
        host, decider = host_of(first), host_of(decides).keeper
        keeper = host.keeper
        take, stored, release, acquire = (
            keeper.acquire,
            host.stored,
            keeper.release,
            decider.acquire,
        )

        def holds(*moments: str) -> None:
            if moment in moments and threading.current_thread() is hand:
                is_held.set()
                assert refused.wait(60)

        def taken(execution: str, **more: Any) -> int:
            epoch: int = take(execution, **more)
            holds("taken")
            return epoch

        def noting(execution: str, epoch: int) -> Any:
            holds("noting", "released")
            return stored(execution, epoch)

        def releasing(leases: Any) -> None:
            holds("releasing")
            release(leases)

        def meets(execution: str, **more: Any) -> int:
            try:
                return (taken if engines == 1 else acquire)(execution, **more)
            except Conflict:
                refused.set()
                if moment == "released":
                    hand.join(60)
                raise

        monkeypatch.setattr(keeper, "acquire", taken)
        monkeypatch.setattr(host, "stored", noting)
        monkeypatch.setattr(keeper, "release", releasing)
        monkeypatch.setattr(decider, "acquire", meets)
        hand.start()
        assert is_held.wait(60)
        decision = DOES["approve"](decides, wait)
        hand.join(60)

        assert refused.is_set()
        assert decision.result is not None
        assert bill() == ["e a 1"]
        assert first.executions.show("e")["status"] == "waiting"


def test_who_could_not_move_an_execution_that_was_held_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was released again before the reason was looked up."""
    write(TWICE)
    with Engine("store") as holds:
        holds.run("flow.yaml", id="e")
        from flowengine.engines.leases import LeaseKeeper

        acquire, other = LeaseKeeper.acquire, host_of(holds).keeper

        def held(self: LeaseKeeper, execution: str, **more: bool) -> int:
            lease = (execution, acquire(other, execution))
            try:
                return acquire(self, execution, **more)
            finally:
                other.release([lease])

        monkeypatch.setattr(LeaseKeeper, "acquire", held)
        code = main(["--store", "store", "upgrade", "other.yaml"])

    assert code == Conflict.exit_code
    assert "held by a running process" in capsys.readouterr().out
