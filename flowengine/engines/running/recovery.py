"""Recovery of executions: the events that happened while they were not driven, in order."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from flowengine.engines.attempts.outcome import AttemptFailed, failed, succeeded
from flowengine.engines.executions.execution import Preview
from flowengine.engines.starting.separate import begin_separate
from flowengine.errors import Conflict, InputError
from flowengine.journal.encoding import pack
from flowengine.journal.shapes import unpack_message
from flowengine.kernel import running
from flowengine.kernel.commands import Consult
from flowengine.kernel.notation.addresses import separate_id, steps_in
from flowengine.kernel.view import View, budgets_around
from flowengine.kernel.waiting.approvals import EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from flowengine.engines.attempts.lines_at_work import Attempt
    from flowengine.engines.attempts.printed import Printed
    from flowengine.engines.executions.execution import Execution
    from flowengine.engines.host import Host
    from flowengine.execution_environment import NotReleased
    from flowengine.journal.records import InboxMessage, Owner
    from flowengine.kernel.commands import Run
    from flowengine.kernel.events import CutOff, Decided, Event, Log, Measured, Offered


def recover(
    execution: Execution,
    inbox: list[InboxMessage],
    now: int,
    *,
    died: bool = False,
    consults: bool = False,
    logs: Mapping[Attempt, Log] = MappingProxyType({}),
    left: Owner | None = None,
    offers: frozenset[str] = frozenset(),
) -> None:
    """Queue everything that happened to an execution that was just loaded.

    First, attempts of its last process count as interrupted, before everything else, unless that
    process left them without beginning them. Then messages
    follow in the order of their commits, regardless of their senders' clocks, and timers in the
    order in which they were due. Both are merged by time. On a tie messages come first. Last,
    attempts that wait for an environment are retried, and those begin that wait for a worker which
    offers what this process does.

    Args:
        execution: Loaded, nothing applied yet.
        inbox: Its messages that are not journaled yet.
        now: The time (ms).
        died: Whether its last process died. Then programs of attempts that it was stopping may
            still run, although these attempts have ended.
        consults: Whether to consult the execution's own tool authority again about open questions.
        logs: What its attempts had logged when its last process died.
        left: Its last process, if it is not dead: it may still be at work on functions.
        offers: What this process offers.
    """
    interrupted = list(running(execution.state))
    if interrupted and left is not None and _end_stopped(left):
        left = None
    put_off, execution.put_off = execution.put_off, False
    if (interrupted and not put_off) or died:
        from flowengine.sdk.processes import end_marked

        end_marked(execution.id, left)  # the next attempt must not run beside the last one
    for unit, attempt in interrupted:
        cut: CutOff = {"type": "cut", "at": now, "unit": unit, "attempt": attempt}
        if left is not None and not put_off:
            cut["process"] = {"pid": left.pid, "host": left.host}
        if put_off:
            cut["began"] = False
        elif (log := logs.get((unit, attempt))) is not None:
            cut["log"] = log
        execution.queue.append(cut)
    if any("digest" in record for record in execution.waits.values()):
        from flowengine.engines.running.call_descriptions import undescribed

        execution.queue.extend(undescribed(execution, now))
        execution.commands.extend(_questions(execution, consults=consults))
    timers = execution.timers.due(now)
    fired = 0
    for at, message in _in_order(execution, inbox):
        while fired < len(timers) and timers[fired][0] < at:
            fire(execution, timers[fired][1], now)
            fired += 1
        take_message(execution, message, now)
    for _, timer in timers[fired:]:
        fire(execution, timer, now)
    execution.queue.extend(tries_for_environments(execution, now))
    execution.queue.extend(_offered(execution, offers, now))


def _end_stopped(process: Owner) -> bool:
    """End a stopped process of the command line, and return whether it was one.

    It has lost its executions. If it was continued, its functions would go on at once, beside the
    next attempts. Other programs may have more to do, so the question about an attempt names them.
    """
    from flowengine.sdk.processes import is_dead, is_program, is_stopped

    if not (is_stopped(process) and is_program(process, "flowengine")):
        return False
    try:
        os.kill(process.pid, signal.SIGKILL)
    except OSError:  # another user's
        return False
    while not is_dead(process):
        time.sleep(0.001)
    return True


def tries_for_environments(execution: Execution, now: int) -> Iterator[Decided]:
    """Yield an event for each attempt that was stopped because an environment was not available.

    Resuming an execution retries it, after the decisions made since.
    """
    for number, record in execution.waits.items():
        if record.get("ran") == "no":
            yield {
                "type": "decided",
                "at": now,
                "wait": number,
                "choice": "retry",
                "by": "system",
                "via": "resume",
            }


def _offered(execution: Execution, offers: frozenset[str], now: int) -> Iterator[Offered]:
    """Yield an event for each attempt that waits for a worker which offers what this process does.

    Args:
        offers: What this process offers.
    """
    for number, record in execution.waits.items() if offers else ():
        if record["kind"] == "worker" and offers.issuperset(record["needs"]):
            yield {"type": "offered", "at": now, "wait": number}


def _in_order(execution: Execution, inbox: list[InboxMessage]) -> list[tuple[int, InboxMessage]]:
    """Return the messages of an inbox in the order in which they happened, with their times.

    This is the order of their commits, by which the store has counted votes already. A message
    cannot have happened later than one stored after it, regardless of its sender's clock. Only the
    message that starts an execution is stored after the locks that it was granted at once.
    """
    ordered = inbox if execution.seq else sorted(inbox, key=_begins, reverse=True)
    latest = [*accumulate((message.at for message in reversed(ordered)), min)]
    return list(zip(reversed(latest), ordered, strict=True))


def _begins(message: InboxMessage) -> bool:
    """Return whether a message starts its execution."""
    return bool(unpack_message(message)["type"] == "started")


def take_message(execution: Execution, message: InboxMessage, now: int) -> bool:
    """Queue a message of the inbox, unless it is queued already.

    The event is journaled with the time at which it is taken, so that later times count from then.
    The original time remains in `sent`.

    Args:
        execution: The receiver.
        message: The stored message.
        now: The time (ms).

    Returns:
        Whether it was new.
    """
    if not execution.takes(message.number):
        return False
    event: Any = unpack_message(message)
    if event["type"] == "wanted":
        if execution.wanted is not None:
            execution.wanted = True
        return True
    event["sent"] = event["at"]
    event["at"] = now
    execution.queue.append(event)
    return True


def take_hands(execution: Execution, inbox: list[InboxMessage], now: int) -> None:
    """Queue claims, releases and delegations of approvals only, which start no steps.

    Args:
        execution: Loaded, nothing applied yet.
        inbox: Its messages that are not journaled yet.
        now: The time (ms).
    """
    for message in inbox:
        if unpack_message(message)["type"] in EVENTS:
            take_message(execution, message, now)


def fire(execution: Execution, timer: int, now: int) -> None:
    """Queue a due timer, with the output and the log of the attempt that it ends."""
    event: dict[str, Any] = {"type": "timer", "at": now, "timer": timer}
    if execution.printed and (printed := _cut_short(execution, timer)) is not None:
        if evidence := printed.evidence():
            event["evidence"] = evidence
        if printed.lines is not None:
            event["log"] = printed.lines.log()
    execution.queue.append(event)  # type: ignore[arg-type] # built key by key


def _cut_short(execution: Execution, timer: int) -> Printed | None:
    """Return the output of the attempt that a timer ends."""
    state = execution.state
    found = state["timers"].get(timer)
    if found is None or found["why"] not in ("timeout", "deadline"):
        return None
    whose = found["ref"]
    units = [whose] if found["why"] == "timeout" else list(state["acts"][whose]["units"])
    at_work = [execution.printed[unit] for unit in units if unit in execution.printed]
    return at_work[0] if len(at_work) == 1 else None


def _questions(execution: Execution, *, consults: bool) -> Iterator[Consult | Preview]:
    """Yield what is to be done again for the questions about calls, after an earlier process.

    Args:
        execution: Just loaded.
        consults: Whether an authority is consulted about them. Otherwise only their missing
            previews are computed.
    """
    from flowengine.engines.executions.calls import has_preview

    state, steps = execution.state, execution.linked.compiled["steps"]
    for number, record in execution.waits.items():
        if "digest" not in record:
            continue
        unit = next(iter(state["waits"][number]["units"]))
        step = state["acts"][state["units"][unit]["act"]]["step"]
        if consults:
            yield Consult(number, unit, step, 0, None, None, bool(record.get("required")))
        elif record.keys().isdisjoint({"preview", "note"}) and has_preview(steps[step]):
            yield Preview(number, unit, step)


# Problems that do not affect the outcome of an execution, recorded in its journal.
#
# A failure to close an environment is detected when a step, a region or the execution is over. By
# then the execution may run here, may be released, or may have ended.


def concerns_others(warning: Mapping[str, Any]) -> bool:
    """Return whether a warning is shown, and not only kept in the journal.

    A refused decision is kept for an audit: the user who tried to decide received it.

    Args:
        warning: The event, or a view of it.
    """
    return bool(warning["about"] != "decision")


def not_released(failed: Sequence[NotReleased], now: int) -> list[Event]:
    """Return the warnings about environments that could not be closed, without internals.

    Args:
        failed: The failures, as reported by the manager.
        now: The time (ms).
    """
    return [
        {
            "type": "warning",
            "at": now,
            "about": "environment",
            "message": f"environment '{error.resource_key}' could not be closed ({error.error}); "
            "closing it is retried; to end what is left after that: flowengine envs reap",
        }
        for error in failed
    ]


def uncounted(execution: Execution, measured: Measured) -> Event | None:
    """Return the warning that an attempt's use of an enclosing budget cannot be predicted.

    It is recorded once for each step of an execution, regardless of the process.

    Args:
        execution: In the state before the measurement.
        measured: The event of the measurement.
    """
    state = execution.state
    unit = state["units"].get(measured["unit"])
    if unit is None or "cost_usd" in measured["needs"]:
        return None
    view = View(execution.linked.graph, state)
    around = budgets_around(view, view.frame_of(view.act_of(unit)))
    if not any("cost_usd" in budget["limits"] for _, budget in around):
        return None
    message = (
        f"{'/'.join(steps_in(view.address(unit)))}: the cost of its calls is not known in advance, "
        "because the price of its model is unknown. 'cost_usd' of the budget counts only what the "
        "provider reports afterwards, which may be nothing; 'tokens' bounds any model"
    )
    warning: Event = {
        "type": "warning", "at": measured["at"], "about": "budget", "message": message
    }  # fmt: skip
    posted = any(
        event["type"] == "warning" and event["message"] == message for event in execution.queue
    )
    return None if posted or message in state.get("warned", {}) else warning


def warn(
    host: Host, execution: str, warnings: Sequence[Event], commit: Callable[[Execution], None]
) -> None:
    """Record warnings in the journal of an execution that is not driven here.

    Args:
        host: Provides the store.
        execution: Full id.
        warnings: The events.
        commit: Commits the queue of an execution.
    """
    try:
        epoch = host.keeper.acquire(execution, is_driving=False)
    except Conflict:
        with suppress(Conflict):  # it has ended in another process
            for event in warnings:
                host.store.send(execution, pack(event), event["at"], host.ids.message())
        return
    try:
        stored = host.stored(execution, epoch)
        stored.queue.extend(warnings)
        commit(stored)
    finally:
        host.keeper.release([(execution, epoch)])


# Detached flows: a step starts a separate execution and continues with its id.
#
# See docs/language.md: flow.
#
# The id is derived from the parent execution and the address of the step, which makes the start
# idempotent even if the step is repeated after a crash. The execution is stored before the step
# has ended.


def begin_detached(host: Host, execution: Execution, run: Run) -> Event:
    """Create the execution that a step starts, and schedule it for driving here.

    Args:
        host: Shared context of the executions.
        execution: The execution of the step.
        run: The kernel's command.

    Returns:
        The outcome of the attempt.
    """
    now = host.clock.now()
    linked = execution.linked
    number: int = linked.compiled["steps"][run.step]["task"]["flow"]
    parent = {**execution.state["execution"], "workdir": execution.context.workdir}
    try:
        id = separate_id(execution.id, run.address)
        id = begin_separate(host, linked, number, id, parent, run.input or {})
    except InputError as error:
        failure = {"type": "ValidationError", "message": error.message, "data": None}
        return failed(run, AttemptFailed(failure), now)  # type: ignore[arg-type]
    return succeeded(run, {"execution_id": id}, now)
