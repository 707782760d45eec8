"""What views of long executions cost: `python -m benchmarks.views [STEPS]`.

Processor time of a server that has shown nothing yet, from the request to the page, for executions
of several shapes with so many steps. The targets are 0.3 s for a view and 1 s for a comparison.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from flowengine import Engine
from flowengine.agents.models.registry import using
from flowengine.agents.models.scripted import ScriptedModel
from tests.server.api import Api
from tests.server.test_page import Browser

_SUM = "tools:\n  one: {python: 'view_tools:one', args: {type: object}, effect: pure}\n"
_MODULE = '''\
import os

from flowengine import quick


@quick
def one(n: int) -> dict:
    """Return a record. The odd one fails while there is a file."""
    if n == 7 and os.path.exists("fail"):
        raise ValueError("seven")
    return {"n": n, "text": f"number {n} {os.path.exists('changed')}"}
'''
_CALL = "call: one, with: {n: '${{ item_index }}'}"


class Shape(NamedTuple):
    """A form of an execution, and how it is written for a number of steps."""

    name: str
    steps: Callable[[int], str]
    most: int = 10**9
    """Steps of the largest one that can be made."""
    then: str = ""
    """What becomes of it: `retry`, `fork`, `upgrade`, `change` of all results, or `turns` of an
    agent."""


def _chain(steps: int) -> str:
    rows = (f"  - {{id: s{n}, call: one, with: {{n: {n}}}}}\n" for n in range(steps))
    return f"steps:\n{''.join(rows)}"


def _loop(steps: int) -> str:
    loop = f"loop: {{until: '${{{{ round.number >= {steps} }}}}', max: 1000000}}"
    return f"steps:\n  - {{id: again, call: one, with: {{n: '${{{{ round.number }}}}'}}, {loop}}}\n"


def _map(steps: int) -> str:
    return (
        f"steps:\n  - {{id: each, map: {{over: {steps}, concurrency: 100}}, call: one, "
        "with: {n: '${{ item }}'}}\n"
    )


def _groups(steps: int) -> str:
    return (
        f"steps:\n  - id: each\n    map: {{over: {steps // 3}, concurrency: 100}}\n    group:\n"
        "      - {id: a, call: one, with: {n: '${{ item }}'}}\n"
        "      - {id: b, call: one, with: {n: '${{ item }}'}}\n"
    )


def _nested(steps: int) -> str:
    return (
        f"steps:\n  - id: each\n    map: {{over: {steps // 102}, concurrency: 10}}\n    group:\n"
        "      - id: inner\n        map: {over: 100, concurrency: 10}\n        call: one\n"
        "        with: {n: '${{ item }}'}\n"
    )


def _subflows(steps: int) -> str:
    return (
        "flows:\n  inner:\n    inputs: {n: {type: integer}}\n    steps:\n"
        "      - {id: a, call: one, with: {n: '${{ inputs.n }}'}}\n"
        f"steps:\n  - {{id: each, map: {{over: {steps // 2}, concurrency: 100}}, flow: inner, "
        "with: {n: '${{ item }}'}}\n"
    )


def _asked_map(steps: int) -> str:
    return f"{_map(steps)}  - {{id: ask, approval: Fine?}}\n"


def _agent(steps: int) -> str:
    return (
        "steps:\n  - id: ask\n    with: {prompt: Go on.}\n"
        f"    agent: {{model: double/any, tools: [one], max_turns: {steps}}}\n"
    )


SHAPES = (
    Shape("chain", _chain, 2000),
    Shape("loop", _loop),
    Shape("map", _map),
    Shape("map of groups", _groups),
    Shape("nested maps", _nested),
    Shape("subflows", _subflows),
    Shape("retried", _map, then="retry"),
    Shape("forked", _groups, then="fork"),
    Shape("upgraded", _asked_map, then="upgrade"),
    Shape("changed", _map, then="change"),
    Shape("200 turns", _agent, 401, "turns"),
)


def made(folder: Path, shape: Shape, steps: int) -> tuple[str, str]:
    """Return two executions of a shape, of which the second one may come from the first."""
    (folder / "view_tools.py").write_text(_MODULE)
    path = folder / "flow.yaml"
    written = shape.steps(min(steps, shape.most))
    path.write_text(f"flowengine: 1\nid: long\nlimits: {{steps: 1000000}}\n{_SUM}{written}")
    fails, changed = Path("fail"), Path("changed")
    calls = [{"name": "one", "arguments": {"n": 1}}]
    replies: list[Any] = [*[{"calls": calls}] * 200, {"text": "Done."}]
    with (
        using(ScriptedModel([*replies, *replies])),
        Engine(folder / "store", durability="none", user="user:owner") as engine,
    ):
        first = engine.run(path).execution
        if shape.then == "fork":
            middle = engine.executions.folds(first)[1].level("each", steps // 6).rows[0]
            return first, engine.executions.fork(first, from_step=f"{middle.address}/b").execution
        if shape.then == "retry":
            fails.touch()
            failed = engine.run(path).execution
            fails.unlink()
            return first, engine.executions.retry(failed).execution
        if shape.then == "upgrade":
            path.write_text(path.read_text().replace("Fine?", "Good?"))
            engine.executions.upgrade(engine.load(path), first)
            return engine.run(path).execution, first
        if shape.then == "change":
            changed.touch()
        second = engine.run(path).execution
        changed.unlink(missing_ok=True)
        return first, second


def measured(folder: Path, first: str, second: str) -> dict[str, float]:
    """Return view → seconds of processor time on a fresh server, the least of three."""
    with Engine(folder / "store", durability="none", user="user:owner") as engine:
        count = engine.executions.folds(second, until=10**9)[0]["entries"]
    own = f"/executions/{second}"
    paths = {
        "first": own,
        "again": own,
        "timeline": f"{own}/timeline",
        "jump": f"{own}/history?event={count // 2}",
        "events": f"{own}/events?from_seq={count // 2}",
        "diff": f"{own}/compare?with={first}",
    }
    found = dict[str, float]()
    for _ in range(3):
        engine = Engine(folder / "store", durability="none", user="user:owner")
        api = Api(folder, (), engine)
        browser = Browser(api)
        for view, path in paths.items():
            began = time.process_time()
            answer = browser("GET", path)
            took = time.process_time() - began
            assert answer.status_code == 200, (answer.status_code, answer.text[:2000])
            found[view] = min(found.get(view, took), took)
        api.close()
    return found


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 6000
    only = sys.argv[2:]
    head = ""
    for shape in SHAPES:
        if only and shape.name not in only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = measured(Path(folder), *made(Path(folder), shape, steps))
        if not head:
            head = "  ".join(f"{view:>8}" for view in found)
            print(f"{'':16}{head}")
        print(f"{shape.name:16}" + "  ".join(f"{took:8.3f}" for took in found.values()), flush=True)


if __name__ == "__main__":
    main()
