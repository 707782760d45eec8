"""An MCP server over HTTP with configurable faults. It runs in a thread of the test."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.envs.network.ways_out import Quiet


class HttpServer:
    """A server with one tool, `count`, that records all requests.

    Attributes:
        requests: Method and headers of every message, in order.
        calls: Number of calls of the tool.
        refuse: HTTP status to return for every request.
        forgets: Whether it forgets each session after creating it.
        during: Called during a tool call, before the response. If it returns true, the connection
            is cut.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.calls = 0
        self.refuse = 0
        self.during: Callable[[], bool] = lambda: False
        self.forgets = False
        self.sessions: set[str] = set()
        outer = self

        class Handler(Quiet):
            def do_POST(self) -> None:
                outer.answer(self)

            def do_GET(self) -> None:
                self.send_error(405)

            do_DELETE = do_GET

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/mcp"

    def methods(self) -> list[str]:
        return [method for method, _ in self.requests]

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["content-length"]))
        message = json.loads(body)
        headers = {name.lower(): value for name, value in handler.headers.items()}
        method = message["method"]
        self.requests.append((method, headers))
        session = headers.get("mcp-session-id")
        if self.refuse:
            handler.send_error(self.refuse)
            return
        if method != "initialize" and session is not None and session not in self.sessions:
            handler.send_error(404)
            return
        if "id" not in message:
            handler.send_response(202)
            handler.send_header("content-length", "0")
            handler.end_headers()
            return
        told = self._told(method)
        if told is None:
            handler.connection.close()
            return
        text = json.dumps({"jsonrpc": "2.0", "id": message["id"], **told}).encode()
        handler.send_response(200)
        handler.send_header("content-type", "application/json")
        if method == "initialize":
            new = uuid.uuid4().hex
            if not self.forgets:
                self.sessions.add(new)
            handler.send_header("mcp-session-id", new)
        handler.send_header("content-length", str(len(text)))
        handler.end_headers()
        handler.wfile.write(text)

    def _told(self, method: str) -> dict[str, Any] | None:
        if method == "initialize":
            about = {"name": "http", "version": "1"}
            return {
                "result": {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": about,
                }
            }
        if method == "ping":
            return {"result": {}}
        if method == "tools/list":
            return {"result": {"tools": [{"name": "count", "inputSchema": {"type": "object"}}]}}
        if method == "tools/call":
            self.calls += 1
            if self.during():
                return None
            return {"result": {"content": [{"type": "text", "text": str(self.calls)}]}}
        return {"error": {"code": -32601, "message": "no such method"}}
