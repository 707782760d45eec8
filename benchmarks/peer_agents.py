"""Agents of other libraries, to be run by an interpreter that has them:

    make peers ARGS=side_by_side

Nothing of flowengine is imported here. Each prints how long a turn took, in seconds by the clock
and of processor time, and how many bytes it gave to its store.
"""

from __future__ import annotations

import base64
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

MODEL = "gpt-4o"


def look(number: int) -> str:
    """Return a kilobyte of text that hardly compresses."""
    return base64.b64encode(random.randbytes(750)).decode()


def langgraph(url: str, turns: int) -> Callable[[], int]:
    """Return what runs a ReAct agent with checkpoints in SQLite."""
    chat_model = import_module("langchain_openai").ChatOpenAI
    saver_class = import_module("langgraph.checkpoint.sqlite").SqliteSaver
    make = import_module("langgraph.prebuilt").create_react_agent

    def run() -> int:
        path = str(Path(tempfile.mkdtemp()) / "checkpoints.db")
        with saver_class.from_conn_string(path) as saver:
            model = chat_model(model=MODEL, base_url=url, api_key="key")
            agent = make(model, [look], checkpointer=saver)
            config = {"configurable": {"thread_id": "1"}, "recursion_limit": 4 * turns}
            result = agent.invoke({"messages": [("user", "sum")]}, config)
            assert len(result["messages"]) == 2 * turns, len(result["messages"])
            sizes = (
                "SELECT sum(length(checkpoint) + length(metadata)) FROM checkpoints",
                "SELECT sum(length(value)) FROM writes",
            )
            return sum(saver.conn.execute(size).fetchone()[0] for size in sizes)

    return run


def pydantic_ai(url: str, turns: int) -> Callable[[], int]:
    """Return what runs an agent that keeps its messages in memory alone."""
    library = import_module("pydantic_ai")
    provider = import_module("pydantic_ai.providers.openai").OpenAIProvider
    model = import_module("pydantic_ai.models.openai").OpenAIChatModel
    agent = library.Agent(
        model(MODEL, provider=provider(base_url=url, api_key="key")), tools=[look]
    )

    def run() -> int:
        result = agent.run_sync("sum", usage_limits=library.UsageLimits(request_limit=None))
        assert len(result.all_messages()) == 2 * turns, len(result.all_messages())
        return 0

    return run


def main(name: str, url: str, turns: int) -> None:
    """Run an agent twice, and print what the second run took."""
    run = {"langgraph": langgraph, "pydantic_ai": pydantic_ai}[name](url, turns)
    run()
    began, worked = time.perf_counter(), time.process_time()
    written = run()
    took, processor = time.perf_counter() - began, time.process_time() - worked
    print(json.dumps({"took": took / turns, "processor": processor / turns, "written": written}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
