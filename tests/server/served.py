"""A server on a socket, on a thread of the tests."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flowengine.page.site import Site
from flowengine.server.application import Application
from flowengine.server.guard import Hosts
from flowengine.server.protocol import ProtocolLimits
from flowengine.server.running import Server, Serving
from tests.server.api import LOCAL, Api


class Served:
    """A server on a thread of the tests."""

    def __init__(self, folder: Path, limits: ProtocolLimits, **options: Any) -> None:
        self.api = Api(folder)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.ready = threading.Event()
        serving = Serving(limits=limits, **options)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(serving)))
        self._thread.start()
        assert self.ready.wait(300)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _serve(self, serving: Serving) -> None:
        api, names = self.api, Hosts(frozenset({f"127.0.0.1:{self.port}"}))
        self.application = Application(
            api.engine, api.records, names, LOCAL, lambda it: Site(it).routes()
        )
        self.server = Server(self.application, serving)
        self.server.on_ready = self.ready.set
        await self.server.serve(sockets=[self._listening])

    def close(self) -> None:
        self.server.should_exit = True
        self._thread.join(300)
        assert not self._thread.is_alive()
        self.api.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def head(self, line: str = "GET /v1/me", *more: str, host: str | None = None) -> bytes:
        lines = [f"{line} HTTP/1.1", f"Host: {host or f'127.0.0.1:{self.port}'}"]
        lines += [f"Authorization: Bearer {LOCAL}", *more, "", ""]
        return "\r\n".join(lines).encode()

    def send(self, data: bytes) -> bytes:
        """Send bytes and return all that comes until the server closes."""
        with self.connect() as connection:
            connection.sendall(data)
            return everything(connection)


def everything(connection: socket.socket) -> bytes:
    found = b""
    try:
        while part := connection.recv(65536):
            found += part
    except ConnectionResetError:
        pass
    return found


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def until(happened: Callable[[], object]) -> None:
    end = time.monotonic() + 300
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)
