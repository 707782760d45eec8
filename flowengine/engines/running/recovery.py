"""Recovery of executions: the events that happened while they were not driven, in order."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate

from flowengine.engines.attempts.lines_at_work import Attempt
from flowengine.engines.attempts.outcome import AttemptFailed, failed, succeeded
from flowengine.engines.executions.calls import has_preview
from flowengine.engines.executions.execution import DriveChild, Execution, Preview
from flowengine.engines.host import Host
from flowengine.engines.running.answers import answer_by_grant
from flowengine.engines.running.call_descriptions import described
from flowengine.engines.running.carrying import fire, take_message
from flowengine.engines.starting.beginning import begin_separate
from flowengine.errors import InputError
from flowengine.journal.records import InboxMessage, Owner
from flowengine.journal.shapes import unpack_message
from flowengine.kernel import running
from flowengine.kernel.commands import Consult, Run
from flowengine.kernel.events import CutOff, Decided, Event, Log, Offered
from flowengine.kernel.notation.addresses import separate_id, wait_id
from flowengine.kernel.waiting.approvals import EVENTS
from flowengine.sdk.environments import NotReleased
from flowengine.sdk.processes import end_marked, is_dead, is_program, is_stopped


def taken(
    host: Host, id: str, bring: Callable[[Execution], None] = lambda execution: None
) -> Execution:
    """Return an execution with its lease, and with the events since then in its queue.

    Args:
        host: Shared context of the executions.
        id: Its full id.
        bring: Passes the caller's objects to it.

    Raises:
        Conflict: Another process drives it.
    """
    before = host.store.holder(id, 0)  # also one that gave no more sign of life
    epoch = host.keeper.acquire(id)
    try:
        execution = host.stored(id, epoch)
        bring(execution)
        recover(host, execution, before=before, asks=True)
        execution.look_ahead()
    except BaseException:
        host.keeper.release([(id, epoch)])
        raise
    return execution


def recover(
    host: Host, execution: Execution, *, before: Owner | None = None, asks: bool = False
) -> None:
    """Queue everything that happened to an execution that was just loaded.

    First, attempts of its last process count as interrupted, before everything else, unless that
    process left them without beginning them. Then messages follow in the order of their commits,
    regardless of their senders' clocks, and timers in the order in which they were due. Both are
    merged by time. On a tie messages come first. Last, attempts that wait for an environment are
    retried, and those begin that wait for a worker which offers what this process does.

    Args:
        host: Shared context of the executions.
        execution: Loaded, nothing applied yet.
        before: Its last holder, if it is not known to be dead: it may still be at work on
            functions.
        asks: Whether to put open questions to grants, to the rules of the host, and to the
            execution's own tool authority again.
    """
    if asks:
        _answer_open(host, execution)
    now = host.clock.now()
    has_died = bool(execution.seq) and execution.stored_status == "running"
    at_work = host.lines_at_work(execution.id) if has_died else None
    logs = {} if at_work is None else at_work.read()
    execution.queue.extend(_cut(host, execution, before, logs, now))
    _ask_again(host, execution, now, asks=asks)
    timers = execution.timers.due(now)
    fired = 0
    for at, message in _in_order(execution, host.store.inbox(execution.id)):
        while fired < len(timers) and timers[fired][0] < at:
            fire(execution, timers[fired][1], now)
            fired += 1
        take_message(execution, message, now)
    for _, timer in timers[fired:]:
        fire(execution, timer, now)
    execution.queue.extend(tries_for_environments(execution, now))
    execution.queue.extend(_offered(execution, host.offers, now))
    execution.commands.extend(
        DriveChild(id)  # its process may have died with that of this execution
        for id, child in execution.state.get("children", {}).items()
        if "ended" not in child
    )
    if has_died:
        execution.recovered = execution.seq + len(execution.queue)


def _cut(
    host: Host, execution: Execution, before: Owner | None, logs: Mapping[Attempt, Log], now: int
) -> Iterator[CutOff]:
    """Yield an event for each attempt that was running, once nothing of it is at work here."""
    interrupted = list(running(execution.state))
    left = before if before is not None and before.id != host.keeper.owner.id else None
    if interrupted and left is not None and _end_stopped(left):
        left = None
    put_off, execution.put_off = execution.put_off, False
    if (interrupted and not put_off) or host.deaths(execution.id) > 0:
        # Also programs of attempts that the last process was stopping, which have ended.
        end_marked(execution.id, left)  # the next attempt must not run beside the last one
    for unit, attempt in interrupted:
        cut: CutOff = {"type": "cut", "at": now, "unit": unit, "attempt": attempt}
        if left is not None and not put_off:
            cut["process"] = {"pid": left.pid, "host": left.host}
        if put_off:
            cut["began"] = False
        elif (log := logs.get((unit, attempt))) is not None:
            cut["log"] = log
        yield cut


def _answer_open(host: Host, execution: Execution) -> None:
    """Answer questions by grants, if the process that opened them died before."""
    asked = [number for number, record in execution.waits.items() if "digest" in record]
    if not asked or not host.store.grants(execution.context.flow):
        return

    for number in asked:
        wait = host.store.wait(wait_id(execution.id, number))
        answer_by_grant(host, wait, wait.record.get("source"))


def _end_stopped(process: Owner) -> bool:
    """End a stopped process of the command line, and return whether it was one.

    It has lost its executions. If it was continued, its functions would resume at once, beside the
    next attempts. Other programs may have more to do, so the question about an attempt names them.
    """
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
        offers: The offers of this process.
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
    ordered = inbox
    if not execution.seq:
        ordered = sorted(inbox, key=lambda message: unpack_message(message)["type"] != "started")
    latest = [*accumulate((message.at for message in reversed(ordered)), min)]
    return list(zip(reversed(latest), ordered, strict=True))


def take_hands(host: Host, execution: Execution) -> None:
    """Queue claims, releases and delegations of approvals only, which start no steps.

    Args:
        host: Shared context of the executions.
        execution: Loaded, nothing applied yet.
    """
    now = host.clock.now()
    for message in host.store.inbox(execution.id):
        if unpack_message(message)["type"] in EVENTS:
            take_message(execution, message, now)


def _ask_again(host: Host, execution: Execution, now: int, *, asks: bool) -> None:
    """Repeat the work for questions about calls, after an earlier process.

    Args:
        host: Shared context of the executions.
        execution: Just loaded.
        now: The time (ms).
        asks: Whether the rules of the host and the execution's own authority are consulted.
            Otherwise only missing descriptions and previews are computed.
    """
    has_own = host.consultant is not None and host.consultant.has_own(execution.id)
    consults = asks and (has_own or host.rules.there())
    state, steps = execution.state, execution.linked.compiled["steps"]
    for number, record in execution.waits.items():
        if "digest" not in record:
            continue
        unit = next(iter(state["waits"][number]["units"]))
        step = state["acts"][state["units"][unit]["act"]]["step"]
        if "source" not in record and (event := described(execution, number, step, now)):
            execution.queue.append(event)
        if consults:
            execution.commands.append(Consult(number, unit, step, bool(record.get("required"))))
        elif record.keys().isdisjoint({"preview", "note"}) and has_preview(steps[step]):
            execution.commands.append(Preview(number, unit, step))


# Problems that do not affect the outcome of an execution, recorded in its journal.
#
# A failure to close an environment is detected when a step, a region or the execution is over. By
# then the execution may run here, may be released, or may have ended.


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
            "message": f"environment '{error.resource_key}' could not be closed ({error.error}). "
            "Closing it is retried. To end the rest after that: flowengine envs release --all",
        }
        for error in failed
    ]


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
    id = separate_id(parent["identity"], run.address)
    tool = linked.graph.node(run.step).tool
    about = None if run.child is None else {**run.child, "tool": tool.rpartition(".")[2]}
    try:
        id = begin_separate(host, linked, number, id, parent, run.input or {}, about)
    except InputError as error:
        failure = {"type": "ValidationError", "message": error.message, "data": None}
        return failed(run, AttemptFailed(failure), now)  # type: ignore[arg-type]
    return succeeded(run, {"execution_id": id}, now)
