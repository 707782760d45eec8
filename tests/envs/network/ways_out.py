"""A fake name server and network: connections are recorded, not made."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer
from typing import Any, TypeVar

from flowengine.sdk.web.connections import Dial, Network, Rules, Stream, dial

PUBLIC = "93.184.216.34"
ALSO_PUBLIC = "2606:2800:220:1:248:1893:25c8:1946"


class Names:
    """Answers each look-up of a name with its next answer. The last one repeats."""

    def __init__(self, **answers: Sequence[Sequence[str]]) -> None:
        self._answers = {name.replace("_", "."): [*each] for name, each in answers.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        answers = self._answers.get(host)
        if answers is None:
            raise OSError(f"{host} is not known")
        return answers.pop(0) if len(answers) > 1 else answers[0]


class Dialled:
    """Records connections, and leads each address to a test server."""

    def __init__(self, server: tuple[str, int] | None = None) -> None:
        self.server = server
        self.addresses: list[tuple[str, int]] = []

    async def __call__(self, address: str, port: int) -> Stream:
        self.addresses.append((address, port))
        if self.server is None:
            raise ConnectionRefusedError(111, "Connection refused")
        return await dial(*self.server)


def network(names: Names, dialled: Dial, allowed: Any = "public", deny: Any = None) -> Network:
    return Network(Rules.of(allowed, deny), names, dialled)


class Quiet(BaseHTTPRequestHandler):
    """Writes no log."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Site(ThreadingHTTPServer):
    """A web server on loopback. `pages` holds its responses, `seen` the requests."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, handler: type[BaseHTTPRequestHandler] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), handler or _Handler)
        self.pages: dict[str, Any] = {}
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.connections = 0

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, path: str = "/") -> str:
        return f"http://{self.place}{path}"

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections += 1
        super().process_request(request, client_address)


class _Handler(Quiet):
    server: Site
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.seen.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
        page = self.server.pages.get(self.path.partition("?")[0])
        if callable(page):
            page(self)
            return
        status, headers, body = page or (404, {"Content-Type": "text/plain"}, b"nothing here")
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET


S = TypeVar("S", bound=BaseServer)


@contextmanager
def running(server: S) -> Iterator[S]:
    """Run a server in a thread."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def serving() -> AbstractContextManager[Site]:
    return running(Site())


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)
