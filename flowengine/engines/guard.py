"""The guard of a worker: a second process, which no function of an attempt can hold up.

    worker ── its pulse, and in Temporal its attempts and when the server answered ──► shared memory
    guard  ── in place of the worker, while that has no pulse: renews its leases ──► store
           ── or, in Temporal, sends heartbeats ──► server
           ── SIGKILL once attempts of the worker may begin again elsewhere ──► worker

A function can hold the interpreter of the worker for a long time. The worker is then silent, but
its attempts are at work. A worker that was stopped, or that cannot reach the server, loses its
attempts. In Temporal, it cuts them off, and attempts that it cannot cut off end with it.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import IO, NamedTuple

from flowengine.engines.leases import LeaseKeeper
from flowengine.errors import StoreError
from flowengine.journal.lease_holders import steady_now
from flowengine.journal.records import Owner
from flowengine.journal.sqlite.store import SqliteStore
from flowengine.sdk.processes import (
    as_text,
    from_text,
    is_dead,
    is_stopped,
    this_process,
)

_ROOM = 4096
"""Bytes of the shared memory before the first slot, and the maximum of the beat in it."""
_SLOT = 1024
_SLOTS = 20_480
"""More attempts than a worker has at once. The kernel provides memory only for those in use."""
_BEGUN = 1 << 16
"""How many attempts are known to have begun. Older ones are forgotten."""
_BEGIN = struct.Struct("=d8s")
"""When one began (s since 1970), and the digest of its name."""
_HEAD = struct.Struct("=dddII")
"""When the worker had its last pulse, when the server answered it, and its guard, then how many
slots have been in use, and the length of the details of a heartbeat, which follow."""
_ENTRY = struct.Struct("=dBH")
"""The heartbeat (0: the slot is free), whether it is an attempt, and the length of its token."""
BEATS = 3
"""Heartbeats that are sent in the time after which an attempt counts as interrupted."""
CUT = 1 / 2
"""A worker cuts off its attempts if it has not heard the server for this part of a heartbeat. The
last heartbeat of an attempt may be older by a third of it, so after two thirds, the attempt may
begin again elsewhere."""
END = 0.62
"""A worker ends after this part, if anything of an attempt is still at work."""
SILENT = 10
"""The guard stands in for its worker for this many times the heartbeat. In Temporal, it then ends
the worker, because that can do nothing for any execution."""


class Slot(NamedTuple):
    """An activity at work."""

    timeout: float
    """Seconds without a heartbeat after which it counts as interrupted."""
    is_attempt: bool
    """Whether it may begin again elsewhere then, so that it must have ended here."""
    token: bytes
    """By which heartbeats name it. Empty: none are to be sent."""


class Pulse:
    """The state of a worker and its guard, in memory that they share.

    Args:
        file: Of the memory. None: new memory.
    """

    def __init__(self, file: int | None = None) -> None:
        size = _ROOM + _SLOT * _SLOTS + _BEGIN.size * _BEGUN
        is_new = file is None
        if file is None:
            file = os.memfd_create("flowengine-pulse")
            os.ftruncate(file, size)
        self.file = file
        self._memory = mmap.mmap(file, size)
        if is_new:
            self.beat()
            self.hear(now())
        self._free: list[int] = []
        self._used = 0
        """How many slots have been in use."""
        self._begun = 0

    def close(self) -> None:
        """Leave the memory."""
        self._memory.close()
        os.close(self.file)

    # The worker's part

    def prepare(self, details: bytes) -> None:
        """Set the details of the heartbeats that the guard is to send, encoded."""
        struct.pack_into("=I", self._memory, 28, len(details))
        self._memory[_HEAD.size : _HEAD.size + len(details)] = details

    def beat(self) -> None:
        """Note that the worker is alive."""
        struct.pack_into("=d", self._memory, 0, now())

    def hear(self, asked: float, *, guard: bool = False) -> None:
        """Note that the server has answered a request.

        Args:
            asked: When it was sent.
            guard: Whether the guard has sent it.
        """
        struct.pack_into("=d", self._memory, 16 if guard else 8, asked)

    def claim(self, slot: Slot) -> int:
        """Claim a slot for an activity, and return its number."""
        if self._free:
            number = self._free.pop()
        else:
            number, self._used = self._used, self._used + 1
            struct.pack_into("=I", self._memory, 24, self._used)
        self.put(number, slot)
        return number

    def put(self, number: int, slot: Slot) -> None:
        at = _ROOM + number * _SLOT
        token = slot.token if len(slot.token) <= _SLOT - _ENTRY.size else b""
        self._memory[at + _ENTRY.size : at + _ENTRY.size + len(token)] = token
        _ENTRY.pack_into(self._memory, at, slot.timeout, slot.is_attempt, len(token))

    def free(self, number: int) -> None:
        """Give a slot back."""
        _ENTRY.pack_into(self._memory, _ROOM + number * _SLOT, 0.0, False, 0)
        self._free.append(number)

    def begin(self, name: str) -> None:
        """Note that an attempt begins, before it does anything."""
        at = _ROOM + _SLOT * _SLOTS + _BEGIN.size * (self._begun % _BEGUN)
        _BEGIN.pack_into(self._memory, at, time.time(), digest(name))
        self._begun += 1

    # For both

    @property
    def begun(self) -> tuple[float, list[bytes]]:
        """Since when all attempts that began are known (0: since the start), and their digests."""
        start = _ROOM + _SLOT * _SLOTS
        begun = [*_BEGIN.iter_unpack(self._memory[start : start + _BEGIN.size * _BEGUN])]
        return min(at for at, _ in begun), [name for at, name in begun if at]

    @property
    def last(self) -> float:
        """When the worker had its last pulse."""
        return float(struct.unpack_from("=d", self._memory, 0)[0])

    @property
    def heard(self) -> float:
        """When the last request was sent that the server has answered, to the worker or its guard.

        What counts as interrupted is decided by heartbeats, which follow each other in a third of
        their time. So an attempt is the worker's own for two thirds of it from then on.
        """
        return float(max(struct.unpack_from("=dd", self._memory, 8)))

    @property
    def details(self) -> bytes:
        """The details of heartbeats that the guard sends."""
        length = _HEAD.unpack_from(self._memory)[4]
        return self._memory[_HEAD.size : _HEAD.size + length]

    def slots(self) -> Iterator[Slot]:
        """Yield the activities at work."""
        for number in range(_HEAD.unpack_from(self._memory)[3]):
            at = _ROOM + number * _SLOT
            timeout, is_attempt, length = _ENTRY.unpack_from(self._memory, at)
            if timeout:
                start = at + _ENTRY.size
                yield Slot(timeout, bool(is_attempt), self._memory[start : start + length])

    def is_lost(self, timeout: float, part: float = CUT) -> bool:
        """Return whether the server was not heard for a part of a heartbeat."""
        return now() - self.heard > part * timeout


def digest(name: str) -> bytes:
    """Return a digest of the name of an attempt."""
    return hashlib.sha256(name.encode()).digest()[:8]


def now() -> float:
    """Return the seconds of a clock that also counts while the machine is suspended, if any."""
    return time.clock_gettime(
        time.CLOCK_BOOTTIME if sys.platform == "linux" else time.CLOCK_MONOTONIC
    )


@contextmanager
def guarded(module: str, pulse: Pulse, heartbeat: float, *more: str) -> Iterator[IO[bytes]]:
    """Run the guard of this process during a block, and yield its output.

    Args:
        module: Its program, which calls `main`.
        pulse: Of this process.
        heartbeat: Seconds without a heartbeat after which an attempt is interrupted.
        more: Further arguments of the program.
    """
    command = [sys.executable, "-P", "-m", module, as_text(this_process()), str(pulse.file)]
    with subprocess.Popen(
        [*command, str(heartbeat), *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        pass_fds=[pulse.file],
    ) as guard:
        assert guard.stdin is not None
        assert guard.stdout is not None
        try:
            yield guard.stdout
        finally:
            with suppress(BrokenPipeError):  # it has ended before
                guard.stdin.write(b"done")
                guard.stdin.close()


class Guard:
    """The guard, in its process.

    Args:
        worker: The worker.
        file: Of its pulse.
        heartbeat: Its heartbeat (s).
        beat: Sends heartbeats whenever the worker is silent, on a thread. Called with this object.
        tell: Receives why the worker was ended.
    """

    def __init__(
        self,
        worker: str,
        file: str,
        heartbeat: str,
        beat: Callable[[Guard], None],
        tell: Callable[[str], None] = lambda why: None,
    ) -> None:
        named = from_text(worker)
        assert named is not None
        self.pulse = Pulse(int(file))
        self.heartbeat = float(heartbeat)
        self.pause = min(max(self.heartbeat / 60, 0.01), 0.2)
        self.is_silent = threading.Event()
        """Set while the worker is alive, but silent."""
        self._tell = tell
        self._worker = named
        self._beat = beat

    def keep(self) -> bool:
        """Guard the worker until it is done or has ended. Return whether it has ended."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=self._beat, args=(self,), daemon=True).start()
        while True:
            if select.select([sys.stdin], [], [], self.pause)[0]:
                if os.read(sys.stdin.fileno(), 1):
                    return False
                break  # the kernel closes the pipe of a killed process before it is dead
            silence = now() - self.pulse.last
            if silence > SILENT * self.heartbeat or is_stopped(self._worker):
                self.is_silent.clear()
            elif silence > self.heartbeat / BEATS:
                self.is_silent.set()
            else:
                self.is_silent.clear()
            lost = [slot for slot in self.pulse.slots() if slot.is_attempt]
            if any(self.pulse.is_lost(slot.timeout, END) for slot in lost):
                self._end(len(lost))
                break
        while not is_dead(self._worker):
            time.sleep(0.01)
        return True

    def _end(self, attempts: int) -> None:
        if is_dead(self._worker):
            return
        os.kill(self._worker.pid, signal.SIGKILL)
        silence = round(now() - self.pulse.heard)
        self._tell(
            f"worker {self._worker.pid} was ended with {attempts} attempts at work, which may "
            f"begin again elsewhere: it gave the server no sign of life for {silence} s, because "
            "it was stopped, held up by a function, or cut off. Start it again."
        )


@contextmanager
def guarded_leases(keeper: LeaseKeeper, location: str) -> Iterator[None]:
    """Have another process renew the leases during a block while this one is held up.

    Args:
        keeper: Renews them otherwise.
        location: Of a store in a directory.
    """
    keeper.keep()
    with closing(Pulse()) as pulse:
        keeper.on_beat = pulse.beat
        try:
            named = location, *map(str, keeper.owner)
            with guarded(Pulse.__module__, pulse, keeper.ttl / 1000, *named):
                yield
        finally:
            keeper.on_beat = lambda: None


def main(worker: str, file: str, heartbeat: str, location: str, *owner: str) -> None:
    """Run the guard of a worker of a store in a directory: it renews the worker's leases."""
    id, pid, started, host, boot = owner
    holder = Owner(id, int(pid), int(started), host, boot)

    def renew(guard: Guard) -> None:
        store = None
        while True:
            guard.is_silent.wait()
            with suppress(StoreError):
                store = store or SqliteStore(location)
                store.renew(holder, steady_now() + int(guard.heartbeat * 1000))
            time.sleep(guard.heartbeat / BEATS / 2)

    Guard(worker, file, heartbeat, renew).keep()
    os._exit(0)  # a thread may be waiting for the store


if __name__ == "__main__":
    main(*sys.argv[1:])
