"""A server on a socket, on a thread of the tests."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from flowengine.page.site import Site
from flowengine.server.application import Application
from flowengine.server.guard import Hosts
from flowengine.server.mcp.http import mcp_routes
from flowengine.server.running import BoundedServer, Serving
from flowengine.server.talk_routes import talk_routes
from tests.server.api import LOCAL, Api


class Served:
    """A server on a thread of the tests, with a new store in a folder, or with one of the tests."""

    def __init__(self, api: Api | Path, **options: Any) -> None:
        self.api = Api(api) if isinstance(api, Path) else api
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.ready = threading.Event()
        serving = Serving(**options)
        self._tls = None
        if serving.certificate is not None:
            self._tls = ssl.create_default_context(cafile=serving.certificate)
            self._tls.check_hostname = False  # it is not that of an address
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(serving)))
        self._thread.start()
        assert self.ready.wait(300)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _serve(self, serving: Serving) -> None:
        api, names = self.api, Hosts(frozenset({f"127.0.0.1:{self.port}"}))
        self.application = Application(
            api.engine,
            api.records,
            names,
            LOCAL,
            lambda it: [*Site(it).routes(), *mcp_routes(it), *talk_routes(it)],
        )
        self.server = BoundedServer(self.application, serving)
        self.server.on_ready = self.ready.set
        await self.server.serve(sockets=[self._listening])

    def close(self) -> None:
        self.stop()
        self.api.close()

    def stop(self) -> None:
        self.server.should_exit = True
        self._thread.join(300)
        assert not self._thread.is_alive()

    def connect(self, buffer: int | None = None) -> socket.socket:
        """Return a connection, which may have a small buffer for what it receives (bytes)."""
        connection = socket.socket()
        if buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        connection.settimeout(30)
        connection.connect(("127.0.0.1", self.port))
        return connection if self._tls is None else self._tls.wrap_socket(connection)

    def head(self, line: str = "GET /v1/me", *more: str, host: str | None = None) -> bytes:
        lines = [f"{line} HTTP/1.1", f"Host: {host or f'127.0.0.1:{self.port}'}"]
        lines += [f"Authorization: Bearer {LOCAL}", *more, "", ""]
        return "\r\n".join(lines).encode()

    def send(self, data: bytes) -> bytes:
        """Send bytes and return all that comes until the server closes."""
        with self.connect() as connection:
            connection.sendall(data)
            return everything(connection)


class Stream:
    """A reader with a blocking connection, of an execution or, without one, of all."""

    def __init__(
        self,
        served: Served,
        execution: str = "",
        last: int | None = None,
        token: str = LOCAL,
        cookie: str = "",
    ) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
        proof = {"Cookie": cookie} if cookie else {"Authorization": f"Bearer {token}"}
        headers = {**proof, "Accept": "text/event-stream"}
        if last is not None:
            headers["Last-Event-ID"] = str(last)
        path = f"/v1/executions/{execution}/events" if execution else "/v1/events"
        self._connection.request("GET", path, headers=headers)
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200, self._answer.read()

        self.last = -1 if last is None else last
        """Number with which it comes back."""

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Yield the name and the data of each event."""
        fields: dict[str, str] = {}
        while line := self._answer.readline():
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                fields[name] = value
                if name == "id":
                    self.last = int(value)
            elif "data" in fields:
                data = json.loads(fields["data"])
                number = data.get("number", data.get("seq"))
                assert fields["event"] == "end" or int(fields["id"]) == number
                yield fields["event"], data
                fields = {}

    def wait_until_open(self) -> None:
        """Wait until the server has told where the events of all executions begin."""
        while self.last < 0:
            name, _, value = self._answer.readline().decode().rstrip("\n").partition(": ")
            if name == "id":
                self.last = int(value)

    def close(self) -> None:
        self._answer.close()
        self._connection.close()


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
