# Shows D13
"""No attempt in Temporal is at work beside the next one of its step, whatever its worker can do."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.errors import NoWorker
from tests.engines.own_network import OwnNetwork
from tests.engines.temporal_server import RunningWorker, StoreNamed
from tests.engines.world import until

pytestmark = pytest.mark.endurance

STEPS = """\
import ctypes
import os
import time
from pathlib import Path

HERE = Path(__file__).parent


def note(what: str) -> None:
    with open(HERE / "effects", "a") as file:
        file.write(f"{what} {os.getpid()}\\n")


def has(name: str) -> bool:
    return (HERE / name).exists()


def act() -> str:
    note("began")
    while not has("go"):
        time.sleep(0.01)
    note("acted")
    return "acted"


def insist() -> str:
    note("began")
    while not has("go"):
        try:
            time.sleep(0.01)
        except BaseException:
            note("interrupted")
    note("acted")
    return "acted"


def hold() -> str:
    note("began")
    ctypes.PyDLL(None).sleep(9)  # it keeps the lock of the interpreter
    note("acted")
    return "acted"
"""
FLOW = """\
flowengine: 1
id: fenced
steps:
  - {id: a, python: "steps:FUNCTION", effect: once}
outputs: {said: "${{ steps.a.output }}"}
"""
ITEMS = 16
"""More than the library gives to the worker of the workflow, so that others get some."""
FLOW_OF_ITEMS = FLOW.replace("effect: once", f"effect: once, map: {{over: {ITEMS}}}")
BEAT = ("--heartbeat", "3s")


class Fenced:
    """An execution whose only step acts once, and is at work in a worker."""

    def __init__(self, address: str, folder: Path, function: str, flow: str = FLOW) -> None:
        (folder / "steps.py").write_text(STEPS)
        self.file = folder / "flow.yaml"
        self.file.write_text(flow.replace("FUNCTION", function))
        self.engine, self.id, self._folder = Engine(address), folder.name, folder

    def begin(self) -> None:
        """Start it, and wait until its function is at work."""
        self.engine.start(self.file, id=self.id)
        until(lambda: bool(self.effects("began")))

    def effects(self, what: str) -> list[int]:
        """Return the processes in which something has happened."""
        file = self._folder / "effects"
        lines = file.read_text().splitlines() if file.exists() else []
        return [int(line.split()[1]) for line in lines if line.startswith(f"{what} ")]

    def go(self) -> None:
        """Let its function act."""
        (self._folder / "go").touch()

    def question(self) -> Any:
        """Wait for the question whether it took effect."""
        until(lambda: self.engine.executions.result(self.id).status == "stalled", pause=0.1)
        [asked] = self.engine.executions.result(self.id).waits
        return asked

    def has_succeeded(self) -> bool:
        try:
            return self.engine.executions.result(self.id).status == "succeeded"
        except NoWorker:  # its interpreter is held
            return False


@pytest.fixture
def address(server: StoreNamed) -> str:
    return server("faults")


# Shows D3
def test_a_stopped_worker_ends_before_its_attempt_begins_again(
    address: str, tmp_path: Path
) -> None:
    fenced = Fenced(address, tmp_path, "act")
    with RunningWorker(address, *BEAT, "--log-format", "json") as stopped, fenced.engine as engine:
        fenced.begin()
        os.kill(stopped.process.pid, signal.SIGSTOP)
        with RunningWorker(address, *BEAT):
            asked = fenced.question()
            where = f"Process {stopped.process.pid} on {os.uname().nodename} may still be at work"
            assert where in asked["body"]
            engine.approvals.decide(asked["id"], "retry", resume=False)
            until(lambda: len(fenced.effects("began")) == 2)
            os.kill(stopped.process.pid, signal.SIGCONT)
            fenced.go()
            until(fenced.has_succeeded)
        assert stopped.drained() == -signal.SIGKILL
        lines = [json.loads(line) for line in stopped.log]
        [ended] = [line["message"] for line in lines if line["event"] == "error"]
        assert "was ended with 1 attempts at work" in ended
    assert len(fenced.effects("acted")) == 1


@pytest.mark.parametrize("function", ["act", "insist"])
def test_a_function_does_not_go_on_in_a_worker_that_is_cut_off(
    function: str, address: str, tmp_path: Path
) -> None:
    fenced = Fenced(address, tmp_path, function)
    # A worker has an eighth of this to end its attempts. Else its guard ends it.
    beat = ("--heartbeat", "9s") if function == "act" else BEAT
    with (
        OwnNetwork() as network,
        RunningWorker(address, *beat, via=network.via) as lonely,
        fenced.engine as engine,
    ):
        fenced.begin()
        network.cut()
        with RunningWorker(address, *beat):
            engine.approvals.decide(fenced.question()["id"], "retry", resume=False)
            until(lambda: len(fenced.effects("began")) == 2)
            fenced.go()
            until(fenced.has_succeeded)
        network.mend()
        if function == "insist":  # nothing but its end can stop it
            assert lonely.drained() != 0
        else:
            assert lonely.stop() == 0, "".join(lonely.log)
    assert len(fenced.effects("acted")) == 1


def test_a_result_that_arrives_late_answers_the_question_about_it(
    address: str, tmp_path: Path
) -> None:
    fenced = Fenced(address, tmp_path, "act")
    with (
        OwnNetwork() as network,
        RunningWorker(address, *BEAT, via=network.via) as lonely,
        fenced.engine,
    ):
        fenced.begin()
        network.cut()
        fenced.go()
        with RunningWorker(address, *BEAT):
            fenced.question()
            network.mend()
            until(fenced.has_succeeded)
        assert lonely.stop() == 0
    assert len(fenced.effects("acted")) == 1


def test_an_attempt_that_reaches_its_worker_late_does_not_begin_and_is_given_out_again(
    address: str, tmp_path: Path
) -> None:
    fenced = Fenced(address, tmp_path, "act", FLOW_OF_ITEMS)
    fenced.go()
    with RunningWorker(address, *BEAT) as stopped, fenced.engine as engine:
        time.sleep(1)  # until it asks for work
        os.kill(stopped.process.pid, signal.SIGSTOP)
        with RunningWorker(address, *BEAT) as other:
            fenced.begin()
            until(lambda: engine.executions.result(fenced.id).status == "stalled", pause=0.1)
            first, *others = engine.executions.result(fenced.id).waits
            assert others
            engine.approvals.decide(first["id"], "retry", resume=False)
            os.kill(stopped.process.pid, signal.SIGCONT)
            until(fenced.has_succeeded, pause=0.1)  # with no other answer
            assert stopped.stop() == 0, "".join(stopped.log)
            assert other.stop() == 0
    assert len(fenced.effects("acted")) == ITEMS


# Shows D3
def test_attempts_that_a_stopped_worker_had_not_begun_begin_elsewhere_without_a_question(
    address: str, tmp_path: Path
) -> None:
    (tmp_path / "items").mkdir()
    first = "signals: {go: {}}\nsteps:\n  - {id: hear, wait: {signal: go}}\n"
    flow = FLOW_OF_ITEMS.replace("steps:\n", first)
    fenced, held = (
        Fenced(address, tmp_path / "items", "act", flow),
        Fenced(address, tmp_path, "act"),
    )
    fenced.go()
    with held.engine, fenced.engine as engine, RunningWorker(address, *BEAT) as other:
        engine.start(fenced.file, id=fenced.id)
        until(lambda: bool(engine.executions.result(fenced.id).waits))  # the other one drives it
        os.kill(other.process.pid, signal.SIGSTOP)
        with RunningWorker(address, *BEAT) as stopped:
            held.begin()
            os.kill(other.process.pid, signal.SIGCONT)
            time.sleep(1)  # until both ask for work
            os.kill(stopped.process.pid, signal.SIGSTOP)
            engine.signal("go", execution=fenced.id, resume=False)
            until(fenced.has_succeeded, pause=0.1)  # with no answer
            assert held.question()  # it had begun
            assert stopped.drained() == -signal.SIGKILL
        events = engine.executions.events(fenced.id)
        warned = [one["message"] for one in events if one["type"] == "warning"]
        assert any("its worker ended before it began" in message for message in warned)
    assert len(fenced.effects("acted")) == ITEMS


# Shows D3
def test_a_function_that_holds_the_interpreter_keeps_its_attempt(
    address: str, tmp_path: Path
) -> None:
    fenced = Fenced(address, tmp_path, "hold")
    with RunningWorker(address, "--heartbeat", "6s"), fenced.engine as engine:
        fenced.begin()
        until(fenced.has_succeeded)
        assert {event["type"] for event in engine.executions.events(fenced.id)} == {
            "started",
            "succeeded",
        }
