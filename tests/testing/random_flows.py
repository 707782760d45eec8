"""Random flow files, for tests of the language, the checker and the kernel together.

All randomness comes from a `random.Random`: one with a seed, or one that Hypothesis controls and
shrinks (`tests.testing.strategies`).
"""

from __future__ import annotations

import random
from typing import Any

Step = dict[str, Any]
SIGN = {"title": "Sure?", "expires": "2s"}
DOES = ["python", "with", "flow", "background", "group", "parallel", "output", "on_error",
        "compensate", "loop", "map"]  # fmt: skip
"""The possible actions and modifiers of a step."""
WAITS: list[Step] = [
    {"wait": "1s"},
    {"approval": SIGN},
    {"wait": {"signal": "go"}, "timeout": "2s"},
    {"wait": {"when": "${{ state.n > 0 }}"}, "timeout": "2s"},
    {"wait": {"first": [{"id": "more", "signal": "more"}, {"id": "late", "for": "1s"}]}},
]
LOCKS: list[Any] = [
    "l1",
    "l2",
    {"key": "l1", "hold": True},
    {"key": "l3", "scope": "flow"},
    {"key": "l3", "scope": "global"},
]


FLAGS = {name: {"type": "boolean"} for name in "pqr"}
COUNTED = {"type": "integer", "default": 0, "reducer": "add"}
LIBRARY: dict[str, Any] = {
    "flowengine": 1,
    "id": "library",
    "inputs": {"n": {}},
    "steps": [{"id": "twice", "map": 2, "output": "${{ [inputs.n, item] }}"}],
    "outputs": {"all": "${{ steps.twice.output }}"},
}
"""A flow for others to import."""


class Author:
    """Writes random flows whose outcome must not depend on the order of things.

    They contain no races: no counting joins, no shared state, no time, no cancelling. Errors are
    handled where they occur. Waits have time limits, so that every flow ends.

    Args:
        draw: Decides the flow: a source of chance, or a seed.
        wild: Races too: counting joins, time-outs, cancelling, messages, triggers, locks that
            executions share, errors without handlers.
        library: Path of a file with the flow `LIBRARY`, which some of them import then.
    """

    def __init__(
        self, draw: random.Random | int, *, wild: bool = False, library: str | None = None
    ) -> None:
        self.draw = random.Random(draw) if isinstance(draw, int) else draw
        self.wild = wild
        self.count = 0
        self.before: list[str] = []
        self.flows = ["part"] if self.draw.random() > 0.7 else []
        """Flows that steps may run."""
        self.library = library if self.draw.random() > 0.7 else None

    def flow(self) -> dict[str, Any]:
        """Return a flow whose outputs are those of all its steps."""
        flows = {name: self.part() for name in self.flows}
        steps = self.scope(self.draw.randint(3, 8), 0)
        outputs = {step["id"]: f"${{{{ steps.{step['id']}.output }}}}" for step in steps}
        flow: dict[str, Any] = {
            "inputs": FLAGS,
            "defaults": {"effect": "idempotent"},
            "limits": {"activations": 20, "steps": 400},
            "tools": {"undo": {"python": "tools:act"}},
            "steps": steps,
            "outputs": outputs,
        }
        if flows:
            flow["flows"] = flows
        if self.library is not None:
            flow["imports"] = {"lib": self.library}
        if self.wild:
            self.open(flow)
        return flow

    def open(self, flow: dict[str, Any]) -> None:
        """Make a flow take messages, start tokens on them, and share a bound with others."""
        flow["signals"] = {"go": {}, "more": {"data": {"type": "integer"}}}
        flow["state"] = {"n": COUNTED}
        if self.draw.random() < 0.3:
            flow["on_error"] = "compensate"
        if self.draw.random() < 0.3:
            flow["budget"] = self.draw.choice([{"tool_calls": 4}, {"wall_time": "1s"}])
        if self.draw.random() > 0.8:
            flow["finally"] = [self.task()]
        if self.draw.random() > 0.8:
            flow["concurrency"] = {"max": self.draw.randint(1, 2)}
        if self.draw.random() > 0.8:
            trigger = self.draw.choice(
                ["go", "more", {"state": "n"}, {"all": ["go", "more"]}, {"signal": ["go", "more"]}]
            )
            flow["steps"].append({**self.task(), "trigger": trigger, "next": "end"})
            flow["limits"]["idle"] = "1s"
        if self.draw.random() < 0.2:
            shared: Step = {"key": self.draw.choice(["team", "${{ string(inputs.p) }}"])}
            bounds: Step = self.draw.choice(
                [{"tool_calls": 3}, {"tool_calls": 8, "period": "month"}]
            )
            flow["budget"] = {**flow.get("budget", {}), "shared": [{**shared, **bounds}]}

    def part(self) -> dict[str, Any]:
        """Return a subflow: it starts from its input, and its output is that of a step."""
        flows, self.flows = self.flows, []  # it runs none
        before, self.before = self.before, []
        steps = self.scope(self.draw.randint(1, 3), 1)
        self.flows, self.before = flows, before
        last = f"${{{{ default(steps.{steps[-1]['id']}.output, inputs.n) }}}}"
        more = {"state": {"n": COUNTED}} if self.wild else {}
        return {"inputs": {"n": {}, **FLAGS}, **more, "steps": steps, "outputs": {"last": last}}

    def run(self, step: Step) -> None:
        """Make a step run a flow, of this file or of the library."""
        names = [*self.flows, *(["lib.library"] if self.library else [])]
        step["flow"] = self.draw.choice(names)
        step["with"] = {"n": self.value()}
        if step["flow"] in self.flows:
            step["with"].update({name: f"${{{{ inputs.{name} }}}}" for name in FLAGS})
        if self.wild and self.draw.random() < 0.2:
            step["background"] = True

    def task(self) -> Step:
        """Return a step that calls out and does nothing else."""
        self.count += 1
        task = {"id": f"s{self.count}", "python": "tools:act", "with": {"value": 0}}
        return {**task, "on_error": "continue"}

    def scope(self, length: int, depth: int) -> list[Step]:
        """Return the steps of a scope, each reached from one before, some from later ones too."""
        names = []
        for _ in range(length):
            self.count += 1
            names.append(f"s{self.count}")
        steps = []
        outside, self.before = self.before, list(self.before)
        for number, name in enumerate(names):
            step: Step = {"id": name}
            self.action(step, depth)
            self.way(step, names[number + 1 :], names[:number])
            if number:
                self.join(step)
            if self.wild:
                self.race(step, names)
            steps.append(step)
            self.before.append(name)
        self.before = outside
        return steps

    def action(self, step: Step, depth: int) -> None:
        """Give a step an action, perhaps a repeated one."""
        kind = self.draw.random()
        if kind < 0.15 and depth < 2:
            step["group"] = self.scope(self.draw.randint(1, 4), depth + 1)
        elif kind < 0.25 and depth < 2:
            arms = [self.scope(1, 2)[0] for _ in range(self.draw.randint(1, 3))]
            step["parallel"] = [self.arm(arm) for arm in arms]
        elif kind < 0.4 and (self.flows or self.library):
            self.run(step)
        elif kind < 0.9:
            step["python"] = "tools:act"
            step["with"] = {"value": self.value()}
            if self.draw.random() < 0.2:
                step["compensate"] = {"call": "undo", "with": {"value": "${{ output }}"}}
        else:
            step["output"] = self.value()
        self.repeat(step)
        self.handle(step)

    def arm(self, step: Step) -> Step:
        """Return a step as a branch of a parallel one."""
        return {key: value for key, value in step.items() if key not in {"next", "join"}}

    def value(self) -> Any:
        """Return an expression about earlier steps, in the same scope or around it."""
        if not self.before:
            return self.draw.randint(0, 9)
        name = self.draw.choice(self.before)
        return [f"${{{{ default(steps.{name}.output, 0) }}}}", f"${{{{ steps.{name}.status }}}}"]

    def repeat(self, step: Step) -> None:
        """Make a step run per item, in rounds, or not at all."""
        kind = self.draw.random()
        if kind < 0.12:
            step["map"] = {"over": self.draw.randint(0, 3), "concurrency": self.draw.randint(1, 3)}
            if not self.wild:  # which items are done when the first fails is a race
                step["map"]["on_item_error"] = "continue"
        elif kind < 0.2:
            step["loop"] = {"until": "${{ round.number == 2 }}", "max": 3}
            if self.draw.random() < 0.5:
                step["loop"]["keep"] = "all"
        elif kind < 0.3:
            step["when"] = f"${{{{ inputs.{self.draw.choice('pqr')} }}}}"

    def handle(self, step: Step) -> None:
        """Make a step handle its own error."""
        if "python" in step and "map" not in step:
            step["on_error"] = self.draw.choice(["continue", [{"output": "none"}]])

    def way(self, step: Step, ahead: list[str], back: list[str]) -> None:
        """Add the edges of a step: mostly forward, to one or several steps, sometimes back."""
        if not ahead:
            step["next"] = "end"
            return
        kind = self.draw.random()
        on = ahead[0]
        other = self.draw.choice(ahead[1:4] or [on])
        condition = f"${{{{ inputs.{self.draw.choice('pqr')} }}}}"
        if kind < 0.4 or other == on:
            step["next"] = on
        elif kind < 0.6:
            step["next"] = {"all": [on, other]}
        elif kind < 0.75:
            step["next"] = {"first": [{"when": condition, "to": other}, {"else": on}]}
        elif kind < 0.9 or not back:
            step["next"] = {"all": [{"when": condition, "to": other}, on]}
        else:
            again = self.draw.choice(back)
            turn = f"${{{{ default(steps.{again}.activations, 0) < 2 }}}}"
            step["next"] = {"first": [{"when": turn, "to": again}, {"else": on}]}

    def join(self, step: Step) -> None:
        """Add the join of a step."""
        joins: list[Any] = [None, "all", "active", "active", "active"]
        if self.wild:
            joins += [1, 2, "each", {"need": 1, "late": "cancel"}, {"need": 1, "late": "queue"}]
        join = self.draw.choice(joins)
        if join is not None:
            step["join"] = join

    def race(self, step: Step, names: list[str]) -> None:
        """Make a step race against time, others or its own errors."""
        kind = self.draw.random()
        if kind < 0.1:
            step["deadline"] = "2s"
        elif kind < 0.2 and "python" in step:
            step["timeout"] = "1s"
            step["retry"] = {"attempts": 3, "delay": "500ms"}
        elif kind < 0.3:
            step.pop("on_error", None)
        elif kind < 0.4 and "map" not in step:
            step["on_error"] = [{"compensate": True, "next": self.draw.choice([*names, "end"])}]
        elif kind < 0.5:
            for key in DOES:
                step.pop(key, None)
            how = self.draw.choice(["cancelled", "succeeded", "failed"])
            step["cancel"] = {"steps": [self.draw.choice(names)], "as": how}
        elif kind < 0.58 and not isinstance(step["next"], dict):
            step["next"] = "end_all"
        elif kind < 0.8:
            self.wait(step, kind)
        elif kind < 0.85 and "group" in step:
            self.count += 1
            cleanup = {"id": f"s{self.count}", "python": "tools:act", "with": {"value": 0}}
            step["finally"] = [cleanup]

    def wait(self, step: Step, kind: float) -> None:
        """Make a step wait for others or for their writes, or make others wait for it."""
        if kind < 0.68 and "python" in step:
            for key in ("python", "with", "compensate"):
                step.pop(key, None)
            step.update(self.draw.choice(WAITS))
        elif kind < 0.75 and "cancel" not in step:
            step["lock"] = self.draw.choice(LOCKS)
        elif kind < 0.775 and "python" in step:
            step["emit"] = self.draw.choice(["go", {"signal": "more", "data": 1}])
            if "map" in step:
                step["map"].update(self.draw.choice([{"signal": "more"}, {"join": "none"}, {}]))
        elif kind < 0.8 and "python" in step and "map" not in step:
            step["set"] = {"n": 1}
