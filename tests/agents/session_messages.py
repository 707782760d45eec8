"""A process that sends messages to a session from several threads at once."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from flowengine import Agent, Engine
from flowengine.agents.models import using
from flowengine.agents.models.port import ModelRequest
from flowengine.agents.models.scripted import ScriptedModel

THREADS = 4


def echo(request: ModelRequest) -> Any:
    """Answer with the message of the user."""
    return {"text": f"re {request.messages[-1]['content']}"}


def send(store: str, name: str, count: int) -> None:
    """Send messages, and check that each is answered.

    Args:
        store: The directory of the store.
        name: The beginning of each message.
        count: How many.
    """
    agent = Agent(name="Echo", model="scripted/x")
    # A process may also get the answers to messages of the other one.
    with Engine(store, durability="none") as engine, using(ScriptedModel([echo] * 1000)):

        def say(number: int) -> None:
            said = f"{name}{number}"
            response = agent.run(said, session="all", engine=engine)
            assert response.output == f"re {said}", response
            assert response.history[-2:] == [{"role": "user", "content": said}, *response.messages]

        with ThreadPoolExecutor(THREADS) as pool:
            sent = [pool.submit(copy_context().run, say, number) for number in range(count)]
            for one in sent:
                one.result()


if __name__ == "__main__":
    send(sys.argv[1], sys.argv[2], int(sys.argv[3]))
