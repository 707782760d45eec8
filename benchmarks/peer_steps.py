"""A chain of steps in other libraries, to be run by an interpreter that has them:

    python -m venv peers
    peers/bin/pip install -r requirements/peers.txt
    PEERS=peers/bin/python make bench ARGS=chains_side_by_side

Nothing of flowengine is imported here. Each library runs the chain as its documentation shows, with
its own store in SQLite. Each step receives a record of 1 KB and returns one, and its result is
committed before the next step begins. The program prints the seconds of processor time and of wall
clock time that one step took.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

SYNCHRONOUS = {"power": "FULL", "process": "NORMAL"}
"""Level of durability → the setting of SQLite, with a write-ahead log, that has it."""


def record(number: int) -> dict[str, Any]:
    """Return a record of about 1 KB."""
    return {"number": number, "text": "x" * 1000}


def connection(durability: str) -> sqlite3.Connection:
    """Return a connection to a new file, with a level of durability."""
    path = Path(tempfile.mkdtemp()) / "store.db"
    made = sqlite3.connect(path, check_same_thread=False)
    made.execute("PRAGMA journal_mode = WAL")
    made.execute(f"PRAGMA synchronous = {SYNCHRONOUS[durability]}")
    return made


def langgraph(durability: str, steps: int) -> Callable[[], Any]:
    """Return what runs the chain in LangGraph, with a checkpoint per step unless in memory."""
    library = import_module("langgraph.graph")
    graph = library.StateGraph(dict)
    names = [f"s{number}" for number in range(steps)]
    for name in names:
        graph.add_node(name, lambda state: record(state["number"] + 1))
    for before, after in zip([library.START, *names], [*names, library.END], strict=True):
        graph.add_edge(before, after)
    config = {"configurable": {"thread_id": "1"}, "recursion_limit": steps + 10}
    if durability == "memory":
        app = graph.compile()
        return lambda: app.invoke(record(0), config)["number"]
    saver = import_module("langgraph.checkpoint.sqlite").SqliteSaver(connection(durability))
    app = graph.compile(checkpointer=saver)
    return lambda: app.invoke(record(0), config, durability="sync")["number"]


def burr(durability: str, steps: int) -> Callable[[], Any]:
    """Return what runs the chain in Burr, with a saved state per step unless in memory."""
    core = import_module("burr.core")

    def step(state: Any) -> Any:
        return state.update(record=record(state["record"]["number"] + 1))

    names = [f"s{number}" for number in range(steps)]
    made = core.action(reads=["record"], writes=["record"])(step)
    builder = (
        core.ApplicationBuilder()
        .with_actions(**dict.fromkeys(names, made))
        .with_transitions(*pairwise(names))
        .with_state(record=record(0))
        .with_entrypoint(names[0])
    )
    if durability != "memory":
        persistence = import_module("burr.core.persistence")
        store = persistence.SQLitePersister("", connection=connection(durability))
        store.initialize()
        builder = builder.with_state_persister(store)
    app = builder.build()
    return lambda: app.run(halt_after=[names[-1]])[2]["record"]["number"]


PEERS = {"langgraph": langgraph, "burr": burr}


def main() -> None:
    """Run the chain of a library: NAME LEVEL STEPS, where the level is `memory` or a durability."""
    name, durability, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
    run = PEERS[name](durability, steps)
    wall, processor = time.perf_counter(), time.process_time()
    assert run() == steps
    took = [time.process_time() - processor, time.perf_counter() - wall]
    print(json.dumps([each / steps for each in took]))


if __name__ == "__main__":
    main()
