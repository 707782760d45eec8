"""Renewal of an engine's leases, even while its event loop or a step is busy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from flowengine.errors import Conflict, StoreError
from flowengine.journal.lease_holders import steady_now, this_process
from flowengine.journal.store import JournalStore


class Hold(NamedTuple):
    """A call of this engine that holds an execution."""

    is_driving: bool
    """Whether it reads the messages to the execution before it is done."""
    thread: int


class LeaseKeeper:
    """Renews the engine's leases regularly, from a separate thread if executions are slow.

    Args:
        journals: The journals that the leases protect.
        ttl: Milliseconds without a heartbeat after which other engines may take over.

    Attributes:
        owner: The lease holder: this engine, in this process.
        on_late: Called from the thread when a heartbeat was late, for example because the process
            had been stopped. Some leases may be lost.
        on_beat: Called from the thread now and then, as long as this process is not held up.
    """

    def __init__(self, journals: JournalStore, ttl: int) -> None:
        self.owner = this_process()
        self.on_late: Callable[[], None] | None = None
        self.on_beat: Callable[[], None] = lambda: None
        self.ttl = ttl
        self._journals = journals
        self._until = 0
        self._lapses = 0
        """How often a heartbeat was late. Each time, leases may have been lost."""
        self._sure: dict[str, int] = {}
        """Execution → the number of lapses when its lease was last known to be held."""
        self._held: dict[str, Hold] = {}
        """Executions that this engine holds → the call that holds them."""
        self._left: list[tuple[str, int]] = []
        """Leases to release, since no process takes an execution whose holder lives."""
        self._thread: threading.Thread | None = None
        self._locked = threading.Lock()
        self._closed = threading.Event()

    def renew(self) -> None:
        """Send a heartbeat, unless the last one is recent enough."""
        if self._until - steady_now() < self.ttl / 2:
            self._renew()

    def keep(self) -> None:
        """Send heartbeats from now on, from a thread with its own connection."""
        if self._thread is not None:
            return
        self.renew()
        with self._locked:  # the first two calls may come at once
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="flowengine-leases", daemon=True)
                thread.start()
                self._thread = thread

    def acquire(self, execution: str, *, is_driving: bool = True) -> int:
        """Take the lease of an execution.

        Args:
            execution: Full id.
            is_driving: Whether the caller reads the messages to it before it is done.

        Returns:
            Its epoch.

        Raises:
            Conflict: Another holder has the lease. The message names it.
        """
        self.reserve(execution, is_driving=is_driving)
        try:
            return self._journals.acquire(execution, self.owner.id, steady_now())
        except BaseException:
            self.released(execution)
            raise

    def reserve(self, execution: str, *, is_driving: bool = True) -> None:
        """Claim an execution within this engine, before its lease is taken or it is created.

        The store grants a lease to the same owner again, so a second thread would take it from the
        first. The first thread reads the messages to the execution, so the second does not need the
        lease.

        Raises:
            Conflict: Another call of this engine holds it.
        """
        call = Hold(is_driving, threading.get_ident())
        if self._held.setdefault(execution, call) is not call:  # atomic
            raise Conflict(
                f"another call of this engine is running execution {execution}",
                standing=self.owner,
                hint="wait until that call returns",
            )
        try:
            self.renew()
        except BaseException:
            self.released(execution)
            raise
        self._sure[execution] = self._lapses

    def hold(self, execution: str) -> Hold | None:
        """Return the call of this engine that holds an execution, or None."""
        return self._held.get(execution)

    def has(self, execution: str) -> bool:
        """Return whether this engine still has the lease of an execution that it drives.

        The store is only read if a heartbeat was late, as after the process was stopped. No process
        can take the lease before that.
        """
        if steady_now() < self._until and self._sure.get(execution) == self._lapses:
            return True
        self._renew()
        lapses = self._lapses
        holder = self._journals.holder(execution, steady_now())
        if holder is None or holder.id != self.owner.id:
            return False
        self._sure[execution] = lapses
        return True

    def released(self, execution: str) -> None:
        """Note that a commit has released a lease."""
        self._held.pop(execution, None)
        self._sure.pop(execution, None)

    def release(self, leases: Sequence[tuple[str, int]]) -> None:
        """Release leases. Those that the store does not release now are released later.

        Args:
            leases: Execution and epoch of each.
        """
        for execution, _ in leases:
            self.released(execution)
        self._release_left(leases)

    def _release_left(self, more: Sequence[tuple[str, int]] = ()) -> None:
        with self._locked:
            self._left += more
            if self._left:
                self._journals.release(self._left)
                self._left.clear()

    def calm(self, leases: Sequence[tuple[str, int]]) -> None:
        """Note that executions got further, so the deaths of earlier holders no longer count."""
        for execution, epoch in leases:
            self._journals.calm(execution, epoch)

    def close(self) -> None:
        self._held.clear()
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        if self._until:
            self._until = 0
            with suppress(StoreError):  # the leases then expire after this process exits
                self._journals.retire(self.owner.id)

    def _run(self) -> None:
        while not self._closed.wait(self.ttl / 6000):
            self.on_beat()
            late = steady_now() > self._until
            try:
                self._release_left()
                if self._until - steady_now() < self.ttl * 3 / 4:
                    self._renew()
            except StoreError:
                continue  # tries again, and if that is too late the next commit is refused
            if late and self.on_late is not None:
                self.on_late()

    def _renew(self) -> None:
        now = steady_now()
        until = now + self.ttl
        if now > self._until > 0:
            self._lapses += 1
        self._journals.renew(self.owner, until)
        self._until = until
