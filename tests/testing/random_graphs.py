"""Random compiled flows, for tests of the kernel: every construct, even those no file can express.

Most of a flow is in order: consecutive steps, and splits whose branches meet at a join that can be
satisfied. Some of its bodies are tangled, with arbitrary edges. `random_plays` plays them.

All randomness comes from a `random.Random`: one with a seed, or one that Hypothesis controls and
shrinks (`tests.testing.strategies`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from flowengine.kernel import Graph
from flowengine.kernel.graph.compiled import EvaluationError, ReadableNames
from tests.testing.graphs import Described, X, calls, graph, needs, output_of, step, v, x

NAMES = ["item", "index", "key"]
CHOICES: list[Described] = [
    {"id": "yes", "counts_as": "approve"},
    {"id": "no", "counts_as": "reject"},
]
ASKED: Described = {"approval": {"choices": CHOICES, "expires": "1h"}}
SIGNALS: dict[str, Described] = {"s": {}, "t": {"key": v("k")}}
STATE: dict[str, Described] = {
    "k": {"default": 0, "reducer": "add"},
    "open": {"default": False},
    "log": {"default": [], "reducer": "append"},
}
UNTIL = "1970-01-01T00:20:00Z"
"""A time shortly after simulated executions begin."""


def random_graph(draw: random.Random) -> Graph:
    """Return a random graph with the signals `s` and `t` and the state keys `k`, `open`, `log`.

    Args:
        draw: The source of randomness. The values of expressions depend on the state.

    Returns:
        The graph, linked, which may be unsound.
    """
    return _Draws(draw).flow()


class _Draws:
    def __init__(self, draw: random.Random) -> None:
        self.random = draw
        self.count = 0
        self.flows: list[str] = []
        """Flows that steps may run."""
        self.before: list[str] = []
        """Steps in the flow so far: what expressions name."""
        self.once = False
        """Whether no step of the body is activated twice: the kernel takes short ways then."""

    def chance(self, likely: float) -> bool:
        return self.random.random() < likely

    def name(self) -> str:
        self.count += 1
        return f"s{self.count}"

    # Flows

    def flow(self) -> Graph:
        flows: dict[str, Described] = {}
        for name in ["f", "g"][: self.random.choice([0, 0, 1, 2])]:
            flows[name] = {**self.whole(depth=1, most=4), **self.taken()}
            self.flows.append(name)
        main = self.whole(depth=2, most=10, main=True)
        if self.chance(0.1):
            main["concurrency"] = {"key": v("k"), "max": 1, "then": "queue"}
        limits = {"activations": 8, "steps": 150, "depth": 3, **self.random.choice(LIMITS)}
        steps = main.pop("steps")
        for whole in (main, *flows.values()):
            whole.update(self.shared(whole))
        return graph(*steps, **main, flows=flows, signals=SIGNALS, limits=limits)

    def whole(self, depth: int, most: int, *, main: bool = False) -> Described:
        """Return a flow: its steps, error handlers and `finally`."""
        self.before = []
        once = self.chance(0.4)
        whole: Described = {"steps": self.body(depth, most, once=once), "state": STATE}
        if main and not once:
            self.trigger(whole["steps"])
        whole["on_error"] = []
        if self.chance(0.4):
            again = self.random.choice([plan["id"] for plan in whole["steps"]])
            handlers: list[Described] = [
                {"compensate": True, "do": "raise"},
                {"do": "next", "to": again, "types": ["Drawn", "TooFew", "LimitExceeded"]},
                {"do": "next", "to": again, "when": x(self.condition())},
            ]
            whole["on_error"] = [handlers[0] if once else self.random.choice(handlers)]
        if self.chance(0.3):
            whole["finally_"] = self.body(depth=1, most=2)
        last = whole["steps"][-1]["id"]
        whole["outputs"] = {"k": v(self.doubtful(0)), "last": v(output_of(last))}
        if self.chance(0.15):
            whole["opens"] = {"box": {"scope": "execution", **ASKED}}
        return whole | self.budget()

    def taken(self) -> Described:
        """Return further keys of a subflow: an input, an output, perhaps limits and a handler."""
        more: Described = {"inputs": {"n": {}}, "signals": {"s": {}}}
        more["outputs"] = {"n": v(x(lambda names: [names["inputs"]["n"], names["state"]["k"]]))}
        more["limits"] = self.random.choice(
            [{}, {}, {"steps": 9}, {"depth": 1}, {"duration": "1h"}]
        )
        if self.chance(0.2):
            more["on_error"] = [{"do": "output", "output": v({"n": 0})}]
        if self.chance(0.2):
            more["result"] = "n"
        if self.chance(0.2):
            more["counts_alone"] = True
        if self.chance(0.2):
            more["outcome"] = v(x(lambda names: "a" if names["state"]["k"] % 2 else "b"))
        return more

    def budget(self) -> Described:
        """Return the budget of a flow's calls, if it has one."""
        if self.chance(0.75):
            return {}
        budget: Described = {"then": self.random.choice(["stop", "ask", "ask"])}
        meters = self.random.sample(
            ["tool_calls", "wall_time", "tokens"], self.random.randint(1, 2)
        )
        if "tokens" in meters:
            budget |= {"tokens": self.random.randint(5, 60), "fallback_at": 50}
        if "tool_calls" in meters:
            budget["tool_calls"] = self.random.randint(1, 8)
        if "wall_time" in meters:
            budget["wall_time"] = self.random.choice(["500ms", "2s"])
        return {"budget": budget}

    def shared(self, whole: Described) -> Described:
        """Return the budgets that a flow shares with other executions, if it has any."""
        if self.chance(0.75):
            return {}
        shared: list[Described] = []
        for _ in range(self.random.randint(1, 2)):
            budget: Described = {"key": self.random.choice([v("team"), v(self.doubtful(0))])}
            if self.chance(0.5):
                budget["period"] = self.random.choice(["day", "month"])
            meters = {"tool_calls": self.random.randint(1, 8), "tokens": self.random.randint(5, 60)}
            names = self.random.sample([*meters], self.random.randint(1, 2))
            shared.append({**budget, **{name: meters[name] for name in names}})
        return {"budget": {"then": "stop", **whole.get("budget", {})}, "shared_budgets": shared}

    def trigger(self, steps: list[Described]) -> None:
        """Add triggers: messages or writes that start tokens, perhaps the only ones."""
        if not self.chance(0.25):
            return
        for plan in self.random.sample(steps, 1):
            kinds: list[Described] = [
                {"signals": ["s"]},
                {"signals": ["s"], "transient": True},
                {"signals": ["s"], "match": x(lambda names: names["signal"]["data"] != 1)},
                {"signals": ["s", "t"], "all": True},
                {"state": "k"},
            ]
            plan["trigger"] = self.random.choice(kinds)

    # Bodies

    def body(self, depth: int, most: int, *, once: bool | None = None) -> list[Described]:
        """Return the steps of a scope: each activated once, in order, or tangled."""
        outer, self.once = self.once, self.chance(0.4) if once is None else once
        tangled = not self.once and self.chance(0.35)
        parts = [self.part() for _ in range(self.random.randint((most + 1) // 2, most))]
        names = [plan["id"] for part in parts for plan in part]
        outside, steps = list(self.before), [plan for part in parts for plan in part]
        for number, plan in enumerate(steps):
            ahead = [*names[number + 1 :], "end"]
            follows = plan.pop("next", None)
            if isinstance(follows, str):  # a branch: all its ways lead to the join
                ahead = [follows]
            if tangled and self.chance(0.3):
                follows = self.anywhere(names)
                plan["join"] = self.random.choice(JOINS)(self)
            elif follows is None:
                follows = self.onwards(ahead)
            self.step(plan, names, ahead, depth)
            plan["next"] = self.by_outcome(plan, follows, ahead)
            self.before.append(plan["id"])
        self.before, self.once = outside, outer
        return steps

    def part(self) -> list[Described]:
        """Return the ids of one step, or of a split, its branches and the join where they meet."""
        if self.chance(0.7):
            return [step(self.name())]
        branches = [step(self.name()) for _ in range(self.random.randint(2, 3))]
        last = step(self.name(), join=self.meeting(len(branches)))
        first = step(self.name(), next={"all": [branch["id"] for branch in branches]})
        for branch in branches:
            branch["next"] = last["id"]
        return [first, *branches, last]

    def meeting(self, branches: int) -> Any:
        """Return a join at which as many branches meet."""
        if self.once:
            return "all"
        kinds: list[Any] = ["all", "all", "all", "active", "each"]
        kinds += [{"need": self.random.randint(1, branches), "late": late} for late in LATE]
        kinds += [{"need": self.doubtful(1), "late": "ignore"}]
        return self.random.choice(kinds)

    def onwards(self, ahead: list[str]) -> Any:
        """Return the target of a step in order: the next step, or sometimes a later one."""
        if self.chance(0.1):
            return {"first": [(self.condition(), self.random.choice(ahead)), ("else", ahead[0])]}
        return "end_all" if self.chance(0.01) else ahead[0]

    def anywhere(self, names: list[str]) -> Any:
        """Return arbitrary edges."""
        targets = [*names, "end", "end", "end"] + ["end_all"] * self.chance(0.1)
        pick = self.random.choice
        kind = self.random.random()
        if kind < 0.4:
            return pick(targets)
        several = list(dict.fromkeys(pick(targets) for _ in range(self.random.randint(1, 3))))
        if kind < 0.6:
            return {"all": several}
        ways = [(self.condition(), name) for name in several]
        return {pick(["first", "all"]): [*ways, ("else", pick(targets))]}

    def by_outcome(self, plan: Described, follows: Any, ahead: list[str]) -> Any:
        """Route some steps with several outcomes by their outcome."""
        named = {"approval": "no", "wait": "a", "flow": "a"}.get(plan.get("action", ""))
        if named is None or not isinstance(follows, str) or self.chance(0.5):
            return follows
        return {"outcome": {named: self.random.choice(ahead[:2]), "else": follows}}

    # Expressions

    def condition(self) -> Callable[[ReadableNames], bool]:
        number = self.random.randrange(1000)
        return lambda names: (_of(names, "k") + number) % 3 != 0

    def doubtful(self, more: int) -> X:
        """Return the expression `state.k + more`, or sometimes one without a value."""
        number = self.random.randrange(1000)

        def value(names: ReadableNames) -> Any:
            if (_of(names, "k") + number) % 8 == 0:
                raise EvaluationError("drawn to have no value")
            return _of(names, "k") + more

        return x(value)

    def earlier(self) -> X:
        """Return an expression about a step before, or about the state."""
        if self.before and self.chance(0.9):
            return output_of(self.random.choice(self.before))
        return self.doubtful(0) if self.chance(0.3) else x(lambda names: _of(names, "k"))

    # Steps

    def step(self, plan: Described, names: list[str], ahead: list[str], depth: int) -> None:
        """Fill in a step: its action and modifiers."""
        if self.once and self.chance(0.4):
            plan["effect"] = "once"
            return
        self.action(plan, depth, names)
        action = plan.get("action", "task")
        if action == "task" and not plan.keys() & {"group", "parallel"}:
            self.task(plan)
        self.repeat(plan)
        for key, likely, value in MODIFIERS:
            if self.chance(likely):
                plan[key] = value(self)
        if self.chance(0.8 if action == "fail" else 0.4):
            plan["on_error"] = [
                self.handler(names, ahead) for _ in range(self.random.randint(1, 2))
            ]
        if self.chance(0.25) and action == "task":
            plan["undo"] = f"undo_{plan['id']}"
            plan["effect"] = plan.get("effect", "once")

    def action(self, plan: Described, depth: int, names: list[str]) -> None:
        kind = self.random.random()
        if self.flows and kind > 0.8:
            given = v(x(lambda names: {"n": _of(names, "k")}))
            plan.update(action="flow", flow=self.random.choice(self.flows), args=given)
            if self.chance(0.15):
                plan.update({k: a for k, a in calls("tool", {}).items() if k == "approval"})
        elif kind < 0.5:
            plan["effect"] = self.random.choice(["pure", "idempotent", "once"])
        elif kind < 0.55:
            plan["action"] = "none"
        elif kind < 0.65 and depth:
            self.group(plan, depth)
        elif kind < 0.71:
            plan.update(action="wait", wait=self.wait())
        elif kind < 0.76:
            plan.update(action="approval", **self.approval())
        elif kind < 0.78:
            failure = {"type": "Drawn", "message": "drawn", "retryable": True}
            plan.update(action="fail", input=v(failure))
        elif kind < 0.8:
            self.cancel(plan, names)

    def group(self, plan: Described, depth: int) -> None:
        word = self.random.choice(["group", "parallel"])
        plan[word] = self.body(depth - 1, 3)
        if self.chance(0.4):
            plan["finally_"] = self.body(0, 2)
        if word == "parallel":
            for inner in plan[word]:
                inner["next"] = self.random.choice(["end", "end", "end_all"])
                inner["join"] = "each"

    def wait(self) -> Described:
        signal: Described = {"id": "a", "signal": "s"}
        alternatives: list[Described] = [
            self.random.choice(
                [
                    signal,
                    {**signal, "count": v(2)},
                    {**signal, "transient": True},
                    {**signal, "match": x(lambda names: names["signal"]["data"] != 1)},
                    {"id": "a", "signal": "t", "key": v("k")},
                ]
            ),
            {"id": "b", **self.random.choice([{"after": v("1m")}, {"until": v(UNTIL)}])},
            {"id": "c", "when": x(self.condition()), **self.random.choice([{}, WATCHES])},
        ]
        alternatives = self.random.sample(alternatives, self.random.randint(1, 3))
        return {"mode": self.random.choice(["first", "all"]), "alternatives": alternatives}

    def approval(self) -> Described:
        more: list[Described] = [{}, {"remind": {"every": "10m"}}, {"on_expire": "yes"}]
        asked = {"title": "t", "choices": CHOICES, "expires": "1h", **self.random.choice(more)}
        return {"input": v(asked), "raises": {"expired": "Expired", "no": "Rejected"}}

    def cancel(self, plan: Described, names: list[str]) -> None:
        how = self.random.choice(["cancelled", "succeeded", "failed"])
        cancel: Described = {"targets": [self.random.choice(names)], "outcome": how}
        if self.chance(0.1):
            cancel = {"targets": [], "execution": True, "reason": ["const", "drawn"]}
        plan.update(action="cancel", cancel=cancel)

    def task(self, plan: Described) -> None:
        """Fill in the input of a task, and its locks, environments and approvals."""
        kind = self.random.random()
        if kind < 0.07:
            scope = self.random.choice(["step", "region", "execution"])
            names = self.random.sample(["box", "db"], self.random.randint(1, 2))
            plan.update(needs({name: {"scope": scope, **ASKED} for name in names}))
        elif kind < 0.17:
            fields = self.random.choice([{}, {"expires": "1h"}])
            plan.update(calls("tool", {"n": self.random.randint(0, 3)}, **fields))
            plan["counts"], plan["caller_limit"] = "tool", ["agent", 100]
        elif kind < 0.27:
            plan["reads"] = self.random.choice([["k"], ["open"], ["k", "open"]])
        elif kind < 0.4:
            self.meter(plan)
        elif kind < 0.6:
            plan["input"] = v(self.earlier())
        if self.chance(0.1):
            plan["on_crash"] = self.random.choice(["ask", "retry", "fail"])
        if self.chance(0.05):
            plan["key"] = v("the same")

    def meter(self, plan: Described) -> None:
        """Let a task use tokens: as many as its result, a number."""
        plan["meters"] = {"tokens": {"used": [[]], "reserved": ["most"]}}
        plan["input"] = v({"most": 9})
        if self.chance(0.5):  # some attempts measure their usage before they begin
            least = self.random.randint(0, 12)
            need = [least, least + self.random.randint(0, 20), self.random.randint(0, 3)]
            plan["meters"]["tokens"] = {"used": [[]], "measured": True, "needs": need}
        if self.chance(0.3):
            plan["meters"]["tool_calls"] = {}

    def repeat(self, plan: Described) -> None:
        if self.chance(0.15):
            plan["map"] = self.map()
        elif self.chance(0.1):
            test = self.random.choice(["until", "before"])
            plan["loop"] = {test: x(self.condition()), "max": v(self.random.randint(2, 4))}
            more: list[Described] = [{}, {}, {"keep": True}, PAUSES]
            plan["loop"] |= self.random.choice(more)

    def map(self) -> Described:
        spec: Described = {"over": v(self.random.randint(0, 4)), "names": NAMES}
        spec["concurrency"] = v(self.random.randint(1, 3))
        spec["on_item_error"] = self.random.choice(["stop", "wait", "continue"])
        kind = self.random.random()
        if kind < 0.15 and not self.once:
            spec["each"] = True
        elif kind < 0.3:
            spec["over"] = v(self.random.randint(1, 4))
            spec |= {"need": v(1), "late": self.random.choice(["ignore", "cancel"])}
            if self.chance(0.5):
                spec["need"] = v(x(lambda names: _of(names, "k") % 2 + 1))
                spec["watches"] = ["k"]
        elif kind < 0.4:
            spec |= {"max_failures": v(1)}
        elif kind < 0.5:
            spec |= {"key": v(x(lambda names: f"k{names['item']}"))}
        if self.chance(0.2):
            spec["more"] = "s"
        return spec

    def retry(self) -> Described:
        more: list[Described] = [
            {},
            {"delay": "5s", "backoff": 3, "max_delay": "7s", "jitter": "none"},
            {"only": ["Drawn"]},
            {"only": ["Drawn", "Timeout"]},
            {"when": x(self.condition())},
        ]
        return {"attempts": self.random.randint(2, 3), **self.random.choice(more)}

    def lock(self) -> Described:
        computed = x(lambda names: "k" if _of(names, "k") % 2 else "other")
        key = self.random.choice(["k", "k", "other", computed])
        scope = self.random.choice(["execution", "execution", "execution", "run", "flow", "global"])
        lock = {"key": v(key), "permits": 1, "scope": scope, "hold": self.chance(0.5)}
        if scope in ("execution", "run") and self.chance(0.4):
            lock["shared"] = v(
                self.random.choice([True, x(lambda names: _of(names, "k") % 2 == 0)])
            )
            lock["ordered"] = lock["hold"]
        return lock

    def message(self) -> Described:
        """Return a signal to send: to itself, mostly."""
        if self.chance(0.3):
            return {"signal": "t", "key": v("k"), "data": v(1), **self.random.choice([{}, ALL])}
        to = self.random.choice(["execution"] * 6 + ["parent", "other", "simulated"])
        return {"signal": "s", "data": v(1), **({} if to == "execution" else {"to": v(to)})}

    def handler(self, names: list[str], ahead: list[str]) -> Described:
        do = self.random.choice([*["next", "output", "continue"] * 3, "raise", "fail"])
        made: Described = {"do": do}
        if do == "next":
            behind = [name for name in ahead if name != "end"]
            if self.once and not behind:
                return {"do": "continue"}
            back = not self.once and self.chance(0.1)
            made["to"] = self.random.choice(names if back or not behind else behind)
        elif do == "output":
            made["output"] = v(0)
        elif do == "fail":
            made["fail"] = v({"type": "Again", "message": "again"})
        if self.chance(0.2):
            made["emit"] = [{"signal": "s"}]
        if self.chance(0.2):
            made["compensate"] = True
        if self.chance(0.2):
            made["set"] = [["k", v(1)]]
        if self.chance(0.1):
            made["when"] = x(self.condition())
        if self.chance(0.2):
            made["types"] = ["Cancelled", "Drawn"]
        return made


def _of(names: ReadableNames, key: str) -> Any:
    state: Any = names["state"]
    return state[key]


ALL: Described = {"to": v("all")}
LATE = ("ignore", "cancel", "queue")
WATCHES: Described = {"watches": ["k"]}
PAUSES: Described = {"every": v("1s"), "backoff": 2.0, "max_delay": "3s"}
LIMITS: list[Described] = [*[{}] * 16, {"idle": "1m"}, {"duration": "1h"}, {"duration": "2s"}]
"""Time limits of a flow."""
JOINS: list[Callable[[_Draws], Any]] = [
    *[lambda _: "each"] * 3,
    *[lambda _: "active"] * 2,
    lambda _: "all",
    lambda draws: {"need": 1, "late": draws.random.choice(LATE)},
    lambda draws: {"need": draws.random.randint(1, 3), "late": draws.random.choice(LATE)},
    lambda draws: {"need": draws.doubtful(1), "late": "ignore"},
]
"""Joins of tangled steps, which may be impossible to satisfy."""
MODIFIERS: list[tuple[str, float, Callable[[_Draws], Any]]] = [
    ("when", 0.05, lambda draws: x(draws.condition())),
    ("retry", 0.15, _Draws.retry),
    ("lock", 0.15, _Draws.lock),
    ("timeout", 0.08, lambda _: v("10s")),
    ("deadline", 0.05, lambda _: v("5m")),
    ("set", 0.2, lambda draws: [draws.random.choice([["k", v(1)], ["log", v(1)]])]),
    ("output", 0.08, lambda draws: v(draws.earlier())),
    ("emit", 0.1, lambda draws: [draws.message() for _ in range(draws.random.randint(1, 2))]),
]
"""Modifiers of any step: key, probability, and value."""
