"""The same flows in other libraries, run by the interpreter that `make peers` installs.

Nothing of flowengine is imported here. Each library works as its documentation shows: LangGraph
with its checkpointer for SQLite and `durability="sync"`, Burr with its persister for SQLite, and
pydantic-graph, which has no store, in memory. Each step receives a record of 1 KB and returns one,
and its result is committed before the next step begins.

It prints the seconds of processor time and of wall-clock time that one step, or one execution,
takes in the second of two runs. Processes that begin or resume a flow are measured from outside.
"""

from __future__ import annotations

import asyncio
import json
import operator
import sqlite3
import sys
import time
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypedDict

SYNCHRONOUS = {"power": "FULL", "process": "NORMAL"}
"""Level of durability → the setting of SQLite, with a write-ahead log, that has it."""

Run = Callable[[str], Any]
"""Runs an execution of that name to its end."""


class Notes(TypedDict):
    """A list that grows."""

    notes: Annotated[list[dict[str, Any]], operator.add]


def record(number: int) -> dict[str, Any]:
    """Return a record of about 1 KB."""
    return {"number": number, "text": "x" * 1000}


def connection(durability: str, place: str) -> sqlite3.Connection:
    """Return a connection to the store of a directory, with a level of durability."""
    made = sqlite3.connect(Path(place) / "store.db", check_same_thread=False)
    made.execute("PRAGMA journal_mode = WAL")
    made.execute(f"PRAGMA synchronous = {SYNCHRONOUS[durability]}")
    return made


class LangGraph:
    """Graphs of LangGraph, with a checkpoint per step unless in memory."""

    def __init__(self, durability: str, place: str) -> None:
        self._library = import_module("langgraph.graph")
        self._saver = None
        if durability != "memory":
            saver = import_module("langgraph.checkpoint.sqlite").SqliteSaver
            self._saver = saver(connection(durability, place))

    def chain(self, count: int) -> Run:
        return self._run(self._chain(count), record(0), count)

    def _chain(self, count: int) -> Any:
        graph = self._library.StateGraph(dict)
        names = [f"s{number}" for number in range(count)]
        for name in names:
            graph.add_node(name, lambda state: record(state["number"] + 1))
        ends = [self._library.START, *names, self._library.END]
        for before, after in pairwise(ends):
            graph.add_edge(before, after)
        return graph

    def loop(self, count: int) -> Run:
        graph = self._library.StateGraph(dict)
        graph.add_node("again", lambda state: record(state["number"] + 1))
        graph.add_edge(self._library.START, "again")
        graph.add_conditional_edges(
            "again", lambda state: "again" if state["number"] < count else self._library.END
        )
        return self._run(graph, record(0), count)

    def growing(self, count: int) -> Run:
        graph = self._library.StateGraph(Notes)
        graph.add_node("note", lambda state: {"notes": [record(len(state["notes"]))]})
        graph.add_edge(self._library.START, "note")
        graph.add_conditional_edges(
            "note", lambda state: "note" if len(state["notes"]) < count else self._library.END
        )
        return self._run(graph, {"notes": []}, count)

    def items(self, count: int) -> Run:
        send = import_module("langgraph.types").Send
        graph = self._library.StateGraph(Notes)
        graph.add_node("each", lambda item: {"notes": [record(item["number"])]})
        graph.add_conditional_edges(
            self._library.START,
            lambda state: [send("each", {"number": number}) for number in range(count)],
            ["each"],
        )
        return self._run(graph, {"notes": []}, count)

    def _run(self, graph: Any, given: dict[str, Any], count: int) -> Run:
        app = graph.compile(checkpointer=self._saver)
        options = {"durability": "sync"} if self._saver else {}

        def run(name: str) -> Any:
            config = {"configurable": {"thread_id": name}, "recursion_limit": count + 10}
            return app.invoke(dict(given), config, **options)

        return run

    def halted(self, *, begun: bool) -> None:
        """Run a chain of three steps up to the second, or the rest of it."""
        app = self._chain(3).compile(
            checkpointer=self._saver, interrupt_before=[] if begun else ["s1"]
        )
        config = {"configurable": {"thread_id": "halted"}}
        app.invoke(None if begun else record(0), config, durability="sync")


class Burr:
    """Applications of Burr, with a saved state per step unless in memory."""

    def __init__(self, durability: str, place: str) -> None:
        self._core = import_module("burr.core")
        self._store = None
        if durability != "memory":
            persistence = import_module("burr.core.persistence")
            self._store = persistence.SQLitePersister("", connection=connection(durability, place))
            self._store.initialize()

    def chain(self, count: int) -> Run:
        graph = self._chain(count)
        return lambda name: self._app(graph, name, "s0").run(halt_after=[f"s{count - 1}"])

    def _chain(self, count: int) -> Any:
        names = [f"s{number}" for number in range(count)]
        builder = self._core.GraphBuilder().with_actions(**dict.fromkeys(names, self._step()))
        return builder.with_transitions(*pairwise(names)).build()

    def _step(self) -> Any:
        def step(state: Any) -> Any:
            return state.update(record=record(state["record"]["number"] + 1))

        return self._core.action(reads=["record"], writes=["record"])(step)

    def loop(self, count: int) -> Run:
        return self._again(self._step(), f"record['number'] < {count}")

    def growing(self, count: int) -> Run:
        def note(state: Any) -> Any:
            return state.append(notes=record(len(state["notes"])))

        made = self._core.action(reads=["notes"], writes=["notes"])(note)
        return self._again(made, f"len(notes) < {count}")

    def _again(self, made: Any, condition: str) -> Run:
        def ended(state: Any) -> Any:
            return state

        builder = self._core.GraphBuilder().with_actions(
            again=made, ended=self._core.action(reads=[], writes=[])(ended)
        )
        graph = builder.with_transitions(
            ("again", "again", self._core.expr(condition)), ("again", "ended")
        ).build()
        return lambda name: self._app(graph, name, "again").run(halt_after=["ended"])

    def _app(self, graph: Any, name: str, first: str) -> Any:
        builder = self._core.ApplicationBuilder().with_graph(graph).with_identifiers(app_id=name)
        if self._store:
            builder = builder.with_state_persister(self._store)
        return builder.with_state(record=record(0), notes=[]).with_entrypoint(first).build()

    def halted(self, *, begun: bool) -> None:
        """Run a chain of three steps up to the second, or the rest of it."""
        builder = self._core.ApplicationBuilder().with_graph(self._chain(3))
        app = (
            builder.with_identifiers(app_id="halted")
            .with_state_persister(self._store)
            .initialize_from(
                self._store,
                resume_at_next_action=True,
                default_state={"record": record(0)},
                default_entrypoint="s0",
            )
            .build()
        )
        app.run(halt_after=["s2" if begun else "s0"])


class PydanticGraph:
    """Graphs of pydantic-graph, which has no store."""

    def __init__(self, durability: str, _place: str) -> None:
        assert durability == "memory", "this library has no store"
        self._library = import_module("pydantic_graph")

    def chain(self, count: int) -> Run:
        graph = self._chain(count)
        return lambda _name: asyncio.run(graph.run(inputs=record(0)))

    def _chain(self, count: int) -> Any:
        graph = self._library.GraphBuilder(input_type=dict, output_type=dict)
        steps = [graph.step(_step, node_id=f"s{number}") for number in range(count)]
        for before, after in pairwise([graph.start_node, *steps, graph.end_node]):
            graph.add(graph.edge_from(before).to(after))
        return graph.build()

    def executions(self, count: int) -> Run:
        """Run them at once, as this library is asynchronous."""
        graph = self._chain(5)

        async def at_once() -> None:
            await asyncio.gather(*(graph.run(inputs=record(0)) for _ in range(count)))

        return lambda _name: asyncio.run(at_once())

    def loop(self, count: int) -> Run:
        graph = self._library.GraphBuilder(input_type=dict, output_type=dict)
        again = graph.step(_step, node_id="again")
        more = graph.match(dict, matches=lambda each: each["number"] < count).to(again)
        decision = graph.decision().branch(more).branch(graph.match(dict).to(graph.end_node))
        graph.add(graph.edge_from(graph.start_node).to(again), graph.edge_from(again).to(decision))
        built = graph.build()
        return lambda _name: asyncio.run(built.run(inputs=record(0)))

    def items(self, count: int) -> Run:
        graph = self._library.GraphBuilder(input_type=list, output_type=list)
        each = graph.step(_step)
        joined = graph.join(self._library.reduce_list_append, initial_factory=list)
        graph.add(
            graph.edge_from(graph.start_node).map().to(each),
            graph.edge_from(each).to(joined),
            graph.edge_from(joined).to(graph.end_node),
        )
        built, given = graph.build(), [{"number": number} for number in range(count)]
        return lambda _name: asyncio.run(built.run(inputs=given))


async def _step(context: Any) -> dict[str, Any]:
    return record(context.inputs["number"] + 1)


PEERS: dict[str, Any] = {"langgraph": LangGraph, "burr": Burr, "pydantic_graph": PydanticGraph}


def executions(peer: Any, count: int) -> Run:
    """Return what runs so many executions of five steps: at once, where a library can do that."""
    if hasattr(peer, "executions"):
        at_once: Run = peer.executions(count)
        return at_once
    run = peer.chain(5)

    def one_after_the_other(name: str) -> None:
        for number in range(count):
            run(f"{name}-{number}")

    return one_after_the_other


def measure(run: Run, count: int) -> None:
    """Print the processor time and the time by the clock of a second run."""
    run("first")
    wall, processor = time.perf_counter(), time.process_time()
    run("second")
    took = [time.process_time() - processor, time.perf_counter() - wall]
    print(json.dumps([each / count for each in took]))


def main(name: str, case: str, durability: str, count: int, place: str) -> None:
    """Run a case of a library, with a store in a directory unless the level is `memory`."""
    peer = PEERS[name](durability, place)
    if case == "start":
        peer.chain(count)("started")
    elif case in ("halt", "resume"):
        peer.halted(begun=case == "resume")
    else:
        run = executions(peer, count) if case == "executions" else getattr(peer, case)(count)
        measure(run, count)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
