"""Objects shared under one name: a key of a signal, a lock, a deployed flow, or grants.

Each name is a small workflow, so requests for it are taken one after the other. It exists while it
is used, and for some days longer. It does not drive executions: it sends them signals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from inspect import isawaitable
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError, FailureError

from flowengine.engines.memory.records import (
    Claims,
    MemoryGrants,
    MemoryMessages,
    MemorySchedules,
)
from flowengine.engines.temporal.heartbeat import is_too_long
from flowengine.engines.temporal.objects import VARIABLE
from flowengine.engines.temporal.payloads import packed
from flowengine.engines.temporal.requests import BEGIN, SHARED, START_DUE
from flowengine.errors import FlowEngineError, NotFound, UsageError
from flowengine.journal.records import (
    Beginning,
    Deployed,
    FlowGrant,
    InboxMessage,
    LockOperation,
    Scheduled,
    SendResult,
    SignalStart,
)
from flowengine.kernel.notation.accounts import is_account, read_account

STARTS = "flowengine-starts"
"""Id of the workflow that keeps which flows are deployed, and what starts their executions. Their
compiled forms have a workflow each, because a history of all of them could not be continued."""
GRANTS = "flowengine-grants"
"""Id of the workflow that keeps the grants for all executions of a flow. There is one, not one for
each flow, because the index of workflows lags behind, and a grant must be found to be revoked."""
BUDGETS = "flowengine-budget-"
"""Prefix of the ids of the workflows of budgets."""
_KEPT = timedelta(days=7)
"""How long the ids of messages are remembered after the last request."""
_MOST_SENT = 1000
"""Number of message ids to remember when a history is continued in another one."""
_PATIENCE = timedelta(seconds=30)
_PAUSE, _LONGEST_PAUSE = 0.5, 60.0
"""Delay (s) before schedules that could not be started are tried again, doubled each time."""


def key_workflow(signal: str, key: str) -> str:
    """Return the workflow id of a key. Ids are visible to operators, and keys can be personal."""
    return f"flowengine-key-{_digest(signal, key)}"


def lock_workflow(lock: str) -> str:
    """Return the workflow id of a lock, or of a budget that executions share."""
    prefix = BUDGETS if is_account(lock) else "flowengine-lock-"
    return f"{prefix}{_digest(lock)}"


def form_workflow(hash: str) -> str:
    """Return the workflow id of the compiled form of a deployed flow."""
    return f"flowengine-form-{hash}"


def forwarded_id(name: str, id: str) -> str:
    """Return the id with which a message is forwarded to an execution.

    Args:
        name: The signal and the key, with a blank in between.
        id: Id of the message.
    """
    return f"key {name} {id}"


def _digest(*parts: str) -> str:
    return sha256("\n".join(parts).encode()).hexdigest()[:32]


class Shared:
    """The state.

    Args:
        state: As returned by `kept`. Empty: nothing yet.
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.members: list[list[Any]] = [*state.get("members", ())]
        """[time of start, id] of each open execution with the key, oldest first."""
        self.sent: dict[str, SendResult] = dict(state.get("sent", {}))
        """Id of a message → its result when it is sent again."""
        self.seen: dict[str, int] = dict(state.get("seen", {}))
        """Execution, or run of it that has replaced another one by *Reset* of Temporal → number of
        its last request, because requests can be repeated."""
        self.deployed: dict[str, tuple[Deployed, list[str]]] = dict(state.get("deployed", {}))
        """Flow → its current version, and the signals that start it."""
        self.form: bytes | None = state.get("form")
        """A packed flow."""
        self.schedules = MemorySchedules(state.get("schedules", ()))
        self.grants = MemoryGrants()
        for grant in state.get("grants", ()):
            self.grants.keep(grant)
        self.using: dict[str, str] = dict(state.get("using", {}))
        """Id of a wait → the grant that is about to answer it."""
        self.messages = MemoryMessages()
        self.claims = Claims(self.messages)
        self.claims.restore(state.get("claims", ()))
        self.claims.used = dict(state.get("used", {}))
        self.claims.limits = dict(state.get("limits", {}))

    def kept(self) -> dict[str, Any]:
        """Return what the next run starts with."""
        return {
            "members": self.members,
            "sent": dict([*self.sent.items()][-_MOST_SENT:]),
            "seen": dict([*self.seen.items()][-_MOST_SENT:]),
            "deployed": self.deployed,
            "form": self.form,
            "schedules": self.schedules.listed(),
            "grants": self.grants.list_grants(None, None),
            "using": self.using,
            "claims": self.claims.all(),
            "used": self.claims.used,
            "limits": self.claims.limits,
        }

    def is_used(self, now: int) -> bool:
        """Return whether it must be kept after a time (ms)."""
        has_grants = bool(self.grants.list_grants(None, None))
        is_kept = self.form is not None or any(
            not read_account(name).is_over(now) for name in self.claims.used
        )
        return bool(self.members or self.deployed or has_grants or is_kept or self.claims.all())

    def change(self, request: Mapping[str, Any]) -> None:
        """Carry out a request of an execution, unless it was carried out already.

        Its number identifies it, because it is part of the history of the execution by now.
        """
        execution, number = request["execution"], request["number"]
        name = request.get("run", execution)
        if number <= self.seen.get(name, -1):
            return
        self.seen.pop(name, None)
        self.seen[name] = number
        match request["do"]:
            case "join":
                self.join(request["created"], execution)
            case "leave":
                self.leave(execution)
            case "claim":
                self.claims.write(execution, request["claim"], request["at"])
            case "end":
                is_driven, used = request.get("is_driven", False), request.get("used")
                self.claims.end(execution, request["at"], is_driven=is_driven, used=used)
            case "grant":
                self.grants.keep(request["grant"])
            case "used":
                grant = self.using.pop(request["wait"])
                if not request["counts"]:  # the answer to the wait did not
                    self.grants.give_back(grant)
            case "form":
                self.form = request["form"]

    def join(self, created: int, execution: str) -> None:
        """Add an execution with the key."""
        if [created, execution] not in self.members:
            self.members = sorted([*self.members, [created, execution]])

    def leave(self, execution: str) -> None:
        """Remove an execution that no longer has the key."""
        self.members = [member for member in self.members if member[1] != execution]

    def answer(self, what: str, about: str) -> Any:
        """Return the answer to a query, see `SharedWorkflow.read`."""
        match what:
            case "grants":
                return self.grants.list_grants(about or None, None)
            case "holder":
                return self.members[0][1] if self.members else None
            case "claims":
                return self.claims.of(about)
            case "budgets":
                return self.claims.budgets()
            case "schedules":
                return self.schedules.listed(int(about) if about else None)
            case "deployed":
                return [kept for _, (kept, _) in sorted(self.deployed.items())]
            case "starts":
                return [
                    SignalStart(flow, kept.hash)
                    for flow, (kept, signals) in sorted(self.deployed.items())
                    if about in signals
                ]
        return self.form


ASKED = (
    "begin",
    "deploy",
    "move_schedule",
    "release",
    "reserve",
    "revoke",
    "send",
    "undeploy",
    "use",
)
"""The requests that get an answer: methods of `SharedWorkflow`."""


@workflow.defn(name=SHARED)
class SharedWorkflow:
    """The workflow.

    Args:
        state: See `Shared`.
    """

    @workflow.init
    def __init__(self, state: dict[str, Any]) -> None:
        self._shared = Shared(state)
        self._turn = asyncio.Lock()
        self._reserved: dict[str, asyncio.Task[None]] = {}
        """Executions with claims that are not open yet → ends their reservation after a while."""
        self._alarm: asyncio.Task[None] | None = None
        self._alarm_at: int | None = None
        self._is_due = False
        self._is_starting = False
        self._pause = _PAUSE

    @workflow.run
    async def run(self, state: dict[str, Any]) -> None:
        """Forward messages, and start due executions, until it is not used any more."""
        self._set_alarm()
        while True:
            try:
                await workflow.wait_condition(self._has_work, timeout=_KEPT)
            except TimeoutError:
                now = workflow.time_ns() // 1_000_000
                if not self._shared.is_used(now) and workflow.all_handlers_finished():
                    return
            for message in self._arrived():
                async with self._turn:  # not while the receiver is being started
                    await self._forward_grant(message)
            if self._is_due:
                await self._start_due()
            if self._is_long() and workflow.all_handlers_finished() and not self._arrived():
                workflow.continue_as_new(self._shared.kept())

    @workflow.signal
    def change(self, requests: list[Any]) -> None:
        """Carry out requests of an execution."""
        for request in requests:
            self._shared.change(request)
            self._end_reservation(request["execution"])

    @workflow.update
    async def ask(self, what: str, given: list[Any]) -> dict[str, Any]:
        """Carry out a request, one after the other, and return its `answer` or its `error`."""
        if what not in ASKED:
            raise ApplicationError(f"there is no {what}", type="UsageError")
        async with self._turn:
            try:
                answer = getattr(self, what)(*given)
                return {"answer": await answer if isawaitable(answer) else answer}
            except FlowEngineError as error:
                return {"error": error}

    @workflow.query
    def read(self, what: str, about: str) -> Any:
        """Return the oldest execution with the key, claims, grants, flows, or schedules."""
        return self._shared.answer(what, about)

    # Requests with an answer

    async def send(self, request: dict[str, Any]) -> SendResult:
        """Forward a message to the oldest open execution with the key, or start one."""
        id, event, begin = request["id"], request["event"], request["begin"]
        shared = self._shared
        if id in shared.sent:
            return shared.sent[id]
        message = {"event": event, "at": request["at"], "id": forwarded_id(request["name"], id)}
        while shared.members:
            execution = shared.members[0][1]
            if await _signal(execution, message):
                shared.sent[id] = SendResult(0, execution, False, event=event)
                return shared.sent[id]._replace(first=True)
            shared.leave(execution)  # it has ended
        if begin is None:
            raise NotFound("no open execution has the key")
        await self._begin(begin)
        shared.join(begin.new.created_at, begin.id)
        shared.sent[id] = SendResult(0, begin.id, False, event=begin.event)
        return shared.sent[id]._replace(first=True, began=True)

    async def begin(self, beginning: Beginning, flow: bytes) -> Any:
        """Start an execution with claims on the lock, unless the lock refuses them.

        Returns:
            The lock that refuses, and the execution that holds it. None: it was started.
        """
        claims, id, claimed = self._shared.claims, beginning.id, beginning.claims
        rejected = claims.rejected_by(id, claimed)
        if rejected is not None:
            return rejected
        for claim in claimed:
            claims.write(id, claim, beginning.new.created_at)
        locks = sorted({claim.lock for claim in claimed})
        await self._begin(beginning._replace(claims=()), locks, flow)
        return None

    def reserve(self, execution: str, claims: list[LockOperation], at: int) -> Any:
        """Make claims of an execution that is to be started, unless the lock refuses them.

        Once started, it makes the same claims. Until then, or for a while, it receives no
        grant. The claims of one that was not started are released at the first grant.

        Returns:
            The lock that refuses, and the execution that holds it. None: the claims are made.
        """
        shared = self._shared
        rejected = shared.claims.rejected_by(execution, claims)
        if rejected is not None:
            return rejected
        known = {kept.execution for claim in claims for kept in shared.claims.of(claim.lock)}
        if execution not in known:
            self._reserved[execution] = asyncio.create_task(self._expire(execution))
        for claim in claims:
            shared.claims.write(execution, claim, at)
        return None

    def release(self, execution: str, at: int) -> None:
        """Release the claims of an execution that was not started."""
        if self._end_reservation(execution):
            self._shared.claims.end(execution, at, used={})

    async def deploy(
        self, deployed: Deployed, signals: list[str], schedules: list[Any], most: int
    ) -> None:
        """Keep the current version of a flow, in place of earlier ones.

        Args:
            deployed: The version.
            signals: Names of the signals that start it.
            schedules: [name, next time, when it is due] of each schedule.
            most: Maximum bytes of all deployed flows, without their forms: with more, the history
                could not be continued in another one.
        """
        shared, flow = self._shared, deployed.flow
        old = shared.deployed.get(flow)
        size = len(packed([shared.kept(), deployed, signals, schedules]))
        if size > most and old is None:
            raise UsageError(
                f"another deployed flow does not fit beside {len(shared.deployed)}",
                hint=f"set ${VARIABLE} for all processes, or undeploy a flow",
            )
        shared.deployed[flow] = deployed, signals
        shared.schedules.deploy(flow, deployed.hash, schedules)
        self._set_alarm()
        if old is not None and old[0].hash != deployed.hash:
            await self._forget(old[0].hash)

    async def undeploy(self, flow: str) -> None:
        """Remove a deployed flow."""
        old = self._shared.deployed.pop(flow, None)
        self._shared.schedules.undeploy(flow)
        self._set_alarm()
        if old is not None:
            await self._forget(old[0].hash)

    def move_schedule(self, scheduled: Scheduled, time: int, due: int | None) -> bool:
        """Move a schedule to another time, unless that was done already."""
        moved = self._shared.schedules.move(scheduled, time, due)
        self._set_alarm()
        return moved

    def use(self, grant: str, wait: str, at: int) -> bool:
        """Use a grant for the answer to a wait, and return whether it was usable."""
        using, grants = self._shared.using, self._shared.grants
        if wait not in using and grants.use(grant, at):
            using[wait] = grant
        return wait in using

    def revoke(self, grant: str, by: str) -> FlowGrant:
        """Revoke a grant."""
        return self._shared.grants.revoke(grant, by)

    # Internals

    async def _forget(self, hash: str) -> None:
        """Have the form of a flow forgotten that is not deployed any more."""
        request = {"do": "form", "form": None, "execution": STARTS, "number": workflow.time_ns()}
        with suppress(FailureError):  # it has ended
            form = workflow.get_external_workflow_handle(form_workflow(hash))
            await form.signal("change", [request])

    def _set_alarm(self, pause: float = 0.0) -> None:
        """Have the next schedule started when it is due, but not before a pause (s)."""
        due = None if self._is_starting else self._shared.schedules.next_due()
        if due == self._alarm_at and not pause:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = due
        if due is not None:
            delay = max((due - workflow.time_ns() // 1_000_000) / 1000, pause)
            self._alarm = asyncio.create_task(self._ring(delay))

    async def _ring(self, seconds: float) -> None:
        await workflow.sleep(seconds, summary="next schedule")
        self._alarm, self._alarm_at, self._is_due = None, None, True

    async def _start_due(self) -> None:
        """Have a worker start the executions that are due, and move their schedules.

        A schedule that remains due has an error, or the worker's clock is late.
        """
        self._is_due, self._is_starting = False, True
        await workflow.execute_activity(
            START_DUE, start_to_close_timeout=_PATIENCE, summary="start of executions by schedules"
        )
        self._is_starting = False
        due = self._shared.schedules.next_due()
        is_late = due is not None and due <= workflow.time_ns() // 1_000_000
        self._pause = min(2 * self._pause, _LONGEST_PAUSE) if is_late else _PAUSE
        self._set_alarm(self._pause if is_late else 0.0)

    async def _expire(self, execution: str) -> None:
        await workflow.sleep(_PATIENCE, summary="start of an execution")
        del self._reserved[execution]

    def _end_reservation(self, execution: str) -> bool:
        """End the reservation of an execution, and return whether it had one."""
        task = self._reserved.pop(execution, None)
        if task is not None:
            task.cancel()
        return task is not None

    def _arrived(self) -> list[InboxMessage]:
        """Return the grants that executions can receive now."""
        arrived = self._shared.messages.arrived(0)
        return [message for message in arrived if message.execution not in self._reserved]

    def _is_long(self) -> bool:
        info = workflow.info()
        length = info.get_current_history_length()
        return info.is_continue_as_new_suggested() or is_too_long(length, info.task_timeout)

    def _has_work(self) -> bool:
        if self._arrived() or self._is_due:
            return True
        return self._is_long() and workflow.all_handlers_finished()

    async def _begin(self, *given: Any) -> None:
        """Start an execution, see `Sharing.begin`. Its id makes this idempotent."""
        begun = await workflow.execute_activity(
            BEGIN, args=given, start_to_close_timeout=_PATIENCE, retry_policy=None
        )
        if "error" in begun:
            raise begun["error"]

    async def _forward_grant(self, message: InboxMessage) -> None:
        """Notify an execution that it was granted the lock, or must be cancelled."""
        shared, execution = self._shared, message.execution
        number = f"{workflow.info().workflow_id} {workflow.info().run_id} {message.number}"
        request = {"event": message.event, "at": message.at, "id": number}
        shared.messages.take(execution, [message.number])
        if not await _signal(execution, request):
            shared.claims.end(execution, message.at)


async def _signal(execution: str, message: dict[str, Any]) -> bool:
    """Send a message to an execution, and return whether it is open."""
    handle = workflow.get_external_workflow_handle(execution)
    try:
        await handle.signal("message", message)
    except FailureError:
        return False
    return True
