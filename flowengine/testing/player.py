"""Plays one test case: the engine's driver, on a clock that jumps, with scripted answers.

Everything else is as in a real run: events are committed before their commands are carried out,
arguments and results are checked by their schemas, and decisions pass the usual check of the
approver. Nothing is awaited and no outside call is made, so a week takes milliseconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from typing import Any

from flowengine.engines.actors import Actor
from flowengine.engines.attempts.failures import failure_of
from flowengine.engines.attempts.outcome import AttemptFailed, failed, measured, succeeded
from flowengine.engines.environments.making import make_environments
from flowengine.engines.executions.execution import Execution
from flowengine.engines.flows import LANGUAGE, LoadedFlow
from flowengine.engines.host import Host, RandomIds
from flowengine.engines.memory.store import MemoryStore
from flowengine.engines.messages import send_signal
from flowengine.engines.people.approval_ownership import standing
from flowengine.engines.people.approvals import decide
from flowengine.engines.results import DecisionGiven, Update
from flowengine.engines.rule_files import RuleFiles
from flowengine.engines.running.driver import Driver
from flowengine.engines.running.gate import asked_instead
from flowengine.engines.snapshots import is_held_at, unit_at
from flowengine.engines.starting.beginning import Starting, begin
from flowengine.errors import FlowEngineError, Hint, InputError
from flowengine.flow.cases import as_data
from flowengine.flow.models import Loc
from flowengine.flow.models.cases import (
    Answer,
    Asking,
    CallAnswer,
    Case,
    CaseDecision,
    Operating,
    Reply,
)
from flowengine.journal.encoding import pack
from flowengine.kernel import running
from flowengine.kernel.commands import Observation, Run, Stop
from flowengine.kernel.events import ErrorData, Event
from flowengine.kernel.graph.specs import CompiledFlow
from flowengine.kernel.notation.addresses import wait_id
from flowengine.kernel.notation.times import parse_duration, parse_time
from flowengine.kernel.view import DECIDABLE
from flowengine.sdk import NeedsInput, StepError
from flowengine.sdk.steps.context import ExecutionContext
from flowengine.sdk.steps.rehearsals import Rehearsal
from flowengine.sdk.values.validation import shared
from flowengine.settings import Settings
from flowengine.testing.scripts import CaseFailed, Scripts, adapted, rehearsal_of, without_secrets

MOST_TURNS = 100_000
"""Maximum number of happenings in one case, after which it counts as endless."""


class VirtualClock:
    """Virtual time.

    Args:
        now: The initial time (ms).
    """

    def __init__(self, now: int) -> None:
        self.time = now

    def now(self) -> int:
        """Return the virtual time in milliseconds since 1970."""
        return self.time


class Unused:
    """Replaces the runner of steps: it passes every attempt to the player."""

    def quick(self, step: int) -> None:
        """Return None: no attempt runs at once."""

    def ahead(self, step: int) -> None:
        """Return None: no attempt runs before its turn."""

    def source(self, step: int) -> None:
        """Return None, because scripted steps have no source to compare."""

    async def attempt(self, execution: ExecutionContext, run: Run) -> None:
        """Is never called."""
        raise NotImplementedError


class Player(Driver):
    """Plays one case to its end.

    Args:
        flow: The flow.
        case: The case.
        groups: Group → its users, as `user:NAME`.
        folder: Directory of the case file, for relative paths.

    Attributes:
        execution: The execution that was played.
        observations: The observations of each activation.
        problem: Why the case could not continue, if so.
    """

    def __init__(
        self, flow: LoadedFlow, case: Case, groups: dict[str, frozenset[str]], folder: str
    ):
        self.clock = VirtualClock(parse_time(case.at))
        self.began = self.clock.time
        own = {name: frozenset(users) for name, users in case.groups.items()}
        settings = Settings(groups={**groups, **own})
        store = MemoryStore()
        super().__init__(
            Host(
                store,
                language=LANGUAGE,
                rules=RuleFiles([]),
                environments=make_environments,
                clock=self.clock,
                ids=RandomIds(),
                settings=settings,
                workdir=folder,
                linger=0,
                ttl=10**12,
                offers=[
                    label for step in flow.compiled["steps"] for label in step.get("needs", ())
                ],
            )
        )
        self.flow = flow
        self.case = case
        self.folder = folder
        self.scripts = Scripts(case, flow.compiled)
        self.observations: list[Observation] = []
        self.problem: CaseFailed | None = None
        self.execution: Execution
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self._asked: set[int] = set()
        self._withdrawn: set[tuple[int, int]] = set()
        self._open: dict[int, tuple[int, int]] = {}
        self._addresses: dict[tuple[int, int], str] = {}
        self._forks = [action.fork for action in case.operator if action.fork is not None]
        """Steps that are held until an operator begins them, in order."""
        self.host.subscribers.append(self._told)

    def begin(self) -> None:
        """Begin the execution. Invalid inputs raise `InputError`."""
        case = self.case
        self.flow = LoadedFlow(_without_files(self.flow.compiled), self.flow.form)
        linked = self.host.flows.of(self.flow.compiled, self.flow.form)
        linked.runner = Unused()  # type: ignore[assignment]
        inputs = as_data(case.inputs)
        starting = Starting(*self.flow[:2], inputs, case.id, case.labels, case.by)
        self.execution = begin(self.host, starting)
        for sending in case.signals:
            send = partial(
                self._send,
                sending.name,
                as_data(sending.data),
                sending.key,
                sending.by,
                sending.loc,
            )
            self._later(parse_duration(sending.at), send)
        if case.cancel is not None:
            self._later(parse_duration(case.cancel.at), self._cancel)
        for operating in case.operator:
            self._later(parse_duration(operating.at), partial(self._operate, operating))
        self._hold_next(self.execution.queue[0])
        self.add(self.execution)
        self.enqueue(self.execution)

    def play(self) -> None:
        """Play the case until the execution ends, or nothing more happens.

        Raises:
            Exception: The engine has failed, not the case.
        """
        try:
            self._go_on()
        except CaseFailed as problem:
            self.problem = problem
        error = self.execution.error
        if isinstance(error, CaseFailed):
            self.problem = error
        elif error is not None:
            raise error

    def at_work(self) -> list[str]:
        """Return the addresses of the calls that are running."""
        return [self._addresses[key] for key in self._open.values()]

    # The driver's methods

    def turn(self) -> list[Execution]:
        """Take a turn, and begin its attempts."""
        going = super().turn()
        left, self.left = self.left, []
        for execution, command in left:
            if isinstance(command, Run):
                self._start(execution, command)
        return going

    def _start(self, execution: Execution, run: Run) -> None:
        """Schedule the end of an attempt by the case."""
        if run.measures:  # only the usage that the case declares counts
            self.post(execution, measured(run, {}, self.clock.time))
            return
        try:
            rehearsal = rehearsal_of(self.flow.compiled, run, self.folder)
        except StepError as error:
            self._open[run.unit] = (run.unit, run.attempt)
            self._later(0, partial(self._fail, execution, run, failure_of(error, _as_it_is)))
            return
        answer = self.scripts.answer(run, rehearsal)
        self._open[run.unit] = (run.unit, run.attempt)
        self._addresses[run.unit, run.attempt] = run.address
        if not answer.never:
            end = partial(self._end, execution, run, answer, rehearsal)
            self._later(parse_duration(answer.after), end)

    def stop(self, execution: Execution, stop: Stop) -> None:
        """Withdraw an attempt, whose result is then discarded."""
        self._withdrawn.add((stop.unit, stop.attempt))
        self._open.pop(stop.unit, None)

    def _may_rest(self, execution: Execution) -> bool:
        return execution.ended

    # Happenings

    def _go_on(self) -> None:
        until = None if self.case.until is None else self.began + parse_duration(self.case.until)
        for _ in range(MOST_TURNS):
            while self.has_turns() and self.execution.error is None:
                self.turn()
            execution = self.execution
            if execution.ended or execution.error is not None:
                return
            self._ask()
            due, timer = self._next()
            if due is None or (until is not None and due > until):
                self.clock.time = until or self.clock.time
                return
            self.clock.time = max(due, self.clock.time)
            if timer:
                self.fire_timers(execution)
            else:
                heappop(self._agenda)[2]()
        raise CaseFailed(f"the execution does not end: {MOST_TURNS} events have happened")

    def _next(self) -> tuple[int | None, bool]:
        """Return the time of the next happening, and whether it is a timer."""
        due = self.execution.timers.next()
        if self._agenda and (due is None or self._agenda[0][0] <= due):
            return self._agenda[0][0], False
        if due is None or not self._time_passes():
            return None, False
        return due, True

    def _time_passes(self) -> bool:
        """Return whether time passes if only timers are left."""
        if self._agenda or self.case.until is not None:
            return True
        if self.case.expected_status == "waiting":
            return self.execution.timers.stays(self.clock.time, None)
        timers = self.execution.state["timers"].values()
        return any(timer["why"] != "remind" for timer in timers)  # reminders are repeated forever

    def _later(self, delay: int, do: Callable[[], None]) -> None:
        self._number += 1
        heappush(self._agenda, (self.clock.time + delay, self._number, do))

    def _end(
        self, execution: Execution, run: Run, answer: Answer, rehearsal: Rehearsal | None
    ) -> None:
        """End an attempt, unless it has been withdrawn."""
        if answer.crash:
            if self._is_open(run):
                self._crash(execution)
            return
        if isinstance(answer, CallAnswer) and answer.asks is not None:
            self._request_input(execution, run, answer.asks)
            return
        error = _error_of(answer)
        if error is not None and rehearsal is not None:
            known: Any = rehearsal.error_data.get(error["type"])
            data = error["data"]
            if data is None:
                error["data"] = known
            elif isinstance(data, dict) and isinstance(known, dict):
                error["data"] = {**known, **data}
        error = error or self._misfit(run, answer)
        if error is not None:
            self._fail(execution, run, error)
        elif self._is_open(run):
            try:
                value = self._output(run, answer, rehearsal)
            except StepError as failure:
                self._fail(execution, run, failure_of(failure, _as_it_is))
                return
            del self._open[run.unit]
            self.post(execution, succeeded(run, value, self.clock.time))

    def _request_input(self, execution: Execution, run: Run, asks: Asking) -> None:
        """End an attempt with a request for input, unless it has been withdrawn."""
        if not self._is_open(run):
            return
        by, form = f"The tool of '{run.address}'", as_data(asks.form)
        needs = NeedsInput(str(run.attempt), {"by": by, "message": asks.message}, form)
        failure = AttemptFailed(failure_of(needs, _as_it_is))
        event = asked_instead(self.host, execution, run, failure)
        if event is None:
            raise CaseFailed(f"'{run.address}' calls no tool, so it cannot request input", asks.loc)
        del self._open[run.unit]
        self.post(execution, event)

    def _fail(self, execution: Execution, run: Run, error: ErrorData) -> None:
        """Fail an attempt, unless it has been withdrawn."""
        if self._is_open(run):
            del self._open[run.unit]
            self.post(execution, failed(run, AttemptFailed(error), self.clock.time))

    def _is_open(self, run: Run) -> bool:
        key = (run.unit, run.attempt)
        return key not in self._withdrawn and self._open.get(run.unit) == key

    def _output(self, run: Run, answer: Answer, rehearsal: Rehearsal | None) -> Any:
        """Return the result of an attempt."""
        if not isinstance(answer, Reply) or answer.has("return_") or rehearsal is None:
            return adapted(self.flow.compiled, run, as_data(answer.return_))
        try:
            reply = entry_of(answer)
            if rehearsal.names_tools:
                reply = {**reply, "tools": [*self.case.tools]}
            return rehearsal.output(reply)
        except InputError as error:
            raise CaseFailed(error.message, answer.loc) from error

    def _crash(self, execution: Execution) -> None:
        """Lose the process: running attempts are cut off, as by recovery."""
        self._open.clear()
        for unit, attempt in running(execution.state):
            event: Event = {"type": "cut", "at": self.clock.time, "unit": unit, "attempt": attempt}
            self.post(execution, event)

    def _misfit(self, run: Run, answer: Answer) -> ErrorData | None:
        """Return the engine's error about invalid arguments.

        Raises:
            CaseFailed: The scripted result does not match the schema of the tool.
        """
        step = self.flow.compiled["steps"][run.step]
        task = step.get("task", {})
        schema = task.get("schema")
        returns = None if "adapter" in step else task.get("returns")
        if schema is not None and isinstance(run.input, dict):
            given = run.input.get("args", {}) if run.args is None else run.args
            bound = run.input.get("bind") or {}
            described = schema.get("properties", {})
            given = {**given, **{name: value for name, value in bound.items() if name in described}}
            fault = _fault(schema, without_secrets(given), "arguments")
            if fault is not None:
                return {"type": "ValidationError", "message": fault, "data": None}
        fault = None if returns is None else _fault(returns, as_data(answer.return_), "the result")
        if fault is not None:
            raise CaseFailed(f"the answer for '{run.address}' is not a valid result: {fault}",
                             answer.loc)  # fmt: skip
        return None

    # Waits and the outside

    def _ask(self) -> None:
        """Plan the decisions on waits that have opened, or that need another decision."""
        for number, record in self.execution.waits.items():
            if number in self._asked or record["kind"] not in DECIDABLE:
                continue
            decided = self.scripts.decision(record)
            if decided is None:
                continue
            self._asked.add(number)
            delay = record["since"] + parse_duration(decided.after) - self.clock.time
            self._later(max(delay, 0), partial(self._decide, number, record, decided))

    def _decide(self, number: int, record: dict[str, Any], decided: CaseDecision) -> None:
        if number not in self.execution.waits:
            return  # it has expired or was withdrawn: the decision is left
        self.scripts.made(record)
        if not self.scripts.once(record):
            self._asked.discard(number)  # a quorum may need another one
        try:
            who = Actor(decided.by or self._assignee(record), "test")
            wait = standing(self.store, wait_id(self.execution.id, number))
            decide(self.host, wait, self._given(record, decided), who)
        except FlowEngineError as error:
            if decided.refused:
                return
            # A case has its own words for the parts of a decision.
            why = error.message if isinstance(error.hint, Hint) else error.with_hint
            raise CaseFailed(
                f"the decision on '{record['address']}' is refused: {why}", decided.loc
            ) from error
        if decided.refused:
            message = f"the decision on '{record['address']}' is not refused"
            raise CaseFailed(message, decided.loc)
        self.read_inbox(self.execution)

    def _given(self, record: dict[str, Any], decided: CaseDecision) -> DecisionGiven:
        choices = [choice["id"] for choice in record.get("choices") or ()]
        choice = decided.choice
        if choice is None:
            if len(choices) != 1:
                known = ", ".join(choices)
                message = f"add the 'choice' that decides '{record['address']}': {known}"
                raise CaseFailed(message, decided.loc)
            choice = choices[0]
        given: DecisionGiven = {
            "choice": choice,
            "form": as_data(decided.form),
            "edit": as_data(decided.edit),
            "attach": [os.path.join(self.folder, path) for path in decided.attach],
        }
        if decided.comment is not None:
            given["comment"] = decided.comment
        if decided.has("value"):
            given["value"] = as_data(decided.value)
        return given

    def _assignee(self, record: dict[str, Any]) -> str:
        """Return the first user who may decide."""
        excluded = record.get("exclude") or []
        settings = self.host.settings
        for name in record.get("assignees") or ["user:test"]:
            users = sorted(settings.groups.get(name[6:], ())) if name[:6] == "group:" else [name]
            for user in users:
                if settings.excluding(user, excluded) is None:
                    return user
        return "user:test"

    def _send(self, name: str, data: Any, key: Any, by: str | None, loc: Loc) -> None:
        execution = None if key is not None else self.execution.id
        who = by or self.case.by
        try:
            send_signal(self.host, name, data, execution, key, None, Actor(who, "test"))
        except FlowEngineError as error:
            message = f"the signal '{name}' is refused: {error.message}"
            raise CaseFailed(message, loc) from error
        self.read_inbox(self.execution)

    def _cancel(self) -> None:
        asked = self.case.cancel
        assert asked is not None
        at, by = self.clock.time, asked.by or self.case.by
        event = {"type": "cancel", "at": at, "reason": asked.reason, "by": by, "now": asked.now}
        self.host.store.send(self.execution.id, pack(event), at, "cancel")
        self.read_inbox(self.execution)

    def _operate(self, operating: Operating) -> None:
        """Write state and start a step again, as a fork from there does."""
        execution, now, by = self.execution, self.clock.time, operating.by or self.case.by
        if operating.fork is not None:
            self._begin_held(operating, operating.fork, by)
            return
        unit = None
        if operating.retry is not None:
            graph = execution.linked.graph
            unit = unit_at(graph, execution.state, operating.retry)
            if unit is None:
                message = f"'{operating.retry}' is not at work then: it cannot begin again"
                raise CaseFailed(message, operating.loc)
        values = as_data(operating.set)
        written: Any = {"type": "state", "at": now, "values": values, "by": by}
        again: Any = {"type": "retry", "at": now, "unit": unit, "by": by}
        for key in [key for key in self._open if key != unit]:
            del self._open[key]  # they are taken as cut off
        self._open.pop(unit or 0, None)
        if operating.set:
            self.post(execution, written)
        if unit is not None:
            self.post(execution, again)

    def _begin_held(self, operating: Operating, address: str, by: str) -> None:
        """Write state and begin the held step, as a fork does. All other attempts are cut off."""
        execution, now = self.execution, self.clock.time
        if not is_held_at(execution.linked.graph, execution.state, address):
            message = f"'{address}' has not been reached then: it cannot begin"
            raise CaseFailed(message, operating.loc)
        self._open.clear()
        self._forks.pop(0)
        after: Any = {"type": "state", "at": now, "values": as_data(operating.set), "by": by}
        again: Any = {"type": "retry", "at": now, "unit": None, "hold": {"at": address}, "by": by}
        self.post(execution, after)
        self.post(execution, again)
        if self._forks:
            following: Any = {"type": "state", "at": now, "values": {}, "by": by}
            self._hold_next(following)
            self.post(execution, following)

    def _hold_next(self, event: Any) -> None:
        """Hold the step of the next fork, from an event on."""
        if self._forks:
            event["holds"] = {"at": self._forks[0]}

    def _told(self, update: Update) -> None:
        if update.kind == "step" and update.step is not None:
            self.observations.append(update.step)


def _without_files(flow: CompiledFlow) -> CompiledFlow:
    """Return a flow whose inputs may refer to files that do not exist here."""

    def schema(given: Any) -> Any:
        if isinstance(given, list):
            return [schema(item) for item in given]
        if not isinstance(given, dict):
            return given
        path = given.get("format") == "path"
        return {
            key: schema(value) for key, value in given.items() if not (path and key == "format")
        }

    return {**flow, "inputs": schema(flow.get("inputs", {}))}


def entry_of(reply: Reply) -> dict[str, Any]:
    """Return a reply as data, without empty keys."""
    names = ("text", "reasoning", "finish", "usage", "provider_parts")
    entry = {name: as_data(getattr(reply, name)) for name in names if reply.has(name)}
    if reply.calls:
        entry["calls"] = [
            {"name": call.name, "arguments": as_data(call.arguments) or {}, "id": call.id or ""}
            for call in reply.calls
        ]
    return entry


def _as_it_is(value: Any) -> Any:
    return value


def _error_of(answer: Answer) -> ErrorData | None:
    raised = answer.raise_
    if raised is None:
        return None
    error: ErrorData = {
        "type": raised.type,
        "message": raised.message or raised.type,
        "data": as_data(raised.data),
    }
    if raised.retryable is not None:
        error["retryable"] = raised.retryable
    if raised.retry_after is not None:
        error["retry_after"] = parse_duration(raised.retry_after)
    if raised.cause is not None:
        error["cause"] = as_data(raised.cause)
    return error


def _fault(schema: Any, value: Any, what: str) -> str | None:
    try:
        shared(schema).check(value, what)
    except InputError as error:
        return error.message
    return None
