"""What an expression costs, here and in Google's implementation of CEL in C++."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from cel_expr_python import cel  # type: ignore[import-untyped]
from cel_expr_python.ext import ext_strings  # type: ignore[import-untyped]

from flowengine.flow.expressions.checker import check
from flowengine.flow.expressions.evaluator import CelEvaluator
from flowengine.flow.expressions.types import DeclaredNames

TEXTS = (
    "n + 1",
    "name != 'x'",
    "'Hello, ' + name + '!'",
    "n >= 1 && name != 'x' && !(open == false)",
    "double(n) * 1.5 > 3.0 ? 'many' : 'few'",
    "name.lowerAscii().startsWith('a')",
    "name.matches('^[A-Z][a-z]+$')",
)
VALUES: dict[str, Any] = {"n": 3, "name": "Ada", "open": True}
_TYPES = {"n": "integer", "name": "string", "open": "boolean"}
_FRESH = """\
import json, sys
from flowengine.flow.expressions.evaluator import CelEvaluator
records, values = json.loads(sys.stdin.read())
CelEvaluator(records, "flow").evaluate(0, values)
"""


def record(text: str) -> dict[str, Any]:
    """Return the record of an expression."""
    names = DeclaredNames({"properties": {name: {"type": word} for name, word in _TYPES.items()}})
    return check(text, names).record


def here(text: str) -> Callable[[], Any]:
    """Return a function that evaluates an expression."""
    evaluator = CelEvaluator([record(text)], "flow")
    return lambda: evaluator.evaluate(0, VALUES)


def there(text: str) -> Callable[[], Any]:
    """Return a function that evaluates an expression in C++."""
    variables = {"n": cel.Type.INT, "name": cel.Type.STRING, "open": cel.Type.BOOL}
    compiled = cel.NewEnv(variables=variables, extensions=[ext_strings.ExtStrings()]).compile(text)
    return lambda: compiled.eval(data=VALUES).plain_value()


def each(evaluate: Callable[[], Any], times: int) -> float:
    """Return the seconds that one evaluation takes."""
    evaluate()
    began = time.process_time()
    for _ in range(times):
        evaluate()
    return (time.process_time() - began) / times


def fresh(text: str) -> float:
    """Return the processor time of a process that evaluates one expression."""
    given = json.dumps([[record(text)], VALUES])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", _FRESH], input=given, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
