"""The guard of a worker: a second process, which no function of an attempt can hold up.

    worker ── its pulse, its attempts, and when the server answered ──► shared memory
    guard  ── heartbeats of those attempts while the worker has no pulse ──► server
           ── SIGKILL once attempts of the worker may begin again elsewhere ──► worker

A function can hold the interpreter of the worker for a long time. The worker is then silent, but
its attempts are at work, so the guard sends their heartbeats. A worker that was stopped or cannot
reach the server loses its attempts. It cuts them off. Attempts that it cannot cut off end with it.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from flowengine.engines.temporal.heartbeat import BEATS, CUT, END, SILENT
from flowengine.errors import StoreError
from flowengine.sdk.processes import (
    as_text,
    end_orphans,
    from_text,
    is_dead,
    is_stopped,
    this_process,
)
from flowengine.telemetry.worker_log import WorkerLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flowengine.engines.temporal.connection import Address
    from flowengine.sdk.processes import ProcessIdentity
    from flowengine.telemetry.worker_log import Format

_log = logging.getLogger("flowengine.temporal")
_ROOM = 4096
"""Bytes of the shared memory before the first slot, and the maximum of the beat in it."""
_SLOT = 1024
_SLOTS = 20_480
"""More attempts than a worker has at once. The kernel provides memory only for those in use."""
_HEAD = struct.Struct("=dddII")
"""When the worker had its last pulse, when the server answered it, and its guard, then how many
slots have been in use, and the length of the details of a heartbeat, which follow."""
_ENTRY = struct.Struct("=dBH")
"""The heartbeat (0: the slot is free), whether it is an attempt, and the length of its token."""
_EAGER = 10.0
"""With a shorter heartbeat, the guard connects at its start, because that takes some seconds."""


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
        size = _ROOM + _SLOT * _SLOTS
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

    def take(self, slot: Slot) -> int:
        """Take a slot for an activity, and return its number."""
        if self._free:
            number = self._free.pop()
        else:
            number, self._used = self._used, self._used + 1
            struct.pack_into("=I", self._memory, 24, self._used)
        self.put(number, slot)
        return number

    def put(self, number: int, slot: Slot) -> None:
        """Change a slot."""
        at = _ROOM + number * _SLOT
        token = slot.token if len(slot.token) <= _SLOT - _ENTRY.size else b""
        self._memory[at + _ENTRY.size : at + _ENTRY.size + len(token)] = token
        _ENTRY.pack_into(self._memory, at, slot.timeout, slot.is_attempt, len(token))

    def free(self, number: int) -> None:
        """Give a slot back."""
        _ENTRY.pack_into(self._memory, _ROOM + number * _SLOT, 0.0, False, 0)
        self._free.append(number)

    # For both

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


def now() -> float:
    """Return the seconds of a clock that also counts while the machine is suspended, if any."""
    return time.clock_gettime(
        time.CLOCK_BOOTTIME if sys.platform == "linux" else time.CLOCK_MONOTONIC
    )


@contextmanager
def guarded(
    pulse: Pulse, address: Address, heartbeat: float, log_format: Format
) -> Iterator[Callable[[str], None]]:
    """Run the guard of this process during a block, and yield what ends this process.

    Args:
        pulse: Of this process.
        address: The store.
        heartbeat: Seconds without a heartbeat after which an attempt is interrupted.
        log_format: The form of the log of this process.
    """
    command = [sys.executable, "-m", __name__, as_text(this_process()), str(pulse.file)]
    with subprocess.Popen(
        [*command, str(heartbeat), log_format, *address],
        stdin=subprocess.PIPE,
        start_new_session=True,
        pass_fds=[pulse.file],
    ) as guard:
        assert guard.stdin is not None
        try:
            yield _end_process
        finally:
            guard.stdin.write(b"done")
            guard.stdin.close()


def _end_process(why: str) -> None:
    """End this process at once, because nothing else ends a function on a thread.

    Its guard then ends the programs of its attempts.
    """
    _log.error("this worker ends, because attempts may begin again elsewhere, and %s", why)
    os._exit(StoreError.exit_code)


class _Guard:
    """The guard.

    Args:
        worker: The worker.
        pulse: Its pulse.
        heartbeat: Its heartbeat (s).
        log_format: The form of its log.
        address: Its store.
    """

    def __init__(
        self,
        worker: ProcessIdentity,
        pulse: Pulse,
        heartbeat: float,
        log_format: Format,
        address: Address,
    ) -> None:
        self._log = WorkerLog(log_format, lambda: time.time_ns() // 1_000_000)
        self._worker = worker
        self._pulse = pulse
        self._heartbeat = heartbeat
        self._address = address
        self._pause = min(max(heartbeat / 60, 0.01), 0.2)
        self._is_silent = threading.Event()

    def keep(self) -> None:
        """Guard the worker until it ends, or reports that it is done."""
        threading.Thread(target=self._beat, daemon=True).start()
        while True:
            if select.select([sys.stdin], [], [], self._pause)[0]:
                if os.read(sys.stdin.fileno(), 1):
                    return
                break  # the kernel closes the pipe of a killed process before it is dead
            silence = now() - self._pulse.last
            if silence > SILENT * self._heartbeat or is_stopped(self._worker):
                self._is_silent.clear()
            elif silence > self._heartbeat / BEATS:
                self._is_silent.set()
            else:
                self._is_silent.clear()
            lost = [slot for slot in self._pulse.slots() if slot.is_attempt]
            if any(self._pulse.is_lost(slot.timeout, END) for slot in lost):
                self._end(len(lost))
                break
        while not is_dead(self._worker):
            time.sleep(0.01)
        end_orphans()

    def _end(self, attempts: int) -> None:
        """End the worker."""
        if is_dead(self._worker):
            return
        os.kill(self._worker.pid, signal.SIGKILL)
        silence = round(now() - self._pulse.heard)
        message = (
            f"worker {self._worker.pid} was ended with {attempts} attempts at work, which may "
            f"begin again elsewhere: it gave the server no sign of life for {silence} s, because "
            "it was stopped, held up by a function, or cut off. Start it again."
        )
        self._log("error", logger=_log.name, message=message)

    def _beat(self) -> None:
        """Send heartbeats whenever the worker is silent."""
        if self._heartbeat >= _EAGER:
            self._is_silent.wait()
        asyncio.run(self._send_beats())

    async def _send_beats(self) -> None:
        from temporalio.api.common.v1 import Payloads
        from temporalio.api.workflowservice.v1 import (
            GetSystemInfoRequest,
            RecordActivityTaskHeartbeatRequest,
        )
        from temporalio.service import RPCError, RPCStatusCode

        from flowengine.engines.temporal.connection import connect

        client = None
        while client is None:
            with suppress(StoreError):
                client = await connect(self._address)
        service = client.workflow_service

        async def send(token: bytes) -> bool:
            request = RecordActivityTaskHeartbeatRequest(
                namespace=self._address.namespace,
                task_token=token,
                details=Payloads.FromString(self._pulse.details),
            )
            try:
                await service.record_activity_task_heartbeat(request)
            except RPCError as error:
                return error.status == RPCStatusCode.NOT_FOUND
            return True

        while True:
            while not self._is_silent.is_set():  # noqa: ASYNC110 - another thread sets it
                await asyncio.sleep(self._pause)
            asked, tokens = now(), [slot.token for slot in self._pulse.slots() if slot.token]
            with suppress(RPCError):
                await service.get_system_info(GetSystemInfoRequest())  # there may be no token
                if all(await asyncio.gather(*map(send, tokens))):
                    self._pulse.hear(asked, guard=True)
            await asyncio.sleep(self._heartbeat / BEATS / 2)


def main(worker: str, file: str, heartbeat: str, log_format: str, *address: str) -> None:
    """Run the guard of a worker."""
    from flowengine.engines.temporal.connection import Address

    named = from_text(worker)
    assert named is not None
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    form: Format = "json" if log_format == "json" else "text"
    _Guard(named, Pulse(int(file)), float(heartbeat), form, Address(*address)).keep()
    os._exit(0)  # a thread may be waiting for the server


if __name__ == "__main__":
    main(*sys.argv[1:])
