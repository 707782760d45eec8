# Shows F30, V34
"""A server and workers that are killed at random: nothing is lost, doubled, or shown and not so.

People start executions and decide over HTTP, readers follow events, and all of them simply try
again.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from flowengine.engines.engine import Engine
from tests.command_line import PROGRAM
from tests.engines import world
from tests.worker import worker_process

GATE = """
steps:
  - {id: before, python: "effects:act", effect: idempotent}
  - {id: gate, approval: {title: "Go on?", claim: false}}
  - {id: after, python: "effects:act", effect: idempotent}
"""
BOUND = 590.0


class Server:
    """`flowengine serve` as a process that is killed and started again at the same port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = "0"
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [PROGRAM, "--store", "store", "serve", "--port", self._port, "--rate", "1000000"],
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        said = self.process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", said)
        assert found, said + self.process.stderr.read()
        self._port = found[1]
        file = self.process.stderr.readline().partition("token is in ")[2]
        self.url = f"http://127.0.0.1:{self._port}"
        self.headers = {"authorization": f"Bearer {Path(file.strip()).read_text().strip()}"}

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


class People:
    """Those who read and decide, and what they were told."""

    def __init__(self, server: Server, count: int) -> None:
        self._server = server
        self._count = count
        self.decided: dict[str, set[str]] = {}
        """The choices that the server confirmed, by execution."""
        self.read: dict[str, list[int]] = {}
        """The numbers of the events that a reader was sent, by execution."""
        self._client = httpx2.AsyncClient(
            base_url=server.url, headers=server.headers, timeout=30,
            limits=httpx2.Limits(max_connections=None),
        )  # fmt: skip

    async def ask(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """Send a request until the server answers."""
        while True:
            try:
                return await self._client.request(method, path, **options)
            except httpx2.TransportError:
                await asyncio.sleep(0.05)

    async def start(self, dice: random.Random) -> None:
        """Start all executions, beside others who start the same."""
        for number in dice.sample(range(self._count), self._count):
            body = {"flow": "flow", "id": f"e{number}"}
            answer = await self.ask("POST", "/v1/executions", json=body)
            assert answer.json()["execution"] == f"e{number}", answer.text

    async def decide(self, name: int, dice: random.Random) -> None:
        """Decide what is open, in any order and beside others who decide the same."""
        while len(self.decided) < self._count:
            found = (await self.ask("GET", "/v1/approvals?limit=200")).json()["items"]
            for wait in dice.sample(found, min(5, len(found))):
                answer = await self.ask(
                    "POST",
                    f"/v1/approvals/{wait['id']}/decision",
                    json={"choice": "approve", "comment": f"by {name}"},
                    headers={"idempotency-key": f"{name}-{wait['id']}"},
                )
                if answer.is_success:
                    self.decided.setdefault(wait["execution"], set()).add(f"by {name}")
                else:  # somebody else was first
                    assert answer.status_code == 409, answer.text
            await asyncio.sleep(0.02)

    async def follow(self, execution: str) -> None:
        """Read the events of an execution to its end, again from the last one if cut off."""
        seen = self.read.setdefault(execution, [])
        while True:
            headers = {"accept": "text/event-stream"}
            headers |= {"last-event-id": str(seen[-1])} if seen else {}
            path = f"/v1/executions/{execution}/events"
            try:
                async with self._client.stream("GET", path, headers=headers, timeout=None) as flow:
                    assert flow.status_code in (200, 404)  # not started yet
                    async for name, data in _events(flow):
                        if name == "end":
                            return
                        seen.append(data["seq"])
            except httpx2.TransportError:
                pass
            await asyncio.sleep(0.05)

    async def close(self) -> None:
        await self._client.aclose()


async def _events(response: httpx2.Response) -> AsyncIterator[tuple[str, Any]]:
    name = ""
    async for line in response.aiter_lines():
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)


async def killed_at_random(
    server: Server,
    workers: list[Any],
    store: Path,
    dice: random.Random,
    most: int,
    done: Callable[[], bool],
) -> int:
    """Kill and restart the server and the workers while others work, and return how often."""
    kills = 0
    while not done():
        await asyncio.sleep(dice.uniform(0.2, 0.6))
        place = dice.randrange(len(workers) + 1)
        if kills >= most:
            continue
        kills += 1
        if place == len(workers):
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        else:
            workers[place].kill()
            workers[place].join()
            workers[place] = worker_process.start(store)
    return kills


async def resumed_by_hand(engine: Engine, folder: Path, done: Callable[[], bool]) -> None:
    """Resume executions that no worker takes any more, because theirs were killed in a row."""
    while not done():
        for one in engine.executions.list(status="quarantined").items:
            command = [PROGRAM, "--store", "store", "resume", one["execution"]]
            await asyncio.to_thread(
                subprocess.run, command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True
            )
        await asyncio.sleep(0.2)


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("seed", "count", "readers", "people", "most"),
    [
        *((seed, 12, 6, 3, 8) for seed in range(9)),
        pytest.param(9, 600, 40, 6, 60, marks=pytest.mark.endurance(sample=100)),
    ],
)
def test_nothing_is_lost_doubled_or_shown_that_is_not_so(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    count: int,
    readers: int,
    people: int,
    most: int,
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    file, store, dice = world.make(tmp_path, GATE), tmp_path / "store", random.Random(seed)
    with Engine(store, durability="process") as engine:
        engine.flows.deploy(engine.load(file))
        server = Server(tmp_path)
        workers = [worker_process.start(store) for _ in range(2)]

        def done() -> bool:
            found = engine.executions.list(limit=count + 1).items
            assert len(found) <= count
            return len(found) == count and all(one["status"] == "succeeded" for one in found)

        async def all_at_once() -> tuple[People, int]:
            crowd = People(server, count)
            kills = asyncio.ensure_future(
                killed_at_random(server, workers, store, dice, most, done)
            )
            work: list[Awaitable[None]] = [
                crowd.decide(name, random.Random(f"{seed}-{name}")) for name in range(people)
            ]
            work += [crowd.start(random.Random(f"{seed}-start-{name}")) for name in range(2)]
            work += [crowd.follow(f"e{number}") for number in range(readers)]
            work += [resumed_by_hand(engine, tmp_path, done)]
            async with asyncio.timeout(BOUND):
                await asyncio.gather(*work)
                total = await kills
            await crowd.close()
            return crowd, total

        try:
            crowd, kills = asyncio.run(all_at_once())
        finally:
            server.kill()
            for worker in workers:
                worker.kill()
                worker.join()
        check(engine, crowd, count, readers)
    keys = Counter(key for _, key, _ in world.effects(tmp_path))
    assert len(keys) == 2 * count
    # An attempt is repeated only if its worker was killed meanwhile, and then under the same key.
    assert keys.total() <= 2 * count + 8 * kills


def check(engine: Engine, crowd: People, count: int, readers: int) -> None:
    """Compare what people were told with what is in the store."""
    for number in range(count):
        id = f"e{number}"
        entries = list(engine.executions.events(id))
        ends = Counter((entry["type"], entry.get("address")) for entry in entries)
        assert ends["succeeded", "before"] == ends["succeeded", "after"] == 1
        decisions = [entry for entry in entries if entry["type"] == "decided"]
        assert [entry["comment"] for entry in decisions] == list(crowd.decided[id])
        if number < readers:
            read = len(crowd.read[id])
            assert crowd.read[id] == [entry["seq"] for entry in entries[:read]]
            # A decision that came too late is noted, perhaps after the end.
            assert {entry["type"] for entry in entries[read:]} <= {"warning"}, entries
