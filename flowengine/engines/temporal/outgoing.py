"""Requests of an execution to others: keys, claims on locks, grants and messages, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from temporalio import workflow

from flowengine.engines.temporal.requests import SHARE, plain
from flowengine.journal.records import ENDED

if TYPE_CHECKING:
    from flowengine.journal.memory.store import MemoryStore
    from flowengine.journal.records import Append

_PATIENCE = timedelta(seconds=60)


class OutgoingQueue:
    """Passes on what an append contains for others, by local activities, one after the other.

    Args:
        execution: Id of the execution.
        created: When it started (ms).
        store: Its store.
        on_sent: Called when everything was passed on.
        begin: Begins a task.
    """

    def __init__(
        self,
        execution: str,
        created: int,
        store: MemoryStore,
        on_sent: Callable[[], None],
        begin: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._execution = execution
        self._created = created
        self._store = store
        self._on_sent = on_sent
        self._begin_task = begin
        self._requests: list[dict[str, Any]] = []
        self._numbers = 0
        self._keys: set[tuple[str, str]] = set()
        self._locks: set[str] = set()
        self._sent = 0
        self._refers = False
        self._task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether something is not passed on yet."""
        return self._task is not None

    @property
    def refers(self) -> bool:
        """Whether files were handed to the execution that attempts cannot read yet."""
        return self._refers

    def restore(self, numbers: int, locks: list[str]) -> None:
        """Continue after an earlier run.

        Args:
            numbers: Number of requests so far.
            locks: The locks on which the execution has claims.
        """
        self._numbers, self._locks = numbers, {*locks}

    def kept(self) -> list[Any]:
        """Return what `restore` takes in another run."""
        return [self._numbers, self.locks]

    def add(self, append: Append, *, is_at_work: bool = False) -> None:
        """Add what a committed append contains, and begin to pass it on.

        Args:
            append: The append.
            is_at_work: Whether attempts are still being ended. The claims of an execution that has
                ended are then kept, as far as they were granted, until `leave_locks`.
        """
        at = append.at
        keys = self._store.keys(self._execution)
        for signal, key in sorted(keys - self._keys):
            self._add({"do": "join", "key": [signal, key], "created": self._created})
        for signal, key in sorted(self._keys - keys):
            self._add({"do": "leave", "key": [signal, key]})
        self._keys = keys
        for claim in append.claims:
            self._locks.add(claim.lock)
            self._add({"do": "claim", "lock": claim.lock, "claims": [plain(claim)], "at": at})
        if append.files:
            self._refers = True
            self._add({"do": "refer", "files": plain([*append.files])})
        for sent in self._store.outbox():
            if sent.number > self._sent:
                self._sent = sent.number
                self._add({"do": "deliver", "message": plain(sent)})
        if append.head is not None and append.head.status in ENDED:
            if is_at_work:
                self._end_claims(at, is_at_work=True)
            else:
                self.leave_locks(at)
        self._begin()

    def claim(self, claims: Sequence[Any], at: int) -> None:
        """Make claims that were reserved for the execution. See `SharedWorkflow.reserve`."""
        for claim in claims:
            self._locks.add(claim[0])
            self._add({"do": "claim", "lock": claim[0], "claims": [claim], "at": at})
        self._begin()

    async def add_now(self, request: dict[str, Any]) -> None:
        """Add a request, and wait until it is passed on."""
        self._add(request)
        self._begin()
        await workflow.wait_condition(lambda: not self.busy)

    @property
    def locks(self) -> list[str]:
        """The locks on which the execution has or had claims."""
        return sorted(self._locks)

    def leave_locks(self, at: int) -> None:
        """Release all claims."""
        self._end_claims(at, is_at_work=False)
        self._locks.clear()
        self._begin()

    def leave_keys(self) -> None:
        """Withdraw the execution's keys, which `add` adds again."""
        for signal, key in sorted(self._keys):
            self._add({"do": "leave", "key": [signal, key]})
        self._keys = set()
        self._begin()

    def _end_claims(self, at: int, *, is_at_work: bool) -> None:
        for lock in self.locks:
            self._add({"do": "end", "lock": lock, "at": at, "is_driven": is_at_work})

    def _begin(self) -> None:
        if self._requests and self._task is None:
            self._task = self._begin_task(self._pass_on())

    def _add(self, request: dict[str, Any]) -> None:
        request |= {"execution": self._execution, "number": self._numbers}
        self._numbers += 1
        self._requests.append(request)

    async def _pass_on(self) -> None:
        while self._requests:
            requests, self._requests = self._requests, []
            refused = await workflow.execute_local_activity(
                SHARE, requests, start_to_close_timeout=_PATIENCE
            )
            for number, why in refused:
                self._store.settle(number, why)
        self._task, self._refers = None, False
        self._on_sent()
