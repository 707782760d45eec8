# Shows M50
"""When the model library is loaded, and the absence of side effects."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flowengine.sdk.python.extras import install_command
from tests.agents.models.wire import Wire, failed, replied, streamed

BLOCKED = """
import socket, sys
kept = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo
def refuse(*args, **kwargs):
    raise AssertionError(f"a connection was tried: {args}")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
"""


def run(program: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BLOCKED + program],
        capture_output=True,
        text=True,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **variables},
        check=False,
    )


@pytest.mark.endurance
def test_loading_asks_nobody_says_nothing_and_leaves_the_environment(
    wire: Wire, tmp_path: Path
) -> None:
    """Later calls also print nothing at exit. One test covers both, since loading takes seconds."""
    (tmp_path / ".env").write_text("FROM_A_FILE=1\n")
    program = """
import gc, os
before = dict(os.environ)
def collected():
    return sum(one["collections"] for one in gc.get_stats())
from flowengine.agents.models import prepare, resolve
from flowengine.agents.models.library import load
first = collected()
prepare("openai/gpt-4o")
litellm = load()
assert gc.isenabled() and collected() - first < 300, "what is imported is looked at again and again"
assert dict(os.environ) == before, set(os.environ) ^ set(before)
assert litellm.num_retries == 0
import asyncio
facts = asyncio.run(resolve("openai/gpt-4o").facts("openai/gpt-4o"))
print(facts.window, facts.vision, facts.schema_mode, facts.input_price, facts.function_calling)
unknown = asyncio.run(resolve("x").facts("ollama/of-my-own"))
print(unknown.window, unknown.vision, unknown.input_price)
elsewhere = asyncio.run(resolve("x").facts("my-proxy/gpt-4o"))
print(elsewhere.window, elsewhere.vision, elsewhere.input_price)
claude = asyncio.run(resolve("x").facts("anthropic/claude-sonnet-4-5"))
print(claude.longest_reply, claude.input_price)
socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo = kept
"""
    answers = {"content": "Hello."}
    wire.answer(replied("Hello."), streamed(answers), failed(500), streamed(answers, finish=None))

    done = run(program + calls(wire), tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "128000 True True 2.5e-06 native",
        "None None None",
        "128000 True None",
        "64000 3e-06",
        "Hello.",
        "Hello.",
        "True",
        "True",
    ]
    assert done.stderr == ""


def calls(wire: Wire) -> str:
    """Return a program that calls a model, with and without a listener, until it fails."""
    return f"""
from flowengine.agents.models import ModelError, ModelRequest, resolve
settings = {{"api_key": "key", "api_base": "{wire.url}/v1"}}
request = ModelRequest("openai/gpt-4o", [{{"role": "user", "content": "Hi"}}], settings=settings)
for listen in (None, lambda part: None) * 2:
    try:
        reply = asyncio.run(resolve(request.model).complete(request, listen))
        print(reply.message["content"])
    except ModelError as error:
        print(error.retryable)
"""


def test_without_the_library_it_is_said_how_to_get_it(tmp_path: Path) -> None:
    program = """
import asyncio
sys.modules["litellm"] = None
from flowengine.agents.models import ModelError, prepare, resolve
prepare("openai/gpt-4o")
try:
    asyncio.run(resolve("openai/gpt-4o").facts("openai/gpt-4o"))
except ModelError as error:
    print(error.retryable, error)
"""

    done = run(program, tmp_path)

    assert done.stdout.startswith("False models and search services need litellm"), done.stderr
    assert done.stdout.endswith(f"Install it: {install_command('agents')}\n")
