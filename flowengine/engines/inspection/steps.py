"""The history of each step of an execution, collected from its journal."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flowengine import registry
from flowengine.engines.executions.linked_flows import LinkedFlows
from flowengine.engines.executions.moments import Moment
from flowengine.engines.executions.step_index import AT_WORK, GAVE, REMARK, at_work
from flowengine.engines.folds import State
from flowengine.engines.infos import AttemptInfo, LogInfo, StepInfo
from flowengine.engines.inspection.call_endings import failure_told, shown_status
from flowengine.engines.people.waits import decision_view
from flowengine.engines.snapshots import Row
from flowengine.kernel import Graph
from flowengine.kernel.commands import Observation
from flowengine.kernel.events import Event, Log
from flowengine.kernel.notation.addresses import wholes
from flowengine.kernel.notation.times import format_duration, format_time, parse_time

_SIGNS = re.compile(r"[/\[@]")
"""The ends of the addresses of steps around one."""
OVER = frozenset({"succeeded", "skipped", "failed", "cancelled"})
_STOPPED = {"interrupted": "interrupted", "quarantined": "interrupted", "waiting": "waiting"}
"""Status of an execution without a process → that of its steps that were running."""


_ENDED_WELL = frozenset({"succeeded", "skipped"})
_Once = tuple[int, int | None, int | None, str, str | None, Any]
"""Step, times, status, outcome and output of an activation of an index that has begun once at most,
and has succeeded or was skipped unless it is open."""


class ActivationLog:
    """The observations of each activation.

    Attributes:
        steps: Address → activation, in order of beginning. See `read` and `step`.
        open: The addresses of those that have not ended.
        earlier: Address → number of tries of the activation before it began anew.
    """

    def __init__(self) -> None:
        self.steps: dict[str, StepInfo | _Once] = {}
        self.open: dict[str, None] = {}
        self.earlier: dict[str, int] = {}
        self._begun: dict[str, str] = {}
        """When the first item or round of a running step began."""
        self._last_time = (0, "")
        self._graph: Graph | None = None

    def load(
        self,
        flows: LinkedFlows,
        form: str,
        rows: Iterable[Row],
        events: Mapping[int, Event],
    ) -> None:
        """Put the activations of an index into an empty log.

        Most have begun once at most and succeeded. Their details are made when they are read.

        Args:
            flows: The flows of the store.
            form: Hash of the flow of the first rows.
            rows: The rows of the index.
            events: Those with the remarks, and those with outputs if these are wanted.
        """
        graph = flows.by_hash(form).graph
        steps, opened, begun = self.steps, self.open, self._begun
        plain = self._begin_form(graph)
        inside: set[str] = set()
        """Maps and loops that have begun with those around them."""
        for row in rows:
            number, source, at, address, step, status, outcome, attempt, output, error = row
            if source == GAVE and number in events:
                event: Any = events[number]
                output = event["value"]
            known = steps.get(address)
            is_over = error is None and status in _ENDED_WELL
            if known is None:
                is_first = not attempt if is_over else attempt and status == "running"
                if is_first and plain[step] and address not in begun:
                    end = address.rfind("[")
                    if "@" in address:
                        end = max(end, address.rfind("@"))
                    if end > 0 and address[:end] not in inside:
                        self._begin_wholes(address, at)
                        inside.add(address[:end])
                    if is_over:
                        steps[address] = step, None, at, status, outcome, output
                    else:
                        steps[address] = step, at, None, status, None, None
                        opened[address] = None
                    continue
            elif status == "succeeded" and is_over and type(known) is tuple and address in opened:
                steps[address] = step, known[1], at, status, outcome, output
                del opened[address]
                continue
            inside.clear()
            if source == REMARK and events[number]["type"] == "upgraded":
                event = events[number]
                graph = flows.by_hash(event["after"]).graph
                plain = self._begin_form(graph)
            self._load_other(graph, row._replace(output=output), events)

    def _load_other(self, graph: Graph, row: Row, events: Mapping[int, Event]) -> None:
        """Put a row into the log that does not just begin or end an activation once."""
        if row.source == REMARK:
            event = events[row.number]
            self._end_before_fork(row.address, event)
            self.add(row.address, event)
        elif row.source == AT_WORK:
            self._reopen(row.address, row.status)
        else:
            self.fold(graph, row.observation)

    def _begin_form(self, graph: Graph) -> list[bool]:
        """Begin a form of the flow for the next events. Return which of its steps are plain."""
        for address in self.steps:  # their details depend on the form before
            self.step(address)
        self._graph = graph
        return ["teller" not in step and "caller" not in step for step in graph.flow["steps"]]

    def states(self, only: Iterable[str] | None = None) -> Iterator[tuple[str, State]]:
        """Yield address and state of each activation, or of those at some addresses."""
        steps = [] if self._graph is None else self._graph.flow["steps"]
        pairs = {
            status: [(step["id"], status) for step in steps] for status in ("running", *_ENDED_WELL)
        }
        for address in self.steps if only is None else only:
            step = self.steps[address]
            if isinstance(step, tuple):
                yield address, pairs[step[3]][step[0]]
            else:
                yield address, (step["step"], step["status"])

    def read(self, address: str) -> StepInfo:
        """Return an activation, not to be changed.

        Args:
            address: Its address, which exists.
        """
        known = self.steps[address]
        if not isinstance(known, tuple):
            return known
        assert self._graph is not None
        step, started, ended, status, outcome, output = known
        log = ActivationLog()
        if started is not None:
            begun = (started, address, step, "running", None, 1, None, None, None)
            log.fold(self._graph, Observation(*begun))
        if ended is not None:
            seen = (ended, address, step, status, outcome, 0, output, None, None)
            log.fold(self._graph, Observation(*seen))
        return log.read(address)

    def step(self, address: str | None) -> StepInfo | None:
        """Return an activation, to be changed. None: it has not begun."""
        if address is None:
            return None
        step = self.steps.get(address)
        if not isinstance(step, tuple):
            return step
        self.steps[address] = made = self.read(address)
        self.earlier[address] = 0
        return made

    def record(self, moment: Moment, seen: list[Observation]) -> None:
        """Record the effects of an event.

        Args:
            moment: The event.
            seen: The observations. Empty afterwards.
        """
        self._end_before_fork(moment.address, moment.event)
        for observation in seen:
            self.fold(moment.graph, observation)
        seen.clear()
        if moment.event["type"] == "retry":
            for address, _, status in at_work(moment.graph, moment.state):
                self._reopen(address, status)
        self.add(moment.address, moment.event)
        step = None if moment.subject is None else self.step(moment.address)
        if step is not None:
            step["subject"] = moment.subject

    def _end_before_fork(self, address: str | None, event: Event) -> None:
        """Record how an attempt ended in the execution that was forked while it still ran."""
        if event["type"] != "retry" or "ended" not in event:
            return
        step = self.step(address)
        for last in [] if step is None else step["tries"][-1:]:
            if "ended_at" not in last:
                last["status"], last["error"] = "failed", event["ended"]["error"]
                last["ended_at"] = self._time(event["ended"]["at"])

    def _reopen(self, address: str, status: str) -> None:
        """Mark a step as running again that had ended with the failure before a retry.

        Args:
            address: Of a step that the execution is at work on.
            status: Its status now. Empty: there was no retry.
        """
        step = self.step(address)
        if status and step is not None and "ended_at" in step:
            del step["ended_at"]
            step["status"] = status
            step["outcome"] = step["output"] = step["error"] = None
            self.open[address] = None

    def add(self, address: str | None, event: Event) -> None:
        """Record an event's information on a step that was not observed by the kernel."""
        step = self.step(address)
        if address is None or step is None:
            return
        if event["type"] == "decided":
            if "decision" in step:
                step.setdefault("earlier_decisions", []).append(step["decision"])
            step["decision"] = decision_view(dict(event))
        if "evidence" in event or "log" in event:
            _add_to_attempt(step, dict(event))

    def fold(self, graph: Graph, seen: Observation) -> None:
        """Record an observation of an activation."""
        at = self._time(seen.at)
        step = self.step(seen.address)
        if step is not None and "ended_at" in step and seen.status in OVER:
            return  # a failed step is withdrawn with its scope
        if step is None or "ended_at" in step:
            step = self._begin(graph, seen, at)
            self.open[seen.address] = None
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
            if seen.output is not None:
                summary = _summary(seen, graph)
                step |= {} if summary is None else {"summary": summary}
            spec = graph.flow["steps"][seen.step]
            step["ended_at"] = at
            step["status"] = shown_status(seen, spec)
            step["outcome"], step["output"] = seen.outcome, seen.output
            step["error"] = None if step["status"] == "succeeded" else seen.error

    def _begin_wholes(self, address: str, at: int) -> None:
        """Begin the maps and loops whose first item or round begins."""
        for whole in wholes(address):
            if whole not in self._begun:
                self._begun[whole] = self._time(at)

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
        before = self.step(seen.address)
        tries = [] if before is None else before["tries"]
        self.earlier[seen.address] = len(tries)
        self._begin_wholes(seen.address, seen.at)
        step: StepInfo = {
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
        self.steps[seen.address] = step
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


def add_times(steps: Iterable[StepInfo]) -> StepInfo:
    """Add how long attempts ran to steps with all their attempts. Return it for all of them.

    An attempt that was withdrawn may end after the step for which it ran.
    """
    all_steps: StepInfo = {"address": "", "tries": []}
    known = {"": all_steps, **{step["address"]: step for step in steps}}
    around = {
        address: {"", *(address[: sign.start()] for sign in _SIGNS.finditer(address))} - {address}
        for address in known
    }
    wholes = {whole for those in around.values() for whole in those}
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for address, step in known.items():
        for each in step["tries"] if address not in wholes else ():
            if "ended_at" in each and each["status"] != "interrupted":  # its end is unknown
                span = parse_time(each["started_at"]), parse_time(each["ended_at"])
                for whole in (*around[address], address):
                    spans[whole].append(span)
    for address in known.keys() & spans.keys():
        step, took, end = known[address], 0, 0
        last = (
            parse_time(step["ended_at"])
            if "ended_at" in step
            else max(stop for _, stop in spans[address])
        )
        for start, stop in sorted(spans[address]):
            took += max(0, min(stop, last) - max(start, end))
            end = max(end, stop)
        step["took"] = format_duration(took)
    return all_steps


def _attempt(seen: Observation, at: str, number: int) -> AttemptInfo:
    return {
        "attempt": number,
        "status": "running",
        "started_at": at,
        "input": seen.input,
    }


def _interrupt_attempt(step: StepInfo, at: str) -> None:
    """Note that the process of an attempt is gone: another attempt begins, or an operator is asked.

    The time of its end is unknown. It was noticed at the time `at`.
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


def _summary(seen: Observation, graph: Graph) -> str | None:
    """Return a line about the output of a generated flow's step, such as an answer to a call."""
    spec, teller = graph.flow["steps"][seen.step], graph.node(seen.step).teller
    if teller is not None:
        kind = spec.get("kind", "")
        return failure_told(seen, spec) or registry.summary(teller, kind, seen.output)
    return None
