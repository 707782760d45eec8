"""Records of the memory store: executions and waits, messages, locks, grants and schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from flowengine.journal.accounts import answer, charged, is_unlimited, limits_in, most_of, total
from flowengine.journal.encoding import unpack
from flowengine.journal.filters import failure_of
from flowengine.journal.records import (
    ENDED,
    Claimed,
    ExecutionHead,
    ExecutionRecord,
    FlowGrant,
    InboxMessage,
    JournalEntry,
    ListedWait,
    ListPart,
    LockOperation,
    NewExecution,
    NewGrant,
    Outgoing,
    Scheduled,
    SendResult,
    UsedBudget,
    Vote,
)
from flowengine.journal.refusals import no_grant, revoked_already
from flowengine.kernel.notation.accounts import read_account

# Records of executions and waits in the memory store.


class MemoryJournal:
    """An execution with all its data."""

    __slots__ = ("artifacts", "deaths", "entries", "epoch", "first", "forms", "keys", "lists",
                 "number",
                 "owner", "record", "snapshot")  # fmt: skip

    def __init__(self, number: int, record: ExecutionRecord, owner: str | None) -> None:
        self.number = number
        self.record = record
        self.first = 0
        """Number of earlier events that are not kept here."""
        self.entries: list[JournalEntry] = []
        self.snapshot: tuple[int, bytes] | None = None
        self.lists: dict[str, list[ListPart]] = {}
        self.owner = owner
        self.deaths = 0
        """How many owners in a row died."""
        self.epoch = 0 if owner is None else 1
        self.keys: set[tuple[str, str, int | None]] = set()
        """(signal, key, number of the listening wait or None for the whole execution)."""
        self.artifacts: set[str] = set()
        self.forms: set[str] = set()

    @property
    def length(self) -> int:
        """Number of all events."""
        return self.first + len(self.entries)

    def copy(self, first: int) -> dict[str, Any]:
        """Return it as plain data, without the events before a number."""
        first = max(first, self.first)
        return {
            "record": [*self.record],
            "first": first,
            "entries": [[*entry] for entry in self.entries if entry.seq >= first],
            "snapshot": None if self.snapshot is None else [*self.snapshot],
            "lists": [[*part] for parts in self.lists.values() for part in parts],
            "keys": [[*key] for key in sorted(self.keys, key=repr)],
            "forms": sorted(self.forms),
        }

    @classmethod
    def of(cls, number: int, copy: Mapping[str, Any]) -> Self:
        """Return the journal that `copy` returned."""
        journal = cls(number, ExecutionRecord(*copy["record"]), None)
        journal.first = copy["first"]
        journal.entries = [JournalEntry(*entry) for entry in copy["entries"]]
        journal.snapshot = None if copy["snapshot"] is None else tuple(copy["snapshot"])
        for part in copy["lists"]:
            journal.add_to_list(ListPart(*part))
        journal.keys = {(signal, key, wait) for signal, key, wait in copy["keys"]}
        journal.forms = {*copy["forms"]}
        return journal

    def add_to_list(self, part: ListPart) -> None:
        """Add a part to a list, or replace the end of the list by it."""
        kept = [item for item in self.lists.pop(part.name, ()) if item.first < part.first]
        if kept or part.items:
            self.lists[part.name] = [*kept, part] if part.items else kept

    def let_go(self) -> None:
        """Release the lease."""
        self.owner = None
        self.epoch += 1
        self.deaths = 0

    def set_head(self, head: ExecutionHead) -> None:
        """Update the entry for lists."""
        ended = head.status in ENDED
        self.record = self.record._replace(
            status=head.status,
            changed_at=head.at,
            due=None if ended else head.due,
            ended_at=head.at if ended else None,
            outputs=head.outputs,
            error=head.error,
            failure=failure_of(head.error),
        )
        if ended:
            self.keys.clear()


class KeptWait:
    """A wait with its answers."""

    __slots__ = ("packed", "place", "votes", "wait")

    def __init__(self, place: int, wait: ListedWait) -> None:
        self.place = place
        self.wait = wait
        """Its record is left empty, so that callers cannot modify stored data."""
        self.packed = b""
        self.votes: list[Vote] = []

    @property
    def order(self) -> tuple[int, int]:
        """Position in lists: by age, then by arrival."""
        since: int = unpack(self.packed)["since"]
        return since, self.place

    def show(self, *, votes: bool) -> ListedWait:
        """Return the wait as the port returns it."""
        answers = [vote.event for vote in self.votes] if votes else []
        return self.wait._replace(record=unpack(self.packed), votes=answers)

    def copy(self) -> list[Any]:
        """Return it as plain data."""
        votes = [[*vote[:4], vote.gives and [*vote.gives], vote.uses] for vote in self.votes]
        return [self.place, [*self.wait], self.packed, votes]

    @classmethod
    def of(cls, copy: list[Any]) -> Self:
        """Return the wait that `copy` returned."""
        place, wait, packed, votes = copy
        kept = cls(place, ListedWait(*wait))
        kept.packed = packed
        for by, at, approves, event, gives, uses in votes:
            grant = gives and NewGrant(*gives)
            kept.votes.append(Vote(by, at, approves, event, grant, uses))
        return kept


# Messages of executions, and detection of repeated deliveries.

Address = tuple[str, ...]
"""The address of a message: an execution, a key, a wait, or a claim on a lock."""


class Delivered(NamedTuple):
    """A message as stored."""

    address: Address
    message_id: str
    message: InboxMessage


class MemoryMessages:
    """The inboxes and outboxes of all executions."""

    def __init__(self) -> None:
        self._delivered: list[Delivered] = []
        self._arrived = 0
        self._untaken: dict[int, InboxMessage] = {}
        self._outbox: dict[int, Outgoing] = {}
        self._outgoing = 0
        self.changes = 0
        """Incremented with each delivery."""

    # -- inbox

    def sent_before(self, address: Address, message_id: str) -> SendResult | None:
        """Return the result of an earlier delivery of a message, if any."""
        for item in self._delivered:
            if (item.address, item.message_id) == (address, message_id):
                number, execution, _, event = item.message
                return SendResult(number, execution, first=False, event=event)
        return None

    def deliver(
        self, address: Address, message_id: str, execution: str, at: int, event: bytes
    ) -> SendResult:
        """Put a message into the inbox of an execution."""
        self._arrived = number = self._arrived + 1
        message = InboxMessage(number, execution, at, event)
        self._delivered.append(Delivered(address, message_id, message))
        self._untaken[number] = message
        self.changes += 1
        return SendResult(number, execution, first=True, event=event)

    def take(self, execution: str, numbers: Sequence[int]) -> None:
        """Remove journaled messages from the inbox of an execution."""
        for number in numbers:
            if number in self._untaken and self._untaken[number].execution == execution:
                del self._untaken[number]

    def inbox(self, execution: str) -> list[InboxMessage]:
        """Return the messages that an execution has not taken."""
        return [m for m in self._untaken.values() if m.execution == execution]

    def arrived(self, after: int) -> list[InboxMessage]:
        """Return the untaken messages with a number above `after`."""
        return [m for m in self._untaken.values() if m.number > after]

    def forget(self, is_unwanted: Callable[[Delivered], bool]) -> None:
        """Remove messages, taken or not."""
        for item in filter(is_unwanted, self._delivered):
            self._untaken.pop(item.message.number, None)
        self._delivered = [item for item in self._delivered if not is_unwanted(item)]

    def copy(self) -> list[Any]:
        """Return all messages, in both directions, as plain data."""
        delivered = [
            [[*item.address], item.message_id, [*item.message]] for item in self._delivered
        ]
        sent = [[*item] for item in self._outbox.values()]
        return [delivered, [*self._untaken], self._arrived, sent, self._outgoing]

    def restore(self, copy: Sequence[Any]) -> None:
        """Replace all messages by those that `copy` returned."""
        delivered, untaken, self._arrived, sent, self._outgoing = copy
        self._delivered = [Delivered((*a,), id, InboxMessage(*entry)) for a, id, entry in delivered]
        messages = {item.message.number: item.message for item in self._delivered}
        self._untaken = {number: messages[number] for number in untaken}
        self._outbox = {item[0]: Outgoing(*item) for item in sent}

    # -- outbox

    def put_out(self, sender: str, sent: Sequence[Outgoing]) -> None:
        """Put messages into the outbox of an execution."""
        for item in sent:
            self._outgoing += 1
            self._outbox[self._outgoing] = item._replace(number=self._outgoing, sender=sender)

    def outbox(self) -> list[Outgoing]:
        """Return the messages still to be delivered."""
        return [sent for sent in self._outbox.values() if sent.why is None]

    def acknowledge(self, number: int, refused: str | None) -> None:
        """Record that a message of the outbox was delivered, or why it cannot be."""
        if refused is None:
            self._outbox.pop(number, None)
        elif number in self._outbox:
            self._outbox[number] = self._outbox[number]._replace(why=refused)

    def undelivered(self, execution: str) -> list[Outgoing]:
        """Return the messages of an execution that could not be delivered."""
        return [
            sent
            for sent in self._outbox.values()
            if sent.why is not None and sent.sender == execution
        ]

    def prune(self, executions: set[str]) -> None:
        """Remove the received and the undeliverable messages of executions."""
        self.forget(lambda item: item.message.execution in executions)
        self._outbox = {
            number: sent
            for number, sent in self._outbox.items()
            if sent.why is None or sent.sender not in executions
        }


# Locks that executions share: the claims on each, in order.


class KeptClaim(NamedTuple):
    """A claim on a lock, in order."""

    number: int
    claimed: Claimed
    permits: int
    granted: bytes
    ending: bool = False
    """Whether its execution has ended, and is about to release it."""
    amounts: Mapping[str, Any] | None = None
    """Of a budget: its needs, and once it is granted, its amounts. None: it claims a lock."""


class Claims:
    """Grants locks, first come, first served.

    Args:
        messages: Notifies executions that a lock was granted, or that they must be cancelled.
    """

    def __init__(self, messages: MemoryMessages) -> None:
        self._messages = messages
        self._queues: dict[str, list[KeptClaim]] = {}
        self._claimed = 0
        self.used: dict[str, dict[str, int]] = {}
        """Budget → meter → the amount used by calls that have ended."""
        self.limits: dict[str, dict[str, int]] = {}
        """Budget → meter → the limit in the newest claim."""

    def of(self, lock: str) -> list[Claimed]:
        """Return the claims on a lock, in order."""
        return [kept.claimed for kept in self._queues.get(lock, ())]

    def all(self) -> list[tuple[str, list[KeptClaim]]]:
        """Return the claims on each lock, in order."""
        return [*self._queues.items()]

    def budgets(self) -> list[UsedBudget]:
        """Return the budgets, by name."""
        return [
            UsedBudget(name, used, total(self._reserved(name)), self.limits.get(name, {}))
            for name, used in sorted(self.used.items())
        ]

    def prune(self, before: int) -> int:
        """Remove the budgets whose period was over by a time, and return their number."""
        over = [
            name
            for name in self.used
            if name not in self._queues and read_account(name).is_over(before)
        ]
        for name in over:
            del self.used[name]
            self.limits.pop(name, None)
        return len(over)

    def _reserved(self, name: str) -> list[Mapping[str, int]]:
        return [kept.amounts or {} for kept in self._queues.get(name, ()) if kept.claimed.held]

    def restore(self, queues: Sequence[tuple[str, list[KeptClaim]]]) -> None:
        """Replace all claims by those that `all` returned."""
        self._queues = dict(queues)
        self._claimed = max((kept.number for _, queue in queues for kept in queue), default=0)

    def rejected_by(
        self, execution: str, claims: Sequence[LockOperation]
    ) -> tuple[str, str] | None:
        """Return the first lock that refuses a claim, and the execution that holds it."""
        for claim in claims:
            others = self._others(claim.lock, execution)
            own = [kept for kept in self._queues.get(claim.lock, ()) if kept not in others]
            if any(kept.claimed.unit == claim.unit for kept in own):
                continue
            wanted = [item.then for item in claims if item.lock == claim.lock].count("reject")
            if claim.then == "reject" and len(others) + wanted > claim.permits:
                return claim.lock, others[0].claimed.execution
        return None

    def _others(self, lock: str, execution: str) -> list[KeptClaim]:
        return [kept for kept in self._queues.get(lock, ()) if kept.claimed.execution != execution]

    def write(self, execution: str, claim: LockOperation, at: int) -> None:
        """Make or release a claim."""
        queue = self._queues.setdefault(claim.lock, [])
        own = [kept for kept in queue if kept.claimed[:2] == (execution, claim.unit)]
        if claim.then == "give":
            self._queues[claim.lock] = [kept for kept in queue if kept not in own]
            for kept in own:
                self._charge(claim.lock, kept, claim.amounts)
        elif not own:
            self._claimed += 1
            claimed = Claimed(execution, claim.unit, at, False)
            kept = KeptClaim(self._claimed, claimed, claim.permits, claim.granted)
            if claim.amounts is not None:
                kept = self._on_budget(claim.lock, kept, claim.amounts)
            queue.append(kept)
            if claim.then == "cancel":
                others = [
                    other for other in self._others(claim.lock, execution) if not other.ending
                ]
                for kept in others[: max(len(others) - claim.permits + 1, 0)]:
                    self._deliver(kept, "cancel", claim.cancel, at)
        self._grant(claim.lock, at)

    def end(
        self,
        execution: str,
        at: int,
        *,
        is_driven: bool = False,
        used: Mapping[str, int] | None = None,
    ) -> None:
        """Release the claims of an execution that has ended.

        Args:
            execution: Its id.
            at: When it ended (ms).
            is_driven: Whether its attempts may still be at work. It then keeps its granted claims.
            used: The amounts used of budgets. None: unknown, so all that is reserved counts.
        """
        for lock, queue in list(self._queues.items()):
            left: list[KeptClaim] = []
            for kept in queue:
                is_own = kept.claimed.execution == execution
                if not is_own or (is_driven and kept.claimed.held):
                    left.append(kept._replace(ending=True) if is_own else kept)
                else:
                    self._charge(lock, kept, used)
            if left != queue:
                self._queues[lock] = left
                self._grant(lock, at)

    def has(self, execution: str) -> bool:
        return any(kept.claimed.execution == execution for q in self._queues.values() for kept in q)

    def _on_budget(self, name: str, kept: KeptClaim, needs: Mapping[str, Any]) -> KeptClaim:
        """Return a new claim on a budget. One without limits is granted at once."""
        self.used.setdefault(name, {})
        self.limits.setdefault(name, {}).update(limits_in(needs))
        if is_unlimited(needs):
            held = kept.claimed._replace(held=True)
            return kept._replace(claimed=held, amounts=most_of(needs))
        return kept._replace(amounts=needs)

    def _charge(self, name: str, kept: KeptClaim, given: Mapping[str, int] | None) -> None:
        if kept.amounts is not None and kept.claimed.held:
            self.used[name] = charged(self.used[name], kept.amounts, given)

    def _answer_claims(self, name: str, at: int) -> None:
        """Answer the waiting claims on a budget in order, up to one that has to wait."""
        queue = self._queues[name]
        for kept in [kept for kept in queue if not kept.claimed.held]:
            needs = kept.amounts or {}
            found = answer(needs, self.used[name], self._reserved(name))
            if found is None:
                break
            index = queue.index(kept)
            if found.lacks is not None:
                del queue[index]
            else:
                held = kept.claimed._replace(held=True)
                queue[index] = kept._replace(claimed=held, amounts=found.amounts)
            address, execution = ("claim", str(kept.number)), kept.claimed.execution
            told = found.event(kept.granted)
            self._messages.deliver(address, "granted", execution, at, told)
        if not queue:
            del self._queues[name]

    def _grant(self, lock: str, at: int) -> None:
        queue = self._queues[lock]
        if lock in self.used:
            self._answer_claims(lock, at)
            return
        for index, kept in enumerate(queue):
            if kept.claimed.held:
                continue
            if sum(item.claimed.held for item in queue) >= kept.permits:
                break
            queue[index] = kept._replace(claimed=kept.claimed._replace(held=True))
            self._deliver(kept, "granted", kept.granted, at)
        if not queue:
            del self._queues[lock]

    def _deliver(self, kept: KeptClaim, message_id: str, event: bytes, at: int) -> None:
        address = ("claim", str(kept.number))
        if self._messages.sent_before(address, message_id) is None:
            self._messages.deliver(address, message_id, kept.claimed.execution, at, event)


# Grants for all executions of a flow, in memory.


class MemoryGrants:
    """Keeps grants by id."""

    def __init__(self) -> None:
        self._kept: dict[str, FlowGrant] = {}

    def give(self, wait: str, flow: str, vote: Vote) -> None:
        """Keep the grant of a vote, if it contains one."""
        given = vote.gives
        if given is not None and vote.approves:
            self._kept[wait] = FlowGrant(
                wait, flow, given.tool, given.version, vote.by, vote.at, given.body,
                given.uses, given.until,
            )  # fmt: skip

    def keep(self, grant: FlowGrant) -> None:
        """Keep a grant unless one with its id is known."""
        self._kept.setdefault(grant.id, grant)

    def give_back(self, id: str) -> None:
        """Undo a use of a grant."""
        self._kept[id] = self._kept[id]._replace(used=self._kept[id].used - 1)

    def use(self, id: str, at: int) -> bool:
        """Count a use of a grant, and return whether it was usable."""
        grant = self._kept.get(id)
        if grant is None or grant.revoked_by is not None:
            return False
        used_up = grant.uses is not None and grant.used >= grant.uses
        if used_up or (grant.until is not None and grant.until <= at):
            return False
        self._kept[id] = grant._replace(used=grant.used + 1)
        return True

    def list_grants(self, flow: str | None, tool: str | None) -> list[FlowGrant]:
        """Return grants, oldest first."""
        grants = [
            grant
            for grant in self._kept.values()
            if flow in (None, grant.flow) and tool in (None, grant.tool)
        ]
        return sorted(grants, key=lambda grant: (grant.at, grant.id))

    def revoke(self, id: str, by: str) -> FlowGrant:
        grant = self._kept.get(id)
        if grant is None:
            raise no_grant(id)
        if grant.revoked_by is not None:
            raise revoked_already(grant)
        self._kept[id] = grant._replace(revoked_by=by)
        return self._kept[id]


# Schedules of deployed flows, in memory.


class MemorySchedules:
    """Keeps the next time of each schedule.

    Args:
        kept: As returned by `listed`.
    """

    def __init__(self, kept: Iterable[Scheduled] = ()) -> None:
        self._kept = {(item.flow, item.schedule): item for item in kept}

    def deploy(
        self, flow: str, hash: str, schedules: Sequence[tuple[str, int, int | None]]
    ) -> None:
        """Replace the schedules of a flow. One that exists keeps its times."""
        before = self._kept
        self.undeploy(flow)
        for schedule, time, due in schedules:
            new = Scheduled(flow, hash, schedule, time, due)
            self._kept[flow, schedule] = before.get((flow, schedule), new)._replace(hash=hash)

    def undeploy(self, flow: str) -> None:
        """Remove the schedules of a flow."""
        self._kept = {at: value for at, value in self._kept.items() if at[0] != flow}

    def listed(self, until: int | None = None) -> list[Scheduled]:
        """Return all schedules by flow and name, or those that are due by a time, by that."""
        scheduled = sorted(self._kept.values(), key=lambda item: (item.flow, item.schedule))
        if until is None:
            return scheduled
        due = [(item.due, item) for item in scheduled if item.due is not None and item.due <= until]
        return [entry for _, entry in sorted(due, key=lambda pair: pair[0])]

    def next_due(self) -> int | None:
        """Return when the next schedule is due."""
        due = (item.due for item in self._kept.values() if item.due is not None)
        return min(due, default=None)

    def move(self, scheduled: Scheduled, time: int, due: int | None) -> bool:
        """Move a schedule to another time, unless it has changed since it was read."""
        at = scheduled.flow, scheduled.schedule
        if self._kept.get(at) != scheduled:
            return False
        self._kept[at] = scheduled._replace(time=time, due=due)
        return True


def created_record(id: str, new: NewExecution, *rest: Any) -> ExecutionRecord:
    """Return the record of an execution that was created.

    Args:
        id: Full id.
        new: Its entry when it was created.
        rest: The fields of the record from `status` on.
    """
    labels, inputs = dict(new.labels), dict(new.key_inputs)
    return ExecutionRecord(id, *new[:4], labels, *new[5:9], inputs, *rest)
