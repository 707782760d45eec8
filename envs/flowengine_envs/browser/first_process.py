"""The first process of a browser's sandbox: runs Playwright's driver, and the ways out.

    python -I -c START OPTIONS      its standard streams become the driver's

It forwards connections to the engine as a supervisor does, and takes the exit status of processes
that nobody waits for. It ends when the driver ends.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from flowengine_envs.supervisor.forwarding import Forwarding
from flowengine_envs.supervisor.loop import Loop
from flowengine_envs.supervisor.system import adopt_orphans

START = (
    "import sys, json; options = json.loads(sys.argv[1]); sys.path[:0] = options['search_path']; "
    "from flowengine_envs.browser.first_process import main; main(options)"
)


def main(options: Mapping[str, Any]) -> None:
    """Run the driver to its end.

    Args:
        options: `argv` of the driver, `forwards` and `limits` of the sandbox.
    """
    adopt_orphans()
    for name, value in options["limits"].items():
        limit = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(limit)[1]
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (most, most))
    loop = Loop()
    Forwarding(loop, options["forwards"])
    source, sink = os.pipe()
    for fd in (source, sink):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(sink, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    driver = subprocess.Popen(options["argv"])
    with open(os.devnull, "r+b", buffering=0) as null:  # the streams are the driver's alone
        os.dup2(null.fileno(), 0)
        os.dup2(null.fileno(), 1)

    def reap() -> None:
        with suppress(BlockingIOError):
            os.read(source, 4096)
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == driver.pid:
                    sys.stderr.flush()
                    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
                if not pid:
                    break

    loop.reading(source, reap)
    loop.run()
