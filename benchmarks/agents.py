"""What agents cost: long conversations, single calls, many at once.

The model is a double in this process that answers at once with a call of a tool, unless a figure
says otherwise. Each message has about a kilobyte.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import flowengine
from flowengine import Engine
from flowengine.agents.models import (
    Message,
    ModelFacts,
    ModelReply,
    ModelRequest,
    register,
    unregister,
)
from flowengine.agents.models.port import Listener
from flowengine.agents.models.replies import SentCall, SentReply, read_sent
from flowengine.journal.sqlite.store import SqliteStore

MODEL = "double/kilobyte"
_TOOLS = '''\
import base64
import random


def look(number: int) -> str:
    """Return a kilobyte of text that hardly compresses."""
    return base64.b64encode(random.randbytes(750)).decode()
'''
_FLOW = """\
flowengine: 1
id: agent
inputs: {{prompt: {{type: string, default: sum}}}}
tools:
  look: {{python: "agent_tools:look", effect: pure}}
agents:
  first:
    instructions: You look at what you are asked.
    model: {model}
    settings: {settings}
    tools: [look]
    max_turns: 100000
steps:
  - {{id: ask, agent: first, with: {{prompt: "${{{{ inputs.prompt }}}}"}}}}
outputs: {{answer: "${{{{ steps.ask.output }}}}"}}
"""


def agent(folder: Path, model: str = MODEL, **settings: str) -> flowengine.LoadedFlow:
    """Return a flow with one agent that has one tool.

    Args:
        folder: Where its file goes.
        model: Whom it asks.
        settings: What the provider is passed.
    """
    (folder / "agent_tools.py").write_text(_TOOLS)
    path = folder / "agent.yaml"
    path.write_text(_FLOW.format(model=model, settings=json.dumps(settings)))
    return flowengine.load(path)


class Double:
    """A model that calls a tool in each of its replies but the last.

    Args:
        replies: How many it gives to a conversation, the last one included.
        calls: How many calls there are in each.
        pause: How long each takes (s).
    """

    def __init__(self, replies: int, calls: int = 1, pause: float = 0) -> None:
        self.replies = replies
        self.calls = calls
        self.pause = pause
        self.asked: list[float] = []
        """Processor time at each request."""
        self.messages: list[Message] = []
        """Those of the last request."""

    async def complete(self, request: ModelRequest, listen: Listener | None = None) -> ModelReply:
        """Answer."""
        self.asked.append(time.process_time())
        await asyncio.sleep(self.pause)
        turn = (len(request.messages) - 2) // (1 + self.calls)
        sent = SentReply(base64.b64encode(random.randbytes(600)).decode())
        if turn + 1 < self.replies:
            sent.calls = [
                SentCall(f"call_{turn}_{n}", "look", f'{{"number": {n}}}')
                for n in range(self.calls)
            ]
        else:
            self.messages = list(request.messages)
        return read_sent(sent, request, "native")

    async def facts(self, model: str) -> ModelFacts:
        """Return that nothing is known."""
        return ModelFacts()


@contextmanager
def answering(double: Double) -> Iterator[Double]:
    """Have a double answer to `MODEL`."""
    register(MODEL, double)
    try:
        yield double
    finally:
        unregister(MODEL)


class Conversation(NamedTuple):
    """What a long conversation took."""

    early: float
    """Processor time of a turn at its beginning (s)."""
    late: float
    """At its end."""
    messages: int
    """Bytes of all messages, as JSON."""
    execution: str
    folder: Path
    store: Path


def conversation(folder: Path, store: SqliteStore, turns: int) -> Conversation:
    """Run an agent for so many turns."""
    flow = agent(folder)
    with answering(Double(turns)) as double, Engine(store, workdir=folder) as engine:
        result = engine.run(flow)
    assert result.status == "succeeded", result
    part = max(turns // 20, 10)
    return Conversation(
        _per_turn(double.asked[10 : 10 + part]),
        _per_turn(double.asked[-part:]),
        sum(len(json.dumps(dict(one), default=dict)) for one in double.messages),
        result.execution,
        folder,
        Path(store.location),
    )


def _per_turn(times: list[float]) -> float:
    return (times[-1] - times[0]) / (len(times) - 1)


def calls_in_reply(folder: Path, calls: int, turns: int = 50) -> float:
    """Return the processor time of a turn whose reply has so many calls (s)."""
    flow = agent(folder)
    with answering(Double(turns, calls)) as double, Engine(None, workdir=folder) as engine:
        result = engine.run(flow)
    assert result.status == "succeeded", result
    return _per_turn(double.asked[10:])


def at_once(folder: Path, agents: int, turns: int, pause: float) -> tuple[float, float]:
    """Run many agents in one process.

    Returns:
        How long it took, by the clock and in processor time (s).
    """
    flow = agent(folder)

    async def all_of_them() -> tuple[float, float]:
        async with Engine(folder / "many", workdir=folder, durability="process") as engine:
            await engine.run_async(flow)
            began, worked = time.perf_counter(), time.process_time()
            results = await asyncio.gather(*(engine.run_async(flow) for _ in range(agents)))
            took = time.perf_counter() - began, time.process_time() - worked
        assert all(result.status == "succeeded" for result in results)
        return took

    with answering(Double(turns, pause=pause)):
        return asyncio.run(all_of_them())
