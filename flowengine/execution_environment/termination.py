"""Release of open environments when a signal ends the process."""

from __future__ import annotations

import threading

from flowengine.errors import UsageError


def release_on_termination() -> None:
    """Make SIGTERM and SIGHUP end this process like an exit, so that all environments are released.

    Otherwise the kernel ends the process immediately, and the next process has to clean up.
    Programs with their own SIGTERM handler do not need this function. They close the manager, or
    exit. A SIGHUP that is ignored or has a handler is left alone.

    Raises:
        UsageError: SIGTERM has a handler already, or this is not the main thread.
    """
    import signal
    import sys

    if threading.current_thread() is not threading.main_thread():
        raise UsageError("signal handlers can only be set in the main thread")
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        raise UsageError("SIGTERM has a handler already", hint="call manager().close() in it")
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup makes the process ignore SIGHUP
            signal.signal(number, lambda number, _: sys.exit(128 + number))
