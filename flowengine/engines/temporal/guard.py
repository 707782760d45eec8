"""The guard of a worker of a store in Temporal: sends heartbeats while the worker is silent."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from flowengine.engines.guard import BEATS, Guard, Pulse, digest, now
from flowengine.engines.guard import guarded as guarded_by
from flowengine.engines.temporal.connection import Address, connect
from flowengine.errors import StoreError
from flowengine.journal.encoding import pack, unpack
from flowengine.sdk.processes import end_orphans
from flowengine.store_folder import make_private, state_folder
from flowengine.telemetry.worker_log import Format, WorkerLog
from flowengine.util.files import write_whole

_LOGGER = "flowengine.temporal"
_EAGER = 10.0
"""With a shorter heartbeat, the guard connects before the worker works: that takes some seconds."""

_SKEW = 3600.0
"""More seconds than the clocks of a worker and the server differ by."""
_KEPT = 86_400.0
"""Seconds after which the record of a dead worker is removed."""


@contextmanager
def guarded(
    pulse: Pulse, address: Address, heartbeat: float, log_format: Format, who: str
) -> Iterator[Callable[[str], None]]:
    """Run the guard of this process during a block, and yield what ends this process.

    Args:
        pulse: Of this process.
        address: The store.
        heartbeat: Seconds without a heartbeat after which an attempt is interrupted.
        log_format: The form of the log of this process.
        who: The identity of this process in Temporal.
    """
    with guarded_by(__name__, pulse, heartbeat, log_format, who, *address) as said:
        if heartbeat < _EAGER:
            said.read(1)
        yield _end_process


def _end_process(why: str) -> None:
    """End this process at once, because nothing else ends a function on a thread.

    Its guard then ends the programs of its attempts.
    """
    logging.getLogger(_LOGGER).error(
        "this worker ends, because attempts may begin again elsewhere, and %s", why
    )
    os._exit(StoreError.exit_code)


def _beat(address: Address, guard: Guard) -> None:
    """Send heartbeats whenever the worker is silent."""
    if guard.heartbeat >= _EAGER:
        guard.is_silent.wait()
    asyncio.run(_send_beats(address, guard))


async def _send_beats(address: Address, guard: Guard) -> None:
    from temporalio.api.common.v1 import Payloads
    from temporalio.api.workflowservice.v1 import (
        GetSystemInfoRequest,
        RecordActivityTaskHeartbeatRequest,
    )
    from temporalio.service import RPCError, RPCStatusCode

    client = None
    while client is None:
        with suppress(StoreError):
            client = await connect(address)
    os.write(1, b".")  # the worker may begin
    service = client.workflow_service

    async def send(token: bytes) -> bool:
        request = RecordActivityTaskHeartbeatRequest(
            namespace=address.namespace,
            task_token=token,
            details=Payloads.FromString(guard.pulse.details),
        )
        try:
            await service.record_activity_task_heartbeat(request)
        except RPCError as error:
            return error.status == RPCStatusCode.NOT_FOUND
        return True

    while True:
        while not guard.is_silent.is_set():  # noqa: ASYNC110 - another thread sets it
            await asyncio.sleep(guard.pause)
        asked, tokens = now(), [slot.token for slot in guard.pulse.slots() if slot.token]
        with suppress(RPCError):
            await service.get_system_info(GetSystemInfoRequest())  # there may be no token
            if all(await asyncio.gather(*map(send, tokens))):
                guard.pulse.hear(asked, guard=True)
        await asyncio.sleep(guard.heartbeat / BEATS / 2)


def never_began(attempt: str, who: str, received: float) -> bool:
    """Return whether a worker has ended, and never began an attempt that was sent to it.

    False if its guard has left no record on this machine, or one that does not reach far enough.

    Args:
        attempt: Its run and the id of its activity.
        who: The identity of the worker.
        received: When it was sent (s since 1970, by the clock of the server).
    """
    try:
        with open(_record(who), "rb") as file:
            since, begun = unpack(file.read())
    except OSError:
        return False
    return received > since + _SKEW and digest(attempt) not in begun


def _record(who: str) -> str:
    """Return the file in which the guard of a dead worker leaves which attempts have begun."""
    name = hashlib.sha256(who.encode()).hexdigest()[:32]
    return os.path.join(state_folder(), "temporal", "ended", name)


def _leave_record(guard: Guard, who: str) -> None:
    """Leave the record of a dead worker, in place of those of some time ago."""
    path = _record(who)
    make_private(os.path.dirname(path))
    for old in os.scandir(os.path.dirname(path)):
        if old.stat().st_mtime < time.time() - _KEPT:
            os.unlink(old)
    write_whole(path, pack([*guard.pulse.begun]))


def main(worker: str, file: str, heartbeat: str, log_format: str, who: str, *address: str) -> None:
    """Run the guard of a worker."""
    log = WorkerLog("json" if log_format == "json" else "text", lambda: time.time_ns() // 1_000_000)

    def report(why: str) -> None:
        log("error", logger=_LOGGER, message=why)

    guard = Guard(worker, file, heartbeat, partial(_beat, Address(*address)), report)
    if guard.keep():
        end_orphans()
        with suppress(OSError):
            _leave_record(guard, who)
    os._exit(0)  # a thread may be waiting for the server


if __name__ == "__main__":
    main(*sys.argv[1:])
