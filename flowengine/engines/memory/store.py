"""A store that lives only as long as the process, for tests and temporary work.

It implements the rules of the port in the simplest way, and serves as the reference for other
stores. Lists are scanned completely.
"""

from __future__ import annotations

import time
from _thread import RLock
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import isfunction
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Literal, TypeAlias, TypeVar

from flowengine.engines.memory.records import (
    Claims,
    KeptWait,
    MemoryGrants,
    MemoryJournal,
    MemoryMessages,
    MemorySchedules,
    created_record,
)
from flowengine.errors import Conflict, LeaseLost, NotFound, StoreError
from flowengine.journal.artifacts import ArtifactFolder, not_referred
from flowengine.journal.encoding import pack
from flowengine.journal.filters import (
    Place,
    fits_execution,
    fits_wait,
    page_end,
    read_page_end,
    turn_of,
)
from flowengine.journal.lease_holders import IsDead
from flowengine.journal.records import (
    ENDED,
    EVENTS_ALONE,
    OPEN,
    Append,
    Artifact,
    Beginning,
    Claimed,
    Deployed,
    Due,
    ExecutionFilter,
    ExecutionRecord,
    ExecutionRecordPage,
    FlowGrant,
    InboxMessage,
    JournalEntry,
    ListedWait,
    Loaded,
    NewExecution,
    Numbered,
    OfFlows,
    Outgoing,
    Owner,
    Plain,
    Pruned,
    Scheduled,
    SendResult,
    SignalStart,
    StoredWaitPage,
    UsedBudget,
    Vote,
    WaitFilter,
)
from flowengine.journal.refusals import (
    check_statuses,
    ended,
    no_execution,
    no_wait,
    not_free,
    not_new,
    unheard,
)
from flowengine.journal.short_ids import (
    EXECUTION,
    SHORT_EXECUTION,
    SHORT_WAIT,
    WAIT,
    shortest,
    the_one_of,
)
from flowengine.journal.store import Durability, JournalStore
from flowengine.kernel.notation.addresses import wait_id
from flowengine.util.files import HELD_SECONDS

S = TypeVar("S")
T = TypeVar("T", ExecutionRecord, ListedWait)
Why: TypeAlias = Literal["timer", "message", "left"]

_NO_EXECUTIONS_LEFT_OUT = ExecutionFilter()
_NO_WAITS_LEFT_OUT = WaitFilter()


def _one_at_a_time(store: type[S]) -> type[S]:
    """Have each method of a store hold its lock."""

    def locked(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(self: Any, *given: Any, **named: Any) -> Any:
            with self._lock:
                return method(self, *given, **named)

        return call

    for name, method in [*vars(store).items()]:
        if isfunction(method) and not name.startswith("_"):
            setattr(store, name, locked(method))
    return store


@_one_at_a_time
class MemoryStore(JournalStore):
    """A store in memory. See `flowengine.journal.store` for the methods.

    Args:
        is_dead: Returns whether a lease holder is certainly dead.
    """

    def __init__(self, *, is_dead: IsDead = lambda owner: False) -> None:
        self._lock = RLock()
        self._is_dead = is_dead
        self._flows: dict[str, bytes] = {}
        self._sources: dict[str, tuple[str, list[tuple[str, str]], bytes]] = {}
        self._deployed: dict[tuple[str, str], Deployed] = {}
        self._starts: dict[tuple[str, str], SignalStart] = {}
        self._schedules = MemorySchedules()
        self._journals: dict[str, MemoryJournal] = {}
        self._created = 0
        self._owners: dict[str, tuple[Owner, int]] = {}
        self._waits: dict[str, KeptWait] = {}
        self._opened = 0
        self._messages = MemoryMessages()
        self._claims = Claims(self._messages)
        self._grants = MemoryGrants()
        self._changes = 0
        self._held: dict[str, float] = {}
        """Digest of a file that is held without an execution → when (s)."""
        self._numbered: list[tuple[str, int] | None] | None = None
        """(execution, seq) of each event since `number_events`. Its number is the index + 1."""
        self._folder: TemporaryDirectory[str] | None = None

    @property
    def durability(self) -> Durability:
        return "none"

    @property
    def location(self) -> str:
        return "memory"

    @property
    def folder(self) -> None:
        return None

    # -- flows

    def put_flow(self, hash: str, compiled: bytes) -> None:
        self._flows[hash] = compiled

    def get_flow(self, hash: str) -> bytes:
        try:
            return self._flows[hash]
        except KeyError:
            raise NotFound(f"there is no flow {hash} in {self.location}") from None

    def remember_source(
        self, key: str, hash: str, sources: Sequence[tuple[str, str]], extra: bytes = b""
    ) -> None:
        self._sources[key] = hash, list(sources), extra

    def find_source(self, key: str) -> tuple[str, list[tuple[str, str]], bytes] | None:
        return self._sources.get(key)

    def deploy(
        self,
        deployed: Deployed,
        signals: Sequence[str] = (),
        schedules: Sequence[tuple[str, int, int | None]] = (),
    ) -> None:
        flow, hash = deployed.flow, deployed.hash
        at = max((deployed.at, *(item.at + 1 for item in self.deployed(flow))))
        self._deployed[flow, deployed.version] = deployed._replace(at=at)
        self._starts = {at: start for at, start in self._starts.items() if at[1] != flow}
        self._starts |= {(signal, flow): SignalStart(flow, hash) for signal in signals}
        self._schedules.deploy(flow, hash, schedules)
        self._changes += 1

    def undeploy(self, flow: str, version: str | None = None) -> None:
        for deployed in self.deployed(flow):
            if version in (None, deployed.version):
                del self._deployed[flow, deployed.version]
        if version is None:
            self._starts = {at: start for at, start in self._starts.items() if at[1] != flow}
            self._schedules.undeploy(flow)

    def deployed(self, flow: str | None = None) -> list[Deployed]:
        deployed_ = [item for item in self._deployed.values() if flow in (None, item.flow)]
        return sorted(deployed_, key=lambda item: (item.flow, -item.at))

    def starts(self, signal: str) -> list[SignalStart]:
        return [self._starts[at] for at in sorted(self._starts) if at[0] == signal]

    def schedules(self, until: int | None = None) -> list[Scheduled]:
        return self._schedules.listed(until)

    def move_schedule(self, scheduled: Scheduled, time: int, due: int | None) -> bool:
        is_moved = self._schedules.move(scheduled, time, due)
        self._changes += is_moved
        return is_moved

    # -- journals

    def commit(self, appends: Sequence[Append]) -> list[Conflict | None]:
        # First everything that can fail, for all appends, so that no write is partial.
        records = [[pack(dict(record)) for record in append.opened] for append in appends]
        outcomes = [self._refusal(append) for append in appends]
        for append, packed, refusal in zip(appends, records, outcomes, strict=True):
            if refusal is None:
                self._write(append, packed)
        self._changes += 1
        return outcomes

    def _refusal(self, append: Append) -> Conflict | None:
        """Return why an append is refused, if it is."""
        journal = self._journals.get(append.execution)
        rejected = self._claims.rejected_by(append.execution, append.claims)
        if rejected is not None:
            lock, holder = rejected
            return not_free(lock, holder, self._journals[holder].record)
        if append.new is not None:
            return self._creation_refused(append.execution, append.new, journal)
        if journal is None or journal.epoch != append.epoch:
            return self._lease_lost(append.execution, journal)
        if append.events and append.seq != journal.length:
            raise StoreError(
                f"execution {append.execution} has {journal.length} events; "
                f"number {append.seq} cannot be the next"
            )
        if append.head is not None and append.head.status == "succeeded":
            late = unheard(append, self._messages.inbox(append.execution))
            if late is not None:
                return late
        for closed in append.closed:
            wait = self._waits.get(wait_id(append.execution, closed.number))
            if closed.how == "expired" and wait and wait.wait.decision and not wait.wait.how:
                return Conflict(
                    f"wait {wait.wait.id} was decided before it expired",
                    standing=wait.show(votes=False),
                )
        return None

    def _creation_refused(
        self, execution: str, new: NewExecution, journal: MemoryJournal | None
    ) -> Conflict | None:
        if new.hash not in self._flows:
            return Conflict(
                f"execution {execution} cannot start: its flow {new.hash} is not in the store"
            )
        if journal is None or (new.files_of == execution and self._may_be_removed(execution)):
            return None
        return not_new(execution, journal.record)

    def _lease_lost(self, execution: str, journal: MemoryJournal | None) -> LeaseLost:
        who = "it is no longer in the store"
        if journal is not None:
            holder = self._owners.get(journal.owner or "")
            who = f"process {holder[0].pid} holds it now" if holder else "its lease was released"
        return LeaseLost(
            f"this process lost execution {execution}: {who}. Its last changes were not saved"
        )

    def _write(self, append: Append, records: Sequence[bytes]) -> None:
        """Write an append without conflicts."""
        if append.new is not None:
            self._create(append.execution, append.new)
        journal = self._journals[append.execution]
        for seq, (at, payload) in enumerate(append.events, append.seq):
            journal.entries.append(JournalEntry(seq, at, payload))
            if self._numbered is not None:
                self._numbered.append((append.execution, seq))
        if append[5:] != EVENTS_ALONE:  # as few are
            self._write_more(journal, append, records)

    def _write_more(self, journal: MemoryJournal, append: Append, records: Sequence[bytes]) -> None:
        for record, packed in zip(append.opened, records, strict=True):
            self._open_wait(journal, record, packed)
        for closed in append.closed:
            wait = self._waits.get(wait_id(append.execution, closed.number))
            if wait is not None:
                wait.wait = wait.wait._replace(
                    how=closed.how, closed_at=closed.at, result=closed.result
                )
            journal.keys = {key for key in journal.keys if key[2] != closed.number}
        journal.keys |= {(signal, key, None) for signal, key in append.keys}
        self._messages.take(append.execution, append.taken)
        self._messages.put_out(append.execution, append.sent)
        for claim in append.claims:
            self._claims.write(append.execution, claim, append.at)
        if append.head is not None:
            journal.set_head(append.head)
        if append.moved is not None:
            hash, version = append.moved
            journal.record = journal.record._replace(hash=hash, version=version)
        journal.forms |= set(append.forms)
        journal.artifacts |= {digest for digest, of in append.files if self._refers(of, digest)}
        journal.snapshot = append.snapshot or journal.snapshot
        for part in append.lists:
            journal.add_to_list(part)
        if append.release:
            journal.let_go()
        if append.release or append.head is not None:
            self._end_claims(journal)

    def _end_claims(self, journal: MemoryJournal) -> None:
        """Release the locks of an execution if it has ended. A driven one keeps granted ones."""
        ended_at = journal.record.ended_at
        if ended_at is not None:
            is_driven = journal.owner is not None
            self._claims.end(journal.record.id, ended_at, is_driven=is_driven)

    def _refers(self, execution: str | None, sha256: str) -> bool:
        """Return whether an execution, or any, refers to an artifact."""
        if execution is None and sha256 in self._held:
            return True
        journals = self._journals.items()
        return any(sha256 in entry.artifacts for id, entry in journals if execution in (None, id))

    def _create(self, execution: str, new: NewExecution) -> None:
        kept = self._journals.get(new.files_of or "")
        if kept is not None and new.files_of == execution:
            self._remove({execution})
        self._created += 1
        record = created_record(execution, new, "running", new.created_at, None, None)
        journal = self._journals[execution] = MemoryJournal(self._created, record, new.owner)
        if kept is not None:
            journal.artifacts |= kept.artifacts

    def _open_wait(
        self, journal: MemoryJournal, record: Mapping[str, Plain], packed: bytes
    ) -> None:
        execution, number = journal.record.id, record["id"]
        id = wait_id(execution, number)
        if id in self._waits and self._waits[id].wait.how is not None:
            # Its execution was retried, so earlier questions and decisions no longer count.
            self._messages.forget(lambda item: item.address == ("wait", id))
            del self._waits[id]
        if id not in self._waits:
            self._opened += 1
            wait = ListedWait(
                id, execution, journal.record.flow, number, {}, None, [], None, None, None
            )
            self._waits[id] = KeptWait(self._opened, wait)
        self._waits[id].packed = packed
        for signal in record.get("signals") or ():
            if signal.get("key") is not None:
                journal.keys.add((signal["signal"], signal["key"], number))

    def execution(self, id: str) -> ExecutionRecord:
        return self._journal(id).record

    def load(self, id: str, until: int | None = None) -> Loaded:
        journal = self._journal(id)
        snapshot = journal.snapshot
        if snapshot is not None and until is not None and snapshot[0] >= until:
            return Loaded(journal.record, None, self.events(id, 0, max(until, 0)))
        first = snapshot[0] - journal.first if snapshot else 0
        end = None if until is None else max(until - journal.first, 0)
        lists = [part for _, parts in sorted(journal.lists.items()) for part in parts]
        return Loaded(journal.record, snapshot, journal.entries[first:end], lists)

    def events(self, id: str, since: int = 0, limit: int | None = None) -> list[JournalEntry]:
        journal = self._journal(id)
        since = max(since - journal.first, 0)
        end = None if limit is None else since + limit
        return journal.entries[since:end]

    def steps(self, id: str) -> None:
        return None

    def number_events(self) -> int:
        if self._numbered is None:
            self._numbered = []
        return len(self._numbered)

    def numbered(self, after: int, limit: int) -> list[Numbered]:
        entries: list[Numbered] = []
        places = self._numbered or []
        for index in range(after, len(places)):
            place = places[index]
            if place is not None and place[0] in self._journals:
                entries.append(Numbered(index + 1, *place))
            if len(entries) == limit:
                break
        return entries

    def copy(self, id: str, first: int = 0) -> dict[str, Any]:
        """Return an execution with all that is known of it, as plain data.

        Only for a store that contains no other execution.

        Args:
            id: Full id.
            first: Number of the first event to include. A snapshot must include earlier ones.
        """
        waits = [kept.copy() for kept in self._waits.values()]
        return {
            "journal": self._journal(id).copy(first),
            "waits": waits,
            "opened": self._opened,
            "messages": self._messages.copy(),
        }

    def first(self, id: str) -> int:
        """Return the number of events of an execution that were left out of a copy."""
        return self._journal(id).first

    def restore(self, copy: Mapping[str, Any]) -> None:
        """Add the execution that `copy` returned to an empty store."""
        journal = MemoryJournal.of(1, copy["journal"])
        self._journals[journal.record.id] = journal
        self._created = 1
        self._opened = copy["opened"]
        waits = [KeptWait.of(wait) for wait in copy["waits"]]
        self._waits = {kept.wait.id: kept for kept in waits}
        self._messages.restore(copy["messages"])

    def _journal(self, id: str) -> MemoryJournal:
        try:
            return self._journals[id]
        except KeyError:
            raise no_execution(id) from None

    # -- leases

    def renew(self, owner: Owner, until: int) -> None:
        self._owners[owner.id] = owner, until

    def holder(self, execution: str, now: int) -> Owner | None:
        journal = self._journal(execution)
        holder, until = self._owners.get(journal.owner or "", (None, 0))
        return holder if holder and until > now and not self._is_dead(holder) else None

    def acquire(self, execution: str, owner: str, now: int) -> int:
        journal = self._journal(execution)
        holder = self.holder(execution, now)
        if holder and holder.id != owner:
            raise Conflict(
                f"execution {execution} is held by process {holder.pid} on {holder.host}",
                standing=holder,
                hint="wait for that process to finish with it, or stop it",
            )
        journal.deaths += journal.owner not in (None, owner)
        journal.owner = owner
        journal.epoch += 1
        return journal.epoch

    def deaths(self, execution: str, now: int) -> int:
        journal = self._journal(execution)
        dead = journal.owner is not None and self.holder(execution, now) is None
        return journal.deaths + dead

    def calm(self, execution: str, epoch: int) -> None:
        journal = self._journal(execution)
        if journal.epoch == epoch:
            journal.deaths = 0

    def due(self, at: int, now: int, execution: str | None = None) -> list[Due]:
        found: dict[str, tuple[int, int, Why]] = {}
        for id, journal in self._journals.items():
            record = journal.record
            wanted = execution in (None, id)
            if not wanted or self.holder(id, now) is not None:
                continue
            if record.ended_at is not None:
                if self._claims.has(id):  # its process died before it released them
                    found[id] = record.ended_at, journal.number, "left"
                continue
            reasons: list[tuple[int, Why]] = []
            if record.due is not None and record.due <= at:
                reasons.append((record.due, "timer"))
            sent = [message.at for message in self._messages.inbox(id)]
            if sent:
                reasons.append((min(sent), "message"))
            if record.status == "running":
                reasons.append((record.changed_at, "left"))
            if reasons:
                since, why = min(reasons, key=lambda reason: reason[0])
                found[id] = since, journal.number, why
        return [
            Due(id, self._journals[id].record.flow, since, why, self.deaths(id, now))
            for id, (since, _, why) in sorted(found.items(), key=lambda item: item[1][:2])
        ]

    def next_due(self, after: int) -> int | None:
        times = [journal.record.due for journal in self._journals.values()]
        times += [item.due for item in self._schedules.listed()]
        return min((due for due in times if due is not None and due > after), default=None)

    def counts(self, flows: Sequence[str] | None = None) -> dict[str, int]:
        records = [journal.record for journal in self._journals.values()]
        statuses = [record.status for record in records if flows is None or record.flow in flows]
        return {status: statuses.count(status) for status in (*OPEN, *ENDED)}

    def release(self, leases: Sequence[tuple[str, int]]) -> None:
        for execution, epoch in leases:
            journal = self._journals.get(execution)
            if journal is not None and journal.epoch == epoch:
                journal.let_go()
                self._end_claims(journal)

    def retire(self, owner: str) -> None:
        self.release(
            [
                (id, journal.epoch)
                for id, journal in self._journals.items()
                if journal.owner == owner
            ]
        )
        self._owners.pop(owner, None)

    # -- locks shared between executions

    def claims(self, lock: str) -> list[Claimed]:
        return self._claims.of(lock)

    def budgets(self) -> list[UsedBudget]:
        return self._claims.budgets()

    # -- messages

    def outbox(self) -> list[Outgoing]:
        return self._messages.outbox()

    def acknowledge(self, number: int, refused: str | None) -> None:
        self._changes += 1
        self._messages.acknowledge(number, refused)

    def undelivered(self, execution: str) -> list[Outgoing]:
        return self._messages.undelivered(execution)

    def begin(self, beginning: Beginning, files: Sequence[tuple[bytes, str]] = ()) -> None:
        kept = [(self.hold_artifact(content, name).sha256, None) for content, name in files]
        id, at = beginning.id, beginning.new.created_at
        if id not in self._journals:
            self._create_waiting(beginning, at, kept)
            self._messages.deliver(("id", id), "started", id, at, beginning.event)

    def _create_waiting(
        self, begin: Beginning, at: int, files: Sequence[tuple[str, str | None]] = ()
    ) -> None:
        """Create an execution whose first event the caller puts into its inbox."""
        (refusal,) = self.commit([begin.append(at, files)])
        if refusal is not None:
            raise refusal from None

    def send(self, execution: str, event: bytes, at: int, message_id: str) -> SendResult:
        before = self.refusal_of_send(execution, event, at, message_id)
        if before is not None:
            return before
        return self._messages.deliver(("id", execution), message_id, execution, at, event)

    def refusal_of_send(
        self, execution: str, event: bytes, at: int, message_id: str
    ) -> SendResult | None:
        """Return the result of `send` for a message that was sent before. Nothing changes.

        Raises:
            NotFound: As for `send`.
            Conflict: As for `send`.
        """
        record, before = self._journal(execution).record, self.sent(execution, message_id)
        if before is None and record.status in ENDED:
            raise ended(record)
        return before

    def sent(self, execution: str, message_id: str) -> SendResult | None:
        """Return a message to an execution as it was sent first, or None."""
        return self._messages.sent_before(("id", execution), message_id)

    def send_keyed(
        self,
        signal: str,
        key: str,
        event: bytes,
        at: int,
        message_id: str,
        begin: Beginning | None = None,
    ) -> SendResult:
        address = ("key", signal, key)
        before = self._messages.sent_before(address, message_id)
        if before is not None:
            return before
        try:
            holder = self.find_key(signal, key)
        except NotFound:
            if begin is None:
                raise
            self._create_waiting(begin, at)
            sent = self._messages.deliver(address, message_id, begin.id, at, begin.event)
            return sent._replace(began=True)
        return self._messages.deliver(address, message_id, holder, at, event)

    def find_key(self, signal: str, key: str) -> str:
        for id, journal in self._journals.items():
            if any((s, k) == (signal, key) for s, k, _ in journal.keys):
                return id
        raise NotFound(f"no open execution takes signal {signal!r} with key {key!r}")

    def keys(self, execution: str) -> set[tuple[str, str]]:
        """Return the (signal, key) pairs that an execution has now."""
        return {(signal, key) for signal, key, _ in self._journal(execution).keys}

    def inbox(self, execution: str) -> list[InboxMessage]:
        self._journal(execution)
        return self._messages.inbox(execution)

    def arrived(self, after: int) -> list[InboxMessage]:
        return self._messages.arrived(after)

    def changes(self) -> int:
        return self._changes + self._messages.changes

    # -- waits

    def decide(self, wait: str, vote: Vote) -> tuple[bool, ListedWait]:
        refusal = self.refusal_of_decide(wait, vote)
        if refusal is not None:
            return refusal
        kept = self._find_wait(wait)
        before = kept.show(votes=True)
        if vote.uses is not None and not self._grants.use(vote.uses, vote.at):
            return False, before
        kept.votes.append(vote)
        approvals = {*before.journaled, *(cast.by for cast in kept.votes if cast.approves)}
        settled = not vote.approves or len(approvals) >= before.record.get("need", 1)
        if settled:
            kept.wait = kept.wait._replace(decision=vote.event)
            self._grants.give(wait, before.flow, vote)
        self._messages.deliver(("wait", wait), vote.by, before.execution, vote.at, vote.event)
        return True, kept.show(votes=True)

    def refusal_of_decide(self, wait: str, vote: Vote) -> tuple[bool, ListedWait] | None:
        """Return the result of `decide` if it would not accept a vote. Nothing changes."""
        kept = self._find_wait(wait)
        before = kept.show(votes=True)
        voters = {*before.journaled, *(cast.by for cast in kept.votes)}
        return None if before.open and vote.by not in voters else (False, before)

    def wait(self, id: str) -> ListedWait:
        return self._find_wait(id).show(votes=True)

    def _find_wait(self, id: str) -> KeptWait:
        try:
            return self._waits[id]
        except KeyError:
            raise no_wait(id) from None

    # -- grants

    def grants(self, flow: str | None = None, tool: str | None = None) -> list[FlowGrant]:
        return self._grants.list_grants(flow, tool)

    def revoke(self, grant: str, by: str) -> FlowGrant:
        return self._grants.revoke(grant, by)

    # -- lists

    def executions(
        self,
        filter: ExecutionFilter = _NO_EXECUTIONS_LEFT_OUT,
        after: str | None = None,
        limit: int = 50,
    ) -> ExecutionRecordPage:
        placed = [
            ((-journal.record.created_at, -journal.number), journal.record)
            for journal in self._journals.values()
            if fits_execution(journal.record, filter)
        ]
        page, end = _page(placed, after, limit)
        items = [record._replace(outputs=None, error=None) for record in page]
        return ExecutionRecordPage(items, end)

    def waits(
        self, filter: WaitFilter = _NO_WAITS_LEFT_OUT, after: str | None = None, limit: int = 50
    ) -> StoredWaitPage:
        placed = [
            (_place(kept.order, shown, filter), shown._replace(result=None))
            for kept in self._waits.values()
            if fits_wait(shown := kept.show(votes=False), filter)
        ]
        return StoredWaitPage(*_page(placed, after, limit))

    def find_execution(self, beginning: str, flows: OfFlows | None = None) -> str:
        return self._find_beginning(EXECUTION, beginning, flows)

    def find_wait(self, beginning: str, flows: OfFlows | None = None) -> str:
        return self._find_beginning(WAIT, beginning, flows)

    def _find_beginning(self, noun: str, beginning: str, flows: OfFlows | None) -> str:
        def ids(noun: str) -> list[str]:
            if noun == EXECUTION:
                flow_of = {id: journal.record.flow for id, journal in self._journals.items()}
            else:
                flow_of = {id: kept.wait.flow for id, kept in self._waits.items()}
            if beginning in flow_of:
                found = [beginning]
            else:
                found = sorted(id for id in flow_of if id.startswith(beginning))
            return [id for id in found if flows is None or flows(flow_of[id])]

        return the_one_of(noun, beginning, ids, self.location)

    def short_execution(self, id: str) -> str:
        return shortest(id, [other for other in self._journals if other != id], SHORT_EXECUTION)

    def short_wait(self, id: str) -> str:
        return shortest(id, [other for other in self._waits if other != id], SHORT_WAIT)

    # -- artifacts

    @property
    def _artifacts(self) -> ArtifactFolder:
        if self._folder is None:
            self._folder = TemporaryDirectory(prefix="flowengine-")
        return ArtifactFolder(self._folder.name, synced=False)

    def put_artifact(self, execution: str, content: bytes | PathLike[str], name: str) -> Artifact:
        with self._artifacts.incoming(content, name) as (artifact, keep):
            self._journal(execution).artifacts.add(artifact.sha256)
            keep()
        return artifact

    def hold_artifact(self, content: bytes | PathLike[str], name: str) -> Artifact:
        with self._artifacts.incoming(content, name) as (artifact, keep):
            self._held[artifact.sha256] = time.time()
            keep()
        return artifact

    def open_artifact(self, sha256: str, execution: str | None = None) -> BinaryIO:
        return self.fetch_artifact(sha256, execution).open("rb")

    def fetch_artifact(self, sha256: str, execution: str | None = None) -> Path:
        file = self._artifacts.find(sha256)
        if execution is not None:
            journal = self._journals.get(execution)
            refers = journal is not None and sha256 in journal.artifacts
            if not refers:
                raise not_referred(sha256, execution)
        return file

    # -- maintenance

    def prune(
        self, before: int, statuses: Sequence[str] = ENDED, ids: Sequence[str] = ()
    ) -> Pruned:
        check_statuses(statuses)
        ended = {
            id
            for id, journal in self._journals.items()
            if self._may_be_removed(id)
            and (
                id in ids
                or (journal.record.status in statuses and (journal.record.ended_at or 0) <= before)
            )
        }
        self._remove(ended)
        budgets = self._claims.prune(before)
        hashes = {journal.record.hash for journal in self._journals.values()}
        hashes.update(hash for journal in self._journals.values() for hash in journal.forms)
        hashes.update(hash for hash, _, _ in self._sources.values())
        hashes.update(deployed.hash for deployed in self._deployed.values())
        self._flows = {hash: flow for hash, flow in self._flows.items() if hash in hashes}

        oldest = time.time() - HELD_SECONDS
        self._held = {digest: at for digest, at in self._held.items() if at > oldest}
        referred = {digest for j in self._journals.values() for digest in j.artifacts}
        referred |= self._held.keys()
        files = self._artifacts
        sizes = [
            size for shelf in files.shelves() for size in files.sweep(shelf, referred.__contains__)
        ]
        return Pruned(len(ended), len(sizes), sum(sizes), budgets)

    def _may_be_removed(self, execution: str) -> bool:
        """Return whether an execution has ended and has no locks."""
        return self._journals[execution].record.ended_at is not None and not self._claims.has(
            execution
        )

    def _remove(self, executions: set[str]) -> None:
        """Remove executions, except for the files and flows that they used."""
        for id in executions:
            del self._journals[id]
        if self._numbered is not None:
            self._numbered = [
                None if place is None or place[0] in executions else place
                for place in self._numbered
            ]
        self._messages.prune(executions)
        self._waits = {
            id: kept for id, kept in self._waits.items() if kept.wait.execution not in executions
        }

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def _place(order: Place, wait: ListedWait, filter: WaitFilter) -> Place:
    """Return the position of a wait in a list. Closed ones only: newest first."""
    if filter.state == "closed":
        return -order[0], -order[1]
    return (turn_of(wait.record), order[1]) if filter.in_turn else order


def _page(
    placed: Iterable[tuple[Place, T]], after: str | None, limit: int
) -> tuple[list[T], str | None]:
    """Return a page of items with their positions, and where it ended if more follow."""
    last = None if after is None else read_page_end(after)
    rest = sorted(
        (item for item in placed if last is None or item[0] > last), key=lambda item: item[0]
    )
    page = rest[:limit]
    end = page_end(page[-1][0]) if page and len(rest) > limit else None
    return [item for _, item in page], end
