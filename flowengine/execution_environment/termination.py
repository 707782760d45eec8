"""What a signal that ends the process does to open environments."""

from __future__ import annotations

import threading

from flowengine.errors import UsageError


def release_on_termination() -> None:
    """Make SIGTERM and SIGHUP end this process like an exit, so that everything is released.

    Without it, the kernel ends the process at once, and the next one has to reap. Programs with a
    handler of their own for SIGTERM do not need it: they close the manager, or exit. A SIGHUP that
    is ignored or has a handler is left alone.

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
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup has SIGHUP ignored
            signal.signal(number, lambda number, _: sys.exit(128 + number))
