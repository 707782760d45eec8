"""The same flows here and in other libraries, in one run; `peer_steps.py` has the others.

A subscriber watches ours, as `flowengine run` does, and every step of ours acts, so that its result
is on disk before the next one begins. Processor time counts, and at `power` time by the clock.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks import flows, limits
from flowengine import Engine, LoadedFlow
from flowengine.journal.store import Durability

PROGRAM = Path(__file__).with_name("peer_steps.py")
ROUNDS = 3
PEERS = {
    "langgraph": ("memory", "process", "power"),
    "burr": ("memory", "process", "power"),
    "pydantic_graph": ("memory",),
}
"""Library → the levels of durability that it has."""

OURS = """\
import sys
import flowengine
with flowengine.Engine(sys.argv[1], durability="process") as engine:
    engine.subscribe(lambda update: None)
    {work}
"""
START = "engine.run(sys.argv[2])"
UNCOMPILED = "PYTHONDONTWRITEBYTECODE"
"""With it, each process would compile our modules again, and none of those that were installed."""
RESUME = "engine.approvals.approve(engine.approvals.list().items[0]['id'], by='user:ada')"


class Measured(NamedTuple):
    """Seconds for one unit of a case."""

    what: str
    seconds: dict[str, float]
    """Who → seconds: `flowengine`, other libraries, and the limit."""
    most: float
    """How many times the limit ours may take."""


LIMIT = "the limit"
"""SQLite alone for steps, an interpreter that does nothing for processes."""


def cases(folder: Path, python: str) -> Iterator[Measured]:
    """Yield each case at each level, with everybody who can do it.

    Args:
        folder: Where flows and stores go.
        python: The interpreter that has the other libraries.
    """
    chain, loop = flows.chain(folder, 1000, "act"), flows.loop(folder, "act")
    items, growing = flows.items(folder, "make"), flows.growing(folder, "make")
    yield from _processes(folder, python)
    for level in ("process", "memory", "power"):
        limit = _limit(folder, level)
        ours: dict[tuple[str, int], Callable[[], float]] = {
            # Others run one execution after the other, so that fewer of them cost as much each.
            ("executions", 200): partial(_executions, folder, level, flows.five(folder, "act")),
            ("chain", 1000): partial(_run, folder, level, chain, 1000),
            ("loop", 1000): partial(_run, folder, level, loop, 1000, rounds=1000),
            ("items", 1000): partial(_run, folder, level, items, 1000, items=1000),
            ("growing", 500): partial(_run, folder, level, growing, 500, rounds=500),
        }
        for (case, count), own in ours.items():
            theirs = {
                name: partial(_peer, python, name, case, level, count)
                for name, levels in PEERS.items()
                if level in levels and (name, case) not in MISSING
            }
            measured = _least({"flowengine": own, **theirs})
            if limit:
                measured[LIMIT] = limit * (5 if case == "executions" else 1)
            yield Measured(f"{case}, {level}", measured, 1.25 if level == "power" else 3.4)


MISSING = {("burr", "items"), ("pydantic_graph", "growing")}
"""Cases that are not written for a library."""


def _least(whose: dict[str, Callable[[], float]]) -> dict[str, float]:
    """Return the least of several rounds in which everybody takes turns."""
    rounds = [{name: measure() for name, measure in whose.items()} for _ in range(ROUNDS)]
    return {name: min(each[name] for each in rounds) for name in whose}


def _clock(level: str) -> Callable[[], float]:
    return time.perf_counter if level == "power" else time.process_time


def _limit(folder: Path, level: str) -> float:
    if level == "memory":
        return 0.0
    bodies = [os.urandom(1000)] * 1000
    rounds = [limits.commits(folder, level, bodies, _clock(level)) for _ in range(ROUNDS)]
    return min(rounds) / 1000


def _engine(place: str, level: str) -> Engine:
    durabilities: dict[str, Durability] = {"power": "power", "process": "process"}
    store = None if level == "memory" else place
    engine = Engine(store, durability=durabilities.get(level, "none"))
    engine.subscribe(lambda update: None)
    return engine


def _run(folder: Path, level: str, flow: LoadedFlow, count: int, **inputs: object) -> float:
    """Return the seconds of a step of the second execution."""
    with tempfile.TemporaryDirectory(dir=folder) as place, _engine(place, level) as engine:
        engine.run(flow, inputs)
        clock = _clock(level)
        began = clock()
        result = engine.run(flow, inputs)
        took = clock() - began
    assert result.status == "succeeded", result
    return took / count


def _executions(folder: Path, level: str, flow: LoadedFlow) -> float:
    """Return the seconds of each of 1,000 executions at once."""

    async def at_once(place: str) -> float:
        async with _engine(place, level) as engine:
            await engine.run_async(flow)
            clock = _clock(level)
            began = clock()
            await asyncio.gather(*(engine.run_async(flow) for _ in range(1000)))
            return clock() - began

    with tempfile.TemporaryDirectory(dir=folder) as place:
        return asyncio.run(at_once(place)) / 1000


def _peer(python: str, name: str, case: str, level: str, count: int) -> float:
    with tempfile.TemporaryDirectory() as place:
        command: list[str | Path] = [python, PROGRAM, name, case, level, str(count), place]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    processor, clock = json.loads(done.stdout)
    return float(clock if level == "power" else processor)


def _processes(folder: Path, python: str) -> Iterator[Measured]:
    """Yield what fresh processes cost that run a flow of three steps, and that resume one."""
    flows.chain(folder, 3, "act")
    flows.chain(folder, 3, "act_on_thread")
    flows.asking(folder)
    bare = partial(_process, [sys.executable, "-c", "pass"])

    def ours(work: str, name: str) -> float:
        flow = folder / f"{name}.yaml"
        with tempfile.TemporaryDirectory(dir=folder) as place:
            if work == RESUME:
                _process([sys.executable, "-c", OURS.format(work=START), place, flow])
            return _process([sys.executable, "-c", OURS.format(work=work), place, flow])

    def theirs(name: str, case: str, level: str) -> float:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            if case == "resume":
                _process([python, PROGRAM, name, "halt", level, "3", place])
            return _process([python, PROGRAM, name, case, level, "3", place])

    by_others = {
        name: partial(theirs, name, "start", "process" if "process" in levels else "memory")
        for name, levels in PEERS.items()
    }
    continued = {name: partial(theirs, name, "resume", "process") for name in ("langgraph", "burr")}
    for what, own, others in (
        ("a process runs three steps", partial(ours, START, "chain_act_3"), by_others),
        ("the same on a thread", partial(ours, START, "chain_act_on_thread_3"), by_others),
        ("a process resumes", partial(ours, RESUME, "asking"), continued),
    ):
        yield Measured(what, _least({"flowengine": own, **others, LIMIT: bare}), 6)


def _process(command: Sequence[str | Path]) -> float:
    """Return the seconds of processor time of a process."""
    environment = {name: value for name, value in os.environ.items() if name != UNCOMPILED}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
