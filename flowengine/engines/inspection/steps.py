"""What happened to each step of an execution, collected from the events of its journal."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from flowengine import registry
from flowengine.engines.executions.subjects import wholes
from flowengine.engines.folds import LazyDict
from flowengine.engines.inspection.call_endings import failure_told, shown_status
from flowengine.engines.people.waits import decision_view
from flowengine.kernel.notation.times import format_time
from flowengine.kernel.view import View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from flowengine.engines.executions.linked_flows import Moment
    from flowengine.engines.infos import AttemptInfo, LogInfo, StepInfo
    from flowengine.kernel import Graph
    from flowengine.kernel.commands import Observation
    from flowengine.kernel.events import Ended, Event, Log

OVER = frozenset({"succeeded", "skipped", "failed", "cancelled"})
_STOPPED = {"interrupted": "interrupted", "quarantined": "interrupted", "waiting": "waiting"}
"""Status of an execution without a process → that of its steps that were running."""


class ActivationLog:
    """The observations of each activation.

    Attributes:
        steps: Address → activation, in order of beginning.
        open: The addresses of those that have not ended.
        changed: The addresses of those that have changed since it was emptied, in order.
        earlier: Address → number of tries of the activation before it began anew.

    Args:
        read: Puts what was recorded of an address into `steps` and `earlier`. None: nothing was.
    """

    def __init__(self, read: Callable[[str], None] | None = None) -> None:
        self.steps: dict[str, StepInfo] = {} if read is None else LazyDict(read)
        self.open: dict[str, None] = {}
        self.changed: dict[str, None] = {}
        self.earlier: dict[str, int] = {} if read is None else LazyDict(read)
        self._begun: dict[str, str] = {}
        """When the first item or round of a running step began."""
        self._last_time = (0, "")

    def summary(self) -> dict[str, Any]:
        """Return what `restore` needs to go on, besides the steps, as plain data."""
        return {"open": [*self.open], "begun": self._begun.copy()}

    def restore(self, summary: Mapping[str, Any]) -> None:
        """Go on from a `summary`."""
        self.open, self._begun = dict.fromkeys(summary["open"]), dict(summary["begun"])

    def take(self, moment: Moment, seen: list[Observation]) -> None:
        """Record the effects of an event.

        Args:
            moment: The event.
            seen: The observations. Empty afterwards.
        """
        if moment.event["type"] == "retry" and "ended" in moment.event:
            self._end_before_fork(moment, moment.event["unit"] or 0, moment.event["ended"])
        for observation in seen:
            self.fold(moment.graph, observation)
        seen.clear()
        if moment.event["type"] == "retry":
            for address in _reopened(moment, self.steps):
                self.open[address] = self.changed[address] = None
        self.add(moment.address, moment.event)
        if moment.subject is not None and moment.address in self.steps:
            self.steps[moment.address]["subject"] = moment.subject
            self.changed[moment.address] = None

    def _end_before_fork(self, moment: Moment, number: int, ended: Ended) -> None:
        """Record how an attempt ended in the execution that was forked while it still ran."""
        unit = moment.state["units"].get(number)
        step = (
            None if unit is None else self.steps.get(View(moment.graph, moment.state).address(unit))
        )
        for last in [] if step is None else step["tries"][-1:]:
            if "ended_at" not in last:
                last["status"], last["error"] = "failed", ended["error"]
                last["ended_at"] = self._time(ended["at"])
                self.changed[step["address"]] = None  # type: ignore[index]

    def add(self, address: str | None, event: Event) -> None:
        """Record an event's information on a step that was not observed by the kernel."""
        step = None if address is None else self.steps.get(address)
        if address is None or step is None:
            return
        if event["type"] == "decided":
            self.changed[address] = None
            if "decision" in step:
                step.setdefault("earlier_decisions", []).append(step["decision"])
            step["decision"] = decision_view(dict(event))
        if "evidence" in event or "log" in event:
            self.changed[address] = None
            _add_to_attempt(step, dict(event))

    def fold(self, graph: Graph, seen: Observation) -> None:
        """Record an observation of an activation."""
        at = self._time(seen.at)
        step = self.steps.get(seen.address)
        if step is not None and "ended_at" in step and seen.status in OVER:
            return  # a failed step is withdrawn with its scope
        if step is None or "ended_at" in step:
            step = self._begin(graph, seen, at)
            self.open[seen.address] = None
        self.changed[seen.address] = None
        step["status"] = seen.status
        if seen.input is not None:
            step["input"] = seen.input
        if seen.status == "running" and self._begins_late(step, seen):
            step["tries"][-1]["started_at"] = at
            return
        if seen.status in ("running", "uncertain"):
            _interrupt_attempt(step, at)
        if seen.status == "running":
            step["tries"].append(_attempt(seen, at, len(step["tries"]) + 1))
        if seen.attempt:
            step["attempts"] = max(len(step["tries"]) - self.earlier[seen.address], 1)
        if seen.status in OVER or seen.status == "retrying":
            _end_attempt(step, seen, at)
        if seen.status in OVER:
            del self.open[seen.address]
            teller = graph.node(seen.step).teller
            if teller is not None and seen.output is not None:
                failure = failure_told(seen, graph.flow["steps"][seen.step])
                summary = failure or registry.summary(teller, seen.output)
                step |= {} if summary is None else {"summary": summary}
            step["ended_at"] = at
            step["status"] = shown_status(seen, graph.flow["steps"][seen.step])
            step["outcome"], step["output"] = seen.outcome, seen.output
            step["error"] = None if step["status"] == "succeeded" else seen.error

    def pass_over(self, seen: Observation) -> None:
        """Record only that an item or round existed, because its step is not shown."""
        for whole in wholes(seen.address):
            self._begun.setdefault(whole, self._time(seen.at))

    def _begins_late(self, step: StepInfo, seen: Observation) -> bool:
        """Return whether an attempt begins that an earlier process left to a later one."""
        number = len(step["tries"]) - self.earlier.get(seen.address, 0)
        open_tries = [attempt for attempt in step["tries"][-1:] if "ended_at" not in attempt]
        return number == seen.attempt and bool(open_tries)

    def _time(self, at: int) -> str:
        if self._last_time[0] != at:  # all effects of an event have the same time
            self._last_time = at, format_time(at)
        return self._last_time[1]

    def _begin(self, graph: Graph, seen: Observation, at: str) -> StepInfo:
        """Return a new activation. A map or loop begins with its first item or round."""
        node = graph.node(seen.step)
        tries = self.steps[seen.address]["tries"] if seen.address in self.steps else []
        self.earlier[seen.address] = len(tries)
        for whole in wholes(seen.address):
            self._begun.setdefault(whole, at)
        step = self.steps[seen.address] = {
            "address": seen.address,
            "step": node.id,
            "kind": node.kind,
            "status": seen.status,
            "outcome": None,
            "attempts": 0,
            "started_at": self._begun.pop(seen.address, at),
            "output": None,
            "error": None,
            "tries": tries,
        }
        if node.plumbing:
            step["plumbing"] = True
        return step


def wait_with_what_is_inside(steps: Iterable[StepInfo]) -> None:
    """Mark steps as waiting if something in them waits and nothing in them runs."""
    inside: dict[str, set[str]] = defaultdict(set)
    open_steps = [step for step in steps if "ended_at" not in step]
    for step in sorted(open_steps, key=lambda candidate: len(candidate["address"]), reverse=True):
        address = step["address"]
        if step["status"] == "running" and inside[address] == {"waiting"}:
            step["status"] = "waiting"
        for sign in re.finditer(r"[/[@]", address):
            inside[address[: sign.start()]].add(step["status"])


def stop_with(steps: Iterable[StepInfo], status: str) -> None:
    """Give running steps another status if no process drives their execution.

    Args:
        steps: They are changed.
        status: Of the execution.
    """
    stopped = _STOPPED.get(status)
    if stopped is None:
        return
    for step in steps:
        for each in (step, *step["tries"]):
            if each["status"] == "running":
                each["status"] = stopped


def _add_to_attempt(step: StepInfo, event: dict[str, Any]) -> None:
    """Record the evidence of a failed attempt, and the log of any attempt."""
    for attempt in reversed(step["tries"]):
        if "ended_at" in attempt:
            if "evidence" in event:
                attempt["evidence"] = event["evidence"]
            if "log" in event:
                attempt["log"] = _log_info(event["log"])
            return


def _log_info(log: Log) -> LogInfo:
    lines: list[Any] = log["lines"]
    return {
        "lines": [
            {"at": format_time(at), "level": level, "text": text} for at, level, text in lines
        ],
        "left_out": log.get("left_out", 0),
    }


def _attempt(seen: Observation, at: str, number: int) -> AttemptInfo:
    return {
        "attempt": number,
        "status": "running",
        "started_at": at,
        "input": seen.input,
    }


def _interrupt_attempt(step: StepInfo, at: str) -> None:
    """Note that the process of an attempt is gone: another attempt begins, or an operator is asked.

    Nobody knows when it ended. It was noticed at the time `at`.
    """
    for last in step["tries"][-1:]:
        if "ended_at" not in last:
            last["status"], last["ended_at"] = "interrupted", at


def _end_attempt(step: StepInfo, seen: Observation, at: str) -> None:
    tries = step["tries"]
    if not tries or "ended_at" in tries[-1]:
        return
    last = tries[-1]
    last["status"] = "failed" if seen.error is not None else seen.status
    last["ended_at"] = at
    if seen.error is not None:
        last["error"] = seen.error
    else:
        last["output"] = seen.output


def _reopened(moment: Moment, steps: dict[str, StepInfo]) -> Iterator[str]:
    """Mark the steps as running again that had ended with the failure before a retry.

    Yields:
        Their addresses.
    """
    view = View(moment.graph, moment.state)
    acts = [other for other in moment.state["acts"].values() if not other.get("left_early")]
    at_work = [(view.step_address(act), "running") for act in acts]
    for unit in moment.state["units"].values():
        status = "waiting" if unit["phase"] in ("wait", "asked", "lock") else "running"
        at_work.append((view.address(unit), status))
    for address, status in at_work:
        step = steps.get(address)
        if step is not None and "ended_at" in step:
            del step["ended_at"]
            step["status"] = status
            step["outcome"] = step["output"] = step["error"] = None
            yield address
