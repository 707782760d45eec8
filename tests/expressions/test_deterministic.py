# Shows F25
"""F25: an expression yields the same bytes for every hash seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

SOURCES = [
    "x",
    "keys(x)",
    "values(x)",
    "entries(x)",
    "merge(x, {'zz': 1, 'aa': 2})",
    "{'q': 1, 'b': {'z': 1, 'y': 2}, 'a': x}",
    "{'q': 1, 'b': {'z': 1, 'y': 2}}.b",
    "dyn({'q': 1, 'b': {'z': 1, 'y': 2}})",
    "[dyn(x), dyn([x])]",
    "(true ? dyn(x) : x)",
    "json(x)",
    "digest(x, keys(x))",
    "'%s'.format([x])",
    "unique([x, {'b': 1}, {'b': 1.0}, 'b', 'a', 'b'])",
    "keys(x).map(k, {'k': k, 'v': x[k]})",
    "entries(x).filter(e, e.key != 'b').map(e, e.key + string(e.value))",
    "sort(keys(x).map(k, k + k))",
    "x == {'c': 3, 'b': 2, 'a': 1}",
]

CODE = """
import json, sys
import msgpack
from flowengine.flow.expressions.evaluator import CelEvaluator
from flowengine.flow.expressions.types import DeclaredNames
from flowengine.flow.expressions.checker import check
x = {"c": 3, "b": 2, "a": 1, **{f"key{n}": n for n in range(50)}}
names = DeclaredNames({"properties": {"x": {}}})
found = []
for source in json.load(sys.stdin):
    checked = check(source, names)
    assert not checked.problems, checked.problems
    value = CelEvaluator([checked.record], "f").evaluate(0, {"x": x})
    found.append(msgpack.packb([checked.record, checked.schema, value]).hex())
wrong = [check(s, names).problems for s in ("y.a", "x.map(k, k) + 1", "kees(x)", "x +")]
print(json.dumps([found, wrong]))
"""


def run(seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        input=json.dumps(SOURCES),
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.endurance
def test_same_records_values_and_problems_under_every_hash_seed() -> None:
    first = run("0")
    for seed in ("1", "42", "4711", "random"):
        assert run(seed) == first
