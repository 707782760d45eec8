"""Random compiled flows, for tests of the kernel: every construct, also what no file can say.

All that is random comes from a `random.Random`: one with a seed, or one that Hypothesis controls
and shrinks (`flowengine.testing.strategies`).
"""

from __future__ import annotations

import random
from typing import Any

from flowengine.kernel import Graph
from flowengine.testing.graphs import Described, calls, graph, needs, step, v, x

NAMES = ["item", "index", "key"]
ASKED: Described = {
    "approval": {
        "choices": [
            {"id": "yes", "counts_as": "approve"},
            {"id": "no", "counts_as": "reject"},
        ],
        "expires": "1h",
    }
}


def random_graph(draw: random.Random) -> Graph:
    """Return a random graph with the signal `s` and the state keys `k` and `open`.

    Args:
        draw: Decides it. What an expression gives follows from the state.

    Returns:
        The graph, linked; nothing says that it is sound.
    """
    return _Draws(draw).flow()


class _Draws:
    def __init__(self, draw: random.Random) -> None:
        self.random = draw
        self.count = 0
        self.flows: list[str] = []
        """Flows that steps may run."""
        self.steps: list[Described] = []

    def flow(self) -> Graph:
        self.flows = ["f", "g"][: self.random.choice([0, 0, 1, 2])]
        main = self.whole(depth=2)
        self.trigger(main["steps"])
        if self.random.random() < 0.1:
            main["concurrency"] = {"key": v("k"), "max": 1, "then": "queue"}
        flows = {name: {**self.whole(depth=1), **self.taken()} for name in self.flows}
        self.ask()
        self.read()
        self.ask_before_calls()
        self.share()
        self.measure()
        for number, whole in enumerate([main, *flows.values()]):
            if random.Random(f"{self.count} {number}").random() < 0.2:
                whole["opens"] = {"box": {"scope": "execution", **ASKED}}
        limits = {"activations": 8, "steps": 150, "depth": 3, **self.idle()}
        for one in (main, *flows.values()):
            one.update(self.budget())
        signals = {"s": {}, "t": {"key": v("k")}}
        return graph(*main.pop("steps"), **main, flows=flows, signals=signals, limits=limits)

    def budget(self) -> Described:
        """Return what bounds the calls of a flow, if anything does."""
        if self.random.random() < 0.6:
            return {}
        budget: Described = {"then": self.random.choice(["stop", "ask"])}
        what = self.random.choice(["tool_calls", "tool_calls", "wall_time", "both"])
        more = random.Random(f"tokens {self.count}")
        if more.random() < 0.4:
            budget |= {"tokens": more.randint(5, 30), "fallback_at": 50}
        if what != "wall_time":
            budget["tool_calls"] = self.random.randint(1, 4)
        if what != "tool_calls":
            budget["wall_time"] = self.random.choice(["500ms", "2s"])
        return {"budget": budget}

    def ask(self) -> None:
        """Make some of the tasks so far need environments that people are asked about."""
        draw = random.Random(self.count)
        tasks = [one for one in self.steps if one.get("action", "task") == "task"]
        for one in tasks:
            if draw.random() < 0.2 and not one.keys() & {"group", "parallel"}:
                scope = draw.choice(["step", "region", "execution"])
                names = draw.sample(["box", "db"], draw.randint(1, 2))
                one.update(needs({name: {"scope": scope, **ASKED} for name in names}))

    def read(self) -> None:
        """Make some of the tasks so far read state by reference."""
        draw = random.Random(f"reads {self.count}")
        for one in self.steps:
            is_task = one.get("action", "task") == "task"
            if is_task and draw.random() < 0.3 and not one.keys() & {"group", "parallel"}:
                one["reads"] = draw.choice([["k"], ["open"], ["k", "open"]])

    def ask_before_calls(self) -> None:
        """Make people be asked about some of the calls so far, of tasks and of subflows."""
        draw = random.Random(-self.count)
        called = [one for one in self.steps if one.get("action", "task") in ("task", "flow")]
        for one in called:
            if draw.random() < 0.15 and not one.keys() & {"group", "parallel", "args"}:
                args = {} if one.get("action") == "flow" else {"n": draw.randint(0, 3)}
                one.update(calls("tool", args, **draw.choice([{}, {"expires": "1h"}])))

    def measure(self) -> None:
        """Make some of the tasks so far use tokens: as many as the number that they give."""
        draw = random.Random(f"meters {self.count}")
        for one in self.steps:
            is_task = one.get("action", "task") == "task"
            if is_task and draw.random() < 0.3 and not one.keys() & {"group", "parallel"}:
                one["meters"] = {"tokens": {"used": [[]]}}
                if "input" not in one:
                    one["input"] = v({"most": 9})
                    one["meters"]["tokens"]["reserved"] = ["most"]
                self._work_out(one)
                if draw.random() < 0.3:
                    one["meters"]["tool_calls"] = {}

    def _work_out(self, one: Described) -> None:
        """Have it worked out before some attempts what they may use, in place of saying it."""
        draw = random.Random(f"needs {self.count} {one['id']}")
        if draw.random() < 0.6:
            least = draw.randint(0, 12)
            need = [least, least + draw.randint(0, 20), draw.randint(0, 3)]
            one["meters"]["tokens"] = {"used": [[]], "measured": True, "needs": need}

    def share(self) -> None:
        """Make some of the locks so far shared, and some those of one run of a flow."""
        draw = random.Random(f"shares {self.count}")
        for one in self.steps:
            lock = one.get("lock")
            if lock is None or lock["scope"] != "execution":
                continue
            if draw.random() < 0.4:
                even = x(lambda names: names["state"]["k"] % 2 == 0)
                lock["shared"] = v(draw.choice([True, even]))
            if draw.random() < 0.4:
                lock["scope"] = "run"

    def idle(self) -> Described:
        return self.random.choice([{}, {}, {"idle": "1m"}])

    def trigger(self, steps: list[Described]) -> None:
        """Add triggers: messages or writes that start tokens, perhaps the only ones."""
        for one in steps:
            if self.random.random() < 0.1:
                kinds: list[Described] = [
                    {"signals": ["s"]},
                    {"signals": ["s"], "transient": True},
                    {"signals": ["s"], "match": x(lambda names: names["signal"]["data"] != 1)},
                    {"signals": ["s", "t"]},
                    {"state": "k"},
                ]
                one["trigger"] = self.random.choice(kinds)

    def whole(self, depth: int) -> Described:
        """Return a flow: its steps, with what follows on an error and in the end."""
        whole: Described = {"steps": self.body(depth)}
        whole["on_error"] = []
        if self.random.random() < 0.3:
            whole["on_error"] = [{"compensate": True, "do": "raise"}]
        whole["finally_"] = self.body(depth=1) if self.random.random() < 0.3 else None
        whole["state"] = {"k": {"default": 0, "reducer": "add"}, "open": {"default": False}}
        return whole

    def taken(self) -> Described:
        """Return what a subflow has besides: an input, an output, perhaps limits and a handler."""
        more: Described = {"inputs": {"n": {}}, "signals": {"s": {}}}
        more["outputs"] = {"n": v(x(lambda names: [names["inputs"]["n"], names["state"]["k"]]))}
        more["limits"] = self.random.choice([{}, {"steps": 9}, {"duration": "30s"}, {"depth": 1}])
        if self.random.random() < 0.2:
            more["on_error"] = [{"do": "output", "output": v({"n": 0})}]
        return more

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
        keys["emit"] = [self.message() for _ in range(self.random.choice([0, 0, 0, 0, 0, 1, 2]))]
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
        self.steps.append(step(name, **keys))
        return self.steps[-1]

    def message(self) -> Described:
        """Return a signal to send: to itself, mostly."""
        to = self.random.choice(["execution"] * 6 + ["parent", "other", "simulated", "all"])
        signal = "s" if self.random.random() < 0.8 else "t"
        return {"signal": signal, "data": v(1), **({} if to == "execution" else {"to": v(to)})}

    def lock(self) -> Described:
        computed = x(lambda names: "k" if names["state"]["k"] % 2 else "other")
        key = self.random.choice(["k", "other", computed])
        scope = self.random.choice(["execution", "execution", "flow", "global"])
        return {"key": v(key), "permits": 1, "scope": scope, "hold": self.random.random() < 0.5}

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
        if self.flows and self.random.random() < 0.3:
            given = v(x(lambda names: {"n": names["state"]["k"]}))
            keys.update(action="flow", flow=self.random.choice(self.flows), args=given)
            return
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
