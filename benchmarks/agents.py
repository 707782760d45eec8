"""What agents cost: long conversations, single calls, many at once.

The model is a double in this process that answers at once with a call of a tool, unless a figure
says otherwise. Each message has about a kilobyte.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import flowengine
from benchmarks.counting import CountingStore
from flowengine import Engine
from flowengine.agents.models import (
    Message,
    ModelFacts,
    ModelReply,
    ModelRequest,
    register,
    unregister,
)
from flowengine.agents.models.library import load
from flowengine.agents.models.port import Listener
from flowengine.agents.models.replies import SentReply, read_sent
from flowengine.agents.text_calls.marked_form import ModelCall

MODEL = "double/kilobyte"
_LOOP = asyncio.new_event_loop()
"""The one in which the library is called by itself: it leaves tasks in each."""
_TOOLS = '''\
import base64
import random


def look(number: int) -> str:
    """Return a kilobyte of text that hardly compresses."""
    return base64.b64encode(random.randbytes(750)).decode()
'''
_LOOK = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
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
    """

    def __init__(self, replies: int, calls: int = 1) -> None:
        self.replies = replies
        self.calls = calls
        self.asked: list[float] = []
        """Processor time at each request."""
        self.messages: list[Message] = []
        """Those of the last request."""

    async def complete(self, request: ModelRequest, listen: Listener | None = None) -> ModelReply:
        """Answer."""
        self.asked.append(time.process_time())
        turn = (len(request.messages) - 2) // (1 + self.calls)
        sent = SentReply(base64.b64encode(random.randbytes(600)).decode())
        if turn + 1 < self.replies:
            sent.calls = [
                ModelCall("look", f'{{"number": {n}}}', f"call_{turn}_{n}")
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
    """A long conversation."""

    late: float
    """Processor time of a turn at its end (s)."""
    messages: int
    """Bytes of all messages, as JSON."""
    execution: str
    folder: Path
    store: Path


_WINDOW = 125
"""Turns over which a mean is taken: what snapshots cost is in it."""


def conversation(folder: Path, store: CountingStore, turns: int) -> Conversation:
    """Run an agent for so many turns."""
    flow = agent(folder)
    with answering(Double(turns)) as double, Engine(store, workdir=folder) as engine:
        result = engine.run(flow)
    assert result.status == "succeeded", result
    return Conversation(
        _per_turn(double.asked[-_WINDOW:]),
        sum(len(json.dumps(dict(one), default=dict)) for one in double.messages),
        result.execution,
        folder,
        Path(store.location),
    )


def early_turn(folder: Path, store: CountingStore) -> float:
    """Return the processor time of a turn at the beginning of a conversation (s)."""
    with answering(Double(10 + _WINDOW)) as double, Engine(store, workdir=folder) as engine:
        engine.run(agent(folder))
    return _per_turn(double.asked[10:])


def _per_turn(times: list[float]) -> float:
    return (times[-1] - times[0]) / (len(times) - 1)


def calls_in_reply(folder: Path, calls: int, turns: int = 50) -> float:
    """Return the processor time of a turn whose reply has so many calls (s)."""
    flow = agent(folder)
    with answering(Double(turns, calls)) as double, Engine(None, workdir=folder) as engine:
        result = engine.run(flow)
    assert result.status == "succeeded", result
    return _per_turn(double.asked[10:])


class Turn(NamedTuple):
    """What a turn took, of some agent."""

    took: float
    """By the clock (s)."""
    processor: float
    """Processor time (s)."""
    written: int
    """Bytes that the store got in the whole conversation."""


def wire_replies(turns: int) -> list[dict[str, Any]]:
    """Return replies of a double on the wire that lead to a conversation of so many turns."""
    text = base64.b64encode(random.randbytes(600)).decode()
    call = {"name": "look", "arguments": {"number": 1}}
    replies: list[dict[str, Any]] = [{"content": text, "toolCalls": [call]}] * (turns - 1)
    return [
        {"match": {"turnIndex": turn}, "response": reply}
        for turn, reply in enumerate([*replies, {"content": text}])
    ]


def on_the_wire(folder: Path, url: str, turns: int, agents: int = 1) -> Turn:
    """Return what a turn takes of agents that ask a double on the wire at the same time."""
    flow = agent(folder, "openai/gpt-4o", api_key="key", api_base=url)

    async def run() -> Turn:
        async with Engine(CountingStore(folder / "wire.db"), workdir=folder) as engine:
            await engine.run_async(flow)
            store: Any = engine.store
            before, began, worked = store.written, time.perf_counter(), time.process_time()
            results = await asyncio.gather(*(engine.run_async(flow) for _ in range(agents)))
            took, processor = time.perf_counter() - began, time.process_time() - worked
        assert all(result.status == "succeeded" for result in results), results[0].error
        every = turns * agents
        return Turn(took / every, processor / every, (store.written - before) // agents)

    return asyncio.run(run())


def by_litellm(url: str, turns: int, agents: int) -> Turn:
    """Return what the same calls of the library take, with nothing around them."""
    litellm = load()
    tools = [{"type": "function", "function": {"name": "look", "parameters": _LOOK}}]

    async def talk() -> None:
        messages: list[Any] = [{"role": "user", "content": "sum"}]
        for _ in range(turns):
            reply = await litellm.acompletion(
                model="openai/gpt-4o", messages=messages, tools=tools, api_key="key", api_base=url
            )
            message = reply.choices[0].message
            messages.append(message.model_dump())
            for call in message.tool_calls or ():
                content = base64.b64encode(random.randbytes(750)).decode()
                messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
        assert len(messages) == 2 * turns, len(messages)

    async def several() -> Turn:
        await talk()
        began, worked = time.perf_counter(), time.process_time()
        await asyncio.gather(*(talk() for _ in range(agents)))
        took, processor = time.perf_counter() - began, time.process_time() - worked
        return Turn(took / turns / agents, processor / turns / agents, 0)

    return _LOOP.run_until_complete(several())


def by_http(url: str, turns: int, agents: int) -> Turn:
    """Return what the same requests take without any library: how quick the double itself is."""
    http: Any = import_module("aiohttp")  # comes with litellm
    tools = [{"type": "function", "function": {"name": "look", "parameters": _LOOK}}]

    async def talk(session: Any) -> None:
        messages: list[Any] = [{"role": "user", "content": "sum"}]
        for _ in range(turns):
            asked = {"model": "gpt-4o", "messages": messages, "tools": tools}
            async with session.post(f"{url}/chat/completions", json=asked) as reply:
                message = (await reply.json())["choices"][0]["message"]
            messages.append(message)
            for call in message.get("tool_calls") or ():
                content = base64.b64encode(random.randbytes(750)).decode()
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
        assert len(messages) == 2 * turns, len(messages)

    async def several() -> Turn:
        places = http.TCPConnector(limit=agents)
        async with http.ClientSession(connector=places) as session:
            await talk(session)
            began, worked = time.perf_counter(), time.process_time()
            await asyncio.gather(*(talk(session) for _ in range(agents)))
        took, processor = time.perf_counter() - began, time.process_time() - worked
        return Turn(took / turns / agents, processor / turns / agents, 0)

    return asyncio.run(several())


def by_peer(python: str, name: str, url: str, turns: int) -> Turn:
    """Return what a turn of an agent of another library takes; see `peer_agents`."""
    program = str(Path(__file__).with_name("peer_agents.py"))
    done = subprocess.run(
        [python, program, name, url, str(turns)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return Turn(**json.loads(done.stdout))
