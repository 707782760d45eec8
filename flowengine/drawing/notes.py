"""The text in a box: the action of a step, its join, and its modifiers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from flowengine import registry
from flowengine.kernel.graph.specs import CompiledFlow, HandlerSpec, StepSpec

LONGEST = 60


def condition(number: int, expressions: Sequence[Any]) -> str:
    """Return a condition as text.

    Args:
        number: Number of its expression.
        expressions: All expressions of the flow.
    """
    return cut(expressions[number]["at"][2])


def value(tree: Any, expressions: Sequence[Any]) -> str:
    """Return a value of the compiled flow as text.

    Args:
        tree: See `flowengine.kernel.graph.compiled`.
        expressions: All expressions of the flow.
    """
    kind = tree[0]
    if kind == "const":
        return cut(json.dumps(tree[1], ensure_ascii=False))
    if kind == "expr":
        return condition(tree[1], expressions)
    return "…"


def cut(text: str) -> str:
    """Return text that fits into a box or beside an arrow.

    Args:
        text: Any text, also of several lines.
    """
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


class Notes:
    """Describes the steps of a flow in short lines.

    Args:
        flow: As plain data.
    """

    def __init__(self, flow: CompiledFlow) -> None:
        self.flow = flow
        self.steps = flow["steps"]
        self.expressions = flow["expressions"]

    def of(self, step: StepSpec) -> Iterator[str]:
        """Yield the lines about a step below its name, most important first.

        Yields:
            Lines.
        """
        if "says" in step:
            yield from filter(None, (step["says"],))
            return
        for part in (
            self._join, self._when, self._does, self._asks, self._map, self._loop, self._lock,
            self._bounds, self._writes, self._handlers,
        ):  # fmt: skip
            if "caller" not in step or part not in (self._lock, self._writes, self._handlers):
                yield from part(step)

    def _handlers(self, step: StepSpec) -> Iterator[str]:
        yield from self.handlers(step.get("on_error", []), "on")

    def action(self, step: StepSpec) -> str:
        """Return the text about a step's action.

        Args:
            step: The step, or its compensation.
        """
        if step["action"] == "flow":
            number = self.flow["bodies"][step["child"]].get("flow", 0)
            if step.get("kind", "flow") != "flow":  # one that was generated
                return f"{step['kind']} {self.flow['flows'][number - 1]['id'].partition('.')[2]}"
            return f"flow {self.flow['flows'][number - 1]['id'] if number else self.flow['id']}"
        return registry.label(step.get("kind", step["action"]), step.get("task", {}))

    def trigger(self, step: StepSpec) -> str:
        """Return the text about a step's trigger.

        Args:
            step: A step with a trigger.
        """
        trigger = step["trigger"]
        if "state" in trigger:
            return f"write to {trigger['state']}"
        names = (" and " if trigger.get("all") else " or ").join(trigger["signals"])
        match = f" if {self._condition(trigger['match'])}" if "match" in trigger else ""
        return f"{names}{match}{', transient' if trigger.get('transient') else ''}"

    def handlers(self, handlers: Iterable[HandlerSpec], word: str) -> Iterator[str]:
        """Yield the handlers of errors that lead to no other step.

        Args:
            word: Start of a line.

        Yields:
            Lines.
        """
        what = {
            "output": "continue",
            "fail": "raise another",
            "continue": "continue",
            "raise": "undo",
        }
        for handler in handlers:
            if handler.get("do") == "next":
                continue
            types = ", ".join(handler.get("types", [])) or "error"
            then = what[handler.get("do", "raise")]
            undo = "undo, " if handler.get("compensate") and then != "undo" else ""
            yield f"{word} {types}: {undo}{then}"

    def _condition(self, number: int) -> str:
        return condition(number, self.expressions)

    def _value(self, tree: Any) -> str:
        text = value(tree, self.expressions)
        return text.strip('"') if tree[0] == "const" else text

    def _join(self, step: StepSpec) -> Iterator[str]:
        join = step.get("join")
        if join is None:
            return
        if join["kind"] != "count":
            yield f"join {join['kind']}"
            return
        late = f", late {join['late']}" if "late" in join else ""
        yield f"join {self._value(join['need'])}{late}"

    def _when(self, step: StepSpec) -> Iterator[str]:
        if "when" in step:
            yield f"when {self._condition(step['when'])}"

    def _does(self, step: StepSpec) -> Iterator[str]:
        action = step["action"]
        if action == "wait":
            yield from self._wait(step)
        elif action == "cancel":
            yield self._cancel(step)
        elif action in ("task", "approval", "fail", "flow"):
            yield self.action(step)

    def _asks(self, step: StepSpec) -> Iterator[str]:
        if "approval" in step:
            tag, parts = step["approval"]
            when = parts.get("when") if tag == "map" else None
            if when is not None and when[0] == "expr":
                yield f"asks first if {self._condition(when[1])}"
            else:
                yield "asks first"

    def _wait(self, step: StepSpec) -> Iterator[str]:
        alternatives = step["wait"]["alternatives"]
        if len(alternatives) == 1:
            yield f"wait {self._awaited(alternatives[0])}"
            return
        yield f"wait, {step['wait']['mode']} of"
        for alternative in alternatives:
            yield f"{alternative['id']}: {self._awaited(alternative)}"

    def _awaited(self, alternative: Any) -> str:
        """Return the text about an alternative of a wait."""
        if "after" in alternative:
            return f"for {self._value(alternative['after'])}"
        if "until" in alternative:
            return f"until {self._value(alternative['until'])}"
        if "when" in alternative:
            return f"when {self._condition(alternative['when'])}"
        count = f", {self._value(alternative['count'])} times" if "count" in alternative else ""
        match = f" if {self._condition(alternative['match'])}" if "match" in alternative else ""
        transient = ", transient" if alternative.get("transient") else ""
        return f"signal {alternative['signal']}{match}{count}{transient}"

    def _cancel(self, step: StepSpec) -> str:
        cancel = step["cancel"]
        names = [self.steps[target]["id"] for target in cancel.get("targets", [])]
        outcome = cancel["outcome"]
        how = f" as {outcome}" if outcome != "cancelled" else ""
        return f"cancels {', '.join(names) or 'the execution'}{how}"

    def _map(self, step: StepSpec) -> Iterator[str]:
        if "map" not in step:
            return
        spec = step["map"]
        name = (spec.get("names") or ["item"])[0]
        at_once = f", {self._value(spec['concurrency'])} at once" if "concurrency" in spec else ""
        yield f"map {name} in {self._value(spec['over'])}{at_once}"
        if spec.get("each"):
            yield "each item continues on its own"
        if "need" in spec:
            late = f", late {spec['late']}" if "late" in spec else ""
            yield f"join {self._value(spec['need'])}{late}"
        if "more" in spec:
            yield f"more items by {spec['more']}"

    def _loop(self, step: StepSpec) -> Iterator[str]:
        if "loop" not in step:
            return
        loop = step["loop"]
        word = "until" if "until" in loop else "while"
        tested = loop["until"] if "until" in loop else loop["before"]
        every = f", every {self._value(loop['every'])}" if "every" in loop else ""
        yield f"loop {word} {self._condition(tested)}, max {self._value(loop['max'])}{every}"

    def _lock(self, step: StepSpec) -> Iterator[str]:
        if "lock" in step:
            lock = step["lock"]
            permits = lock["permits"]
            many = f", {permits} at once" if permits != 1 else ""
            yield f"lock {self._value(lock['key'])}{many}"

    def _bounds(self, step: StepSpec) -> Iterator[str]:
        if "needs" in step:
            yield f"needs {', '.join(step['needs'])}"
        attempts = step.get("retry", {}).get("attempts", 1)
        if attempts != 1:
            yield f"retry {attempts}"
        if "timeout" in step:
            yield f"timeout {self._value(step['timeout'])}"
        if "deadline" in step:
            yield f"deadline {self._value(step['deadline'])}"

    def _writes(self, step: StepSpec) -> Iterator[str]:
        if step.get("set"):
            yield f"sets {', '.join(key for key, _value in step['set'])}"
        if step.get("emit"):
            yield f"emits {', '.join(item['signal'] for item in step['emit'])}"
