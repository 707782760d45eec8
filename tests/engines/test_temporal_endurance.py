# Shows D13
"""Executions in Temporal lose and repeat nothing while workers and the server are killed."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from flowengine import Engine
from flowengine.engines.results import WaitInfo
from flowengine.errors import Conflict, NotFound, NoWorker, StoreError
from tests.engines import world
from tests.engines.temporal_server import RunningWorker, free_port, start_server

FLOW = """
inputs: {number: {type: integer}}
steps:
  - {id: once_before, python: "effects:act", with: {value: "${{ inputs.number }}"}}
  - {id: sign, approval: Sure?}
  - {id: once_after, python: "effects:act_on_thread", with: {value: "${{ inputs.number }}"}}
  - {id: again, python: "effects:act", effect: idempotent, with: {value: "${{ inputs.number }}"}}
outputs: {after: "${{ steps.once_after.output }}"}
"""
HEARTBEAT = ("--heartbeat", "3s")
STARTER = "user:ann"
STOPPED_SECONDS = 5.0
"""Longer than a heartbeat, so that the attempts of a stopped worker count as lost."""
GONE = (NoWorker, StoreError)
"""What a request raises while the server or all workers are away."""


class Disasters:
    """A server with a file and two workers, which are killed and stopped at random moments."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self.port, self.file, self.dice = free_port(), folder / "server", dice
        self.address = f"temporal://127.0.0.1:{self.port}/endurance"
        self.count = 0
        """How many there have been."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the server and the workers, and end what is left of them."""
        self.start_server()
        self.workers = [RunningWorker(self.address, *HEARTBEAT) for _ in range(2)]
        try:
            yield
        finally:
            for worker in self.workers:
                worker.kill()
            self.server.kill()
            self.server.wait()

    def start_server(self) -> None:
        self.server = start_server(self.port, "endurance", file=self.file)

    def go_on(self, most: int, done: Callable[[], bool]) -> None:
        """Let the next one happen after a pause, until all is done or there were enough."""
        while not done() and self.count < most:
            time.sleep(self.dice.uniform(0.1, 0.8))
            self.count += 1
            kind = self.dice.choice(["worker", "worker", "stopped", "server"])
            if kind == "server":
                self.server.kill()
                self.server.wait()
                self.start_server()
                continue
            worker = self.workers.pop(self.dice.randrange(2))
            if kind == "stopped":
                worker.process.send_signal(signal.SIGSTOP)
                time.sleep(STOPPED_SECONDS)
                worker.process.send_signal(signal.SIGCONT)
                time.sleep(0.5)
            worker.kill()
            self.workers.append(RunningWorker(self.address, *HEARTBEAT))


@pytest.mark.endurance(sample=100)
@pytest.mark.parametrize(
    ("seed", "count", "most"),
    [
        *((seed, 12, 6) for seed in range(9)),
        pytest.param(
            *(9, 600, 60), marks=[pytest.mark.endurance(sample=1000), pytest.mark.timeout(3600)]
        ),
    ],
)
def test_nothing_is_lost_or_doubled(seed: int, count: int, most: int, tmp_path: Path) -> None:
    file, dice = world.make(tmp_path, FLOW), random.Random(seed)
    (tmp_path / "slowly").write_text("0.05")
    ids = {f"e{number}": number for number in range(count)}
    disasters = Disasters(tmp_path, dice)

    with (
        disasters.running(),
        Engine(disasters.address) as engine,
        ThreadPoolExecutor(16) as threads,
    ):
        people = [
            threads.submit(see_to, engine, file, mine, name)
            for mine in (dict(list(ids.items())[place::8]) for place in range(8))
            for name in (STARTER, "user:bob")
        ]
        disasters.go_on(most, lambda: all(one.done() for one in people))
        first = [each for one in people for each in one.result()]

        assert disasters.count
        assert {one["execution"] for one in engine.executions.list(limit=count + 9).items} == {*ids}
        for id, number in ids.items():
            result = engine.executions.result(id)
            assert (result.status, result.outputs) == ("succeeded", {"after": number + 1}), id
        assert max(Counter(first).values()) == 1, "one decision of each approval was the first"

    done = Counter((address, result) for address, _, result in world.effects(tmp_path))
    results = {number + 1 for number in ids.values()}
    assert {result for address, result in done if address == "again"} == results
    for address in ("once_before", "once_after"):
        assert {result: done[address, result] for result in results} == dict.fromkeys(results, 1)


def see_to(engine: Engine, file: Path, ids: dict[str, int], user: str) -> list[str]:
    """Start executions that are not there yet, and decide until all of them have ended.

    Returns:
        Ids of the executions whose approval this user decided.
    """
    first, begun, left = [], set[str](), dict(ids)
    flow, acting = engine.load(file), engine.acting_as(user, via="test")
    while left:
        for id, number in list(left.items()):
            with suppress(*GONE, Conflict, NotFound):
                if id not in begun and user == STARTER:
                    acting.start(flow, {"number": number}, id=id)
                    begun.add(id)
                result = acting.executions.result(id)
                if result.ended:
                    del left[id]
                answered = [
                    decide(acting, one, file.parent, number + 1, user) for one in result.waits
                ]
                first += [id] * sum(answered)
        time.sleep(0.05)
    return first


def decide(engine: Engine, wait: WaitInfo, folder: Path, result: int, user: str) -> bool:
    """Answer a wait as somebody who looks at what has happened. Return whether it was first."""
    if wait["kind"] == "approval":
        return engine.approvals.approve(wait["id"], resume=False).first
    if user == STARTER:  # two could answer from different looks
        address = wait["address"]
        found = any((at, of) == (address, result) for at, _, of in world.effects(folder))
        if found:
            engine.approvals.decide(wait["id"], "result", value=result, resume=False)
        else:
            engine.approvals.decide(wait["id"], "retry", resume=False)
    return False
