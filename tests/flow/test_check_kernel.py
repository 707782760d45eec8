"""What the checker accepts never stalls in the kernel (F24): random flows, orders and failures."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from flowengine.errors import FlowFileError
from flowengine.flow.compile import Compiled, compile_text
from flowengine.flow.expressions import CelEvaluator
from flowengine.kernel import Graph
from flowengine.kernel.commands import Run
from flowengine.testing.simulator import Fails, Simulator

JOINS: list[Any] = [
    *[None] * 5,
    "each",
    "all",
    "all",
    "active",
    1,
    2,
    {"need": 1, "late": "cancel"},
    {"need": 2, "late": "queue"},
    {"need": 1, "late": "queue"},
]
HANDLERS = ["continue", "next", "output"]


def random_scope(draw: random.Random, names: list[str], depth: int) -> list[dict[str, Any]]:
    """Return the steps of a scope: splits, joins, handlers, cancels, groups, maps and loops."""
    steps = []
    for number, name in enumerate(names):
        step: dict[str, Any] = {"id": name, "next": random_next(draw, names, number)}
        join = draw.choice(JOINS) if number else None
        if join is not None:
            step["join"] = join
        random_action(draw, step, names, depth)
        if draw.random() < 0.15:
            handler: dict[str, Any] = {"type": draw.choice(["Odd", "TooFew"])}
            how = draw.choice(HANDLERS)
            if how == "next":
                handler["next"] = random_target(draw, names, number)
            else:
                handler["output"] = None
            step["on_error"] = "continue" if how == "continue" else [handler]
        steps.append(step)
    return steps


def random_action(draw: random.Random, step: dict[str, Any], names: list[str], depth: int) -> None:
    kind = draw.random()
    name = step["id"]
    if kind < 0.07 and depth < 2:
        inner = [f"{name}_{number}" for number in range(draw.randint(1, 4))]
        step["group"] = random_scope(draw, inner, depth + 1)
    elif kind < 0.1 and depth < 2:
        step["parallel"] = [{"id": f"{name}_l", "wait": "1s"}, task(f"{name}_r")]
    elif kind < 0.15:
        step["cancel"] = {
            "targets": [draw.choice(names)],
            "as": draw.choice(["cancelled", "succeeded"]),
        }
    elif kind < 0.2:
        step["fail"] = {"type": "Odd"}
        step["when"] = "${{ inputs.flag }}"
    elif kind < 0.3:
        step["wait"] = "1s"
    else:
        step.update(task(name))
        if draw.random() < 0.2:
            step["map"] = draw.choice([2, {"over": draw.randint(0, 2), "join": "none"}])
        elif draw.random() < 0.1:
            step["when"] = "${{ inputs.flag }}"


def task(name: str) -> dict[str, Any]:
    return {"id": name, "http": {"url": "https://example.com"}}


def random_target(draw: random.Random, names: list[str], number: int) -> str:
    """Return a target, more often one further on."""
    ahead = names[number + 1 :]
    if ahead and draw.random() < 0.8:
        return draw.choice(ahead[:3])
    return draw.choice([*names, "end", "end"] + (["end_all"] if draw.random() < 0.1 else []))


def random_next(draw: random.Random, names: list[str], number: int) -> Any:
    kind = draw.choice(["one", "one", "all", "first", "or", "mixed"])
    follows = [*names, "end"][number + 1]
    if kind == "one":
        return follows if draw.random() < 0.8 else random_target(draw, names, number)
    others = [random_target(draw, names, number) for _ in range(draw.randint(1, 2))]
    targets = list(dict.fromkeys([follows, *others]))
    chance = [
        {"when": f"${{{{ digest(execution.id, now, {index}) < '8' }}}}", "to": target}
        for index, target in enumerate(targets)
    ]
    if kind == "all" or len(targets) == 1:
        return {"all": targets}
    if kind == "mixed":
        return {"all": [targets[0], *chance[1:]]}
    return {"first" if kind == "first" else "all": [*chance[:-1], {"else": targets[-1]}]}


def accepted(draw: random.Random) -> Compiled | None:
    """Return a random flow, if the checker accepts it."""
    names = list("abcdefgh"[: draw.randint(3, 8)])
    flow = {
        "flowengine": 1,
        "id": "random",
        "inputs": {"flag": {"type": "boolean"}},
        "limits": {"activations": 12, "steps": 200},
        "steps": random_scope(draw, names, 0),
    }
    try:
        return compile_text(json.dumps(flow))
    except FlowFileError:
        return None


def play(compiled: Compiled, seed: int) -> Simulator:
    """Play a flow to its end under one schedule, with tasks that fail now and then."""
    draw = random.Random(seed)

    def result(_run: Run) -> Any:
        if draw.random() < 0.15:
            raise Fails("Odd", retryable=False)
        return {"status": 200, "headers": {}, "body": None}

    graph = Graph(compiled.flow, CelEvaluator(compiled.flow["expressions"], "random"))
    script = {step["id"]: result for step in compiled.flow["steps"]}
    return Simulator(graph, script, seed=seed).start({"flag": bool(seed % 2)}).run()


@pytest.mark.parametrize("block", range(4))
def test_no_accepted_flow_stalls(block: int) -> None:
    """Of random flows those that pass the checker end, whatever the order and the failures."""
    played = 0
    for seed in range(block * 1000, block * 1000 + 100):
        compiled = accepted(random.Random(seed))
        if compiled is None:
            continue
        played += 1
        for schedule in range(3):
            simulator = play(compiled, schedule)
            assert simulator.status in {"succeeded", "failed"}, (seed, schedule, simulator.status)
    assert played >= 5
