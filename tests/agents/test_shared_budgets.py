# Shows G12
"""Agents in several processes that share a budget (G12).

The oracle is a model server, which only counts what it has answered.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.agents.models.port import Listener, ModelFacts, ModelReply, ModelRequest, Usage
from flowengine.agents.models.registry import register, unregister
from flowengine.agents.models.replies import SentReply, read_sent
from tests.agents.flows import NAME, flow
from tests.engines import child, world

TOKENS = 1200
"""Far less than the executions of one process ask for, which may be the only one that lives."""
FLOW = f"""
flowengine: 1
id: f
defaults: {{model: {NAME}}}
inputs: {{q: {{type: string, default: Hello}}, user: {{type: string, default: ana}}}}
budget: {{shared: [{{key: "${{{{ inputs.user }}}}", every: month, tokens: {TOKENS}}}]}}
"""
AGENTS = "first: {instructions: Write., settings: {max_tokens: 200}}"
RUNS = 25


class ModelServer(ThreadingHTTPServer):
    """Answers requests with a random number of tokens, and counts them."""

    def __init__(self, seed: int) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.tokens, self.requests = 0, 0
        self.draws, self.lock = random.Random(seed), threading.Lock()


class Answering(BaseHTTPRequestHandler):
    """One request: the maximum tokens of its reply."""

    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, ModelServer)
        longest = int(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            tokens = server.draws.randint(1, longest)
            server.tokens += 10 + tokens
            server.requests += 1
        time.sleep(0.01)
        answer = json.dumps(tokens).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Model:
    """Sends its requests to the server."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def facts(self, model: str) -> ModelFacts:
        return ModelFacts(longest_reply=200)

    async def complete(self, request: ModelRequest, listen: Listener | None = None) -> ModelReply:
        tokens = await asyncio.to_thread(self._asked, request.longest_reply or 200)
        usage = Usage(10, output_tokens=tokens)
        return read_sent(SentReply("Done.", usage=usage), request, "native")

    def _asked(self, longest: int) -> int:
        connection = HTTPConnection("127.0.0.1", self._port)
        connection.request("POST", "/", str(longest))
        return int(connection.getresponse().read())


def run_many(folder: Path, port: int, who: str) -> None:
    """Run many executions at once in this process."""
    register(NAME, Model(port))

    async def main() -> None:
        async with Engine(folder / "store", durability="process", linger=1) as engine:
            runs = [engine.run_async(folder / "f.yaml", id=f"{who}-{n}") for n in range(RUNS)]
            await asyncio.gather(*runs)

    asyncio.run(main())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "f.yaml").write_text(flow(AGENTS, head=FLOW))
    return tmp_path / "f.yaml"


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[ModelServer]:
    server = ModelServer(getattr(request, "param", 0))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    register(NAME, Model(server.server_port))
    yield server
    unregister(NAME)
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.endurance
@pytest.mark.parametrize("server", range(10), indirect=True)
def test_two_processes_never_use_more_than_the_budget(file: Path, server: ModelServer) -> None:
    """500 executions in ten rounds. One process is killed, except in the first rounds."""
    processes = [child.start(run_many, file.parent, server.server_port, who) for who in ("a", "b")]
    seed = server.draws.randint(0, 9)
    if seed > 1:
        world.until(lambda: server.requests > seed)
        child.kill(processes[0])
    for process in processes:
        process.join(300)
    assert processes[1].exitcode == 0
    with Engine(file.parent / "store", durability="process", linger=0) as engine:
        while due := engine.due():
            engine.resume(due[0].execution)
        found = engine.executions.list(limit=200).items
        ends = [engine.executions.result(one["execution"]).error or {} for one in found]
        [budget] = engine.budgets.list("ana")
    amounts = budget["amounts"]["tokens"]
    assert {one["status"] for one in found} <= {"succeeded", "failed"}
    assert len(found) >= RUNS
    assert server.tokens <= TOKENS, "more than the limit was used"
    assert server.tokens <= amounts["used"], "a request was not counted"
    assert amounts["reserved"] == 0, "something is reserved for ever"
    assert {end.get("type") for end in ends} == {None, "BudgetExceeded"}, "some were refused"
    # Only interrupted requests, whose usage is unknown, count with their reservations.
    assert seed > 1 or TOKENS - 300 <= server.tokens == amounts["used"]


def test_a_call_waits_for_what_another_execution_has_reserved(
    file: Path, server: ModelServer
) -> None:
    """It is granted what the other one has not used. `why` says what it waits for."""
    text = file.read_text().replace(f"tokens: {TOKENS}", "tokens: 900")
    file.write_text(text)

    async def main() -> list[str]:
        async with Engine(None, linger=60) as engine:
            runs = [engine.run_async(file, id=f"e{n}") for n in range(2)]
            tasks = [asyncio.ensure_future(run) for run in runs]
            said: list[str] = []
            while not all(task.done() for task in tasks):
                await asyncio.sleep(0)
                for n in range(2) if not said else ():
                    with_reason = engine.executions.why(f"e{n}") if _is_there(engine, n) else []
                    said += [one["what"] for one in with_reason if "shared" in one["what"]]
            assert [task.result().status for task in tasks] == ["succeeded"] * 2
            return said

    what = asyncio.run(main())
    assert set(what) == {
        "its call is waiting: running calls of other executions have reserved the rest of "
        "the shared budget 'ana'"
    }


def _is_there(engine: Engine, number: int) -> bool:
    return any(one["execution"] == f"e{number}" for one in engine.executions.list().items)
