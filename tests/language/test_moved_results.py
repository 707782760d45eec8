# Shows F75
"""Random pairs of flows: a moved execution has every result that the new flow relies on.

The oracle plays both flows on from the moment of the move. If the old one never lacks a value, the
new one does not either. Every proposal, followed to its end, leads to a mapping that is accepted.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest

from flowengine.engines.interventions.upgrading import move_obstacles, with_tried_proposals
from flowengine.kernel import ENDED, Graph
from tests.language.stage import Stage
from tests.language.test_moving import play_to, ran
from tests.simulation.simulator import Simulator, unpacked

Node = dict[str, Any]
"""A step: `id`, `kind` (`act`, `out`, `wait`, `group`, `branch`, `fork`), its `key`, the steps that
it `reads`, and the lists of steps in it."""


class Author:
    """Draws flows whose steps rely on results that are always there, and changes to them."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.count = 0

    def flow(self) -> list[Node]:
        """Return the steps of a flow. The last one represents its outputs."""
        return [*self.steps(self.draw.randint(3, 5), 0), {**self.leaf(), "kind": "out"}]

    def steps(self, length: int, depth: int) -> list[Node]:
        return [self.node(depth) for _ in range(length)]

    def node(self, depth: int) -> Node:
        if depth < 2 and self.draw.random() < 0.25:
            kind = self.draw.choice(["group", "branch", "fork"])
            lists = [self.steps(self.draw.randint(1, 2), depth + 1) for _ in range(2)]
            return {**self.leaf(), "kind": kind, "lists": lists[: 1 if kind == "group" else 2]}
        return self.leaf()

    def leaf(self) -> Node:
        self.count += 1
        kind = self.draw.choice(["act", "act", "out", "wait"])
        reads = [(self.draw.random(), self.draw.random() < 0.3) for _ in range(2)]
        return {"id": f"s{self.count}", "kind": kind, "key": "v", "lists": [], "reads": reads,
                "when": self.draw.random() < 0.15}  # fmt: skip

    def changed(self, flow: list[Node]) -> tuple[list[Node], dict[str, str]]:
        """Return a changed flow, and the renamed steps."""
        flow = copy.deepcopy(flow)
        names: dict[str, str] = {}
        for _ in range(self.draw.randint(1, 3)):
            among = self.draw.choice([flow, *lists_in(flow)])
            at = self.draw.randrange(len(among))
            how = self.draw.choice(["rename", "insert", "remove", "swap", "read", "key", "when",
                                    "kind", "arm"])  # fmt: skip
            node = among[at]
            if how == "rename":
                names[node["id"]] = node["id"] = f"{node['id']}x"
                names = {old: new for old, new in names.items() if old != new}
            elif how == "insert":
                among.insert(at, self.leaf())
            elif how == "arm" and node["kind"] == "fork":
                node["lists"].append([self.leaf()])
            elif how == "remove" and len(among) > 1 and at + 1 < len(among):
                del among[at]
            elif how == "swap" and at + 2 < len(among):
                among[at], among[at + 1] = among[at + 1], node
            elif how == "read":
                node["reads"] = [(self.draw.random(), self.draw.random() < 0.3)]
            elif how == "key":
                node["key"] = "w"
            elif how == "when":
                node["when"] = not node["when"]
            elif how == "kind" and not node["lists"]:
                node["kind"] = self.draw.choice(["act", "out", "wait"])
        return flow, names


def lists_in(steps: list[Node]) -> Iterator[list[Node]]:
    for node in steps:
        for inner in node["lists"]:
            yield inner
            yield from lists_in(inner)


class Seen(NamedTuple):
    """Steps before a place, with the keys of their results."""

    sure: dict[str, str]
    maybe: dict[str, str]


def written(flow: list[Node]) -> dict[str, Any]:
    """Return a flow as data. Each step reads only results that are there, or by `default`."""
    seen = Seen({}, {})
    steps = _written(flow[:-1], seen)
    return {
        "inputs": {name: {"type": "boolean"} for name in "pqr"},
        "defaults": {"effect": "idempotent"},
        "steps": steps,
        "outputs": {"all": {"value": _value(flow[-1], seen)}},
    }


def _written(nodes: list[Node], seen: Seen, then: str = "end") -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    for place, node in enumerate(nodes):
        after = nodes[place + 1]["id"] if place + 1 < len(nodes) else then
        step: dict[str, Any] = {"id": node["id"], "next": after}
        inner: list[dict[str, Any]] = []
        if node["kind"] in ("branch", "fork"):
            seens = [Seen({**seen.sure}, {**seen.maybe}) for _ in node["lists"]]
            end = f"{node['id']}e"
            for arm, inside in zip(node["lists"], seens, strict=True):
                inner += _written(arm, inside, end)
                passed = seen.sure if node["kind"] == "fork" else seen.maybe
                passed.update({n: k for n, k in inside.sure.items() if n not in seen.sure})
                seen.maybe.update(inside.maybe)
            arms = [arm[0]["id"] for arm in node["lists"]]
            ways: Any = [{"when": "${{ inputs.q }}", "to": arms[0]}, {"else": arms[1]}]
            step["next"] = {"all": arms} if node["kind"] == "fork" else {"first": ways}
            step["output"] = 0
            join = {"join": "all"} if node["kind"] == "fork" else {}
            does: dict[str, Any] = {"output": 0}
            if node["reads"][0][1]:  # it can be running when the flow changes
                does = {"python": "tools:act", "with": {"value": 0}, "retry": {"attempts": 2}}
            steps += [step, *inner, {"id": end, **join, **does, "next": after}]
            continue
        if node["when"]:
            step["when"] = "${{ inputs.p }}"
        if node["kind"] == "group":
            inside = Seen({**seen.sure}, {**seen.maybe})
            step["group"] = _written(node["lists"][0], inside)
            step["output"] = _value(node, seen)
        elif node["kind"] == "act":
            step |= {"python": "tools:act", "with": {"value": _value(node, seen)}}
        elif node["kind"] == "out":
            step["output"] = _value(node, seen)
        else:
            step["wait"] = "1s"
        if node["kind"] != "wait":
            (seen.maybe if node["when"] else seen.sure)[node["id"]] = node["key"]
        steps.append(step)
    return steps


def _value(node: Node, seen: Seen) -> dict[str, Any]:
    value: dict[str, Any] = {node["key"]: 1}
    for number, (which, by_default) in enumerate(node["reads"]):
        known = {**seen.sure, **seen.maybe} if by_default else seen.sure
        if known:
            name, key = list(known.items())[int(which * len(known))]
            path = f"steps.{name}.output.{key}"
            read = f"default({path}, 0)" if by_default else f"{path} + 1"
            value[f"r{number}"] = f"${{{{ {read} }}}}"
    return value


def lacks_a_value(simulator: Simulator) -> bool:
    """Return whether an expression of an execution had no value."""
    errors = [seen.error for seen in simulator.observations] + [simulator.error]
    while errors:
        error = errors.pop()
        if error is not None:
            if error["type"] == "ExpressionError":
                return True
            errors.append(error.get("cause"))
    return False


def followed(
    check: Callable[[dict[str, Any]], list[Any]], mapping: dict[str, Any], draw: random.Random
) -> dict[str, Any]:
    """Return a mapping with all entries that are proposed, each one drawn from those that fit."""
    for _ in range(20):
        found = check(mapping)
        if not found:
            return mapping
        assert all(one.write is not None and one.fits for one in found), (mapping, found)
        one = draw.choice(found)
        names = dict.fromkeys(one.write["steps"], draw.choice(one.fits))
        mapping = {"steps": {**mapping.get("steps", {}), **names}}
    raise AssertionError(f"proposals without an end: {mapping}")


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(10))
def test_a_moved_execution_never_lacks_a_result(stage: Stage, block: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(block * 1000, block * 1000 + 15):
        draw = random.Random(seed)
        author = Author(draw)
        flow = author.flow()
        for _ in range(4 if _is_sound(stage, flow) else 0):
            changed, names = author.changed(flow)
            inputs = {name: draw.random() < 0.5 for name in "pqr"}
            played = partial(_played, stage, written(flow), written(changed), draw.random(),
                             draw.randint(0, 5), inputs)  # fmt: skip
            if _is_sound(stage, changed):
                for mapping in mappings(draw, names, written(flow), written(changed)):
                    simulator, new = played()
                    counts[_try(simulator, played, new, mapping, draw, (seed, mapping))] += 1
    assert counts["moved"] > 30, counts
    assert counts["proposed"] > 1, counts
    assert counts["refused lacking"] > 5, counts


def _is_sound(stage: Stage, flow: list[Node]) -> bool:
    """Return whether the checker promises every result that a flow relies on."""
    compiled = stage.compiled_if_accepted(written(flow))
    return compiled is not None and not compiled.diagnostics


def _played(
    stage: Stage, old: Any, new: Any, order: float, moments: int, inputs: dict[str, bool]
) -> tuple[Simulator, Graph]:
    """Play a flow for a number of events, and return it with the graph of a changed one."""
    simulator, other = stage.simulator(old, seed=hash(order)), stage.simulator(new)
    simulator.script = {name: {"v": 1, "w": 1} for name in (*simulator.script, *other.script)}
    play_to(simulator.start(inputs), moments)
    return simulator, other.graph


def mappings(draw: random.Random, names: dict[str, str], old: Any, new: Any) -> list[Any]:
    """Return no mapping, the one that the author means, and two random ones."""
    drawn = [
        {draw.choice(old["steps"])["id"]: draw.choice(new["steps"])["id"] for _ in range(size)}
        for size in (1, 2)
    ]
    return [{}, *({"steps": part} for part in (names, *drawn) if part)]


def _try(
    simulator: Simulator,
    again: Callable[[], tuple[Simulator, Graph]],
    new: Graph,
    mapping: dict[str, Any],
    draw: random.Random,
    where: Any,
) -> str:
    """Move an execution if that is permitted, and return what has happened."""
    if simulator.status in ENDED:
        return "ended"
    old, state, before, over = (
        simulator.graph,
        simulator.state,
        unpacked(simulator.state),
        ran(simulator),
    )

    def check(mapping: dict[str, Any]) -> list[Any]:
        return with_tried_proposals(old, new, state, mapping, over)

    found = check(mapping)
    assert unpacked(state) == before, where
    if any(one.write is None for one in found):
        return "refused " + _forced(simulator, new, mapping)
    accepted = followed(check, mapping, draw)
    assert not move_obstacles(old, new, state, accepted, over), where
    simulator.upgrade(new, accepted)
    simulator.run(5000)
    if lacks_a_value(simulator):
        assert lacks_a_value(again()[0].run(5000)), (where, accepted, simulator.error)
        return "lacked before"
    assert simulator.status == "succeeded", (where, simulator.status)
    return "proposed" if found else "moved"


def _forced(simulator: Simulator, new: Graph, mapping: dict[str, Any]) -> str:
    """Return what becomes of an execution that is moved although it should not be."""
    try:
        simulator.upgrade(new, mapping)
        simulator.run(5000)
    except Exception:
        return "impossible"
    return "lacking" if lacks_a_value(simulator) else "in vain"
