"""Replays recorded executions. Imports only modules of the kernel, for any version of Python.

    python -m tests.kernel.replaying record FOLDER    # run the patterns, and record them
    python -m tests.kernel.replaying FOLDER...        # compare the replayed states

A record is `{flow, events, states}`: a compiled flow, the events of one execution, and the digest
of the state after every tenth event and the last. `scripts/replay.sh` runs both commands.
"""

from __future__ import annotations

import json
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

from flowengine.flow.expressions.evaluator import CelEvaluator
from flowengine.journal.encoding import pack
from flowengine.kernel import Graph, advance, new_state

PATTERNS = Path(__file__).parents[2] / "examples" / "patterns"
SCHEDULES = 4
"""Orders per pattern."""


def digests(recorded: dict[str, Any]) -> list[str]:
    """Return the digests of the states after the events of a record."""
    flow = recorded["flow"]
    graph = Graph(flow, CelEvaluator(flow["expressions"], flow["id"]))
    state = new_state()
    found = []
    for number, event in enumerate(recorded["events"], 1):
        advance(graph, state, event)
        if number % 10 == 0 or number == len(recorded["events"]):
            found.append(sha256(pack(state)).hexdigest())
    return found


def differing(folder: Path) -> tuple[list[str], int]:
    """Return the names of records with other states, and the number of all records."""
    records = [(path.stem, json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]
    return [name for name, one in records if digests(one) != one["states"]], len(records)


def record_patterns(folder: Path) -> None:
    """Run each pattern in some orders with all possible external events, and record it."""
    for path in sorted(PATTERNS.glob("[0-9][0-9]-*.yaml")):
        for seed in range(SCHEDULES):
            recorded = record(path, seed)
            recorded["states"] = digests(recorded)
            (folder / f"{path.stem}-{seed}.json").write_text(json.dumps(recorded))


def record(path: Path, seed: int) -> dict[str, Any]:
    """Run a pattern with all possible external events in the order of a seed, and record it."""
    from flowengine.flow.compile import compile_file
    from tests.simulation.explorer import anything
    from tests.simulation.simulator import Simulator

    flow = compile_file(path).flow
    graph = Graph(flow, CelEvaluator(flow["expressions"], flow["id"]))
    played = Simulator(graph, seed=seed, outside=[anything()])
    played.start({name: schema["default"] for name, schema in flow["inputs"].items()}).run()
    return json.loads(json.dumps({"flow": flow, "events": played.journal}))  # type: ignore[no-any-return]


if __name__ == "__main__":
    if sys.argv[1] == "record":
        record_patterns(Path(sys.argv[2]))
        raise SystemExit(0)
    failed = False
    for name in sys.argv[1:]:
        wrong, number = differing(Path(name))
        failed = failed or bool(wrong) or not number
        told = f"other states: {', '.join(wrong)}" if wrong else "the same bytes"
        sys.stdout.write(f"Python {sys.version.split()[0]}: {number} executions, {told}\n")
    raise SystemExit(failed)
