"""Driving of a single execution on its own event loop, with graceful stop on signals."""

from __future__ import annotations

import asyncio
import signal
import threading
from typing import TYPE_CHECKING

from flowengine.engines.running.local import Local

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flowengine.engines.executions.execution import Execution, Preview
    from flowengine.engines.host import Host
    from flowengine.kernel.commands import Consult, Run


def drive_alone(host: Host, execution: Execution, left: Sequence[Run | Consult | Preview]) -> None:
    """Drive an execution on its own event loop until it ends or only waits.

    SIGINT, SIGTERM and SIGHUP stop it gracefully: running attempts are ended, the execution is
    saved. Signals that the process ignores (`nohup`) remain ignored.

    Args:
        host: Shared context of the executions.
        execution: With its lease.
        left: Commands that a synchronous driver has left to be awaited.

    Raises:
        KeyboardInterrupt: It was stopped.
    """

    async def drive() -> None:
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        if threading.current_thread() is threading.main_thread() and task is not None:
            for number in (signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    loop.add_signal_handler(number, task.cancel)
        local = Local(host)
        try:
            await local.drive(execution, left)
        finally:
            await local.close()

    try:
        asyncio.run(drive())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
