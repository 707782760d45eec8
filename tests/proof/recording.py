"""Records the executions of the proof: of examples, patterns and random flows.

An execution is one case of a file of test cases. Those of an example are its own. All others are
drawn: calls, approvals and signals are answered at random, and the answers are written to a file of
test cases, which gives the same execution again. Afterwards, some executions are retried,
forked and upgraded by an engine.
"""

from __future__ import annotations

import json
import random
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

from flowengine import Engine, FlowFileError
from flowengine.engines.flows import LoadedFlow
from flowengine.errors import FlowEngineError
from flowengine.flow.cases import load_cases, parse_cases
from flowengine.flow.compile import Compiled, compile_file
from flowengine.flow.models.cases import Answer, Case, CaseDecision
from flowengine.flow.models.reading import Reading
from flowengine.journal.sqlite.store import SqliteStore
from flowengine.kernel.graph.compiled import OPENING
from flowengine.testing import player
from flowengine.testing.scripts import Scripts
from tests.testing.random_flows import LIBRARY, Author

EXAMPLES = Path(__file__).parents[2] / "examples"
PLACE = Path("/tmp/flowengine-proof")
"""Where executions are recorded. Their flows contain it."""
STORE = "store"
NOW = 1_768_813_200_000
"""The time at which the views are read, two weeks after the executions: 2026-01-19T09:00:00Z."""
BLOCKS = 10
FLOWS = 50
"""Random flows in each block."""
PLAYS = 2
"""Cases that are drawn for a flow without its own ones."""
TOOLS = "from typing import Any\n\n\ndef act(value: Any) -> Any:\n    return value\n"
LARGEST = 20_000
"""Bytes of the largest file of an example that is copied."""
SAMPLES: dict[str, Any] = {
    "string": "text", "integer": 3, "number": 2.5, "boolean": True, "array": [],
}  # fmt: skip


class Ids:
    """Ids that depend on the case only."""

    def __init__(self, case: str) -> None:
        self.case, self.number = case, 0

    def message(self) -> str:
        """Return the next id of a message."""
        self.number += 1
        return sha256(f"{self.case}/{self.number}".encode()).hexdigest()[:32]

    def execution(self, now: int) -> str:
        """Return the next id of an execution."""
        return self.message()[:26]

    def now(self) -> int:
        """Return the time of the interventions."""
        return NOW - 3_600_000


class Drawn(Scripts):
    """Answers calls and approvals at random, and keeps the answers as the scripts of a case."""

    def __init__(self, case: Case, flow: Any, draw: random.Random) -> None:
        super().__init__(case, flow)
        self.flow, self.draw = flow, draw
        self.fails = draw.choice([0.0, 0.05, 0.1, 0.3])
        self.kept: dict[str, dict[str, list[Any]]] = {"tools": {}, "agents": {}, "approvals": {}}
        self.open: dict[str, CaseDecision | None] = {}
        self.ignored: set[str] = set()

    def answer(self, run: Any, rehearsal: Any = None) -> Answer:
        """Draw the end of a call."""
        if rehearsal is not None or self.flow["steps"][run.step]["kind"] == OPENING:
            return self.rehearsed(run, rehearsal)
        chance = self.draw.random()
        returns = self.flow["steps"][run.step].get("task", {}).get("returns")
        ends: dict[str, Any] = {
            "return": sample(returns or {"examples": [self.draw.randrange(10)]})
        }
        if chance < self.fails:
            ends = {"raise": {"type": "Drawn", "retryable": self.draw.random() < 0.5}}
        elif chance > 0.98:
            ends = {"crash": True}
        elif chance > 0.96:
            ends = {"never": True}
        ends["after"] = self.draw.choice(["0s", "0s", "1ms", "300ms", "1500ms"])
        self.kept["tools"].setdefault(run.address, []).append(ends)
        return Reading().part(Answer, ends)

    def rehearsed(self, run: Any, rehearsal: Any) -> Answer:
        """Let the call of a built-in step kind end as its kind rehearses it."""
        if rehearsal is None or rehearsal.asked is None:
            return super().answer(run, rehearsal)
        said = {"text": self.draw.choice(["Done.", "There are 12.", "I cannot find it."])}
        text = json.dumps({"cases": [{"name": "it", "agents": {"it": [said]}}]})
        self.kept["agents"].setdefault(run.address, []).append(said)
        return parse_cases(text).cases[0].agents["it"].in_order[0]

    def decision(self, wait: Mapping[str, Any]) -> CaseDecision | None:
        """Draw the decision on a wait. Some are never decided."""
        address = wait["address"]
        if address in self.ignored:
            return None
        if wait["id"] not in self.open:
            if self.draw.random() < 0.2:
                self.ignored.add(address)
                return None
            choice = self.draw.choice([choice["id"] for choice in wait["choices"]])
            decided = {"choice": choice, "after": self.draw.choice(["0s", "500ms", "3s", "2h"])}
            if choice == "result":
                decided["value"] = 1
            self.kept["approvals"].setdefault(address, []).append(decided)
            self.open[wait["id"]] = Reading().part(CaseDecision, decided)
        return self.open[wait["id"]]

    def made(self, wait: Mapping[str, Any]) -> None:
        """Take another decision the next time."""
        self.open.pop(wait["id"], None)

    def once(self, wait: Mapping[str, Any]) -> bool:
        """Return False: each decision is made once."""
        return False


def play(
    folder: Path, flow: Compiled, case: Case, groups: Mapping[str, Any], scripts: Any = Scripts
) -> str:
    """Play a case, with its journal in a store on disk, and return how it ends."""
    assert case.id is not None
    named = {name: frozenset(users) for name, users in groups.items()}
    with (
        patch.object(
            player, "MemoryStore", lambda: SqliteStore(folder / STORE / "flowengine.db", "none")
        ),
        patch.object(player, "RandomIds", lambda: Ids(case.id or "")),
        patch.object(player, "Scripts", scripts),
    ):
        played = player.Player(LoadedFlow(flow.flow, flow.form), case, named, str(folder))
    with closing(played.host):
        played.begin()
        played.play()
    return str(played.execution.state["status"])


def play_file(folder: Path, file: Path) -> list[str]:
    """Play all cases of a file below a folder, and return the ids of their executions."""
    loaded = load_cases(str(file))
    for case in (cases := named(file, loaded.model.cases)):
        play(folder, loaded.flow, case, loaded.model.groups)
    return [case.id or "" for case in cases]


def named(file: Path, cases: list[Case]) -> list[Case]:
    """Give each case of a file a unique id in the store."""
    stem = file.name.removesuffix(".test.yaml")
    return [case.with_changes(id=f"{stem}-{n}") for n, case in enumerate(cases, 1)]


def draw_cases(folder: Path, path: Path, plays: int) -> None:
    """Play a flow, and write the answers that it received beside it, as a file of test cases."""
    flow, cases = compile_file(path), list[dict[str, Any]]()
    for number in range(1, plays + 1):
        draw = random.Random(f"{path.name}/{number}")
        case = drawn_case(flow.flow, f"{path.stem}-{number}", draw)
        [parsed] = parse_cases(json.dumps({"cases": [case]})).cases
        scripts = Drawn(parsed, flow.flow, draw)
        with suppress(FlowEngineError):  # inputs that it refuses
            ended = play(folder, flow, parsed, {}, lambda *_, drawn=scripts: drawn)
            kept = {name: drawn for name, drawn in scripts.kept.items() if drawn}
            cases.append({**case, **kept, "expect": {"status": ended}})
    if cases:
        text = json.dumps({"cases": cases}, indent=1)
        path.with_suffix(".test.yaml").write_text(text + "\n", encoding="utf-8")


def drawn_case(flow: Any, id: str, draw: random.Random) -> dict[str, Any]:
    """Return a case without scripts: its inputs, and what happens at times."""
    inputs = {}
    for name, schema in flow["inputs"].items():
        given = draw.random() < 0.5 if schema.get("type") == "boolean" else sample(schema)
        if "default" not in schema or schema.get("type") == "boolean":
            inputs[name] = given
    case: dict[str, Any] = {"name": f"drawn {id}", "id": id, "inputs": inputs}
    if draw.random() < 0.25:
        case["until"] = f"{draw.randrange(3000)}ms"
    if signals := flow.get("signals", {}):
        case["signals"] = [
            {
                "name": name,
                "at": f"{draw.randrange(3000)}ms",
                "data": sample(signals[name].get("data", {})),
            }
            for name in draw.choices(sorted(signals), k=draw.randrange(4))
        ]
    if draw.random() < 0.08:
        case["cancel"] = {"at": f"{draw.randrange(1500)}ms", "reason": "drawn"}
    return case


def sample(schema: Mapping[str, Any]) -> Any:
    """Return a value of a schema."""
    known = [*schema.get("enum", ()), *schema.get("examples", ())]
    if schema.get("type") == "object":
        known.append({name: sample(schema["properties"][name]) for name in schema["required"]}
                     if "required" in schema else {})  # fmt: skip
    return known[0] if known else SAMPLES.get(str(schema.get("type")), "text")


# The blocks


def examples(folder: Path) -> None:
    """Copy the examples with their test cases."""
    for path in sorted(EXAMPLES.rglob("*")):
        within = path.relative_to(EXAMPLES)
        if not path.is_file() or within.parts[0] == "patterns" or "__pycache__" in within.parts:
            continue
        if path.stat().st_size <= LARGEST:
            (folder / within).parent.mkdir(parents=True, exist_ok=True)
            (folder / within).write_bytes(path.read_bytes())


def patterns(folder: Path) -> None:
    """Copy the patterns."""
    for path in sorted((EXAMPLES / "patterns").glob("[0-9][0-9]-*.yaml")):
        (folder / path.name).write_bytes(path.read_bytes())


def random_flows(block: int, folder: Path) -> None:
    """Write random flows that the checker accepts. Two of three have races."""
    (folder / "tools.py").write_text(TOOLS, encoding="utf-8")
    (folder / "lib.yaml").write_text(json.dumps(LIBRARY, indent=1), encoding="utf-8")
    for _, (seed, flow) in zip(range(FLOWS), accepted(block, folder), strict=False):
        text = json.dumps({"flowengine": 1, "id": f"random{seed:05}", **flow}, indent=1)
        (folder / f"random{seed:05}.yaml").write_text(text + "\n", encoding="utf-8")


def accepted(block: int, folder: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield random flows without errors, by their seeds."""
    path = folder / "random.yaml"
    for seed in range(block * 1000, (block + 1) * 1000):
        flow = Author(seed, wild=seed % 3 > 0, library="lib.yaml").flow()
        path.write_text(json.dumps({"flowengine": 1, "id": "random", **flow}), encoding="utf-8")
        with suppress(FlowFileError):
            compile_file(path)
            path.unlink()
            yield seed, flow


SOURCES: dict[str, Callable[[Path], None]] = {
    "examples": examples,
    "patterns": patterns,
    **{f"random-{n}": partial(random_flows, n) for n in range(BLOCKS)},
}
"""Block → what writes its flows into a folder."""


def record(block: str, folder: Path) -> None:
    """Write the flows of a block to a folder, with their cases and the store of their executions.

    Args:
        block: One of `SOURCES`.
        folder: An empty one. Its path becomes part of the compiled flows.
    """
    (folder / STORE).mkdir(parents=True)
    SOURCES[block](folder)
    for path in sorted(folder.rglob("*.yaml")):
        if path.name.endswith((".test.yaml", ".eval.yaml")) or path.name == "lib.yaml":
            continue
        cases = path.with_suffix(".test.yaml")
        if cases.exists():
            play_file(folder, cases)
        else:
            draw_cases(folder, path, PLAYS if not block.startswith("random") else 1)
    intervene(folder)
    with closing(
        sqlite3.connect(folder / STORE / "flowengine.db", isolation_level=None)
    ) as database:
        database.execute("DELETE FROM owners")  # names this machine
        database.execute("VACUUM")


def intervene(folder: Path) -> None:
    """Retry, fork and upgrade some of the random executions, whose functions can run."""
    ids = Ids(folder.name)
    with Engine(
        folder / STORE,
        durability="none",
        workdir=folder,
        clock=ids,
        ids=ids,
        linger=0,
        user="user:ops",
    ) as engine:
        items = engine.executions.list(limit=500).items
        for number, item in enumerate(sorted(items, key=lambda item: item["execution"])):
            id, status = item["execution"], item["status"]
            if not re.match("random", id):
                continue
            with suppress(FlowEngineError):  # not every execution can be changed
                if status == "failed" and number % 3 == 0:
                    engine.executions.retry(id)
                elif status == "succeeded" and number % 7 == 0:
                    step = engine.executions.show(id)["steps"][-1]["address"]
                    engine.executions.fork(id, from_step=step, id=f"{id}-fork")
                elif status in ("waiting", "interrupted") and number % 3 == 0:
                    changed = folder / f"{item['flow']}.yaml"
                    flow = json.loads(changed.read_text(encoding="utf-8"))
                    flow["outputs"]["more"] = 1
                    newer = folder / "newer" / changed.name
                    newer.parent.mkdir(exist_ok=True)
                    newer.write_text(json.dumps(flow, indent=1) + "\n", encoding="utf-8")
                    engine.executions.upgrade(newer, id, resume=False)
