"""Random flow files with arbitrary edges, most of which the checker refuses.

Tests compare the verdict of the checker with the behavior of the kernel. See
`tests.testing.stalls`. Each flow uses only a few *topics*, so that its constructs interact: a
lock without contention reveals nothing.
"""

from __future__ import annotations

import random
from typing import Any

Step = dict[str, Any]

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
MEETING: list[Any] = ["active", "active", "active", "each", "each", "all", 1]
"""Joins that flows have at every step that are mostly in order."""
HANDLERS = ["continue", "next", "output"]
KEYS: list[Any] = ["l1", "l2", "${{ digest(execution.id, now) < '8' ? 'l1' : 'l2' }}"]
"""Keys of locks that one may have at once."""
SOMETIMES = "${{ digest(execution.id, now) < '8' }}"
RAISED = {"n": "${{ state.n > 1 }}"}
DECLARED: dict[str, Any] = {
    "state": {"n": {"type": "integer", "default": 0, "reducer": "add"}},
    "signals": {"s": {}, "t": {}},
    "tools": {"undo": {"http": {"url": "https://example.com"}}},
}


def tangled_flow(draw: random.Random, most: int = 8, topics: int = 3) -> dict[str, Any]:
    """Return a flow with any splits, joins and handlers, about some topics.

    It has the input `flag`, a boolean, and the signals `s` and `t`.

    Args:
        draw: Decides the flow.
        most: Maximum number of steps of the flow itself, 3 to 8.
        topics: How many topics it has at most.

    Returns:
        The flow as data.
    """
    return _Tangle(draw, most, topics).flow()


class _Tangle:
    """Draws one flow.

    Attributes:
        topics: Names of its topics.
        orderly: Whether its edges lead mostly forward, with a join wherever tokens may meet.
        flows: The flows that its steps may run.
    """

    def __init__(self, draw: random.Random, most: int, topics: int) -> None:
        self.draw = draw
        self.most = most
        self.topics = draw.sample(TOPICS, draw.randint(0, topics))
        self.actions = [action for topic in self.topics for action in ACTIONS.get(topic, ())]
        self.modifiers = [
            modifier for topic in self.topics for modifier in MODIFIERS.get(topic, ())
        ]
        self.orderly = draw.random() < 0.5
        self.flows = ["f", "g"][: draw.randint(1, 2)] if "flows" in self.topics else []

    def flow(self) -> dict[str, Any]:
        names = list("abcdefgh"[: self.draw.randint(3, self.most)])
        flow: dict[str, Any] = {
            "flowengine": 1,
            "id": "random",
            "inputs": {"flag": {"type": "boolean"}},
            "limits": {"activations": 12, "steps": 200},
            **({} if not self.topics else DECLARED),
            "steps": self.scope(names, []),
        }
        if self.flows:
            flow["flows"] = {name: self.subflow(name) for name in self.flows}
        if "triggers" in self.topics:
            flow["steps"] += self.triggered(names)
            flow["limits"].update(self.draw.choice([{}, {"idle": "1m"}]))
        if "shared" in self.topics and self.draw.random() < 0.5:
            keys = [{}, {"key": "l1"}, {"key": "${{ execution.id }}"}]
            flow["concurrency"] = {"max": self.draw.randint(1, 2), **self.draw.choice(keys)}
        if "cleaning" in self.topics:
            flow.update(self.cleaning(names))
        return flow

    def subflow(self, name: str) -> dict[str, Any]:
        """Return one of the flows that steps run."""
        names = [f"{name}{number}" for number in range(1, self.draw.randint(2, 5))]
        flow = {"state": DECLARED["state"], "steps": self.scope(names, [])}
        return {**flow, **(self.cleaning(names) if "cleaning" in self.topics else {})}

    def cleaning(self, names: list[str]) -> dict[str, Any]:
        """Return the error handlers and the `finally` of a flow."""
        spec: dict[str, Any] = {}
        if self.draw.random() < 0.4:
            spec["finally"] = [_task(f"{names[0]}_end")]
        if self.draw.random() < 0.6:
            again = [{"type": "Odd", "next": self.draw.choice(names)}]
            spec["on_error"] = self.draw.choice(["compensate", again])
        return spec

    def triggered(self, names: list[str]) -> list[Step]:
        """Return steps that begin only on messages and writes."""
        steps = []
        for name in ["x", "y"][: self.draw.randint(1, 2)]:
            step: Step = {"id": name, "trigger": self.trigger()}
            self.action(step, names, [])
            step["next"] = self.draw.choice(["end", "end", "end", *names[1:]])
            steps.append(step)
        return steps

    def trigger(self) -> Any:
        return self.draw.choice(
            ["s", "s", "t", {"all": ["s", "t"]}, {"state": "n"}, {"signal": "s", "transient": True}]
        )

    def scope(self, names: list[str], around: list[str]) -> list[Step]:
        """Return the steps of a scope, which is inside the groups `around`."""
        steps = []
        for number, name in enumerate(names):
            step: Step = {"id": name, "next": self.next(names, number)}
            join = self.draw.choice(MEETING if self.orderly else JOINS) if number else None
            if join is not None:
                step["join"] = join
                if "triggers" in self.topics and name in "abcdefgh" and self.draw.random() < 0.3:
                    step["trigger"] = self.trigger()
            self.action(step, names, around)
            if self.modifiers and self.draw.random() < 0.4:
                self.draw.choice(self.modifiers)(self, step)
            if self.draw.random() < (0.05 if self.orderly else 0.15):
                self.handle(step, names, number)
            steps.append(step)
        return steps

    def handle(self, step: Step, names: list[str], number: int) -> None:
        """Add a handler for some error of a step."""
        handler: dict[str, Any] = {"type": self.draw.choice(["Odd", "TooFew"])}
        how = self.draw.choice(HANDLERS)
        if how == "next":
            handler["next"] = self.target(names, number)
        else:
            handler["output"] = None
        step["on_error"] = "continue" if how == "continue" else [handler]

    def action(self, step: Step, names: list[str], around: list[str]) -> None:
        """Give a step an action."""
        if self.actions and self.draw.random() < 0.4:
            self.draw.choice(self.actions)(self, step, [*names, *around])
            return
        kind = self.draw.random()
        name = step["id"]
        if kind < 0.07 and len(around) < 2:
            inner = [f"{name}_{number}" for number in range(self.draw.randint(1, 4))]
            step["group"] = self.scope(inner, [name, *around])
        elif kind < 0.1 and len(around) < 2:
            step["parallel"] = [{"id": f"{name}_l", "wait": "1s"}, _task(f"{name}_r")]
        elif kind < 0.15:
            self.cancels(step, [*names, *around])
        elif kind < 0.2:
            step["fail"] = {"type": "Odd"}
            step["when"] = "${{ inputs.flag }}" if name in "abcdefgh" else SOMETIMES
        elif kind < 0.3:
            step["wait"] = "1s"
        else:
            step.update(_task(name))
            if self.draw.random() < 0.2:
                step["map"] = self.draw.choice([2, {"over": self.number(2), "join": "none"}])
            elif self.draw.random() < 0.1:
                step["when"] = SOMETIMES

    def number(self, most: int) -> int:
        return self.draw.randint(0, most)

    def target(self, names: list[str], number: int) -> str:
        """Return a target, more often one further on."""
        ahead = names[number + 1 :]
        if self.orderly and self.draw.random() < 0.9:
            ahead = [*ahead, "end"]
        if ahead and self.draw.random() < (0.95 if self.orderly else 0.8):
            return self.draw.choice(ahead[:3])
        last = ["end_all"] if self.draw.random() < 0.1 else []
        return self.draw.choice([*names, "end", "end", *last])

    def next(self, names: list[str], number: int) -> Any:
        kind = self.draw.choice(["one", "one", "all", "first", "or", "mixed"])
        follows = [*names, "end"][number + 1]
        if kind == "one":
            return follows if self.draw.random() < 0.8 else self.target(names, number)
        others = [self.target(names, number) for _ in range(self.draw.randint(1, 2))]
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

    # Actions

    def locked_group(self, step: Step, _names: list[str]) -> None:
        inner = [f"{step['id']}_{number}" for number in range(self.draw.randint(1, 3))]
        step["group"] = [{**_task(name), **self.lock()} for name in inner]
        step.update(self.lock())

    def runs(self, step: Step, names: list[str]) -> None:
        step["flow"] = self.draw.choice(self.flows)
        kind = self.draw.random()
        if kind < 0.35:
            step["background"] = True
        elif kind < 0.5 or not {"a", "b"} & set(names):  # it may be the flow that it is a step of
            step["when"] = SOMETIMES
        elif kind < 0.65:
            step["map"] = self.draw.choice([2, {"over": 2, "join": "none"}])

    def waits(self, step: Step, _names: list[str]) -> None:
        signal = self.draw.choice("st")
        late = {"id": "late", "for": "2s"}
        kinds: list[Any] = [
            {"signal": signal},
            {"signal": signal, "count": 2},
            {"signal": signal, "transient": True},
            {"signal": signal, "match": SOMETIMES},
            {"first": [{"id": "came", "signal": signal}, late]},
            {"all": [{"id": "came", "signal": signal}, late]},
        ]
        step["wait"] = self.draw.choice(kinds)

    def watches(self, step: Step, _names: list[str]) -> None:
        step["wait"] = {"when": RAISED["n"]}
        if self.draw.random() < 0.5:
            step["wait"] = {"first": [{"id": "so", **step["wait"]}, {"id": "late", "for": "2s"}]}

    def asks(self, step: Step, _names: list[str]) -> None:
        step["approval"] = {"title": "Sure?", **self.draw.choice([{}, {"expires": "2s"}])}

    def counts(self, step: Step, _names: list[str]) -> None:
        step.update(_task(step["id"]))
        step["set"] = {"n": 1}

    def cancels(self, step: Step, names: list[str]) -> None:
        how = self.draw.choice(["cancelled", "succeeded", "failed"])
        names = [name for name in names if name != step["id"]] or names
        targets = self.draw.sample(names, min(len(names), self.draw.randint(1, 2)))
        some: Any = {"steps": targets, "as": how}
        step["cancel"] = some if self.draw.random() < 0.9 else "execution"

    def cleaned_group(self, step: Step, _names: list[str]) -> None:
        name = step["id"]
        undo = {"compensate": {"call": "undo"}}
        step["group"] = [{**_task(f"{name}_0"), **undo}, _task(f"{name}_1")]
        if self.draw.random() < 0.7:
            step["finally"] = [_task(f"{name}_2")]
        if self.draw.random() < 0.5:
            step["on_error"] = [{"type": "Odd", "compensate": True, "output": None}]

    def mapped(self, step: Step, _names: list[str]) -> None:
        step.update(_task(step["id"]))
        kinds: list[Any] = [
            {"signal": "s"},
            {"signal": "t", "join": "none"},
            {"join": {"need": 1, "late": "cancel"}},
            {"join": {"need": 1}, "concurrency": 1},
            {"on_item_error": "continue", "concurrency": 1},
        ]
        step["map"] = {"over": self.number(3), **self.draw.choice(kinds)}

    # Modifiers

    def lock(self) -> Step:
        """Return a lock of this execution."""
        key: Any = self.draw.choice(KEYS)
        two = {"lock": {"key": "two", "max": 2}}
        return self.draw.choice([{"lock": key}, {"lock": {"key": key, "hold": True}}, two])

    def locks(self, step: Step) -> None:
        step.update(self.lock())

    def shares(self, step: Step) -> None:
        scope = self.draw.choice(["flow", "global"])
        step["lock"] = {"key": self.draw.choice(KEYS[:2]), "scope": scope}

    def emits(self, step: Step) -> None:
        step["emit"] = self.draw.choice(["s", "t", ["s", "t"]])

    def loops(self, step: Step) -> None:
        if "map" in step or "cancel" in step or "fail" in step:
            return
        test = self.draw.choice(["until", "while"])
        more: list[Any] = [{}, {"keep": "all"}, {"every": "1s"}]
        changing = "${{ digest(execution.id, now, round.number) < '8' }}"
        step["loop"] = {test: changing, "max": 2, **self.draw.choice(more)}

    def bounds(self, step: Step) -> None:
        step["deadline"] = "2s"

    def is_undone(self, step: Step) -> None:
        if "http" in step:
            step["compensate"] = {"call": "undo"}


ACTIONS: dict[str, list[Any]] = {
    "locks": [_Tangle.locked_group],
    "flows": [_Tangle.runs],
    "messages": [_Tangle.waits],
    "triggers": [_Tangle.counts, _Tangle.waits],
    "state": [_Tangle.watches, _Tangle.counts, _Tangle.counts],
    "people": [_Tangle.asks],
    "cancelling": [_Tangle.cancels],
    "cleaning": [_Tangle.cleaned_group],
    "maps": [_Tangle.mapped],
}
"""Topic → possible actions of a step."""
MODIFIERS: dict[str, list[Any]] = {
    "locks": [_Tangle.locks],
    "shared": [_Tangle.shares],
    "messages": [_Tangle.emits],
    "triggers": [_Tangle.emits],
    "rounds": [_Tangle.loops],
    "time": [_Tangle.bounds],
    "cleaning": [_Tangle.is_undone],
}
"""Topic → possible modifiers of a step with an action."""
TOPICS = sorted(ACTIONS.keys() | MODIFIERS.keys())


def _task(name: str) -> Step:
    return {"id": name, "http": {"url": "https://example.com"}}
