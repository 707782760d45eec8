"""Random single-token flow files, and an oracle that predicts their effects from the text alone.

`draw_file` draws the data of a flow file. `Recursion` interprets it as plain recursion: a group is
a loop over its steps, an error an exception, `finally` is `finally`, and pending compensations are
a list. It uses no events and no state of the engine. It predicts each effect (a call of a task,
including compensation and cleanup) with its argument, in order, and the final values.

A fork at an address is the same recursion, counting effects from that address on. A retry of a
failed execution counts from the failed call on. In both, all later calls succeed.
"""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any, NamedTuple

Step = dict[str, Any]
Effect = tuple[str, Any]
"""Address and argument of a call."""
Done = list[tuple[str, Step, Any]]
"""Completed steps to compensate: address, step and output, in order."""
UNDO = "/compensate"


class Told(NamedTuple):
    """The predicted outcome of a flow."""

    status: str
    outputs: dict[str, Any] | None
    error: str | None
    effects: list[Effect]


class Error(Exception):
    """An error in the flow, with the number of the call that raised it."""

    def __init__(self, type: str, call: int, retryable: bool) -> None:
        super().__init__(type)
        self.type = type
        self.call = call
        self.retryable = retryable


def result(step: str, value: int) -> int:
    """Return the result of a task."""
    return (value * 3 + int(step[1:])) % 97


class Recursion:
    """One interpretation of a flow file.

    Args:
        file: The flow file as data.
        fates: Step → number of initial calls that fail.
        at: Address of a fork: effects count from there on. None counts all.
        again: Number of the failed call of a retry: effects count from there on.
        undone: Steps that are already compensated, for a fork at a compensation.
    """

    def __init__(
        self,
        file: dict[str, Any],
        fates: dict[str, int],
        *,
        at: str | None = None,
        again: int = 0,
        undone: frozenset[str] = frozenset(),
    ) -> None:
        self.file = file
        self.fates = dict(fates)
        self.at = at
        self.again = again
        self.undone = undone
        self.counts = at is None and not again
        self.effects: list[Effect] = []
        self.entered: list[str] = []
        self.undoing = 0
        """Number of compensations run so far, counted or not."""
        self.undone_before: Counter[str] = Counter()
        """Address → number of compensations run before it was first entered."""
        self.calls = 0
        self.raised = 0
        """Number of the call that failed the flow, or 0."""
        self.names: dict[str, Any] = {}

    def play(self) -> Told:
        """Interpret the flow, and return the predicted outcome."""
        try:
            outputs = self.flow(self.file, "", {}, [])
        except Error as error:
            self.raised = error.call
            return Told("failed", None, error.type, self.effects)
        return Told("succeeded", outputs, None, self.effects)

    def flow(self, flow: dict[str, Any], path: str, inputs: dict[str, Any], done: Done) -> Any:
        state = {key: spec["default"] for key, spec in flow["state"].items()}
        outside = self.names
        self.names = {"state": state, "inputs": inputs}
        inside: Done = []
        try:
            try:
                self.body(flow["steps"], path, inside)
            except Error:
                if flow.get("on_error") == "compensate":
                    self.undo(inside)
                    inside = []
                raise
            return self.value(flow["outputs"])
        finally:
            done += inside
            self.body(flow.get("finally", []), f"{path}finally/", [])
            self.names = outside

    def body(self, steps: list[Step], path: str, done: Done) -> Any:
        output = None
        for step in steps:
            address = path + step["id"]
            self.enter(address)
            if "when" in step and not self.value(step["when"]):
                output = None
                continue
            inside: Done = []
            try:
                output = self.items(step, address, inside)
            except Error:
                handlers = step.get("on_error")
                if handlers is None:
                    done += inside
                    raise
                if _compensates(step):
                    self.undo(inside)
                    inside = []
                output = None if handlers == "continue" else handlers[0]["output"]
            done += inside
        return output

    def enter(self, address: str) -> None:
        self.undone_before.setdefault(address, self.undoing)
        if address not in self.entered:
            self.entered.append(address)
        if address == self.at:
            self.heal()

    def heal(self) -> None:
        """Start counting, and let all later calls succeed."""
        self.counts, self.fates = True, {}

    def undo(self, done: Done) -> None:
        for address, step, output in reversed(done):
            self.enter(address + UNDO)
            if address + UNDO in self.undone:
                continue
            self.undoing += 1
            with_ = step["compensate"]["with"]["value"]
            self.call(address + UNDO, "s0", self.value(with_, output=output))

    def items(self, step: Step, address: str, done: Done) -> Any:
        if "map" not in step:
            return self.rounds(step, address, done)
        outputs: list[Any] = []
        for item in range(step["map"]["over"]):
            self.enter(f"{address}[{item}]")
            try:
                outputs.append(self.rounds(step, f"{address}[{item}]", done))
            except Error as error:
                if step["map"]["on_item_error"] == "stop":
                    raise Error("MapFailed", error.call, False) from None
                outputs.append(None)
        return outputs

    def rounds(self, step: Step, address: str, done: Done) -> Any:
        if "loop" not in step:
            return self.attempts(step, address, done)
        number = 0
        while True:
            number += 1
            self.enter(f"{address}@{number}")
            output = self.attempts(step, f"{address}@{number}", done)
            self.names["round"] = SimpleNamespace(number=number)
            if self.value(step["loop"]["until"]):
                return output

    def attempts(self, step: Step, address: str, done: Done) -> Any:
        tried = 0
        while True:
            tried += 1
            try:
                output = self.act(step, address, done, tried)
            except Error as error:
                if error.call == self.again and not self.counts:
                    self.heal()  # this is the call that is retried, as if it had never been tried
                    tried = 0
                elif _is_last(step, error, tried):
                    raise
            else:
                break
        for key, value in step.get("set", {}).items():
            self.names["state"][key] = self.value(value, output=output)
        if "compensate" in step:
            done.append((address, step, output))
        return output

    def act(self, step: Step, address: str, done: Done, tried: int) -> Any:
        if "python" in step:
            return self.call(address, step["id"], self.value(step["with"]["value"]))
        if "flow" in step:
            given = {name: self.value(value) for name, value in step["with"].items()}
            return self.flow(self.file["flows"][step["flow"]], f"{address}/", given, done)
        try:
            return self.body(step["group"], f"{address}/", done)
        except Error as error:  # a scope compensates before it cleans up
            if _compensates(step) and "map" not in step and _is_last(step, error, tried):
                self.undo(done)
                done.clear()
            raise
        finally:
            self.body(step.get("finally", []), f"{address}/finally/", [])

    def call(self, address: str, step: str, value: Any) -> int:
        self.calls += 1
        if self.counts:
            self.effects.append((address, value))
        if self.fates.get(step, 0) > 0:
            self.fates[step] -= 1
            raise Error("Odd", self.calls, retryable=True)
        return result(step, value)

    def value(self, text: Any, output: Any = None) -> Any:
        """Return the value of a template. Its expressions are also valid Python."""
        if isinstance(text, dict):
            return {key: self.value(inner) for key, inner in text.items()}
        if not isinstance(text, str) or not text.startswith("${{"):
            return text
        names = {key: _named(value) for key, value in {**self.names, "output": output}.items()}
        return eval(text.removeprefix("${{").removesuffix("}}").strip(), {}, names)


def _compensates(step: Step) -> bool:
    handlers = step.get("on_error", [{}])
    return handlers != "continue" and "compensate" in handlers[0]


def _is_last(step: Step, error: Error, tried: int) -> bool:
    """Return whether a failed attempt is the last one."""
    most: int = step.get("retry", {"attempts": 1})["attempts"]
    return tried >= most or not error.retryable


def _named(value: Any) -> Any:
    return SimpleNamespace(**value) if isinstance(value, dict) else value


# Random flow files


def draw_file(seed: int) -> tuple[dict[str, Any], dict[str, int]]:
    """Return a random flow file as data, and the number of initial failures of each step."""
    draws = _Draws(random.Random(seed))
    return draws.file(), draws.fates


class _Draws:
    def __init__(self, draws: random.Random) -> None:
        self.random = draws
        self.count = 0
        self.fates: dict[str, int] = {}
        self.calm = False
        """Whether the drawn steps are part of a cleanup, which must not fail."""
        self.again = self.chance(0.5)
        """Whether attempts may be repeated. If not, each task may run only once."""

    def chance(self, likely: float) -> bool:
        return self.random.random() < likely

    def file(self) -> dict[str, Any]:
        flows = {"f": self.flow(1)} if self.chance(0.4) else {}
        main = self.flow(2, runs=bool(flows))
        return {
            **main,
            "tools": {"undo": {"python": "tools:act"}},
            **({"flows": flows} if flows else {}),
        }

    def flow(self, depth: int, *, runs: bool = False) -> dict[str, Any]:
        flow: dict[str, Any] = {"steps": self.body(depth, runs)}
        flow["state"] = {"x": {"type": "integer", "default": self.random.randrange(97)}}
        flow["outputs"] = {"x": "${{ state.x }}"}
        if runs or depth == 2:
            flow["inputs"] = {}
        if self.chance(0.3):
            flow["on_error"] = "compensate"
        if self.chance(0.3):
            flow["finally"] = self.cleanup()
        return flow

    def body(self, depth: int, runs: bool) -> list[Step]:
        return [self.step(depth, runs) for _ in range(self.random.randint(1 + (depth == 2), 4))]

    def cleanup(self) -> list[Step]:
        self.calm = True
        steps = [self.task() for _ in range(self.random.randint(1, 2))]
        self.calm = False
        return steps

    def task(self) -> Step:
        self.count += 1
        step: Step = {"id": f"s{self.count}", "python": "tools:act",
                      "effect": "idempotent" if self.again else "once",
                      "with": {"value": "${{ state.x }}"}}  # fmt: skip
        pure = self.chance(0.4)
        if not self.calm:
            if self.chance(0.25):
                self.fates[step["id"]] = self.random.randint(1, 3)
            if self.chance(0.35):
                step["compensate"] = {"call": "undo", "with": {"value": "${{ output }}"}}
        if pure and "compensate" not in step:
            step["effect"] = "pure"  # allows the step to run ahead of the journal
        return step

    def step(self, depth: int, runs: bool) -> Step:
        kind = self.random.random()
        if kind < 0.35 and depth:
            self.count += 1
            step: Step = {"id": f"s{self.count}", "group": self.body(depth - 1, runs)}
            if self.chance(0.4):
                step["finally"] = self.cleanup()
        elif kind < 0.5 and runs:
            self.count += 1
            step = {"id": f"s{self.count}", "flow": "f", "with": {}}
            step["set"] = {"x": "${{ output.x }}"}
        else:
            step = self.task()
            step["set"] = {"x": "${{ output }}"}
        self.modify(step)
        return step

    def modify(self, step: Step) -> None:
        if self.chance(0.2):
            stops = self.random.choice(["stop", "continue"])
            step["map"] = {"over": self.random.randint(1, 3), "concurrency": 1,
                           "on_item_error": stops}  # fmt: skip
            step.pop("set", None)
        elif self.chance(0.15):
            number = self.random.randint(1, 3)
            step["loop"] = {"until": f"${{{{ round.number == {number} }}}}", "max": 3}
        if self.again and self.chance(0.4):
            step["retry"] = {"attempts": self.random.randint(2, 3), "delay": "1s",
                             "jitter": "none"}  # fmt: skip
        if self.chance(0.15):
            step["when"] = f"${{{{ state.x % 2 == {self.random.randrange(2)} }}}}"
        if self.chance(0.3):
            handlers: list[Any] = ["continue", [{"output": None}]]
            if "group" in step:
                handlers += [[{"compensate": True, "output": None}]] * 2
            step["on_error"] = self.random.choice(handlers)
