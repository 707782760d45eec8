"""Measure the engine against its limits: `python -m benchmarks [NAME]...`, or `make bench`.

Steps pass records of about 1 KB unless a figure says `trivial`. Each figure is a ratio of two
things measured in the same run on the same machine: the least of several alternating rounds, in
processor time where nothing waits for a disk. Targets are those of
`docs/contributing/performance.md`.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks import advance, environments, expressions, flows, graphs, limits
from benchmarks.counting import CountingStore
from flowengine import Engine, LoadedFlow
from flowengine.journal.store import Durability

ROUNDS = 5
BODY = os.urandom(1000)
"""About what the event of a step takes that returns a record."""

Seconds = Callable[[], float]
CLOCKS: dict[Durability, Seconds] = {"power": time.perf_counter, "process": time.process_time}
GROUPED: dict[Durability, float] = {"power": 2.0, "process": 0.4}


class Figure(NamedTuple):
    """One line of the report."""

    what: str
    measured: str
    ratio: float
    target: float
    more: bool = False
    """The ratio has to reach the target, instead of staying below it."""

    @property
    def met(self) -> bool:
        return self.ratio >= self.target if self.more else self.ratio <= self.target


def timed(work: Callable[[], object], clock: Seconds = time.perf_counter) -> float:
    began = clock()
    work()
    return clock() - began


def alternating(first: Callable[[], float], second: Callable[[], float]) -> tuple[float, float]:
    """Return the least of two measurements that take turns."""
    pairs = [(first(), second()) for _ in range(ROUNDS)]
    return min(p[0] for p in pairs), min(p[1] for p in pairs)


def limit(folder: Path, durability: Durability, count: int) -> float:
    """Return the seconds that SQLite alone needs for `count` commits of 1 KB."""
    return limits.commits(folder, durability, [BODY] * count, CLOCKS[durability])


def run_once(
    folder: Path, durability: Durability | None, flow: LoadedFlow, **inputs: object
) -> float:
    """Return the seconds of the second execution in a store of its own; None: in memory."""
    clock = CLOCKS[durability or "process"]
    with (
        tempfile.TemporaryDirectory(dir=folder) as store,
        Engine(store if durability else None, durability=durability or "none") as engine,
    ):
        _succeed(engine, flow, inputs)
        return timed(lambda: _succeed(engine, flow, inputs), clock)


def _succeed(engine: Engine, flow: LoadedFlow, inputs: dict[str, object]) -> None:
    result = engine.run(flow, inputs)
    assert result.status == "succeeded", result


def steps(folder: Path) -> Iterator[Figure]:
    """Return what one step costs, whichever way there come to be a thousand of them."""
    chain, loop, items = flows.chain(folder, 1000), flows.loop(folder), flows.items(folder)
    acting = flows.chain(folder, 1000, "act")
    cases: list[tuple[str, Durability | None, LoadedFlow, dict[str, int], float]] = [
        ("chain of 1,000 steps that act, power", "power", acting, {}, 1.5),
        ("chain of 1,000 steps that act, process", "process", acting, {}, 3.5),
        ("chain of 1,000 pure steps, power", "power", chain, {}, 1.5),
        ("chain of 1,000 pure steps, process", "process", chain, {}, 3.5),
        ("loop of 1,000 rounds, process", "process", loop, {"rounds": 1000}, 3.0),
        ("map of 1,000 items, process", "process", items, {"items": 1000}, 2.0),
        ("map of 10,000 items, process", "process", items, {"items": 10_000}, 2.0),
        ("chain of 1,000 steps in memory", None, chain, {}, 1.75),
        ("loop of 1,000 rounds in memory", None, loop, {"rounds": 1000}, 1.25),
    ]
    for what, durability, flow, inputs, target in cases:
        count = next(iter(inputs.values()), 1000)
        ours, least = alternating(
            partial(run_once, folder, durability, flow, **inputs),
            partial(limit, folder, durability or "process", 1000),
        )
        us, least_us = ours / count * 1e6, least * 1000
        measured = f"{us:.0f} us each, SQLite alone {least_us:.0f}"
        yield Figure(what, measured, us / least_us, target)


def conversation(folder: Path) -> Iterator[Figure]:
    """Return what a turn costs that is given a state of 5,000 messages."""
    flow = flows.turns(folder)
    message = {"role": "user", "text": "x" * 900, "usage": {"input": 1, "output": 2}}

    given = [message] * 5000

    with Engine(None) as engine:

        def rounds(count: int) -> float:
            inputs = {"messages": given, "rounds": count}
            return timed(lambda: _succeed(engine, flow, inputs), time.process_time)

        one, more = (min(rounds(count) for _ in "123") for count in (1, 21))
    ours, least = (more - one) / 20, limit(folder, "process", 1000) / 1000
    measured = f"{ours * 1000:.1f} ms, SQLite alone {least * 1e6:.0f} us"
    yield Figure("a turn in a conversation of 5,000 messages", measured, ours / least, 150)


def in_memory(folder: Path) -> Iterator[Figure]:
    kinds = {
        "without an action": (flows.empty_chain(folder, 10_000), 40_000),
        "of a quick trivial function": (flows.trivial_chain(folder, 10_000), 60_000),
        # Each attempt is a task of the event loop, which alone costs about as much as the rest.
        "of a trivial coroutine": (flows.trivial_chain(folder, 10_000, "trivial_async"), 20_000),
    }
    for kind, (flow, target) in kinds.items():
        took = min(run_once(folder, None, flow) for _ in "123")
        rate = 10_000 / took
        yield Figure(f"steps a second in memory, {kind}", f"{rate:,.0f}", rate, target, more=True)


def concurrent(folder: Path) -> Iterator[Figure]:
    flow = flows.five(folder)

    def ours(durability: Durability, count: int) -> float:
        with tempfile.TemporaryDirectory(dir=folder) as store:
            return asyncio.run(_run_many(store, durability, flow, count))

    for durability, share in GROUPED.items():
        took, least = alternating(
            partial(ours, durability, 1000), partial(limit, folder, durability, 5000)
        )
        yield Figure(
            f"1,000 executions of 5 steps at once, {durability}",
            f"{1000 / took:,.0f} a second, SQLite alone {1000 / least:,.0f}",
            least / took,
            share,
            more=True,
        )
    few, many = ours("process", 250), ours("process", 1000)
    yield Figure("4 times the executions at once", "times the time", many / few, 4 * 1.4)


async def _run_many(store: str, durability: Durability, flow: LoadedFlow, count: int) -> float:
    clock = CLOCKS[durability]
    async with Engine(store, durability=durability) as engine:
        await engine.run_async(flow)
        began = clock()
        results = await asyncio.gather(*(engine.run_async(flow) for _ in range(count)))
        took = clock() - began
    assert all(result.status == "succeeded" for result in results)
    return took


def linear(folder: Path) -> Iterator[Figure]:
    mapped, looped = flows.items(folder), flows.loop(folder)
    cases = {
        "map of 10,000 items against 2,500": (mapped, "items", 2500, 10_000),
        "loop of 10,000 rounds against 2,500": (looped, "rounds", 2500, 10_000),
    }
    for what, (flow, name, few, many) in cases.items():
        short, long = alternating(
            partial(run_once, folder, "process", flow, **{name: few}),
            partial(run_once, folder, "process", flow, **{name: many}),
        )
        yield Figure(what, f"{long / many * 1e6:.0f} us each", long / short, 4 * 1.5)
    few_chain, many_chain = flows.chain(folder, 2500), flows.chain(folder, 10_000)
    short, long = alternating(
        lambda: run_once(folder, "process", few_chain),
        lambda: run_once(folder, "process", many_chain),
    )
    yield Figure(
        "chain of 10,000 steps against 2,500", f"{long * 100:.0f} us each", long / short, 4 * 1.5
    )


def growing(folder: Path) -> Iterator[Figure]:
    flow = flows.growing(folder)
    for rounds in (500, 2000, 5000):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            store = CountingStore(Path(place) / "flowengine.db", durability="process")
            with Engine(store) as engine:
                _succeed(engine, flow, {"rounds": rounds})
        data = rounds * 1000
        yield Figure(
            f"bytes written, list growing by 1 KB over {rounds:,} steps",
            f"{store.written / 1e6:.1f} MB for {data / 1e6:.1f} MB",
            store.written / data,
            3.0,
        )


def cold_start(folder: Path) -> Iterator[Figure]:
    program = [str(Path(sys.executable).with_name("flowengine"))]
    (folder / "hello.yaml").write_text(
        "flowengine: 1\nid: hello\ninputs: {name: {type: string, default: world}}\n"
        "steps:\n  - {id: greet, output: 'Hello, ${{ inputs.name }}!'}\n"
        "outputs: {message: '${{ steps.greet.output }}'}\n"
    )
    flows.asking(folder)

    def process(*command: str) -> float:
        return timed(lambda: subprocess.run(command, check=False, capture_output=True, cwd=folder))

    def approve() -> float:
        subprocess.run(
            [*program, "run", "asking.yaml"], capture_output=True, cwd=folder, check=False
        )
        listed = subprocess.run(
            [*program, "approvals", "list", "--json"], capture_output=True, cwd=folder, check=True
        )
        wait = json.loads(listed.stdout)[0]["id"]
        return process(*program, "approve", wait, "--as", "user:ada")

    process(*program, "run", "hello.yaml")
    ours, bare = alternating(
        lambda: min(process(*program, "run", "hello.yaml") for _ in "123"),
        lambda: min(process(sys.executable, "-c", "pass") for _ in "123"),
    )
    yield Figure("fresh process runs hello", f"{ours * 1000:.0f} ms", ours / bare, 6)
    ours, bare = alternating(
        lambda: min(approve() for _ in "123"),
        lambda: min(process(sys.executable, "-c", "pass") for _ in "123"),
    )
    yield Figure("fresh process resumes a wait", f"{ours * 1000:.0f} ms", ours / bare, 6)


def expression_costs(_folder: Path) -> Iterator[Figure]:
    """What expressions cost, against the implementation of CEL in C++ (decision 35)."""
    for text in expressions.TEXTS:
        ours, theirs = alternating(
            partial(expressions.each, expressions.here(text), 20_000),
            partial(expressions.each, expressions.there(text), 20_000),
        )
        said = f"{ours * 1e6:.2f} us, in C++ {theirs * 1e6:.2f}"
        yield Figure(f"expression {text[:44]}", said, ours / theirs, 1)
    path, operator = (partial(expressions.fresh, text) for text in ("name", expressions.TEXTS[0]))
    first, second = alternating(
        lambda: min(operator() for _ in "12345"), lambda: min(path() for _ in "12345")
    )
    said = f"{first * 1000:.0f} ms, with a path {second * 1000:.0f}"
    yield Figure("fresh process that evaluates one operator", said, first / second, 1.5)


def graph_work(_folder: Path) -> Iterator[Figure]:
    """Whether networkx would be as fast in the checker (decision 10)."""
    for steps in (10, 100, 1000):
        graph = graphs.tangled(steps)
        for work in (graphs.components, graphs.reach):
            measured = [work(graph) for _ in range(ROUNDS)]
            ours, theirs = (min(times) for times in zip(*measured, strict=True))
            said = f"{ours * 1e6:.0f} us, networkx {theirs * 1e6:.0f}"
            yield Figure(f"{work.__name__}, {steps} steps", said, ours / theirs, 1)


def pending(folder: Path) -> Iterator[Figure]:
    flow = flows.asking(folder)
    with Engine(folder / "pending", durability="none") as engine:
        pages = {}
        done = 0
        for count in (1000, 100_000):
            asyncio.run(_wait_many(engine, flow, count - done))
            done = count
            pages[count] = statistics.median(
                timed(lambda: engine.approvals.list(limit=50)) for _ in range(9)
            )
    yield Figure(
        "a page of 50 waits, of 100,000 against of 1,000",
        f"{pages[100_000] * 1000:.1f} ms",
        pages[100_000] / pages[1000],
        2.0,
    )


def long_lists(folder: Path) -> Iterator[Figure]:
    """The list of a million executions, in a process that has just started."""
    from benchmarks import lists

    (listed, by), (found, what), counted = lists.seconds(folder / "lists")
    many = f"of {lists.COUNT:,} executions, seconds"
    yield Figure(f"slowest list {many} ({by})", f"{listed:.3f} s", listed, 0.1)
    yield Figure(f"slowest search {many} ({what})", f"{found:.3f} s", found, 0.3)
    yield Figure(f"counts {many}", f"{counted * 1000:.2f} ms", counted, 0.01)


def large_pages(folder: Path) -> Iterator[Figure]:
    """What is large, in Chromium."""
    from benchmarks import pages

    first, again, listed = pages.seconds(folder)
    what = f"first view of an execution of {pages.STEPS:,} steps, seconds"
    yield Figure(what, f"{first:.2f} s", first, 1.0)
    yield Figure("  once its journal was read", f"{again:.2f} s", again, 1.0)
    yield Figure(f"list of {pages.LISTED:,} executions, seconds", f"{listed:.2f} s", listed, 0.3)


def scale(_folder: Path) -> Iterator[Figure]:
    """One event among 10,000 of what there were 10 of, kernel alone."""
    advance.among(advance.WAITS["items at approvals"], 10)  # imports and caches
    for what, body in advance.WAITS.items():
        few = min(advance.among(body, 10).one for _ in "123")  # noise there would hide a growth
        many = advance.among(body, 10_000)
        told = f"{many.one * 1e6:.0f} us; opened in {many.starting * 1000:.0f} ms"
        yield Figure(f"an answer, 10,000 {what}", told, many.one / few, 2.0)
    for join in ("", "all", "active", "{need: 1, late: queue}"):
        few = min(advance.within(12, join).one for _ in "123")
        many = advance.within(10_000, join)
        told = f"{many.one * 1e6:.0f} us; compiled in {many.compiling:.1f} s"
        what = f"diamonds, join {join}" if join else "a chain"
        yield Figure(f"a step, 10,000 steps in {what}", told, many.one / few, 2.0)
        linked = f"{many.starting * 1000:.0f} ms"
        yield Figure("  its first event", linked, many.starting / many.compiling, 0.1)


def reused_environment(folder: Path) -> Iterator[Figure]:
    took = min(environments.reuse(folder) for _ in "123") * 1e6
    yield Figure("us to reuse an open environment", f"{took:.0f} us", took, 50)


async def _wait_many(engine: Engine, flow: LoadedFlow, count: int) -> None:
    for _ in range(0, count, 1000):
        await asyncio.gather(*(engine.run_async(flow) for _ in range(min(1000, count))))


def step_with_environment(folder: Path) -> Iterator[Figure]:
    has, plain = environments.steps(folder)
    told = f"{has * 1e6:.0f} us, plain {plain * 1e6:.0f}"
    yield Figure("a step in an open environment, against one without", told, has / plain, 2.5)


def in_a_sandbox(folder: Path) -> Iterator[Figure]:
    from benchmarks.sandboxes import Measured

    with Measured(folder) as measured:
        opened = measured.open_python()
        yield Figure("a Python sandbox from nothing to its first result", "seconds", opened, 0.5)
        call = measured.python_call() * 1000
        yield Figure("a trivial call of Python in a sandbox", "ms", call, 0.5)
        command = measured.shell_call() * 1000
        yield Figure("a trivial command in a shell that lasts", "ms", command, 2.0)
        ours, plain = measured.bash_call()
        yield Figure(
            "a command in a sandbox, against a plain child",
            f"{ours * 1000:.1f} ms, plain {plain * 1000:.1f}",
            ours / plain,
            2.0,
        )
        ours, plain, grown = measured.printed()
        yield Figure(
            "50 MB of output cut and kept, against a pipe into a file",
            f"{ours * 1000:.0f} ms, plain {plain * 1000:.0f}",
            ours / plain,
            4.0,
        )
        yield Figure("MB that the engine grows by meanwhile", "MB", grown / 1024, 16.0)


def in_a_container(folder: Path) -> Iterator[Figure]:
    """Code and commands in a container; needs a Docker daemon."""
    from benchmarks.sandboxes import Measured

    with Measured(folder, "docker") as measured:
        ours, plain = measured.ready()
        yield Figure(
            "a container-backed environment until ready, against `docker run`",
            f"{ours * 1000:.0f} ms, plain {plain * 1000:.0f}",
            ours / plain,
            2.0,
        )
        call = measured.python_call() * 1000
        yield Figure("a trivial call of Python in a container", "ms", call, 2.0)
        ours, plain = measured.bash_call()
        yield Figure(
            "a command in a container, against a plain child",
            f"{ours * 1000:.1f} ms, plain {plain * 1000:.1f}",
            ours / plain,
            3.0,
        )
        ours, plain, grown = measured.printed()
        yield Figure(
            "50 MB of output cut in a container, against a pipe into a file",
            f"{ours * 1000:.0f} ms, plain {plain * 1000:.0f}",
            ours / plain,
            4.0,
        )
        yield Figure("MB that the engine grows by meanwhile", "MB", grown / 1024, 16.0)


def tool_calls(_folder: Path) -> Iterator[Figure]:
    """What a listener costs calls of tools."""
    from benchmarks import tools

    followed, alone = alternating(
        partial(tools.calls, followed=True), partial(tools.calls, followed=False)
    )
    said = f"{followed * 1000:.0f} us each, without a listener {alone * 1000:.0f}"
    yield Figure("1,000 calls of a tool, with a listener", said, followed / alone, 1.2)


def model_calls(folder: Path) -> Iterator[Figure]:
    """What the port adds to a call of a model; needs the packages of tests/model_servers."""
    from benchmarks import models

    with models.double(folder) as url:
        for turns, streamed in ((0, False), (0, True), (100, False)):
            messages = models.conversation(turns)
            ours, theirs = alternating(
                partial(models.each, models.through_the_port(url, messages, streamed=streamed)),
                partial(models.each, models.by_litellm(url, messages, streamed=streamed)),
            )
            what = f"{'a streamed' if streamed else 'a'} call of a model after {turns} turns"
            said = f"{ours * 1000:.1f} ms, litellm alone {theirs * 1000:.1f}"
            yield Figure(f"ms that the port adds to {what}", said, (ours - theirs) * 1000, 5)


def agent_turns(folder: Path) -> Iterator[Figure]:
    """A conversation of 5,000 messages of a kilobyte, with a model that answers at once."""
    from benchmarks import agents

    pairs = []
    for name in "123":  # one after the other, as a machine is not equally fast for long
        place, other = folder / f"long{name}", folder / f"short{name}"
        place.mkdir()
        other.mkdir()
        store = CountingStore(place / "flowengine.db", durability="process")
        long = agents.conversation(place, store, 2500)
        fresh = CountingStore(other / "flowengine.db", durability="process")
        pairs.append((long.late, agents.early_turn(other, fresh)))
    late, early = sorted(pairs, key=lambda pair: pair[0] / pair[1])[1]
    told = f"{late * 1000:.2f} ms, at the beginning {early * 1000:.2f}; the middle of 3"
    yield Figure("a turn after 2,500 turns", told, late / early, 1.2)
    told = f"{store.written / 1e6:.1f} MB for {long.messages / 1e6:.1f} MB"
    yield Figure("  bytes given to the store", told, store.written / long.messages, 2.0)
    with Engine(place, workdir=place) as engine:
        took = timed(lambda: engine.executions.show(long.execution), time.process_time)
        yield Figure("  seconds to show it", "s", took, 0.5)
        took = timed(lambda: engine.resume(long.execution), time.process_time)
        yield Figure("  seconds to load it", "s", took, 0.5)


def agent_calls(folder: Path) -> Iterator[Figure]:
    """What turns cost, of a model and one tool each; needs the packages of `model_calls`."""
    from benchmarks import agents, models

    one, more = alternating(
        partial(agents.calls_in_reply, folder, 1), partial(agents.calls_in_reply, folder, 9)
    )
    added = (more - one) / 8 * 1000
    yield Figure("ms that a call of a tool takes in a turn", "ms", added, 1)
    turns = 20
    with models.double(folder, agents.wire_replies(turns)) as url:
        agents.by_litellm(url, turns, 1)
        for count in (1, 100):
            rounds = range(3 if count == 1 else 1)
            pairs = [
                (
                    agents.on_the_wire(folder, url, turns, count),
                    agents.by_litellm(url, turns, count),
                )
                for _ in rounds
            ]
            ours, theirs = (min(one.processor for one in each) for each in zip(*pairs, strict=True))
            told = f"{ours * 1000:.1f} ms, litellm alone {theirs * 1000:.1f}"
            what = f"ms that the engine adds to a turn, {count} at once"
            yield Figure(what, told, (ours - theirs) * 1000, 6)
            took = min(one.took for one, _ in pairs)
            bare = min(other.took for _, other in pairs)
            alone = agents.by_http(url, turns, count).took
            told = f"{took * 1000:.1f} ms, litellm {bare * 1000:.1f}, double {alone * 1000:.1f}"
            yield Figure(f"  by the clock, {count} at once", told, took / bare, 1.1)


def side_by_side(folder: Path) -> Iterator[Figure]:
    """Agents of other libraries on the same double; `benchmarks/peer_agents.py` says how."""
    from benchmarks import agents, models

    python = os.environ.get("PEERS")
    if python is None:
        print("side_by_side: skipped, PEERS names no interpreter (see benchmarks/peer_agents.py)")
        return
    for turns in (20, 200):
        with models.double(folder, agents.wire_replies(turns)) as url:
            ours = agents.on_the_wire(folder, url, turns)
            for name in ("langgraph", "pydantic_ai"):
                theirs = agents.by_peer(python, name, url, turns)
                told = f"{ours.took * 1000:.1f} ms, theirs {theirs.took * 1000:.1f}"
                what = f"a turn of {turns}, against {name}"
                yield Figure(what, told, ours.took / theirs.took, 1)
                if theirs.written:
                    told = f"{ours.written / 1e6:.2f} MB, theirs {theirs.written / 1e6:.2f}"
                    yield Figure(
                        "  bytes given to the store", told, ours.written / theirs.written, 1
                    )


def peers(folder: Path) -> Iterator[Figure]:
    """Flows here and in other libraries; `make peers` installs them."""
    from benchmarks import peers as other

    python = os.environ.get("PEERS")
    if python is None:
        print("peers: skipped, PEERS names no interpreter with the libraries (`make peers`)")
        return
    for what, seconds, most in other.cases(folder, python):
        own = seconds.pop("flowengine")
        for name, theirs in seconds.items():
            told = f"{own * 1e6:.0f} us, {theirs * 1e6:.0f}"
            target = most if name == other.LIMIT else 1
            yield Figure(f"{what}, against {name}", told, own / theirs, target)


def reading_documents(folder: Path) -> Iterator[Figure]:
    """Our converters against markitdown, on the same files."""
    from benchmarks import documents

    python = documents.program()
    if not python:
        print("reading_documents: skipped, PEERS names no Python with markitdown")
        return
    files = documents.files()
    theirs, ours = documents.theirs(python, files), documents.ours(files)
    for suffix in sorted({path.suffix for path in theirs}):
        paths = [path for path in theirs if path.suffix == suffix]
        texts = [[documents.kept(made[path][0]) for path in paths] for made in (ours, theirs)]
        parts = [documents.recall(*pair) for pair in zip(*texts, strict=True)]
        for at, what in enumerate(("words", "headings", "tables", "links")):
            part = statistics.mean(values[at] for values in parts)
            told = f"{part:.1%} of theirs, {len(paths)} files"
            yield Figure(f"{suffix}: {what} that markitdown keeps", told, part, 0.98, more=True)
        mine, other = (sum(made[path][1] for path in paths) for made in (ours, theirs))
        told = f"{mine * 1000:.0f} ms, markitdown {other * 1000:.0f}"
        yield Figure(f"{suffix}: time against markitdown", told, mine / other, 1)
        mine, other = documents.process_seconds(python, paths[0])
        told = f"{mine * 1000:.0f} ms, markitdown {other * 1000:.0f}"
        yield Figure(f"{suffix}: a whole process for one file", told, mine / other, 1)


def knowing_documents(folder: Path) -> Iterator[Figure]:
    """Our reader of PDF and markitdown's, against what the authors of the files wrote."""
    from benchmarks import documents, known_documents

    python, pairs = documents.program(), known_documents.pairs()
    if not python or not pairs:
        print(
            "knowing_documents: skipped, PEERS names no Python with markitdown, or KNOWN no files"
        )
        return
    theirs, ours = documents.theirs(python, [*pairs]), documents.ours([*pairs])
    for path, known in pairs.items():
        mine, other = (known_documents.part(known, made[path][0]) for made in (ours, theirs))
        for what in mine._fields:
            part, least = getattr(mine, what), getattr(other, what)
            told = f"{part:.1%}, markitdown {least:.1%}"
            yield Figure(f"{path.stem}: {what}", told, part, least, more=True)
        seconds = ours[path][1], theirs[path][1]
        told = f"{seconds[0]:.2f} s, markitdown {seconds[1]:.2f}"
        yield Figure(f"{path.stem}: time against markitdown", told, seconds[0] / seconds[1], 1)


def browsing(folder: Path) -> Iterator[Figure]:
    """Steps of a browser against the same calls of Playwright, made by hand."""
    from benchmarks import browser_steps
    from flowengine_envs.browser import installation

    if installation.browser(None) is None or installation.missing():
        print("browsing: skipped, there is no Chromium or no Playwright")
        return
    for what, (ours, theirs) in browser_steps.steps().items():
        told = f"{ours * 1000:.0f} ms, by hand {theirs * 1000:.0f}"
        yield Figure(f"{what}, with the whole observation", told, ours / theirs, 1.2)
    first, further = browser_steps.openings()
    told = f"{further:.2f} s, the first {first:.2f}"
    yield Figure("a further browser of an execution until ready", told, further / first, 0.5)


def workers(folder: Path) -> Iterator[Figure]:
    """A worker without work, and how soon it takes what another process decides."""
    from benchmarks import workers as of_workers

    part = of_workers.idle(folder)
    what = "a worker while 10,000 executions wait, part of a core"
    yield Figure(what, f"{part:.3%}, allowed 0.5%", part / 0.005, 1)
    theirs = partial(of_workers.taking, folder, "process", by_worker=False)
    ours, least = alternating(partial(of_workers.taking, folder, "process", by_worker=True), theirs)
    told = f"{ours * 1000:.0f} us each, by hand {least * 1000:.0f}"
    yield Figure("1,000 due timers, by a worker", told, ours / least, 1.5)
    for durability in CLOCKS:
        delays = of_workers.woken(folder, durability)
        middle, most = statistics.median(delays), delays[len(delays) * 95 // 100 - 1]
        told = f"median {middle * 1000:.1f} ms, 95 of 100 {most * 1000:.1f}"
        yield Figure(f"a decision of another process, {durability}", told, most / 0.05, 1)


def in_temporal(folder: Path) -> Iterator[Figure]:
    """Executions in Temporal against a workflow written by hand, on a development server."""
    from benchmarks import temporal
    from flowengine.engines.temporal.objects import VARIABLE
    from tests.engines.temporal_server import temporal_server

    os.environ[VARIABLE] = os.fspath(folder / "objects")
    with temporal_server("default", short=False) as server:
        ours, run, theirs = asyncio.run(temporal.costs(f"{server}/default", folder, 3))
    told = f"{ours.processor * 1000:.1f} ms, by hand {theirs.processor * 1000:.1f}"
    yield Figure("processor time of a step", told, ours.processor / theirs.processor, 1.25)
    told = f"{run.processor * 1000:.1f} ms, by hand {theirs.processor * 1000:.1f}"
    yield Figure("the same with `run`", told, run.processor / theirs.processor, 1.25)
    told = f"{ours.bytes} bytes, by hand {theirs.bytes}"
    yield Figure("history of an execution", told, ours.bytes / theirs.bytes, 1.1)
    told = f"{ours.events} events, by hand {theirs.events}"
    yield Figure("events of a history", told, ours.events / theirs.events, 1.05)
    told = f"{ours.steps:.0f} a second, by hand {theirs.steps:.0f}"
    yield Figure("steps of 20 executions", told, ours.steps / theirs.steps, 0.8, more=True)


def long_in_temporal(folder: Path) -> Iterator[Figure]:
    """An agent with 5,000 messages, and 100,000 attempts of one execution, in Temporal."""
    from benchmarks import temporal
    from flowengine.engines.temporal.objects import VARIABLE
    from tests.engines.temporal_server import temporal_server

    os.environ[VARIABLE] = os.fspath(folder / "objects")
    with temporal_server("default", short=False) as server:
        for name, path, count, unit in (
            ("an agent", temporal.agent(folder), temporal.MESSAGES, "message"),
            ("a map", temporal.many(folder), temporal.ATTEMPTS, "step"),
        ):
            found = asyncio.run(temporal.long(f"{server}/default", path))
            told = f"{found.seconds:.0f} s, {found.runs} runs"
            yield Figure(
                f"{name} of {count} {unit}s, a second", told, count / found.seconds, 10, more=True
            )
            told = f"{found.bytes} bytes, longest run {found.longest}"
            yield Figure(f"history of a {unit}, in KB", told, found.bytes / count / 1000, 10)
            told = f"{found.kept} bytes"
            yield Figure(f"objects of a {unit}, in KB", told, found.kept / count / 1000, 100)


ALL = {
    case.__name__: case
    for case in (
        steps,
        conversation,
        in_memory,
        concurrent,
        linear,
        growing,
        cold_start,
        expression_costs,
        graph_work,
        pending,
        large_pages,
        long_lists,
        scale,
        reused_environment,
        step_with_environment,
        model_calls,
        tool_calls,
        agent_turns,
        agent_calls,
        side_by_side,
        peers,
        reading_documents,
        knowing_documents,
        browsing,
        in_temporal,
        long_in_temporal,
        in_a_sandbox,
        in_a_container,
        workers,
    )
}


def main(chosen: list[str]) -> int:
    missed = 0
    if unknown := [name for name in chosen if name not in ALL]:
        print(f"no measurement: {', '.join(unknown)}. There are: {', '.join(ALL)}", file=sys.stderr)
        return 2
    print(f"{'':58} {'measured':34} {'ratio':>9}   target")
    for name in chosen or ALL:
        with tempfile.TemporaryDirectory() as folder:
            for figure in ALL[name](Path(folder)):
                missed += not figure.met
                sign = "at least" if figure.more else "at most"
                print(
                    f"{figure.what:58} {figure.measured:34} {figure.ratio:9,.2f}   "
                    f"{sign} {figure.target:g}{'' if figure.met else '   MISSED'}",
                    flush=True,
                )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
