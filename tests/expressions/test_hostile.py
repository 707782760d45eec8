# Shows F13
"""F13: no expression reaches the interpreter, files or the network, and its cost is bounded."""

from __future__ import annotations

import builtins
import contextlib
import os
import socket
import subprocess
import time
from typing import Any

import pytest

from flowengine.flow.expressions.bounds import MAX_SIZE
from flowengine.flow.expressions.checker import check
from flowengine.flow.expressions.evaluator import CelEvaluator
from flowengine.flow.expressions.types import DeclaredNames
from flowengine.kernel.graph.compiled import EvaluationError
from tests.rows import each_row

NAMES = DeclaredNames({"properties": {"text": {"type": "string"}, "list": {}, "x": {}}})
DEEP: dict[str, Any] = {}
for _ in range(5000):
    DEEP = {"in": DEEP}
VALUES = {"text": "a" * 1_000_000, "list": list(range(3000)), "x": {"deep": DEEP, "s": "b"}}

ESCAPES = [
    "__import__('os').system('id')",
    "x.__class__.__mro__[1].__subclasses__()",
    "x.__class__",
    "x['__class__']['__init__']['__globals__']",
    "''.__class__",
    "[].__class__.__base__",
    "getattr(x, 'keys')",
    "eval('1')",
    "exec('1')",
    "compile('1', '', 'eval')",
    "globals()",
    "open('/etc/passwd')",
    "read_file('/etc/passwd')",
    "os.environ",
    "env.HOME",
    "process.env.HOME",
    "http.get('http://localhost')",
    "net.ip('127.0.0.1')",
    "uuid()",
    "random()",
    "now()",
    "time.time()",
    "lambda: 1",
    "[i for i in x]",
    "x if x else y",
    "x; y",
    "import os",
    "f'{x}'",
    "`id`",
    "$(id)",
    "${x}",
    "{{ x }}",
    "x.keys()",
    "x.items()",
    "x.pop('s')",
    "list.append(1)",
    "text.__len__()",
    "text.encode()",
    "'{0.__class__}'.format([x.s])",
    "'%(a)s'.format([x.s])",
    "'%s'.format(x)",
    "'%100000000d'.format([1])",
    "'%.100000f'.format([1.0])",
    "cel.bind(a, 1, a)",
    "google.protobuf.Any{}",
    "google.protobuf.Timestamp{seconds: 1}",
    "proto.getExt(x, y)",
    "optional.of(x)",
    "x.?s",
    "[?x]",
    "{?'a': x}",
    "type(x)",
    "dyn",
    "format_time('2026-01-01T00:00:00Z', 'HH', '../../../../etc/passwd')",
    "format_time('2026-01-01T00:00:00Z', 'HH', '/etc/localtime')",
    "timestamp('2026-01-01T00:00:00Z').getHours('../../etc/passwd')",
    "timestamp('2026-01-01T00:00:00Z').getHours('localtime')",
]
COSTLY = [
    "range(1000000000)",
    "range(1000000).map(a, range(1000000).map(b, a * b))",
    "list.map(a, list.map(b, list.map(c, 1)))",
    "list.map(a, list)",
    "list.map(a, list.map(b, list))",
    "list.all(a, list.exists(b, b == a + 1 || b == a))",
    "list.filter(a, list.filter(b, b > a).size() > 1).size() > 0",
    "json(range(1000).map(a, range(900).map(b, list)))",
    "list.exists(a, range(1000000).exists(b, b < 0)) || true",
    "list.map(a, a in list.map(b, b))",
    "text.replace('a', text)",
    "text.replace('', text)",
    "list.map(a, text).join(text)",
    "list.map(a, text + text)",
    "list.map(a, text).map(a, a + a)",
    "range(1000).map(a, text.split('')).size()",
    "range(100000).map(a, sum(list))",
    "range(100000).map(a, json(x))",
    "range(100000).exists(a, text.contains('b'))",
    "x.deep == x.deep ? json(x) : ''",
    "digest(x)",
    "[x, x].map(a, a)",
    "text.matches('(a{1000}){1000}')",
    "text.matches('(')",
    "parse_json(text)",
    "parse_json(range(5).map(a, text.replace('a', '[')).join())",
    "text.split('').map(c, text)",
    "9223372036854775807 * 9223372036854775807",
    "int(1e300)",
    "double(text.replace('a', '1') + 'x')",
    "int(text.replace('a', '1'))",
    "'%s'.format([range(1000000).map(a, [a, a])]).format([1])",
    "list.map(a, '%s%s'.format([text, text]))",
    "text.replace('a', '%s').format(list.map(a, text))",
    "duration('' + '99999999999999h')",
    "timestamp('' + '99999-01-01T00:00:00Z')",
]
GROWING: list[tuple[str, list[Any]]] = [
    ("x + x", ["ab", b"ab", [1]]),
    ("[x, x]", ["ab", 1]),
    ("{'a': x, 'b': x}", [b"ab"]),
    ("{'a' + string(size(x)): x, 'b' + string(size(x)): x}", ["ab"]),
    ("true ? [x, x] : []", ["ab"]),
    ("default(null, [x, x])", [{}]),
    ("flatten([x, x])", [[1]]),
    ("entries({'a': x, 'b': x})", [1]),
    ("values({'a': x, 'b': x})", ["ab"]),
    ("range(2).map(i, x)", ["ab"]),
    ("[x, x].filter(y, true)", [[]]),
    ("[x, x].join()", ["ab"]),
    ("x.replace('a', 'aa')", ["ab"]),
    ("'%s%s'.format([x, x])", ["ab"]),
    ("'%s'.format([[x, x]])", ["ab"]),
    ("'%X'.format([x])", ["ab"]),
    ("strings.quote(x)", ['"']),
    ("json(x)", ['"']),
    ("json([x, x])", ["ab"]),
]
"""Expressions whose values grow, and the values that they begin with."""
BOUNDED = [
    "text.matches('(a+)+$')",
    "text.matches('(a|aa)+$')",
    "text.matches('^(([a-z])+.)+[A-Z]([a-z])+$')",
    "text.matches('a?' + 'a')",
    "size(text + text + text + text)",
    "text.split('').size()",
    "list.filter(a, a > 2990).map(a, list.filter(b, b == a)[0])",
    "sum(list.map(a, a * a))",
    "x.deep != null",
]


@pytest.fixture(autouse=True)
def _nothing_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any access beyond the evaluation fails the test."""
    for source in (
        "text + 'a'",
        "text.matches('a')",
        "timestamp('2026-01-01T00:00:00Z').getHours('Europe/Paris')",
    ):
        run(source)  # so that later runs load nothing

    def refuse(*args: Any, **kwargs: Any) -> Any:
        pytest.fail(f"reached out: {args} {kwargs}")

    for place, name in [
        (builtins, "open"), (builtins, "exec"), (builtins, "eval"), (os, "system"),
        (os, "open"), (subprocess, "Popen"), (socket, "socket"), (time, "time"),
    ]:  # fmt: skip
        monkeypatch.setattr(place, name, refuse)


def run(source: str) -> Any:
    checked = check(source, NAMES)
    problems = [problem for problem in checked.problems if not problem.warning]
    if problems:
        return problems
    return CelEvaluator([checked.record], "f").evaluate(0, VALUES)


@each_row("source", ESCAPES)
def test_nothing_outside_is_reached(source: str) -> None:
    try:
        found = run(source)
    except EvaluationError:
        return
    assert found in ("{0.__class__}", "%(a)s") or found[0].code in {"E301", "E302", "E311"}


@pytest.mark.endurance
@pytest.mark.parametrize("source", COSTLY)
def test_what_costs_too_much_is_refused_soon(source: str) -> None:
    start = time.process_time()
    with pytest.raises(EvaluationError):
        run(source)
    assert time.process_time() - start < 10


@pytest.mark.endurance
@pytest.mark.parametrize(("source", "start"), [(s, v) for s, values in GROWING for v in values])
def test_no_value_grows_without_bound(source: str, start: Any) -> None:
    """An expression over its own last value, as in a loop that sets state."""
    evaluator = CelEvaluator([check(source, NAMES).record], "f")

    def grow(value: Any) -> None:
        for _ in range(40):
            value = evaluator.evaluate(0, {"x": value})
            assert not isinstance(value, (str, bytes)) or len(value) <= MAX_SIZE

    begun = time.process_time()
    with pytest.raises(EvaluationError, match=r"Compute (it|this) in a tool"):
        grow(start)
    assert time.process_time() - begun < 10


@each_row("source", BOUNDED)
def test_cost_is_linear(source: str) -> None:
    start = time.process_time()
    assert run(source) is not None
    assert time.process_time() - start < 5


def test_a_corpus_of_noise_never_crashes() -> None:
    """Fragments of working expressions, and all pairs of tokens, are an error or a value."""
    seeds = [
        "default(x.s, 'a') + string(list[0]) == r'\\d' ? {'a': [1, 2.5e3]} : null",
        "list.filter(a, a in [1, 2] && !(a > 1)).map(a, -a)[0] % 2",
        'has(x.deep.in) || text.matches("(a|b)+") // end',
    ]
    tokens = ["x", "list", "text", "1", "'a'", "+", "-", "!", "(", ")", "[", "]", "{", "}", "."]
    tokens += [",", ":", "?", "&&", "==", "in", "null", "map", "has", "default", "\u202e", "\0"]
    cuts = [
        seed[start:end]
        for seed in seeds
        for start in range(0, len(seed), 7)
        for end in range(start + 1, len(seed) + 1, 5)
    ]
    pairs = [f"{a} {b} {c}" for a in tokens for b in tokens for c in ("", "x", ")")]
    for source in cuts + pairs:
        with contextlib.suppress(EvaluationError):
            run(source)
