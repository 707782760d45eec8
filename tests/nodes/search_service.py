"""A local server that responds like search services."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.envs.network.ways_out import Quiet, running

JSON = {"Content-Type": "application/json"}
FOUND = [
    {"title": f"Page {at}", "url": f"https://example.com/{at}", "content": f"About {at}."}
    for at in range(4)
]
Answer = tuple[int, dict[str, str], bytes]


class Service:
    """A search service, and a record of its requests."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.answer: Answer | None = as_json({"results": FOUND})
        """None: stay silent until the client disconnects."""
        self.waiting = threading.Event()
        self.url = ""


def as_json(data: Any) -> Answer:
    return 200, JSON, json.dumps(data).encode()


@contextmanager
def serving() -> Iterator[Service]:
    service = Service()

    class Handler(Quiet):
        def respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            where = urlsplit(self.path)
            sent = json.loads(body) if body else dict(parse_qsl(where.query))
            key = self.headers.get("Authorization")
            service.asked.append({"path": where.path, "key": key, "sent": sent})
            if service.answer is None:
                service.waiting.set()
                self.rfile.read(1)
                return
            status, headers, data = service.answer
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = respond

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.url = f"http://127.0.0.1:{server.server_port}"
    with running(server):
        yield service
