"""Objects shared under one name: a key of a signal, a lock, a deployed flow, or grants.

Each name is a small workflow, so requests for it are taken one after the other. It exists while it
is used, and for some days longer. It does not drive executions: it sends them signals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError, FailureError

from flowengine.engines.memory.records import (
    Claims,
    KeptClaim,
    MemoryGrants,
    MemoryMessages,
    MemorySchedules,
)
from flowengine.engines.temporal.heartbeat import is_too_long
from flowengine.engines.temporal.objects import VARIABLE
from flowengine.engines.temporal.requests import (
    BEGIN,
    REFUSED,
    SHARED,
    START_DUE,
    error_as_data,
    hint_of,
    plain,
)
from flowengine.errors import Conflict, FlowEngineError, NotFound, UsageError
from flowengine.journal.encoding import pack
from flowengine.journal.records import (
    Claimed,
    FlowGrant,
    InboxMessage,
    LockOperation,
    Scheduled,
    SendResult,
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
    """The state, as plain data between requests.

    Args:
        state: As returned by `plain`. Empty: nothing yet.
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.members: list[list[Any]] = list(state.get("members", ()))
        """[time of start, id] of each open execution with the key, oldest first."""
        self.sent: dict[str, list[Any]] = dict(state.get("sent", {}))
        """Id of a message → execution, packed event."""
        self.seen: dict[str, int] = dict(state.get("seen", {}))
        """Execution, or run of it that has replaced another one by *Reset* of Temporal → number of
        its last request, because requests can be repeated."""
        self.deployed: dict[str, list[Any]] = dict(state.get("deployed", {}))
        """Flow → version, hash, time, signals."""
        self.form: bytes | None = state.get("form")
        """A packed flow."""
        self.schedules = MemorySchedules(Scheduled(*data) for data in state.get("schedules", ()))
        self.grants = MemoryGrants()
        for grant in state.get("grants", ()):
            self.grants.keep(FlowGrant(*grant))
        self.using: dict[str, str] = dict(state.get("using", {}))
        """Id of a wait → the grant that is about to answer it."""
        self.messages = MemoryMessages()
        self.claims = Claims(self.messages)
        self.claims.restore(
            [
                (lock, [KeptClaim(claim[0], Claimed(*claim[1]), *claim[2:]) for claim in queue])
                for lock, queue in state.get("claims", ())
            ]
        )
        self.claims.used = dict(state.get("used", {}))
        self.claims.limits = dict(state.get("limits", {}))

    def plain(self) -> dict[str, Any]:
        """Return the state as plain data."""
        return {
            "members": self.members,
            "sent": dict([*self.sent.items()][-_MOST_SENT:]),
            "seen": dict([*self.seen.items()][-_MOST_SENT:]),
            "deployed": self.deployed,
            "form": self.form,
            "schedules": plain(self.schedules.listed()),
            "grants": plain(self.grants.list_grants(None, None)),
            "using": self.using,
            "claims": plain(self.claims.all()),
            "used": plain(self.claims.used),
            "limits": plain(self.claims.limits),
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
        name, number = request.get("run", request["execution"]), request["number"]
        if number <= self.seen.get(name, -1):
            return
        self.seen.pop(name, None)
        self.seen[name] = number
        _CHANGES[request["do"]](self, request)

    def deploy(self, deployed: list[Any], signals: list[str], schedules: list[Any]) -> None:
        """Keep the current version of a flow, in place of earlier ones.

        Args:
            deployed: Flow, version, hash, time.
            signals: Names of the signals that start it.
            schedules: [name, next time, when it is due] of each schedule.
        """
        flow, version, hash, at = deployed
        self.deployed[flow] = [version, hash, at, signals]
        self.schedules.deploy(flow, hash, [(name, time, due) for name, time, due in schedules])

    def replaced(self, flow: str) -> str | None:
        """Return the form of a flow that is not deployed any more. None: there is none."""
        kept = self.deployed.get(flow)
        return None if kept is None else kept[1]

    def keep_form(self, form: bytes | None) -> None:
        """Keep a packed flow, or none."""
        self.form = form

    def join(self, created: int, execution: str) -> None:
        """Add an execution with the key."""
        if [created, execution] not in self.members:
            self.members = sorted([*self.members, [created, execution]])

    def leave(self, execution: str) -> None:
        """Remove an execution that no longer has the key."""
        self.members = [member for member in self.members if member[1] != execution]

    def claim(self, execution: str, claims: list[Any], at: int) -> None:
        """Make or release claims on the lock."""
        for claim in claims:
            self.claims.write(execution, LockOperation(*claim), at)

    def use(self, grant: str, wait: str, at: int) -> bool:
        """Use a grant for the answer to a wait, and return whether it was usable."""
        if wait not in self.using:
            if not self.grants.use(grant, at):
                return False
            self.using[wait] = grant
        return True

    def finish_use(self, wait: str, *, counts: bool) -> None:
        """Note whether the answer to a wait counts. Otherwise, the grant was not used."""
        grant = self.using.pop(wait)
        if not counts:
            self.grants.give_back(grant)


_CHANGES: Mapping[str, Callable[[Shared, Mapping[str, Any]], None]] = {
    "join": lambda shared, given: shared.join(given["created"], given["execution"]),
    "leave": lambda shared, given: shared.leave(given["execution"]),
    "claim": lambda shared, given: shared.claim(given["execution"], given["claims"], given["at"]),
    "grant": lambda shared, given: shared.grants.keep(FlowGrant(*given["grant"])),
    "form": lambda shared, given: shared.keep_form(given["form"]),
    "used": lambda shared, given: shared.finish_use(given["wait"], counts=given["counts"]),
    "end": lambda shared, given: shared.claims.end(
        given["execution"],
        given["at"],
        is_driven=given.get("is_driven", False),
        used=given.get("used"),
    ),
}


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
            if self._is_long() and workflow.all_handlers_finished() and not self._is_asked():
                workflow.continue_as_new(self._shared.plain())

    @workflow.signal
    def change(self, requests: list[Any]) -> None:
        """Carry out requests of an execution."""
        for request in requests:
            self._shared.change(request)
            self._end_reservation(request["execution"])

    @workflow.update
    async def send(self, request: dict[str, Any]) -> dict[str, Any]:
        """Forward a message to the oldest open execution with the key, or start one."""
        async with self._turn:
            try:
                return {"answer": plain(await self._sent(request))}
            except FlowEngineError as error:
                return {"error": error_as_data(error)}

    @send.validator
    def _may_send(self, request: dict[str, Any]) -> None:
        """Refuse a message that was sent before, so that it leaves no event in the history."""
        before = self._before(request["id"])
        if before is not None:
            raise ApplicationError("sent before", {"answer": plain(before)}, type=REFUSED)

    @workflow.update
    async def begin(self, request: dict[str, Any]) -> dict[str, Any]:
        """Start an execution with claims on the lock, unless the lock refuses them."""
        shared, execution = self._shared, request["begin"]["id"]
        async with self._turn:
            claims = [LockOperation(*claim) for claim in request["claims"]]
            rejected = shared.claims.rejected_by(execution, claims)
            if rejected is not None:
                return {"answer": [*rejected]}
            shared.claim(execution, request["claims"], request["at"])
            locks = sorted({claim.lock for claim in claims})
            await self._begin({**request["begin"], "flow": request["flow"], "locks": locks})
        return {"answer": None}

    @workflow.update
    def reserve(self, execution: str, claims: list[Any], at: int) -> dict[str, Any]:
        """Make claims of an execution that is to be started, unless the lock refuses them.

        Once started, it makes the same claims. Until then, or for a while, it receives no
        grant. The claims of one that was not started are released at the first grant.
        """
        made = [LockOperation(*claim) for claim in claims]
        rejected = self._shared.claims.rejected_by(execution, made)
        if rejected is not None:
            return {"answer": [*rejected]}
        known = {kept.execution for claim in made for kept in self._shared.claims.of(claim.lock)}
        if execution not in known:
            self._reserved[execution] = asyncio.create_task(self._expire(execution))
        self._shared.claim(execution, claims, at)
        return {"answer": None}

    @workflow.update
    def release(self, execution: str, at: int) -> None:
        """Release the claims of an execution that was not started."""
        if self._end_reservation(execution):
            self._shared.claims.end(execution, at, used={})

    @workflow.update
    async def deploy(
        self, deployed: list[Any], signals: list[str], schedules: list[Any], most: int
    ) -> None:
        """Keep the current version of a flow. See `Shared.deploy`.

        Args:
            deployed: See there.
            signals: The same.
            schedules: The same.
            most: Maximum bytes of all deployed flows, without their forms.
        """
        async with self._turn:
            old = self._shared.replaced(deployed[0])
            self._shared.deploy(deployed, signals, schedules)
            self._set_alarm()
            if old != deployed[2]:
                await self._forget(old)

    @deploy.validator
    def _may_deploy(
        self, deployed: list[Any], signals: list[str], schedules: list[Any], most: int
    ) -> None:
        """Refuse a flow with which the history could not be continued in another one."""
        size = len(pack([self._shared.plain(), deployed, signals, schedules]))
        if size > most and deployed[0] not in self._shared.deployed:
            count = len(self._shared.deployed)
            error = UsageError(
                f"another deployed flow does not fit beside {count}",
                hint=f"set ${VARIABLE} for all processes, or undeploy a flow",
            )
            raise ApplicationError("no room", {"error": error_as_data(error)}, type=REFUSED)

    @workflow.update
    async def undeploy(self, flow: str) -> None:
        """Remove a deployed flow."""
        async with self._turn:
            old = self._shared.replaced(flow)
            self._shared.deployed.pop(flow, None)
            self._shared.schedules.undeploy(flow)
            self._set_alarm()
            await self._forget(old)

    @workflow.update
    def move_schedule(self, scheduled: list[Any], time: int, due: int | None) -> dict[str, Any]:
        """Move a schedule to another time, unless that was done already."""
        moved = self._shared.schedules.move(Scheduled(*scheduled), time, due)
        self._set_alarm()
        return {"answer": moved}

    @workflow.update
    def use(self, grant: str, wait: str, at: int) -> dict[str, Any]:
        """Use a grant for the answer to a wait, if it is usable."""
        return {"answer": self._shared.use(grant, wait, at)}

    @workflow.update
    def revoke(self, grant: str, by: str) -> dict[str, Any]:
        try:
            return {"answer": plain(self._shared.grants.revoke(grant, by))}
        except FlowEngineError as error:
            return {"error": error_as_data(error)}

    @workflow.query
    def read(self, what: str, about: str) -> Any:
        """Return the oldest execution with the key, claims, grants, flows, or schedules."""
        shared = self._shared
        if what == "grants":
            return plain(shared.grants.list_grants(about or None, None))
        if what == "holder":
            return shared.members[0][1] if shared.members else None
        if what == "claims":
            return plain(shared.claims.of(about))
        if what == "budgets":
            return plain(shared.claims.budgets())
        if what == "schedules":
            return plain(shared.schedules.listed(int(about) if about else None))
        flows = sorted(shared.deployed.items())
        if what == "deployed":
            return [[flow, *kept[:3]] for flow, kept in flows]
        if what == "starts":
            return [[flow, kept[1]] for flow, kept in flows if about in kept[3]]
        return shared.form

    # Internals

    async def _forget(self, hash: str | None) -> None:
        """Have the form of a flow forgotten that is not deployed any more. None: there is none."""
        if hash is None:
            return
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

    def _is_asked(self) -> bool:
        return bool(self._arrived())

    def _is_long(self) -> bool:
        info = workflow.info()
        length = info.get_current_history_length()
        return info.is_continue_as_new_suggested() or is_too_long(length, info.task_timeout)

    def _has_work(self) -> bool:
        if self._is_asked() or self._is_due:
            return True
        return self._is_long() and workflow.all_handlers_finished()

    def _before(self, id: str) -> SendResult | None:
        before = self._shared.sent.get(id)
        return None if before is None else SendResult(0, before[0], False, event=before[1])

    async def _sent(self, request: dict[str, Any]) -> SendResult:
        id, event, begin = request["id"], request["event"], request["begin"]
        before = self._before(id)
        if before is not None:
            return before
        shared = self._shared
        message = {"event": event, "at": request["at"], "id": forwarded_id(request["name"], id)}
        while shared.members:
            execution = shared.members[0][1]
            if await _signal(execution, message):
                shared.sent[id] = [execution, event]
                return SendResult(0, execution, True, event=event)
            shared.leave(execution)  # it has ended
        if begin is None:
            raise NotFound("no open execution has the key")
        await self._begin(begin)
        shared.join(begin["new"][3], begin["id"])
        shared.sent[id] = [begin["id"], begin["event"]]
        return SendResult(0, begin["id"], True, True, begin["event"])

    async def _begin(self, begin: dict[str, Any]) -> None:
        """Start an execution. Its id makes this idempotent."""
        refusal = await workflow.execute_activity(
            BEGIN, begin, start_to_close_timeout=_PATIENCE, retry_policy=None
        )
        if refusal is not None:
            raise Conflict(refusal[0], hint=hint_of(refusal[1]))

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
