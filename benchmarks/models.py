"""What a call of a model costs through the port, and by litellm alone, to the same double."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flowengine.agents.models import ModelRequest, ToolOffer, resolve
from flowengine.agents.models.library import load

MODEL = "openai/gpt-4o"
CALLS = 40
DOUBLE = Path(__file__).parents[1] / "tests/model_servers/node_modules/@copilotkit/aimock/dist"
REPLIES = [
    {
        "match": {"userMessage": "sum"},
        "response": {
            "content": "Let me see.",
            "toolCalls": [{"name": f"tool_{n}", "arguments": {"a": 1}} for n in range(3)],
        },
    }
]
TOOLS = [
    ToolOffer(
        f"tool_{n}",
        "Adds, or does not.",
        {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    )
    for n in range(10)
]

Call = Callable[[], Awaitable[object]]


@contextmanager
def double(folder: Path, replies: Sequence[Mapping[str, Any]] = REPLIES) -> Iterator[str]:
    """Run aimock, and give its address.

    Args:
        folder: For its files.
        replies: What it answers to what.
    """
    node = shutil.which("node")
    assert node, "Node.js is missing"
    (folder / "replies.json").write_text(json.dumps({"fixtures": replies}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [node, str(DOUBLE / "cli.js"), "-p", port, "-f", str(folder / "replies.json")]
    variables = os.environ | {"AIMOCK_STRICT_TURN_INDEX": "1"}
    process = subprocess.Popen([*command, "--log-level", "silent"], env=variables)
    try:
        while not _listens(int(port)):
            assert process.poll() is None, "npm ci --prefix tests/model_servers"
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def through_the_port(url: str, messages: list[Any], *, streamed: bool) -> Call:
    settings = {"api_key": "key", "api_base": url}
    request = ModelRequest(MODEL, messages, TOOLS, settings=settings)
    model = resolve(MODEL)
    return lambda: model.complete(request, (lambda part: None) if streamed else None)


def by_litellm(url: str, messages: list[Any], *, streamed: bool) -> Call:
    litellm = load()
    tools = [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            },
        }
        for tool in TOOLS
    ]
    more: dict[str, Any] = {"api_key": "key", "api_base": url, "num_retries": 0, "max_retries": 0}
    if streamed:
        more |= {"stream": True, "stream_options": {"include_usage": True}}

    async def call() -> None:
        reply = await litellm.acompletion(model=MODEL, messages=messages, tools=tools, **more)
        if streamed:
            async for _ in reply:
                pass

    return call


def conversation(turns: int) -> list[Any]:
    """A history of some turns, each of a call and its result."""
    messages: list[Any] = [{"role": "user", "content": "sum"}]
    for turn in range(turns):
        function = {"name": "tool_1", "arguments": '{"a": 1}'}
        call = {"id": f"call_{turn}", "type": "function", "function": function}
        messages += [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "name": "tool_1", "content": "1" * 200},
        ]
    return messages


def each(call: Call) -> float:
    """Return the processor time of one call (s), of several one after the other."""

    async def several() -> float:
        await call()
        began = time.process_time()
        for _ in range(CALLS):
            await call()
        return (time.process_time() - began) / CALLS

    return asyncio.run(several())
