"""What a condition costs that is decided without the CEL library, and by it."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from typing import Any
from unittest import mock

from flowengine.flow.expressions import DeclaredNames, check, checker, conditions
from flowengine.flow.expressions.program import build
from flowengine.flow.expressions.scope import Run

TEXTS = (
    "inputs.name != 'x'",
    "steps.ask.output.choice == 'approve'",
    "inputs.n >= 1 && inputs.name != 'x' && !(state.open == false)",
)
NAMES = DeclaredNames(
    {
        "properties": {
            "inputs": {"properties": {"n": {"type": "integer"}, "name": {"type": "string"}}},
            "state": {"properties": {"open": {"type": "boolean"}}},
            "steps": {"properties": {"ask": {"properties": {"output": {
                "properties": {"choice": {"type": "string"}}}}}}},
        }
    }
)  # fmt: skip
VALUES: Any = {
    "inputs": {"n": 3, "name": "Ada"},
    "state": {"open": True},
    "steps": {"ask": {"output": {"choice": "approve"}}},
}
FRESH = """\
import json, sys
from flowengine.flow.expressions import CelEvaluator
records, values = json.loads(sys.stdin.read())
assert CelEvaluator(records, "flow").evaluate(0, values) is True
"""


def records(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the record of a condition as it is, and as one that only the library evaluates."""
    plain = check(text, NAMES, want="bool")
    without = mock.patch.object(conditions, "lower", return_value=None)
    unknown = mock.patch.dict(checker._known, clear=True)  # which `check` would return again
    with without, unknown:
        by_library = check(text, NAMES, want="bool")
    assert plain.record["node"][0] != "cel"
    assert by_library.record["node"][0] == "cel"
    return plain.record, by_library.record


def each(record: dict[str, Any], times: int) -> float:
    """Return the seconds that one evaluation takes."""
    run: Run = build(record["node"])
    assert run(VALUES) is True
    began = time.process_time()
    for _ in range(times):
        run(VALUES)
    return (time.process_time() - began) / times


def fresh(record: dict[str, Any]) -> float:
    """Return the processor time of a process that decides one condition."""
    given = json.dumps([[record], VALUES])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", FRESH], input=given, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
