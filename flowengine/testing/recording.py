"""Records an execution as a test case: every result, decision and signal, with its time.

The case is replayed immediately on the recorded flow, and kept as simple as possible: without the
durations of calls, if the history is the same without them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from flowengine.engines.engine import Engine
from flowengine.engines.executions.linked_flows import LinkedFlows, forms, line, read
from flowengine.engines.flows import LoadedFlow
from flowengine.engines.inspection.steps import Steps
from flowengine.errors import Conflict, InputError
from flowengine.flow.cases import parse_cases
from flowengine.flow.export.definition import to_yaml
from flowengine.kernel import ENDED, Graph, advance, new_state
from flowengine.kernel.commands import ENDED as AGENT_ENDED
from flowengine.kernel.commands import Observation, Run, SetTimer, Stop
from flowengine.kernel.events import Event
from flowengine.kernel.graph.compiled import OPENING
from flowengine.kernel.notation.accounts import read_account
from flowengine.kernel.notation.addresses import place
from flowengine.kernel.notation.times import format_duration, format_time
from flowengine.kernel.state.records import State
from flowengine.kernel.view import View
from flowengine.sdk import StepError
from flowengine.sdk.steps.rehearsals import Rehearsal
from flowengine.sdk.texts.untrusted import all_unmarked, unmarked
from flowengine.secrets import Secrets
from flowengine.testing.expectations import path_of, problems
from flowengine.testing.player import Player
from flowengine.testing.scripts import (
    RequestHistory,
    differences,
    given_to,
    of_agent,
    rehearsal_of,
    unadapted,
)
from flowengine.util.plain_data import with_leaves

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
PAPERWORK = frozenset(
    {
        "claimed",
        "described",
        "granted",
        "measured",
        "offered",
        "released",
        "unoffered",
        "used",
        "warning",
    }
)
"""Events that have no effect on later ones."""


class RecordedCase(NamedTuple):
    """A case recorded from an execution."""

    case: dict[str, Any]
    """The entry for a file of cases."""
    differences: list[str]
    """Where a replay of the case diverges from the history. Empty: both are the same."""


def record(engine: Engine, execution: str, name: str) -> RecordedCase:
    """Record the history of an execution so far as a case.

    Args:
        engine: The engine with the execution, which is only read.
        execution: Its full id.
        name: Name of the case.

    Returns:
        The case, in the simplest form with the same history.

    Raises:
        Conflict: The execution has not begun, or it was moved to a version of its flow that would
            not have come the same way.
    """
    kept = engine.store.execution(execution)
    linked = engine._host.flows.by_hash(kept.hash)
    flow = LoadedFlow(linked.compiled, kept.hash)
    journal = read(engine.store, execution)
    if not journal:
        raise Conflict(
            f"execution {execution} has not started",
            hint=f"start it: flowengine resume {execution}",
        )
    ordered: list[Any] = []
    for event in line(journal, len(journal) - 1):
        hold = event.get("hold", {})
        before = ordered[-1] if ordered else {}
        if (
            event["type"] == "retry"
            and before.get("holds") == hold
            and before["type"] == "failed"
            and hold.get("unit") == [before["unit"]]
        ):
            ordered[-1] = {
                "type": "retry",
                "at": event["at"],
                "unit": before["unit"],
                "by": event["by"],
            }
        else:
            ordered.append(event)
    events = ordered
    if forms(events):
        events = _as_if_never_moved(engine._host.flows, kept.hash, events, execution)
    return recorded(flow, linked.graph, events, execution, name)


def recorded(
    flow: LoadedFlow, graph: Graph, events: Sequence[Any], execution: str, name: str
) -> RecordedCase:
    """Record a history as a case.

    Args:
        flow: The flow.
        graph: Its graph.
        events: The history, without events that a retry discarded.
        execution: Its full id.
        name: Name of the case.

    Returns:
        The case, in the simplest form with the same history.
    """
    mask = Secrets(flow.compiled.get("secrets", {})).mask
    cases: list[RecordedCase] = []
    for timed, apart in ((False, 0), (False, 1), (True, 0), (True, 1)):
        tape = _Tape(graph, events, execution, apart)
        case = all_unmarked(mask(tape.case(name, timed=timed)))
        differences = tape.lost or _apart(flow, events, case)
        cases.append(RecordedCase(case, [*tape.shared, *differences] if differences else []))
        if not cases[-1].differences:
            break
    return cases[-1]


def _as_if_never_moved(
    flows: LinkedFlows, hash: str, events: list[Any], execution: str
) -> list[Any]:
    """Return the history that a moved execution would have had under its last version alone.

    Raises:
        Conflict: It differs from the actual history. A case has only one version.
    """
    kept = [event for event in events if event["type"] != "upgraded"]
    before, now = (_history(flows, hash, one) for one in (events, kept))
    for difference in _first_apart(before, now):
        raise Conflict(
            f"execution {execution} was moved to another version of its flow, and a case can have "
            f"only one. With the later version alone, its history differs: {difference}",
            hint="run the later version with the same inputs, and record that execution",
        )
    return kept


class _Call(NamedTuple):
    """One attempt that was started."""

    run: Run
    event: int
    """Number of the event from which it followed."""
    rehearsal: Rehearsal | None
    """Computes its output from a reply."""
    asked: dict[str, Any] | None
    """The part of the request that is new since the previous one."""


class _Ended(NamedTuple):
    """How an attempt ended."""

    event: int
    what: dict[str, Any]
    """The entry of a case that ends it."""


class _Tape:
    """A journal, read as a sequence of outside actions with their times.

    Virtual time is the time of the journal without downtime: a timer fires when it is due.

    Args:
        graph: The flow.
        events: The journal, without events that a retry discarded.
        execution: Full id.
        apart: Minimum milliseconds between two outside actions. 1 keeps the order of those in the
            same millisecond. A crash is one action, even if it cut off several attempts.
    """

    def __init__(self, graph: Graph, events: Sequence[Any], execution: str, apart: int) -> None:
        self.apart = apart
        self.graph = graph
        self.events = events
        self.execution = execution
        self.lost: list[str] = []
        """Actions that a case cannot express."""
        self.shared: list[str] = []
        """Budgets that executions share and that were used up, perhaps by others."""
        self.observations: list[Observation] = []
        self.state: State = new_state()
        self.times: list[int] = []
        self._timers: dict[int, int] = {}
        self._late = 0
        """Time that has passed since the last event beyond virtual time."""
        self._ahead = 0
        """How far virtual time is ahead, because of the minimum time between actions."""
        self._crashed = 0
        """Number of the event with which the last crash began."""
        self._calls: dict[tuple[int, int], _Call] = {}
        self._measured: dict[tuple[int, int], Run] = {}
        """Attempts whose use is estimated before they begin."""
        self._asked = RequestHistory()
        self._ends: dict[tuple[int, int], _Ended] = {}
        self._waits: dict[int, tuple[dict[str, Any], int]] = {}
        self._decisions: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._groups: dict[str, list[str]] = {}
        self._signals: list[dict[str, Any]] = []
        self._cancel: dict[str, Any] | None = None
        self._operator: list[dict[str, Any]] = []
        for number, event in enumerate(events):
            self._replay(number, event)

    # Reading

    def _replay(self, number: int, event: Any) -> None:
        if event["type"] == "cut":
            call = self._calls.get((event["unit"], event["attempt"]))
            is_first = self.events[number - 1]["type"] != "cut"
            if is_first or (call is not None and call.event >= self._crashed):
                self._crashed = number
        self.times.append(self._time(number, event))
        self._outside(number, event)
        seen = len(self.observations)
        commands = advance(self.graph, self.state, event, self.observations)
        if event["type"] == "measured":
            self._refused(number, event, self.observations[seen:])
        for command in commands:
            if isinstance(command, Run) and command.measures:
                self._measured[command.unit, command.attempt] = command
            elif isinstance(command, Run):
                self._calls[command.unit, command.attempt] = self._call(command, number)
            elif isinstance(command, Stop) and (command.unit, command.attempt) in self._calls:
                if self._calls[command.unit, command.attempt].event == number:
                    del self._calls[command.unit, command.attempt]  # it never began
            elif isinstance(command, SetTimer):
                self._timers[command.timer] = self.times[-1] + command.due - self.state["now"]
        for wait, opened in self.state["waits"].items():
            record = opened["record"]
            self._waits[wait] = (record, self._waits.get(wait, (record, self.times[-1]))[1])

    def _refused(self, number: int, event: Any, seen: Sequence[Observation]) -> None:
        """Record the call of an attempt that a budget has refused by the estimate of its use.

        A case makes no estimates, so the call fails there.
        """
        run = self._measured.pop((event["unit"], event["attempt"]))
        errors = (step.error for step in seen if step.address == run.address and step.error)
        for error in errors:
            if error["type"] == "BudgetExceeded":
                key = run.unit, run.attempt
                self._calls[key] = self._call(run, number)
                self._ends[key] = _Ended(number, {"raise": _raised(error)})
                return

    def _call(self, run: Run, number: int) -> _Call:
        try:
            rehearsal = rehearsal_of(self.graph.flow, run, ".")
        except StepError:
            return _Call(run, number, Rehearsal(lambda _: None), None)  # its failure needs no entry
        if rehearsal is None or rehearsal.asked is None:
            return _Call(run, number, rehearsal, None)
        return _Call(run, number, rehearsal, in_file(self._asked.new(run, rehearsal.asked)))

    def _time(self, number: int, event: Any) -> int:
        """Return the virtual time of an event (ms)."""
        if not number:
            return int(event["at"])
        before = self.times[-1]
        passed = max(0, event["at"] - self.events[number - 1]["at"]) + self._late
        self._late = 0
        if event["type"] == "timer" and event["timer"] in self._timers:
            time = max(before, self._timers[event["timer"]])
            timer = self.state["timers"].get(event["timer"])
            if timer is None or timer["why"] in (
                "remind",
                "escalate",
            ):  # it may fire late, as no step waits for it
                self._late = max(0, passed - (time - before))
        elif event["type"] == "cut" and self._crashed < number:
            time = before
        else:
            time = before + max(passed - self._ahead, self.apart)
        self._ahead = max(0, self._ahead + time - before - passed)
        return int(time)

    def _outside(self, number: int, event: Any) -> None:
        """Record the outside action of an event."""
        kind = event["type"]
        if kind in ("succeeded", "failed", "cut"):
            key = (event["unit"], event["attempt"])
            if key in self._calls and key not in self._ends:
                self._ends[key] = _Ended(number, self._ending(number, event, self._calls[key]))
        elif kind == "asked" and "input" in event:
            asked = event["input"]
            asks = {"message": asked["request"]["message"], "form": asked.get("form")}
            asks = {name: value for name, value in asks.items() if value is not None}
            self._ends[event["unit"], event["attempt"]] = _Ended(number, {"asks": asks})
        elif kind == "decided":
            self._decided(event)
        elif kind == "message":
            self._sent(event)
        elif kind == "granted" and "lacks" in event:
            name = read_account(event["lock"]).key
            self.shared.append(f"in a case, no other execution uses the shared budget '{name}'")
        elif kind == "cancel":
            self._cancel = {"at": self._since_start(), "reason": event["reason"],
                            "by": event["by"], "now": event["now"]}  # fmt: skip
        elif kind in ("retry", "state"):
            self._operated(event)
        elif kind not in PAPERWORK and kind not in ("started", "timer"):
            self.lost.append(f"the case cannot express an event '{kind}'")

    def _sent(self, event: Any) -> None:
        if event["signal"] == AGENT_ENDED:
            tool = event["data"]["tool"]
            self.lost.append(
                f"the case cannot express agents in the background, such as of '{tool}': each is "
                "an execution, and a case has one"
            )
            return
        sent = {"name": event["signal"], "at": self._since_start(), "data": event["data"]}
        by = event["by"] if event["by"].startswith("user:") else None  # an execution is no user
        self._signals.append({**sent, "key": event["key"], "by": by})

    def _ending(self, number: int, event: Any, call: _Call) -> dict[str, Any]:
        if event["type"] == "succeeded":
            return self._given(event["value"], call)
        if event["type"] == "failed":
            return {"raise": _raised(event["error"])}
        return {"crash": True} if number == self._crashed else {"never": True}

    def _given(self, value: Any, call: _Call) -> dict[str, Any]:
        """Return the result of an attempt, or a model's reply that leads to the same result."""
        rehearsal = call.rehearsal
        if rehearsal is None:
            return {"return": in_file(unadapted(self.graph.flow, call.run, value))}
        reply = {} if rehearsal.reply is None else dict(rehearsal.reply(value))
        try:
            same = rehearsal.output(reply) == value
        except (StepError, InputError):
            same = False
        return in_file(reply) if same else {"return": in_file(value)}

    def _decided(self, event: Any) -> None:
        if event["wait"] not in self.state["waits"]:
            return  # it came too late and changed nothing
        record, opened = self._waits[event["wait"]]
        made: dict[str, Any] = {"after": self.times[-1] - opened, "by": event["by"]}
        made["choice"] = event["choice"]
        for key, word in (("edits", "edit"), ("form", "form"), ("comment", "comment")):
            if event.get(key) is not None:
                made[word] = in_file(event[key])
        if event["choice"] in ("result", "respond") and event.get("value") is not None:
            made["value"] = in_file(event.get("value"))
        if event.get("attachments"):
            self.lost.append(f"the files that came with the decision on '{record['address']}'")
        self._decisions.append((record, made))
        named = record.get("assignees") or []
        groups = [name[6:] for name in named if name.startswith("group:")]
        if event["by"] not in named and groups:
            self._groups.setdefault(groups[0], [])
            if event["by"] not in self._groups[groups[0]]:
                self._groups[groups[0]].append(event["by"])

    def _operated(self, event: Any) -> None:
        if event["type"] == "state":
            values = in_file(event["values"])
            self._operator.append({"at": self._since_start(), "set": values, "by": event["by"]})
            return
        held = event.get("hold", {}).get("at")
        if event["unit"] is None and held is None:
            return
        if self.events[len(self.times) - 2]["type"] != "state":
            self._operator.append({"at": self._since_start(), "by": event["by"]})
        if held is not None:
            self._operator[-1]["fork"] = held
        else:
            unit = self.state["units"][event["unit"]]
            self._operator[-1]["retry"] = View(self.graph, self.state).address(unit)

    def _since_start(self) -> int:
        return self.times[-1] - self.times[0]

    # Writing

    def case(self, name: str, *, timed: bool) -> dict[str, Any]:
        """Return the case as data.

        Args:
            name: Name of the case.
            timed: Include the duration of each call.
        """
        started = self.events[0]
        execution = started["execution"]
        case: dict[str, Any] = {
            "name": name,
            "id": self.execution,
            "at": format_time(started["at"]),
            "by": execution["started_by"],
            "labels": execution["labels"],
            "groups": self._groups,
            "inputs": in_file(started["inputs"]),
            "tools": self._tools(timed),
            "agents": self._agents(timed),
            "approvals": self._approvals(timed),
            "signals": [_timely(signal, "at", timed) for signal in self._signals],
            "cancel": None if self._cancel is None else _timely(self._cancel, "at", timed),
            "operator": [_timely(decision, "at", True) for decision in self._operator],
        }
        if self.state["status"] not in ENDED:
            case["until"] = format_duration(self._since_start() + 1)
        return {**{key: value for key, value in case.items() if value}, "expect": self._expected()}

    def _agents(self, timed: bool) -> dict[str, Any]:
        """Return the replies of models."""
        replies: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        for key, call in self._calls.items():
            if call.asked is not None:
                reply = {"with": call.asked, **self._answer(key, call, timed)}
                id = self.graph.flow["steps"][call.run.step]["id"]
                replies.setdefault(id, []).append((of_agent(call.run.address), reply))
        return _by_place(replies)

    def _tools(self, timed: bool) -> dict[str, Any]:
        calls: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        for key, call in self._calls.items():
            if call.asked is not None or self._is_left_out(key):
                continue  # its reply is below 'agents', or it needs none
            answer = {"with": in_file(given_to(call.run)), **self._answer(key, call, timed)}
            step = self.graph.flow["steps"][call.run.step]
            hidden = step["body"] < 0 and step["kind"] != OPENING
            short = f"{step['id']}/compensate" if hidden else step["id"]
            calls.setdefault(short, []).append((call.run.address, answer))
        return _by_place(calls)

    def _answer(self, key: tuple[int, int], call: _Call, timed: bool) -> dict[str, Any]:
        ended = self._ends.get(key)
        if ended is None:
            return {"never": True}
        lasted = self.times[ended.event] - self._begun(call.event)
        crashed = "crash" in ended.what
        if not timed and not crashed:
            return ended.what
        return {**ended.what, "after": format_duration(lasted)}

    def _is_left_out(self, key: tuple[int, int]) -> bool:
        """Return whether the case omits an attempt, because it has the same result by default."""
        call, ended = self._calls[key], self._ends.get(key)
        if ended is None:  # in a case, it would end at once
            return False
        return call.asked is None and call.rehearsal is not None and "return" not in ended.what

    def _begun(self, number: int) -> int:
        """Return the time in the case (ms) of the attempts that an event began.

        Omitted attempts take no time in the case, so the steps after them would be too early.
        """
        event: Any = self.events[number]
        key = event.get("unit"), event.get("attempt")
        ended = self._ends.get(key)
        if ended is None or ended.event != number or not self._is_left_out(key):
            return self.times[number]
        return self._begun(self._calls[key].event)

    def _approvals(self, timed: bool) -> dict[str, Any]:
        places: dict[str, set[str]] = {}
        for record, _ in self._decisions:
            short = record.get("environment", record["step"])
            places.setdefault(short, set()).add(place(record["address"]))
        approvals: dict[str, Any] = {}
        for record, made in self._decisions:
            short = record.get("environment", record["step"])
            name = short if len(places[short]) == 1 else record["address"]
            approvals.setdefault(name, []).append(_timely(made, "after", timed))
        return approvals

    def _expected(self) -> dict[str, Any]:
        state = self.state
        path = path_of(self.observations)
        expect: dict[str, Any] = {"status": state["status"]}
        if path:
            expect["path"] = path
        if state["outputs"]:
            expect["outputs"] = in_file(state["outputs"])
        error = state["error"]
        if error is not None:
            expect["error"] = {"type": error["type"], "message": error["message"]}
            if error.get("step"):
                expect["error"]["step"] = error["step"]
        values = {key: in_file(value[0]) for key, value in state["vars"].items() if "/" not in key}
        if values:
            expect["state"] = values
        waits = [wait["record"]["address"] for wait in state["waits"].values()]
        if waits and state["status"] not in ENDED:
            expect["waits"] = waits
        return expect


def _by_place(made: Mapping[str, list[tuple[str, dict[str, Any]]]]) -> dict[str, Any]:
    """Return the entries by name, or by address if a name has several addresses.

    Args:
        made: Name → address and entry, in order.
    """
    fields: dict[str, Any] = {}
    for short, entries in made.items():
        one_place = len({place(address) for address, _ in entries}) == 1
        for address, entry in entries:
            fields.setdefault(short if one_place else address, []).append(entry)
    return fields


def text_of(case: Mapping[str, Any], indent: int = 2) -> str:
    """Return a case as an entry of the list in a file.

    Args:
        case: As `RecordedCase` has it.
        indent: Blanks before its dash.

    Returns:
        Lines with a line end each.
    """
    lines = to_yaml([dict(case)]).splitlines()
    return "".join(f"{'':{indent}}{line}\n" if line else "\n" for line in lines)


def in_file(value: Any) -> Any:
    """Return plain data in the form of case files: bytes as `{$base64: TEXT}`."""
    from base64 import b64encode

    return with_leaves(
        value,
        lambda leaf: {"$base64": b64encode(leaf).decode()} if isinstance(leaf, bytes) else leaf,
    )


def _timely(entry: Mapping[str, Any], key: str, exact: bool) -> dict[str, Any]:
    """Return an entry with its time as a duration, without empty keys."""
    ms = entry[key] if exact else entry[key] // 1000 * 1000
    fields = {**entry, key: format_duration(ms)}
    return {
        name: field for name, field in fields.items() if field not in (None, "", False, "0s", {})
    }


def _raised(error: Mapping[str, Any]) -> dict[str, Any]:
    raised = {"type": error["type"], "message": error["message"]}
    for key in ("data", "cause"):
        if error.get(key) is not None:
            raised[key] = in_file(error[key])
    if "retryable" in error:
        raised["retryable"] = error["retryable"]
    if "retry_after" in error:
        raised["retry_after"] = format_duration(error["retry_after"])
    return raised


def _apart(flow: LoadedFlow, events: Sequence[Event], case: dict[str, Any]) -> list[str]:
    """Return where a replay of a case diverges from a journal. Empty: both are the same."""
    [parsed] = parse_cases(f"cases:\n{text_of(case)}").cases
    player = Player(flow, parsed, {}, ".")
    with closing(player.host):
        try:
            player.begin()
            player.play()
        except InputError as error:
            return [f"the inputs are refused: {error.message}"]
        messages = [problem.message for problem in problems(parsed, player)]
        played = read(player.host.store, player.execution.id)
        flows = player.host.flows
        whole = [_history(flows, flow.form, one) for one in (events, line(played, len(played) - 1))]
    return messages or list(_first_apart(*whole))


def _history(flows: LinkedFlows, hash: str, events: Sequence[Event]) -> list[dict[str, Any]]:
    """Return the observations of each activation, without the times."""
    keys = ("address", "status", "outcome", "attempts", "output", "error")
    shown = Steps.replayed(flows, hash, list(events))
    steps: list[Any] = [*map(shown.info, shown.states)]
    for step in steps:
        if (step["error"] or {}).get("type") == "BudgetExceeded":
            step["attempts"] = 0  # an attempt that an estimate refused begins in a case
    return [{key: _timeless(step[key]) for key in keys} for step in steps]


def _timeless(value: Any) -> Any:
    """Return a value without times, the marks of untrusted text, and how a decision came in."""
    if isinstance(value, dict):
        return {
            key: _timeless(entry)
            for key, entry in value.items()
            if key not in {"via", "entered_by"}
        }
    if isinstance(value, list):
        return [_timeless(item) for item in value]
    return TIME.sub("TIME", unmarked(value)) if isinstance(value, str) else value


def _first_apart(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> Iterator[str]:
    for one, other in zip(before, now, strict=False):
        if one["address"] != other["address"]:
            yield f"'{other['address']}' begins where '{one['address']}' did"
            return
        if one != other:
            yield from [f"'{one['address']}': {each}" for each in differences(one, other)]
            return
    if len(before) != len(now):
        longer = max(before, now, key=len)
        yield f"'{longer[min(len(before), len(now))]['address']}' begins in one of them only"
