"""A small local web server whose pages are set by each test."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

from tests.envs.network.ways_out import Quiet, Site, running

Answer = Callable[[BaseHTTPRequestHandler], None]


class Web(Site):
    """Serves `pages`, which maps each path to HTML or to a function that handles the request."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.asked: list[str] = []
        """`METHOD path` of every request."""
        self.bodies: dict[str, bytes] = {}
        self.closing = threading.Event()
        """Set on shutdown. Responses that never end wait for it."""

    def shutdown(self) -> None:
        self.closing.set()
        super().shutdown()

    def page(self, path: str, body: str, title: str = "") -> str:
        """Serve a page, and return its address."""
        self.pages[path] = f"<!doctype html><title>{title}</title>{body}"
        return self.url(path)


def network(web: Web) -> list[str]:
    """Return the policy for browsers that reach only this server, and can share a process."""
    return [web.place, f"localhost:{web.port}"]


class _Handler(Quiet):
    protocol_version = "HTTP/1.0"
    server: Web

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        self.server.asked.append(f"{self.command} {self.path}")
        length = int(self.headers.get("content-length") or 0)
        if length:
            self.server.bodies[path] = self.rfile.read(length)
        page = self.server.pages.get(path)
        with suppress(OSError):
            if page is None:
                send(self, "<title>None</title><h1>Not found</h1>", status=404)
            elif callable(page):
                page(self)
            else:
                send(self, page)

    do_POST = do_GET


def send(
    handler: BaseHTTPRequestHandler,
    body: str | bytes,
    status: int = 200,
    type: str = "text/html; charset=utf-8",
    **headers: str,
) -> None:
    data = body.encode() if isinstance(body, str) else body
    handler.send_response(status)
    handler.send_header("content-type", type)
    handler.send_header("content-length", str(len(data)))
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(data)


BLOCKED = "const silent = new XMLHttpRequest(); silent.open('GET', '/silent', 0); silent.send();"
"""A script that never ends, like an endless loop, but takes no processor time. See `never`."""


def never(handler: BaseHTTPRequestHandler) -> None:
    """Send no answer for half a minute, or until the server ends."""
    server = handler.server
    assert isinstance(server, Web)
    server.closing.wait(30)


def redirect(to: str) -> Answer:
    return lambda handler: send(handler, b"", status=302, location=to)


def serving() -> AbstractContextManager[Web]:
    return running(Web())
