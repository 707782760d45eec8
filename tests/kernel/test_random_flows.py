"""Random flows under random schedules: the invariants hold whatever is drawn.

The simulator checks the invariants after every event. Here, besides: the journal gives the same
bytes when it is replayed, and nothing is lost or repeated by crashes in between.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from flowengine.journal.format import pack
from flowengine.kernel import ENDED, Graph
from flowengine.testing.graphs import Described, graph, step, v, x
from flowengine.testing.simulator import Fails, Simulator

FLOWS = 1200
NAMES = ["item", "index", "key"]


class Drawn:
    """A random flow; conditions are drawn once, by the number of their evaluation's event."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = 0
        self.flow = self.draw_flow()

    def draw_flow(self) -> Graph:
        steps = self.body(depth=2)
        on_error: list[Described] = []
        if self.random.random() < 0.3:
            on_error = [{"compensate": True, "do": "raise"}]
        final = self.body(depth=1) if self.random.random() < 0.3 else None
        return graph(
            *steps,
            on_error=on_error,
            finally_=final,
            state={"k": {"default": 0, "reducer": "add"}, "open": {"default": False}},
            signals={"s": {}},
            limits={"activations": 8, "steps": 150},
        )

    def name(self) -> str:
        self.count += 1
        return f"s{self.count}"

    def body(self, depth: int) -> list[Described]:
        names = [self.name() for _ in range(self.random.randint(1, 5))]
        steps = [self.step(name, names, depth) for name in names]
        return steps

    def condition(self) -> Any:
        number = self.random.randrange(1000)
        return lambda names: (names["state"]["k"] + number) % 3 != 0

    def step(self, name: str, names: list[str], depth: int) -> Described:
        keys: Described = {"join": self.join(), "next": self.next(names)}
        self.action(keys, depth, names)
        draw = self.random.random
        keys["emit"] = [{"signal": "s", "data": v(1)}] * self.random.choice([0, 0, 0, 0, 0, 1, 2])
        if draw() < 0.1:
            keys["when"] = x(self.condition())
        if draw() < 0.15:
            keys["map"] = self.map()
        elif draw() < 0.1:
            test = self.random.choice(["until", "before"])
            keys["loop"] = {test: x(self.condition()), "max": v(self.random.randint(1, 3))}
            if draw() < 0.5:
                keys["loop"]["keep"] = True
        if draw() < 0.15:
            keys["retry"] = {"attempts": 2}
        if draw() < 0.2:
            keys["lock"] = self.lock()
        if draw() < 0.1:
            keys["timeout"] = v("10s")
        if draw() < 0.1:
            keys["deadline"] = v("5m")
        if draw() < 0.2 and "map" not in keys:
            keys["set"] = [["k", v(1)]]
        if draw() < 0.3:
            keys["on_error"] = [self.handler(names)]
        if draw() < 0.25 and keys.get("action") in (None, "task"):
            keys["undo"] = f"undo_{name}"
        return step(name, **keys)

    def lock(self) -> Described:
        computed = x(lambda names: "k" if names["state"]["k"] % 2 else "other")
        key = self.random.choice(["k", "other", computed])
        return {"key": v(key), "permits": 1, "hold": self.random.random() < 0.5}

    def join(self) -> Any:
        kinds: list[Any] = ["each", "each", "each", "all", "active", "active", 1, 2]
        kinds += [{"need": self.random.randint(1, 3), "late": late} for late in ("cancel", "queue")]
        return self.random.choice(kinds)

    def next(self, names: list[str]) -> Any:
        targets = [*names, "end", "end", "end"]
        if self.random.random() < 0.05:
            targets.append("end_all")
        pick = self.random.choice
        kind = self.random.random()
        if kind < 0.5:
            return pick(targets)
        several = list(dict.fromkeys(pick(targets) for _ in range(self.random.randint(1, 3))))
        if kind < 0.75:
            return {"all": several}
        ways = [(self.condition(), name) for name in several]
        return {"first": [*ways, ("else", pick(targets))]}

    def map(self) -> Described:
        spec: Described = {"over": v(self.random.randint(0, 4)), "names": NAMES}
        spec["concurrency"] = v(self.random.randint(1, 3))
        spec["on_item_error"] = self.random.choice(["stop", "wait", "continue"])
        if self.random.random() < 0.3:
            spec["each"] = True
        elif self.random.random() < 0.4:
            spec["need"] = v(self.random.randint(1, 3))
            spec["late"] = self.random.choice(["ignore", "cancel"])
            if self.random.random() < 0.4:
                spec["need"] = v(x(lambda names: names["state"]["k"] % 3 + 1))
                spec["watches"] = ["k"]
        if self.random.random() < 0.3:
            spec["more"] = "s"
        return spec

    def action(self, keys: Described, depth: int, names: list[str]) -> None:
        kind = self.random.random()
        if kind < 0.35:
            keys["effect"] = self.random.choice(["pure", "idempotent", "once"])
        elif kind < 0.45:
            keys["action"] = "none"
        elif kind < 0.65 and depth:
            word = self.random.choice(["group", "parallel"])
            keys[word] = self.body(depth - 1)
            if self.random.random() < 0.4:
                keys["finally_"] = self.body(depth - 1)
            if word == "parallel":
                for one in keys[word]:
                    one["next"] = self.random.choice(["end", "end", "end_all"])
                    one["join"] = "each"
        elif kind < 0.75:
            alternatives: list[Described] = [
                {"id": "a", "signal": "s"},
                {"id": "b", "after": v("1m")},
                {"id": "c", "when": x(self.condition())},
            ]
            alternatives = self.random.sample(alternatives, self.random.randint(1, 3))
            wait = {"mode": self.random.choice(["first", "all"]), "alternatives": alternatives}
            keys.update(action="wait", wait=wait)
        elif kind < 0.83:
            asked = {"title": "t", "choices": [{"id": "yes", "counts_as": "approve"}],
                     "expires": "1h"}  # fmt: skip
            keys.update(action="approval", input=v(asked), raises={"expired": "Expired"})
        elif kind < 0.88:
            failure = {"type": "Drawn", "message": "drawn", "retryable": True}
            keys.update(action="fail", input=v(failure))
        elif kind < 0.93:
            how = self.random.choice(["cancelled", "succeeded", "failed"])
            cancel = {"targets": [self.random.choice(names)], "outcome": how}
            keys.update(action="cancel", cancel=cancel)

    def handler(self, names: list[str]) -> Described:
        do = self.random.choice(["next", "output", "continue", "raise", "fail"])
        made: Described = {"do": do}
        if do == "next":
            made["to"] = self.random.choice(names)
        elif do == "output":
            made["output"] = v(0)
        elif do == "fail":
            made["fail"] = v({"type": "Again", "message": "again"})
        if self.random.random() < 0.2:
            made["emit"] = [{"signal": "s"}]
        if self.random.random() < 0.3:
            made["compensate"] = True
        if self.random.random() < 0.2:
            made["types"] = ["Cancelled", "Drawn"]
        return made


def play(seed: int, schedule: int, crashes: bool) -> Simulator:
    draws = random.Random(f"{seed}/{schedule}")

    def task(_run: Any) -> Any:
        if draws.random() < 0.15:
            raise Fails("Drawn", retryable=draws.random() < 0.5)
        return draws.randrange(10)

    flow = Drawn(seed).flow
    script = {spec["id"]: task for spec in flow.flow["steps"]}
    played = Simulator(flow, script, seed=schedule).start()
    for _ in range(600):
        if played.status in ENDED:
            break
        if crashes and draws.random() < 0.1:
            played.crash()
        _happen(played, draws)
    return played


def _happen(played: Simulator, draws: random.Random) -> None:
    """Let something from outside happen now and then; else what can happen by itself."""
    waits = played.waits()
    chance = draws.random()
    if chance < 0.1:
        played.send("s", draws.randrange(9), id=str(len(played.journal)))
    elif chance < 0.3 and waits:
        wait = draws.choice(waits)
        if wait["kind"] in ("approval", "question"):
            choice = draws.choice(wait["choices"])["id"]
            played.decide(wait["address"], choice, value=1)
    elif chance < 0.31:
        played.apply({"type": "cancel", "at": played.now, "reason": "drawn", "by": "user:test",
                      "now": draws.random() < 0.5})  # fmt: skip
    else:
        played.step()


@pytest.mark.parametrize("block", range(8))
def test_invariants_and_replay(block: int) -> None:
    """After every event the invariants hold; the journal gives the same bytes again."""
    for seed in range(block, FLOWS, 8):
        for schedule in range(3):
            played = play(seed, schedule, crashes=False)
            assert pack(played.replayed()) == pack(played.state), f"{seed=} {schedule=}"


@pytest.mark.parametrize("block", range(8))
def test_crashes_keep_the_invariants(block: int) -> None:
    """The state comes back from bytes at any moment, and the execution goes on from there."""
    for seed in range(block, FLOWS, 8):
        for schedule in range(2):
            played = play(seed, schedule, crashes=True)
            assert pack(played.replayed()) == pack(played.state), f"{seed=} {schedule=}"


@pytest.mark.parametrize("block", range(4))
def test_each_scope_is_cleaned_up_once(block: int) -> None:
    """However a group ended, its `finally` began once for it; so that of the flow."""
    for seed in range(block, FLOWS, 4):
        played = play(seed, 3, crashes=True)
        at_once = any(e["type"] == "cancel" and e["now"] for e in played.journal)
        if played.status not in ENDED or at_once:
            continue
        begun = Counter(o.address for o in played.observations if o.status == "running")
        due = Counter({"finally": 1} if played.graph.body(0).final >= 0 else {})
        for seen in played.observations:
            child = played.graph.node(seen.step).child
            if seen.status == "running" and child >= 0 and played.graph.body(child).final >= 0:
                due[f"{seen.address}/finally"] += 1
        assert {a: n for a, n in begun.items() if a.endswith("finally")} == dict(due), f"{seed=}"


def test_what_is_drawn_covers_the_ways_to_end() -> None:
    """The flows drawn are no straight lines: all statuses and most step statuses are reached."""
    played = [play(seed, 0, crashes=True) for seed in range(0, FLOWS, 2)]

    assert {p.status for p in played} >= {"succeeded", "failed", "cancelled"}
    told = {line.split()[-1] for p in played for line in p.story()}
    assert told >= {"succeeded", "failed", "cancelled", "skipped", "waiting", "uncertain"}
    assert any("compensate" in line for p in played for line in p.story())
    assert any("/finally/" in line for p in played for line in p.story())
    assert any(_waited_for_lock(p) for p in played)


def _waited_for_lock(played: Simulator) -> bool:
    """Return whether some task waited before it began."""
    before: set[str] = set()
    for seen in played.observations:
        action = played.graph.node(seen.step).action
        if seen.status == "waiting" and action == "task":
            before.add(seen.address)
        if seen.status == "running" and seen.address in before:
            return True
    return False
