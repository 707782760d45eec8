"""A store that fails on request, for tests of code that uses the port.

It wraps a store and counts the calls that write. Before or after any of them the disk can be full,
the file locked, the process dead, the power gone. The losses follow from the durability: a power
cut loses unsynced writes, and a killed process no committed ones. After a death every call
raises `ProcessDied` until `restart`, which stands for the next process.

    store = FaultyStore(faults={7: "die after"})
    with pytest.raises(ProcessDied):
        drive(store)
    store.restart(power_cut=True)
    drive(store)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from os import PathLike, fspath
from pathlib import Path
from typing import Any, BinaryIO, Literal

from flowengine.engines.memory.store import MemoryStore
from flowengine.errors import Conflict, StoreError
from flowengine.journal.lease_holders import IsDead
from flowengine.journal.records import (
    ENDED,
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
    Numbered,
    OfFlows,
    Outgoing,
    Owner,
    Pruned,
    Scheduled,
    SendResult,
    SignalStart,
    StoredWaitPage,
    UsedBudget,
    Vote,
    WaitFilter,
)
from flowengine.journal.step_table import StepTable
from flowengine.journal.store import Durability, JournalStore

Fault = Literal["full", "locked", "read only", "die before", "die after"]
"""What happens at a write: a `StoreError` that has written nothing, or the death of the process
before or after the write has been committed."""

MakeStore = Callable[[IsDead], JournalStore]
"""Makes an empty store that asks the function given whether an owner is dead."""

_ERRORS: dict[str, tuple[str, str]] = {
    "full": ("the disk that holds the store is full", "free some space, then resume"),
    "locked": ("another process has locked the store", "end that process, then try again"),
    "read only": ("the store may only be read", "allow writing to it"),
}


class ProcessDied(BaseException):
    """The process that used the store is dead. Nothing may catch it but the test."""


class FaultyStore(JournalStore):
    """A store with faults.

    Args:
        make: Makes the store that is wrapped, and another one after a power cut.
        durability: The faults that a finished commit survives. Default: that of the wrapped store,
            and `power` for one in memory.
        faults: Number of a write (from 0) → what happens there.
        on_write: Called before each write with its number and the name of the method. It may block,
            raise, or look at the store.

    Attributes:
        writes: How many writes were begun so far.
        faults: As given. They may be changed at any time.
    """

    def __init__(
        self,
        make: MakeStore = lambda is_dead: MemoryStore(is_dead=is_dead),
        *,
        durability: Durability | None = None,
        faults: Mapping[int, Fault] | None = None,
        on_write: Callable[[int, str], None] | None = None,
    ) -> None:
        self.writes = 0
        self.faults = dict(faults or {})
        self._on_write = on_write
        self._make = make
        self._owners: set[str] = set()
        self._dead_owners: set[str] = set()
        self._store = make(self._is_dead)
        in_memory = isinstance(self._store, MemoryStore)
        self._durability = durability or ("power" if in_memory else self._store.durability)
        self._died = False
        self._unsynced: list[tuple[str, tuple[Any, ...]]] = []
        """Writes that a power cut would lose."""
        self._synced: list[tuple[str, tuple[Any, ...]]] = []
        """Writes before those, kept only where a power cut can lose any."""

    @property
    def durability(self) -> Durability:
        return self._durability

    @property
    def location(self) -> str:
        return self._store.location

    @property
    def folder(self) -> str | None:
        return self._store.folder

    def steps(self, id: str) -> StepTable | None:
        return self._alive.steps(id)

    def sync(self) -> None:
        """Bring all that was committed to the disk, as the system does now and then by itself."""
        self._synced += self._unsynced
        self._unsynced.clear()

    def die(self) -> None:
        """Kill the process here: its calls fail from now on."""
        self._died = True

    def restart(self, *, power_cut: bool = False) -> None:
        """Start the next process. The one before is dead, and so are its leases.

        Args:
            power_cut: Whether the machine went down, not only the process.
        """
        self._died = False
        self._dead_owners |= self._owners
        lost = self._durability == "none" or (power_cut and self._durability != "power")
        if lost and self._unsynced:
            self._unsynced.clear()
            self._store.close()
            self._store = self._make(self._is_dead)
            for method, arguments in self._synced:
                getattr(self._store, method)(*arguments)

    def _is_dead(self, owner: Owner) -> bool:
        return owner.id in self._dead_owners

    @property
    def _alive(self) -> JournalStore:
        """The wrapped store, for a process that lives."""
        if self._died:
            raise ProcessDied
        return self._store

    def _write(self, method: str, *arguments: Any) -> Any:
        """Do a write, with the fault that is due at it."""
        store = self._alive
        number = self.writes
        self.writes += 1
        if self._on_write is not None:
            self._on_write(number, method)
        fault = self.faults.get(number)
        if fault in _ERRORS:
            message, hint = _ERRORS[fault]
            raise StoreError(f"{message} (write {number}, {method})", hint=hint)
        if fault == "die before":
            self.die()
            raise ProcessDied
        result = getattr(store, method)(*arguments)
        if self._durability != "power":
            self._unsynced.append((method, arguments))
        if fault == "die after":
            self.die()
            raise ProcessDied
        return result

    # -- flows

    def put_flow(self, hash: str, compiled: bytes) -> None:
        self._write("put_flow", hash, compiled)

    def get_flow(self, hash: str) -> bytes:
        return self._alive.get_flow(hash)

    def remember_source(
        self, key: str, hash: str, sources: Sequence[tuple[str, str]], extra: bytes = b""
    ) -> None:
        self._write("remember_source", key, hash, sources, extra)

    def find_source(self, key: str) -> tuple[str, list[tuple[str, str]], bytes] | None:
        return self._alive.find_source(key)

    def deploy(
        self,
        deployed: Deployed,
        signals: Sequence[str] = (),
        schedules: Sequence[tuple[str, int, int | None]] = (),
    ) -> None:
        self._write("deploy", deployed, signals, schedules)

    def undeploy(self, flow: str, version: str | None = None) -> None:
        self._write("undeploy", flow, version)

    def deployed(self, flow: str | None = None) -> list[Deployed]:
        return self._alive.deployed(flow)

    def starts(self, signal: str) -> list[SignalStart]:
        return self._alive.starts(signal)

    def schedules(self, until: int | None = None) -> list[Scheduled]:
        return self._alive.schedules(until)

    def move_schedule(self, scheduled: Scheduled, time: int, due: int | None) -> bool:
        moved: bool = self._write("move_schedule", scheduled, time, due)
        return moved

    # -- journals

    def commit(self, appends: Sequence[Append]) -> list[Conflict | None]:
        outcomes: list[Conflict | None] = self._write("commit", list(appends))
        return outcomes

    def execution(self, id: str) -> ExecutionRecord:
        return self._alive.execution(id)

    def load(self, id: str, until: int | None = None) -> Loaded:
        return self._alive.load(id, until)

    def events(self, id: str, since: int = 0, limit: int | None = None) -> list[JournalEntry]:
        return self._alive.events(id, since, limit)

    def number_events(self) -> int:
        last: int = self._write("number_events")
        return last

    def numbered(self, after: int, limit: int) -> list[Numbered]:
        return self._alive.numbered(after, limit)

    # -- leases

    def renew(self, owner: Owner, until: int) -> None:
        self._owners.add(owner.id)
        self._write("renew", owner, until)

    def calm(self, execution: str, epoch: int) -> None:
        self._write("calm", execution, epoch)

    def deaths(self, execution: str, now: int) -> int:
        return self._alive.deaths(execution, now)

    def due(self, at: int, now: int, execution: str | None = None) -> list[Due]:
        return self._alive.due(at, now, execution)

    def next_due(self, after: int) -> int | None:
        return self._alive.next_due(after)

    def counts(self, flows: Sequence[str] | None = None) -> dict[str, int]:
        return self._alive.counts(flows)

    def acquire(self, execution: str, owner: str, now: int) -> int:
        epoch: int = self._write("acquire", execution, owner, now)
        return epoch

    def holder(self, execution: str, now: int) -> Owner | None:
        return self._alive.holder(execution, now)

    def release(self, leases: Sequence[tuple[str, int]]) -> None:
        self._write("release", list(leases))

    def retire(self, owner: str) -> None:
        self._write("retire", owner)

    # -- locks that executions share

    def claims(self, lock: str) -> list[Claimed]:
        return self._alive.claims(lock)

    def budgets(self) -> list[UsedBudget]:
        return self._alive.budgets()

    # -- inbox

    def begin(self, beginning: Beginning, files: Sequence[tuple[bytes, str]] = ()) -> None:
        self._write("begin", beginning, files)

    def send(self, execution: str, event: bytes, at: int, message_id: str) -> SendResult:
        sent: SendResult = self._write("send", execution, event, at, message_id)
        return sent

    def send_keyed(
        self,
        signal: str,
        key: str,
        event: bytes,
        at: int,
        message_id: str,
        begin: Beginning | None = None,
    ) -> SendResult:
        sent: SendResult = self._write("send_keyed", signal, key, event, at, message_id, begin)
        return sent

    def find_key(self, signal: str, key: str) -> str:
        return self._alive.find_key(signal, key)

    def outbox(self) -> list[Outgoing]:
        return self._alive.outbox()

    def acknowledge(self, number: int, refused: str | None) -> None:
        self._write("acknowledge", number, refused)

    def undelivered(self, execution: str) -> list[Outgoing]:
        return self._alive.undelivered(execution)

    def inbox(self, execution: str) -> list[InboxMessage]:
        return self._alive.inbox(execution)

    def arrived(self, after: int) -> list[InboxMessage]:
        return self._alive.arrived(after)

    def changes(self) -> int:
        return self._alive.changes()

    # -- waits

    def decide(self, wait: str, vote: Vote) -> tuple[bool, ListedWait]:
        decided: tuple[bool, ListedWait] = self._write("decide", wait, vote)
        return decided

    def wait(self, id: str) -> ListedWait:
        return self._alive.wait(id)

    # -- grants

    def grants(self, flow: str | None = None, tool: str | None = None) -> list[FlowGrant]:
        return self._alive.grants(flow, tool)

    def revoke(self, grant: str, by: str) -> FlowGrant:
        revoked: FlowGrant = self._write("revoke", grant, by)
        return revoked

    # -- lists

    def executions(
        self,
        filter: ExecutionFilter = ExecutionFilter(),  # noqa: B008 - it cannot be changed
        after: str | None = None,
        limit: int = 50,
    ) -> ExecutionRecordPage:
        return self._alive.executions(filter, after, limit)

    def waits(
        self,
        filter: WaitFilter = WaitFilter(),  # noqa: B008 - it cannot be changed
        after: str | None = None,
        limit: int = 50,
    ) -> StoredWaitPage:
        return self._alive.waits(filter, after, limit)

    def find_execution(self, beginning: str, flows: OfFlows | None = None) -> str:
        return self._alive.find_execution(beginning, flows)

    def find_wait(self, beginning: str, flows: OfFlows | None = None) -> str:
        return self._alive.find_wait(beginning, flows)

    def short_execution(self, id: str) -> str:
        return self._alive.short_execution(id)

    def short_wait(self, id: str) -> str:
        return self._alive.short_wait(id)

    # -- artifacts

    def put_artifact(self, execution: str, content: bytes | PathLike[str], name: str) -> Artifact:
        if not isinstance(content, bytes):
            with suppress(OSError):  # the wrapped store says what is wrong with the path
                # Read now: by the time that a power cut is made up for, it may be another file.
                content = Path(fspath(content)).read_bytes()
        artifact: Artifact = self._write("put_artifact", execution, content, name)
        return artifact

    def hold_artifact(self, content: bytes | PathLike[str], name: str) -> Artifact:
        held: Artifact = self._write("hold_artifact", content, name)
        return held

    def open_artifact(self, sha256: str, execution: str | None = None) -> BinaryIO:
        return self._alive.open_artifact(sha256, execution)

    def fetch_artifact(self, sha256: str, execution: str | None = None) -> Path:
        return self._alive.fetch_artifact(sha256, execution)

    # -- care

    def prune(
        self, before: int, statuses: Sequence[str] = ENDED, ids: Sequence[str] = ()
    ) -> Pruned:
        pruned: Pruned = self._write("prune", before, statuses, ids)
        return pruned

    def close(self) -> None:
        self._store.close()
